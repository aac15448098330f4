//! The scheduler runs batch when it is due, up to `scheduler.max_concurrent_runs` at a time, and those that can share a
//! scan of the archive as one of them. A view version runs in one process at a time, missed runs are caught up once,
//! and failed runs are retried.

use std::time::Duration;

use batch::{Batch, RunConcurrency, RunRequest, RunTime};
use catalog::{CatalogState, RunStatus, abandoned, expired_versions, versions_commit};
use committed::registry::Registry;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use types::tiles::Clock;
use types::{ErrorKind, Result};
use uuid::Uuid;

mod due;
mod due_check;
mod rebuild_states;
mod under_way;

pub use due::{Due, RunSlot};
pub(crate) use due::{due_runs, newest_runs};
pub use due_check::DueCheck;
pub use rebuild_states::Tried;

use due::{RunUnderWay, has_extra_place, may_recompute_beside, to_begin};
use rebuild_states::rebuild_states;
use under_way::RunsUnderWay;

/// How often the catalog is checked for due runs.
const LOOK: Duration = Duration::from_secs(1);
/// Where there is one place for runs, and one in it recomputes beside others of its version, those have this part of
/// the memory.
const PART_OF_OTHERS: usize = 4;
/// After a stop is asked for, a run in progress may take this long to finish. Then it is given up, and is due again.
const RUN_FINISHES_WITHIN: Duration = Duration::from_secs(5);

/// The scheduler of one process. Several may run: a lease per view version ensures that only one of them runs it.
pub struct Scheduler {
    pub batch: Batch,
    pub clock: Clock,
    /// Whether runs prune as of the streams' event time, instead of the wall clock.
    pub event_clock: bool,
    /// The most runs of this process at a time.
    pub max_concurrent_runs: usize,
    /// The damaged files that it tried to rebuild.
    pub tried: Tried,
    /// Whether it can look for due runs.
    pub due_check: DueCheck,
}

impl Scheduler {
    /// Runs what is due until `stop` is cancelled; runs in progress have some seconds to finish.
    pub async fn run(&self, stop: CancellationToken) -> Result<()> {
        let mut registry: Option<Registry> = None;
        let mut under_way = RunsUnderWay::default();
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if let Err(error) = self.begin_due(&mut registry, &mut under_way, &stop).await {
                warn!(%error, "the scheduler could not look for due runs; trying again");
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => {
                    under_way.ended_all().await;
                    return Ok(());
                }
                // A place is free: the queue's next run begins at once.
                () = under_way.ended(), if !under_way.is_empty() => {}
                _ = look.tick() => under_way.forget_begun(),
            }
        }
    }

    /// Runs what is due, each view version once, until nothing is due or under way. After each run the next one is
    /// chosen again: another process may have done the rest meanwhile.
    pub async fn round(&self, registry: &mut Option<Registry>, stop: &CancellationToken) -> Result<()> {
        let mut under_way = RunsUnderWay::default();
        loop {
            let looked = self.begin_due(registry, &mut under_way, stop).await;
            if under_way.is_empty() || looked.is_err() {
                under_way.ended_all().await;
                return looked;
            }
            under_way.ended().await;
        }
    }

    /// Begins the runs that are due and have a place. Of one view version, one run between two looks: a run that ended
    /// at once, such as one that another process has, is not begun again and again.
    async fn begin_due(&self, registry: &mut Option<Registry>, under_way: &mut RunsUnderWay, stop: &CancellationToken) -> Result<()> {
        // Reading a large catalog may take long. It can be dropped at any point: each write is one transaction, and the
        // next round does what is left.
        let looked = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            looked = self.find_due(registry, under_way, stop) => looked,
        };
        self.due_check.note(&looked);
        let mut queue = looked?;
        queue.retain(|due| !under_way.has(due));
        let fresh: Vec<Due> = queue.iter().filter(|due| !under_way.has_begun(due)).cloned().collect();
        let begin = to_begin(&fresh, under_way.runs(), self.max_concurrent_runs).into_iter();
        let begin: Vec<Vec<Due>> = begin.map(|together| together.into_iter().cloned().collect()).collect();
        let count: usize = begin.iter().map(Vec::len).sum();
        metrics::gauge!("basestream_batch_runs_queued").set(queue.len().saturating_sub(count) as f64);
        for together in begin {
            let leaves_full_every = !may_recompute_beside(under_way.runs(), self.max_concurrent_runs);
            let is_extra = has_extra_place(under_way.runs(), self.max_concurrent_runs);
            let slot = under_way.new_place();
            for (batch, due) in self.layers(&together, is_extra).into_iter().zip(together) {
                let concurrency = RunConcurrency { memory_limit_bytes: self.concurrent_memory(&batch), ..RunConcurrency::default() };
                let run = RunUnderWay { slot, due: due.clone(), is_concurrent: concurrency.is_concurrent.clone() };
                let t = if self.event_clock { RunTime::EventClock } else { RunTime::At((self.clock)()) };
                let request = RunRequest {
                    version: Some(due.version),
                    requested: due.requested,
                    scheduled_for: due.scheduled_for,
                    attempt: due.attempt,
                    leaves_full_every,
                    concurrency,
                    ..RunRequest::new(due.view, t)
                };
                under_way.begin(run, run_one(batch, self.clock.clone(), request, due.reason, stop.clone()));
            }
        }
        Ok(())
    }

    /// All places have the same part of the memory, and what is rebuilt beside them no more.
    fn batch_of_a_place(&self) -> Batch {
        let mut of_place = self.batch.clone();
        of_place.settings.memory_limit_bytes /= self.max_concurrent_runs.max(1);
        of_place
    }

    /// The memory of a run that recomputes beside others. Where there is one place, they have the rest of it.
    fn concurrent_memory(&self, batch: &Batch) -> Option<usize> {
        (self.max_concurrent_runs <= 1).then(|| batch.settings.memory_limit_bytes - batch.settings.memory_limit_bytes / PART_OF_OTHERS)
    }

    /// The batch layer for each of the runs that begin at one place.
    fn layers(&self, together: &[Due], is_extra: bool) -> Vec<Batch> {
        let mut of_place = self.batch_of_a_place();
        if is_extra {
            of_place.settings.memory_limit_bytes /= PART_OF_OTHERS;
        }
        match together.first().and_then(|due| due.scans.as_ref()) {
            Some(stream) if together.len() > 1 => of_place.sharing_scan(stream, together.len()),
            _ => vec![of_place],
        }
    }

    /// Returns the runs that are due. On the way it retires versions that were kept long enough, closes runs whose
    /// process died, and begins to rebuild damaged states.
    async fn find_due(&self, registry: &mut Option<Registry>, under_way: &mut RunsUnderWay, stop: &CancellationToken) -> Result<Vec<Due>> {
        let mut state = self.batch.catalog.state().await?;
        if self.retire_expired(&state).await? {
            state = self.batch.catalog.state().await?;
        }
        if registry.as_ref().is_none_or(|registry| registry.has_other_definitions(&state)) {
            *registry = Some(Registry::load(&state, &self.batch.functions).await?);
        }
        self.close_abandoned(&state).await?;
        self.batch.copies.release_retired(&state);
        let now = (self.clock)();
        if let Some(registry) = registry
            && !under_way.is_rebuilding()
        {
            let damaged = self.tried.due(&state, now);
            if !damaged.is_empty() {
                under_way.begin_rebuilding(rebuild_states(self.batch_of_a_place(), state.clone(), registry.clone(), damaged, stop.clone()));
            }
        }
        Ok(registry.as_ref().map(|registry| due_runs(&state, registry, now)).unwrap_or_default())
    }

    /// Retires versions that were kept long enough; the collector deletes their files. Returns whether there were any.
    async fn retire_expired(&self, state: &CatalogState) -> Result<bool> {
        let expired = expired_versions(state, (self.clock)());
        if expired.is_empty() {
            return Ok(false);
        }
        match self.batch.catalog.commit_with_retry(versions_commit(state, Uuid::now_v7(), expired.clone())).await {
            Ok(_) => {
                for record in expired {
                    info!(view = %record.name, version = record.version, "a replaced version was kept long enough and is retired");
                }
                Ok(true)
            }
            // Something else was committed meanwhile: the next round tries again.
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Closes the records of runs whose process died: their lease is gone, and their pin would keep files for ever.
    async fn close_abandoned(&self, state: &CatalogState) -> Result<()> {
        let is_dead = |owner: &str| self.batch.catalog.is_dead(owner);
        for (run, commit) in abandoned(state, Uuid::now_v7, (self.clock)(), is_dead) {
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

async fn run_one(batch: Batch, clock: Clock, request: RunRequest, reason: &'static str, stop: CancellationToken) {
    let (view, attempt) = (request.view.clone(), request.attempt);
    info!(%view, attempt, reason, "run is due");
    let given_up = async {
        stop.cancelled().await;
        tokio::time::sleep(RUN_FINISHES_WITHIN).await;
    };
    match batch.run_until(request, clock, &|_| {}, given_up).await {
        Ok(run) if run.status == RunStatus::Skipped => info!(view = %run.view, run = %run.id, "run skipped: nothing is new"),
        Ok(run) => info!(view = %run.view, run = %run.id, events = run.events_read, rows = run.rows_written, "run succeeded"),
        Err(error) if error.kind() == ErrorKind::Conflict => {
            info!(%view, %error, "the run was not published: another process has it, or it is out of date")
        }
        Err(error) => warn!(%view, attempt, %error, "run failed"),
    }
}
