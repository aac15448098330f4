//! The scheduler runs batch when it is due. A view runs in one process at a time, missed runs are caught up once, and
//! failed runs are retried.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use batch::{Batch, RunRequest, RunTime};
use catalog::{CatalogState, RunRecord, RunStatus, abandoned};
use committed::registry::Registry;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use types::tiles::{Clock, Micros};
use types::{ErrorKind, Result};
use uuid::Uuid;

mod due;
mod looks;
mod rebuild_states;

pub use due::{Due, due_runs};
pub use looks::Looks;
pub use rebuild_states::{Tried, rebuildable};

/// How often the catalog is checked for due runs.
const LOOK: Duration = Duration::from_secs(1);
/// After a stop is asked for, a run in progress may take this long to finish. Then it is given up, and is due again.
const RUN_FINISHES_WITHIN: Duration = Duration::from_secs(5);

/// The scheduler of one process. Several may run: a lease per view ensures that only one of them runs it.
pub struct Scheduler {
    pub batch: Batch,
    pub clock: Clock,
    /// Whether runs prune as of the streams' event time, instead of the wall clock.
    pub event_clock: bool,
    /// The damaged files that it tried to rebuild.
    pub tried: Tried,
    /// Whether it can look for due runs.
    pub looks: Looks,
}

impl Scheduler {
    /// Runs what is due until `stop` is cancelled; a run in progress has some seconds to finish.
    pub async fn run(&self, stop: CancellationToken) -> Result<()> {
        let mut registry: Option<Registry> = None;
        loop {
            if let Err(error) = self.round(&mut registry, &stop).await {
                warn!(%error, "the scheduler could not look for due runs; trying again");
            }
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Runs what is due, one run at a time and each view version once. After each run the next one is chosen again:
    /// another process may have done the rest meanwhile.
    pub async fn round(&self, registry: &mut Option<Registry>, stop: &CancellationToken) -> Result<()> {
        let mut had = BTreeSet::new();
        loop {
            // Reading a large catalog may take long. It can be dropped at any point: each write is one transaction, and the next
            // round does what is left.
            let looked = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                looked = self.look(registry) => looked,
            };
            self.looks.note(&looked);
            let due = looked?.into_iter().find(|due| had.insert((due.view.clone(), due.version)));
            match due {
                Some(due) => self.run_one(due, stop).await,
                None => return Ok(()),
            }
        }
    }

    /// Returns the runs that are due. On the way it closes runs whose process died, and rebuilds damaged states.
    async fn look(&self, registry: &mut Option<Registry>) -> Result<Vec<Due>> {
        let state = self.batch.catalog.state().await?;
        if registry.as_ref().is_none_or(|registry| registry.is_stale(&state)) {
            *registry = Some(Registry::load(&state, &self.batch.functions).await?);
        }
        self.close_abandoned(&state).await?;
        self.batch.copies.release_retired(&state);
        let now = (self.clock)();
        if let Some(registry) = registry {
            self.tried.rebuild_states(&self.batch, &state, registry, now).await;
        }
        Ok(registry.as_ref().map(|registry| due_runs(&state, registry, now)).unwrap_or_default())
    }

    async fn run_one(&self, due: Due, stop: &CancellationToken) {
        let t = if self.event_clock { RunTime::EventClock } else { RunTime::At((self.clock)()) };
        info!(view = %due.view, attempt = due.attempt, reason = due.reason, "run is due");
        let request = RunRequest {
            view: due.view.clone(),
            version: Some(due.version),
            requested: due.requested,
            scheduled_for: due.scheduled_for,
            attempt: due.attempt,
            t,
            full: false,
        };
        let given_up = async {
            stop.cancelled().await;
            tokio::time::sleep(RUN_FINISHES_WITHIN).await;
        };
        match self.batch.run_until(request, self.clock.clone(), &|_| {}, given_up).await {
            Ok(run) if run.status == RunStatus::Skipped => info!(view = %run.view, run = %run.id, "run skipped: nothing is new"),
            Ok(run) => info!(view = %run.view, run = %run.id, events = run.events_read, rows = run.rows_written, "run succeeded"),
            Err(error) if error.kind() == ErrorKind::Conflict => {
                info!(view = %due.view, %error, "the run was not published: another process has it, or its version was dropped")
            }
            Err(error) => warn!(view = %due.view, attempt = due.attempt, %error, "run failed"),
        }
    }

    /// Closes the records of runs whose process died: their lease is gone, and their pin would keep files for ever.
    async fn close_abandoned(&self, state: &CatalogState) -> Result<()> {
        for (run, commit) in abandoned(state, Uuid::now_v7, (self.clock)()) {
            match self.batch.catalog.commit_with_retry(commit).await {
                Ok(_) => warn!(view = %run.view, run = %run.id, "the process of a run died; the run is closed as failed"),
                // Something else was committed meanwhile, perhaps by the run's owner: the next round checks again.
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Returns the newest run of each view version.
pub(crate) fn newest_runs(state: &CatalogState) -> BTreeMap<(Arc<str>, u32), &RunRecord> {
    let mut newest: BTreeMap<(Arc<str>, u32), &RunRecord> = BTreeMap::new();
    for run in state.runs.iter().filter(|run| run.started_at.is_some()) {
        let known = newest.entry((run.view.clone(), run.version)).or_insert(run);
        if run.started_at > known.started_at {
            *known = run;
        }
    }
    newest
}

/// Converts a catalog time to a calendar time.
pub(crate) fn date(time: Micros) -> chrono::DateTime<chrono::Utc> {
    chrono::DateTime::from_timestamp_micros(time).unwrap_or_default()
}
