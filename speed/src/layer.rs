//! The speed layer of one process: its services and settings.

use std::sync::Arc;
use std::time::Duration;

use catalog::Catalog;
use engine::fresh::Fresh;
use engine::functions::Functions;
use event_log::Log;
use storage::ObjectStorage;
use types::Result;
use types::tiles::Clock;

use crate::progress::WorkerProgress;
use crate::registration::Registration;
use crate::released::ProcessIds;
use crate::sinks::EventSinks;
use crate::writers::CheckpointWriters;

/// The settings of one worker.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// The name of this worker, unique in its group.
    pub worker: String,
    /// The consumer group.
    pub group: String,
    pub checkpoint_interval: Duration,
    pub checkpoint_bytes: usize,
    /// Fresh layers that have more state rows together are merged on another thread.
    pub merged_beside_rows: usize,
    /// How far an event may be dated after its partition's clock.
    pub max_future: Duration,
    /// Partitions of a topic that is created because it does not exist.
    pub partitions: u32,
    /// Continue after offsets that the log no longer has, and record them as lost.
    pub accept_gap: bool,
}

/// The speed layer of one process.
#[derive(Clone)]
pub struct Speed {
    pub catalog: Catalog,
    pub storage: ObjectStorage,
    pub log: Arc<dyn Log>,
    pub functions: Functions,
    /// The fresh layers that nodes read, in this process or in others.
    pub fresh: Option<Fresh>,
    /// The sinks that make records of accepted events, if this process runs them.
    pub sinks: Option<Arc<dyn EventSinks>>,
    /// The registration by which nodes of other processes find the layers, if they are offered.
    pub registration: Option<Registration>,
    /// The remembered ids, which the workers of a process share.
    pub ids: ProcessIds,
    /// The turns for writing checkpoints, which the workers share as well.
    pub writers: CheckpointWriters,
    pub settings: WorkerSettings,
    pub clock: Clock,
    /// What the worker is doing, for its observers.
    pub progress: WorkerProgress,
}

impl Speed {
    /// Notes whether its work can be committed, for its observers and for the node of this process.
    pub(crate) fn note<T>(&self, outcome: &Result<T>) {
        self.progress.note(outcome);
        if let Some(fresh) = &self.fresh {
            fresh.note(outcome);
        }
    }
}
