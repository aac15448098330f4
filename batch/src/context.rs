//! The context that every step of a run needs, and the run's record while it is under way.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use catalog::{Add, Catalog, CatalogState, Commit, Expect, RunDraft, RunRecord};
use tracing::warn;
use types::tiles::Clock;
use types::{ErrorKind, Result, Strategy};
use uuid::Uuid;

use crate::lease::locked;
use crate::memory::Resident;
use crate::progress::EventsRead;
use crate::run_leases::{LOOK, RunLeases};

/// The context of every step of a run.
pub(crate) struct RunContext<'a> {
    pub(crate) leases: &'a RunLeases,
    pub(crate) clock: &'a Clock,
    /// Called with the number of rows written so far; while a replay reads, with the number of events read.
    pub(crate) progress: &'a (dyn Fn(i64) + Send + Sync),
    pub(crate) events_read: &'a EventsRead,
    pub(crate) resident: &'a Resident,
    /// Whether the new snapshot is complete, and only needs to be compared and published.
    pub(crate) made: AtomicBool,
    /// How the run makes its snapshot, once that is decided.
    pub(crate) strategy: Mutex<Option<Strategy>>,
    /// The draft that the run has saved.
    pub(crate) draft: Mutex<Option<RunDraft>>,
    /// Held while the run's record is stored, so that a later report is stored last.
    pub(crate) recording: tokio::sync::Mutex<()>,
}

impl RunContext<'_> {
    /// Notes how the run makes its snapshot, for the reports of its progress.
    pub(crate) fn note_strategy(&self, strategy: Strategy) {
        *locked(&self.strategy) = Some(strategy);
    }

    pub(crate) fn note_draft(&self, draft: Option<RunDraft>) {
        *locked(&self.draft) = draft;
    }

    /// The run's record, with what it has read and saved so far.
    pub(crate) fn so_far(&self, run: &RunRecord) -> RunRecord {
        RunRecord {
            events_read: self.events_read.count(),
            strategy: *locked(&self.strategy),
            draft: locked(&self.draft).clone(),
            beside: self.leases.is_concurrent(),
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

    /// Lets other runs of the version continue while this one recomputes under the lease for that.
    pub(crate) async fn step_aside(&self, catalog: &Catalog, run: &RunRecord) -> Result<()> {
        let recording = self.recording.lock().await;
        let mut expect = self.leases.expect_all((self.clock)());
        expect.push(Expect::Running { run: run.id });
        let aside = RunRecord { beside: true, ..self.so_far(run) };
        let commit = Commit { id: Uuid::now_v7(), expect, add: vec![Add::Run(aside)], ..Commit::default() };
        catalog.commit_with_retry(commit).await?;
        let held = self.leases.take_run();
        drop(recording);
        if let Some(held) = held {
            self.leases.release_lease(held).await;
        }
        Ok(())
    }

    /// Waits until no other run of the version is under way, and pins the catalog state of that moment.
    pub(crate) async fn step_in(&self, catalog: &Catalog, run: &RunRecord) -> Result<(Arc<CatalogState>, RunRecord)> {
        let held = self.leases.acquire_run_again().await?;
        let _recording = self.recording.lock().await;
        self.leases.put_run(held);
        // A catalog that does not answer for longer costs the run its leases.
        loop {
            match catalog.begin_run(self.so_far(run), self.leases.expect_all((self.clock)())).await {
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    warn!(view = %run.view, run = %run.id, %error, "a run could not go on under its version's lease; trying again")
                }
                begun => return begun,
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}
