//! The batch layer of one process: what its runs share.

use std::path::PathBuf;
use std::time::Duration;

use catalog::Catalog;
use engine::functions::Functions;
use storage::ObjectStorage;
use types::tiles::Clock;

use crate::lease::KeepLease;

/// The batch layer of one process.
#[derive(Clone)]
pub struct Batch {
    pub catalog: Catalog,
    pub storage: ObjectStorage,
    pub functions: Functions,
    pub settings: BatchSettings,
    /// Names this process in leases.
    pub worker: String,
}

/// How runs are carried out.
#[derive(Debug, Clone)]
pub struct BatchSettings {
    /// Reservations of DataFusion's operators stay under this many bytes; what does not fit is spilled.
    pub memory_limit_bytes: usize,
    /// Cores that a run keeps busy.
    pub threads: usize,
    /// Where spilled data goes; the system's temporary folder when absent.
    pub temp_dir: Option<PathBuf>,
    /// How long a run's lease lives without being renewed.
    pub lease: Duration,
    /// A snapshot has a bucket for about this many events, at most 256: [`EVENTS_PER_BUCKET`] outside of tests.
    pub events_per_bucket: u64,
}

pub const EVENTS_PER_BUCKET: u64 = 500_000;

impl BatchSettings {
    /// Never zero.
    pub(crate) fn thread_count(&self) -> usize {
        self.threads.max(1)
    }
}

/// What every step of a run has at hand.
pub(crate) struct RunContext<'a> {
    pub(crate) lease: &'a KeepLease,
    pub(crate) clock: &'a Clock,
    /// Called with the number of rows written so far.
    pub(crate) progress: &'a (dyn Fn(i64) + Send + Sync),
}
