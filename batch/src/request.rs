//! The parameters of a run.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use catalog::RunRecord;
use types::tiles::Micros;

use crate::decide::RunTime;
use crate::mode::RunMode;

/// The parameters of a run.
#[derive(Debug, Clone)]
pub struct RunRequest {
    pub view: Arc<str>,
    /// The version to recompute. If absent: the version being built, or else the served one.
    pub version: Option<u32>,
    /// A record that waits in the catalog as requested. If absent, a new record is created.
    pub requested: Option<RunRecord>,
    pub scheduled_for: Option<Micros>,
    pub attempt: u32,
    /// The view's time `t`: windows are pruned as of it.
    pub t: RunTime,
    pub mode: RunMode,
    /// Whether a recomputation or a replay is compared with the states that incremental runs had kept.
    pub compare: bool,
    /// Whether a recomputation that is due by `full_every` is left to a later run.
    pub leaves_full_every: bool,
    pub concurrency: RunConcurrency,
}

/// How a recomputation runs while other runs of its version continue.
#[derive(Debug, Clone, Default)]
pub struct RunConcurrency {
    /// The most memory that it takes meanwhile: less than the settings allow, so that the others have the rest.
    pub memory_limit_bytes: Option<usize>,
    /// Whether other runs of the version may run now. The run sets it.
    pub is_concurrent: Arc<AtomicBool>,
}

impl RunRequest {
    /// A run of a view as its definition says.
    pub fn new(view: impl Into<Arc<str>>, t: RunTime) -> RunRequest {
        RunRequest {
            view: view.into(),
            version: None,
            requested: None,
            scheduled_for: None,
            attempt: 1,
            t,
            mode: RunMode::ByStrategy,
            compare: true,
            leaves_full_every: false,
            concurrency: RunConcurrency::default(),
        }
    }
}
