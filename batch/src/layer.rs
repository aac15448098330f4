//! The batch layer of one process: what all its runs share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use catalog::{Add, Catalog, CatalogState, Commit, Expect, RunDraft, RunRecord};
use engine::functions::Functions;
use storage::ObjectStorage;
use types::Strategy;
use types::tiles::Clock;
use types::{Error, Result};
use uuid::Uuid;

use crate::events::ReplayLog;
use crate::join::LocalCopies;
use crate::memory::Resident;
use crate::progress::EventsRead;
use crate::run_leases::{NamesHeld, RunLeases};
use crate::shared_scan::SharedScan;

/// The batch layer of one process.
#[derive(Clone)]
pub struct Batch {
    pub catalog: Catalog,
    pub storage: ObjectStorage,
    /// From which states are replayed.
    pub log: Arc<dyn ReplayLog>,
    pub functions: Functions,
    pub settings: RunSettings,
    /// Identifies this process in leases.
    pub worker: String,
    /// What runs of linked views leave to the next ones.
    pub copies: LocalCopies,
    /// The place of the next run in a scan of the archive that several share.
    pub(crate) shared_scan: SharedScan,
    /// The leases that runs of this process exclude each other by.
    pub(crate) lease_names_held: NamesHeld,
}

impl Batch {
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
            lease_names_held: NamesHeld::default(),
        }
    }

    /// The same layer, whose runs begin with these copies.
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
    /// The limit for the memory that DataFusion's operators reserve, in bytes. What does not fit is spilled.
    pub memory_limit_bytes: usize,
    /// The number of cores that a run uses.
    pub threads: usize,
    /// The folder for spilled data; the system's temporary folder if absent.
    pub temp_dir: Option<PathBuf>,
    /// How long a run's lease is valid without being renewed.
    pub lease: Duration,
    /// How often a run's progress is recorded, at most: every serving node looks at the catalog then. [`REPORT_EVERY`]
    /// outside of tests.
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

/// What every step of a run needs.
pub(crate) struct RunContext<'a> {
    pub(crate) leases: &'a RunLeases,
    /// Where it is told whether the run recomputes beside others.
    pub(crate) beside: &'a AtomicBool,
    pub(crate) clock: &'a Clock,
    /// Called with the number of rows written so far; while a replay reads, with the number of events read.
    pub(crate) progress: &'a (dyn Fn(i64) + Send + Sync),
    pub(crate) events_read: &'a EventsRead,
    pub(crate) resident: &'a Resident,
    /// Whether the new snapshot is made, and only left to be compared and published.
    pub(crate) made: AtomicBool,
    /// How the run makes its snapshot, once that is decided.
    pub(crate) strategy: Mutex<Option<Strategy>>,
    /// What it has saved.
    pub(crate) draft: Mutex<Option<RunDraft>>,
    /// Held while the run's record is stored: what is stored later says more.
    pub(crate) recording: tokio::sync::Mutex<()>,
}

impl RunContext<'_> {
    /// Notes how the run makes its snapshot, for the reports of its progress.
    pub(crate) fn note_strategy(&self, strategy: Strategy) {
        *self.strategy.lock().unwrap_or_else(PoisonError::into_inner) = Some(strategy);
    }

    pub(crate) fn note_draft(&self, draft: Option<RunDraft>) {
        *self.draft.lock().unwrap_or_else(PoisonError::into_inner) = draft;
    }

    /// The run's record, with what it has read and saved so far.
    pub(crate) fn so_far(&self, run: &RunRecord) -> RunRecord {
        RunRecord {
            events_read: self.events_read.count(),
            strategy: *self.strategy.lock().unwrap_or_else(PoisonError::into_inner),
            draft: self.draft.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            beside: self.leases.is_beside(),
            ..run.clone()
        }
    }

    /// Stores what the run has read and saved so far.
    pub(crate) async fn record_progress(&self, catalog: &Catalog, run: &RunRecord) -> Result<()> {
        let _recording = self.recording.lock().await;
        let expect = vec![self.leases.expect((self.clock)())?, Expect::Running { run: run.id }];
        let commit = Commit { id: Uuid::now_v7(), expect, add: vec![Add::Run(self.so_far(run))], ..Commit::default() };
        catalog.commit_with_retry(commit).await.map(drop)
    }

    /// Lets other runs of the version go on while this one recomputes. False if another one does so already.
    pub(crate) async fn step_aside(&self, catalog: &Catalog, run: &RunRecord) -> Result<bool> {
        if !self.leases.acquire_recompute().await? {
            return Ok(false);
        }
        let recording = self.recording.lock().await;
        let held = self.leases.take_run().ok_or_else(|| Error::internal("a run without its lease"))?;
        let now = (self.clock)();
        let expect = vec![held.expect(now), self.leases.expect(now)?, Expect::Running { run: run.id }];
        let commit = Commit { id: Uuid::now_v7(), expect, add: vec![Add::Run(self.so_far(run))], ..Commit::default() };
        if let Err(error) = catalog.commit_with_retry(commit).await {
            self.leases.put_run(held);
            return Err(error);
        }
        self.beside.store(true, Ordering::SeqCst);
        drop(recording);
        self.leases.release_lease(held).await;
        Ok(true)
    }

    /// Waits until no other run of the version is under way, and pins the catalog state of then.
    pub(crate) async fn step_in(&self, catalog: &Catalog, run: &RunRecord) -> Result<(Arc<CatalogState>, RunRecord)> {
        let held = self.leases.acquire_run_again().await?;
        let _recording = self.recording.lock().await;
        self.leases.put_run(held);
        self.beside.store(false, Ordering::SeqCst);
        let now = (self.clock)();
        let expect = [self.leases.expect(now)?].into_iter().chain(self.leases.expect_recompute(now)).collect();
        catalog.begin_run(self.so_far(run), expect).await
    }
}
