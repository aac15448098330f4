//! One batch run: acquires a lease, begins a record, makes the attempt, and closes the record however the attempt ends.

use std::convert::Infallible;
use std::future::Future;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use catalog::{CatalogState, DefinitionKind, RunRecord, RunStatus, dropped_commit, failure_commit};
use committed::damage::{Finder, report_damage, with_help};
use engine::fresh::ViewVersion;
use tracing::{info, warn};
use types::tiles::{Clock, Micros};
use types::vector::Vector;
use types::{Error, ErrorKind, Result, failpoint};
use uuid::Uuid;

use crate::attempt::refuse_second_recomputation;
use crate::context::RunContext;
use crate::decide::version_to_run;
use crate::layer::Batch;
use crate::limits::RunLimits;
use crate::memory::Resident;
use crate::mode::RunMode;
use crate::progress::EventsRead;
use crate::request::RunRequest;
use crate::run_leases::RunLeases;
use crate::snapshot::make_snapshot;

impl Batch {
    /// Runs one view and returns the record of the run: succeeded, or skipped if there is nothing new.
    ///
    /// Errors: `Conflict` if another process is running this version of the view, or already recomputes it when this
    /// run is asked to recompute.
    pub async fn run(&self, request: RunRequest, clock: Clock, progress: &(dyn Fn(i64) + Send + Sync)) -> Result<RunRecord> {
        self.run_until(request, clock, progress, std::future::pending()).await
    }

    /// The same, but the run is given up when `given_up` resolves: it is recorded as failed, and its lease is released,
    /// so that any process may run the view again at once.
    ///
    /// Errors, in addition to those of [`Batch::run`]: `Unavailable` if it was given up.
    pub async fn run_until(
        &self,
        request: RunRequest,
        clock: Clock,
        progress: &(dyn Fn(i64) + Send + Sync),
        given_up: impl Future<Output = ()> + Send,
    ) -> Result<RunRecord> {
        let (version, pin) = self.version_and_pin(&request).await?;
        let (view_version, is_concurrent) = (ViewVersion::new(request.view.clone(), version), request.concurrency.is_concurrent.clone());
        let Some(leases) = RunLeases::acquire(self, view_version, &clock, pin, is_concurrent).await? else {
            return Err(Error::conflict(format!("version {version} of the view \"{}\" is being run already", request.view)));
        };
        failpoint::hit("run.leased")?;
        if let Err(refused) = Box::pin(refuse_second_recomputation(self, &request, version, &leases)).await {
            leases.release().await;
            return Err(refused);
        }
        let under_way = UnderWay::begin(&request.view);
        // Boxed, like the attempt: the future is large, and would take that much of the stack in every caller.
        let outcome = Box::pin(self.recorded(
            &request,
            version,
            &RunContext {
                leases: &leases,
                clock: &clock,
                progress,
                events_read: &EventsRead::default(),
                resident: &Resident::default(),
                made: AtomicBool::default(),
                strategy: Mutex::default(),
                draft: Mutex::default(),
                recording: tokio::sync::Mutex::default(),
            },
            given_up,
        ))
        .await;
        drop(under_way);
        leases.release().await;
        outcome
    }

    /// Returns the version to run, and what its lease pins: for a replay, everything that it reads. Any other run reads
    /// files that its own cut and the earlier snapshots keep.
    async fn version_and_pin(&self, request: &RunRequest) -> Result<(u32, Option<Vector>)> {
        let is_replay = matches!(request.mode, RunMode::Replay(_));
        if let Some(version) = request.version.filter(|_| !is_replay) {
            return Ok((version, None));
        }
        let state = self.catalog.state().await?;
        let version = request.version.map_or_else(|| version_to_run(&state, &request.view), Ok)?;
        match is_replay {
            true => Ok((version, Some(self.replay_pin(&state, &request.view, version, request.t).await?))),
            false => Ok((version, None)),
        }
    }

    /// Begins a record, attempts the run, and closes the record as succeeded, failed or dropped.
    async fn recorded(
        &self,
        request: &RunRequest,
        version: u32,
        context: &RunContext<'_>,
        given_up: impl Future<Output = ()> + Send,
    ) -> Result<RunRecord> {
        let (state, run) = self.begin(request, version, context).await?;
        let limits = RunLimits::from_definition(&state, &run, request.mode);
        let limited = limits.applied_to(self);
        // What is dropped in the middle has published nothing, or all: the record of a run that has ended stays.
        let outcome = tokio::select! {
            outcome = Box::pin(make_snapshot(&limited, &state, run.clone(), request, context)) => outcome,
            never = context.resident.watch() => match never {},
            never = self.report_progress(&run, context) => match never {},
            () = given_up => Err(Error::unavailable("the run was given up because its process stops; it is due again")),
            error = limits.time_out(&context.made) => Err(error),
        };
        match outcome {
            Ok(run) => Ok(run),
            Err(error) => {
                let error = limits.with_help(with_help(error), &self.settings);
                match self.is_dropped(&run).await {
                    true => self.close_as_dropped(run, context).await,
                    false => self.close_as_failed(&state, run, &error, context).await,
                }
                Err(error)
            }
        }
    }

    /// Records that the run begins, and pins the catalog state that it reads.
    async fn begin(&self, request: &RunRequest, version: u32, context: &RunContext<'_>) -> Result<(Arc<CatalogState>, RunRecord)> {
        let now = (context.clock)();
        let run = new_record(request, version, now);
        let expect = vec![context.leases.expect(now)?];
        let (state, run) = self.catalog.begin_run(run, expect).await?;
        info!(view = %run.view, version = run.version, run = %run.id, "run begins");
        failpoint::hit("run.begun")?;
        Ok((state, run))
    }

    /// Records how many events the run has read, by which strategy, and what it has saved, until it is dropped. The
    /// record of a run that ended stays as it is.
    async fn report_progress(&self, run: &RunRecord, context: &RunContext<'_>) -> Infallible {
        let mut reported = 0;
        loop {
            tokio::time::sleep(self.settings.report_every).await;
            let events_read = context.events_read.count();
            if events_read == reported {
                continue;
            }
            match context.record_progress(&self.catalog, run).await {
                Ok(()) => reported = events_read,
                Err(error) if error.kind() == ErrorKind::Conflict => std::future::pending().await,
                Err(error) => warn!(view = %run.view, run = %run.id, %error, "the progress of a run was not recorded; trying again"),
            }
        }
    }

    /// Whether the run's version was dropped while it ran; false if that cannot be known.
    async fn is_dropped(&self, run: &RunRecord) -> bool {
        let is_live =
            |state: Arc<CatalogState>| state.live(DefinitionKind::View).any(|view| view.name == run.view && view.version == run.version);
        self.catalog.state().await.is_ok_and(|state| !is_live(state))
    }

    async fn close_as_dropped(&self, run: RunRecord, context: &RunContext<'_>) {
        metrics::counter!("basestream_batch_runs_total", "view" => run.view.to_string(), "outcome" => "dropped").increment(1);
        info!(view = %run.view, version = run.version, run = %run.id, "the run ended: its version was dropped while it was built");
        let commit = dropped_commit(Uuid::now_v7(), context.so_far(&run), &self.worker, (context.clock)());
        if let Err(error) = self.catalog.commit_with_retry(commit).await {
            warn!(run = %run.id, %error, "the end of a run was not recorded");
        }
    }

    /// Reports the damaged files that the error names, and records the failure.
    async fn close_as_failed(&self, state: &CatalogState, run: RunRecord, error: &Error, context: &RunContext<'_>) {
        let finder = Finder { name: &self.worker, now: (context.clock)() };
        report_damage(&self.catalog, &self.storage, state, std::slice::from_ref(error), finder).await;
        metrics::counter!("basestream_batch_runs_total", "view" => run.view.to_string(), "outcome" => "failed").increment(1);
        warn!(view = %run.view, run = %run.id, %error, "the run failed; the current snapshot stays in use");
        let run = RunRecord { peak_resident_bytes: context.resident.peak_bytes(), ..context.so_far(&run) };
        let commit = failure_commit(Uuid::now_v7(), run.clone(), &self.worker, error.to_string(), (context.clock)());
        if let Err(error) = self.catalog.commit_with_retry(commit).await {
            warn!(run = %run.id, %error, "the failure of a run was not recorded");
        }
    }
}

fn new_record(request: &RunRequest, version: u32, now: Micros) -> RunRecord {
    let id = request.requested.as_ref().map_or_else(Uuid::now_v7, |run| run.id);
    RunRecord {
        id,
        status: RunStatus::Running,
        scheduled_for: request.scheduled_for,
        attempt: request.attempt,
        started_at: Some(now),
        ..RunRecord::requested(request.view.clone(), version)
    }
}

/// Counts a run of this process in a metric.
struct UnderWay(metrics::Gauge);

impl UnderWay {
    fn begin(view: &str) -> Self {
        let runs = metrics::gauge!("basestream_batch_runs_under_way", "view" => view.to_owned());
        runs.increment(1.0);
        Self(runs)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}
