//! The batch layer of one process: what all its runs share.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use catalog::Catalog;
use engine::functions::Functions;
use storage::ObjectStorage;

use crate::events::ReplayLog;
use crate::join::LocalCopies;
use crate::shared_scan::SharedScan;

/// The batch layer of one process.
#[derive(Clone)]
pub struct Batch {
    pub catalog: Catalog,
    pub storage: ObjectStorage,
    /// The log from which states are replayed.
    pub log: Arc<dyn ReplayLog>,
    pub functions: Functions,
    pub settings: RunSettings,
    /// Identifies this process in leases.
    pub worker: String,
    /// The copies of edges that runs of linked views leave to the next ones.
    pub copies: LocalCopies,
    /// The place of the next run in a scan of the archive that several share.
    pub(crate) shared_scan: SharedScan,
}

impl Batch {
    /// Creates the layer. `worker` identifies this process in leases.
    pub fn new(
        catalog: Catalog,
        storage: ObjectStorage,
        log: Arc<dyn ReplayLog>,
        functions: Functions,
        settings: RunSettings,
        worker: impl Into<String>,
    ) -> Batch {
        Batch {
            catalog,
            storage,
            log,
            functions,
            settings,
            worker: worker.into(),
            copies: LocalCopies::default(),
            shared_scan: SharedScan::default(),
        }
    }

    /// Returns the same layer with these copies.
    pub fn with_copies(self, copies: LocalCopies) -> Batch {
        Batch { copies, ..self }
    }

    /// Returns the layer for each of several runs that are made at the same time under one memory limit. Those that
    /// recompute from this stream's archive share a scan of it.
    pub fn sharing_scan(&self, stream: &Arc<str>, runs: usize) -> Vec<Batch> {
        let memory_limit_bytes = self.settings.memory_limit_bytes / runs.max(1);
        let settings = RunSettings { memory_limit_bytes, ..self.settings.clone() };
        let layer = |shared_scan| Batch { settings: settings.clone(), shared_scan, ..self.clone() };
        SharedScan::for_runs(stream, runs).into_iter().map(layer).collect()
    }
}

/// Settings of batch runs.
#[derive(Debug, Clone)]
pub struct RunSettings {
    /// The limit for the memory that DataFusion's operators reserve, in bytes. Data that does not fit is spilled.
    pub memory_limit_bytes: usize,
    /// The number of cores that a run uses.
    pub threads: usize,
    /// The folder for spilled data; the system's temporary folder if absent.
    pub temp_dir: Option<PathBuf>,
    /// How long a run's lease is valid without being renewed.
    pub lease: Duration,
    /// How often a run's progress is recorded, at most: each time every serving node reads the catalog.
    /// [`REPORT_EVERY`] outside of tests.
    pub report_every: Duration,
    /// A snapshot has one bucket for about this many events, at most 256 buckets: [`EVENTS_PER_BUCKET`] outside of
    /// tests.
    pub events_per_bucket: u64,
    /// A recomputation reads the archive in slices of about this many events, and saves what it has after each.
    pub events_per_slice: u64,
}

pub const EVENTS_PER_BUCKET: u64 = 500_000;
pub const REPORT_EVERY: Duration = Duration::from_secs(5);

impl RunSettings {
    /// Never zero.
    pub(crate) fn thread_count(&self) -> usize {
        self.threads.max(1)
    }
}
