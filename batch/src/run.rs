//! One batch run: lease, pin, recompute, write, publish; recorded whatever comes of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use catalog::{
    Catalog, CatalogState, Commit, DefinitionStatus, RunRecord, RunStatus, SnapshotRecord, failure_commit, publish_commit, run_lease,
};
use committed::damage::{Finder, report_damage, with_help};
use committed::registry::{LiveView, Registry};
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use definitions::StreamDefinition;
use engine::events::plan_schema;
use engine::functions::Functions;
use engine::plan::{session_builder, session_config};
use storage::{Manifest, ObjectStorage, OffsetRanges, archive_plan, read_manifest, write_manifest};
use tracing::{info, warn};
use types::files::FileRecord;
use types::tiles::EdgesFrom;
use types::tiles::{Floors, Micros};
use types::vector::Vector;
use types::{Error, ErrorKind, Result, failpoint};
use uuid::Uuid;

use crate::decide::{max_event_time, needed_files, switch_version, version_to_run};
use crate::join::{Join, LocalEdges, if_readable};
use crate::lease::KeepLease;
use crate::memory::PeakPool;
use crate::recompute::recompute;
use crate::scatter::Ground;
use crate::write::{SnapshotWriter, Written};

pub use types::tiles::Clock;

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
    /// A snapshot has a bucket for about so many events, at most 256: [`EVENTS_PER_BUCKET`] outside of tests.
    pub events_per_bucket: u64,
}

/// What is asked of a run.
#[derive(Debug, Clone)]
pub struct RunRequest {
    pub view: Arc<str>,
    /// The version to recompute; the one being built, or else the served one, when absent.
    pub version: Option<u32>,
    /// A record that waits in the catalog as requested, or absent for a new one.
    pub requested: Option<RunRecord>,
    pub scheduled_for: Option<Micros>,
    pub attempt: u32,
    /// The view's time `t`: windows are pruned as of it.
    pub t: RunTime,
}

/// The time as of which a run prunes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunTime {
    At(Micros),
    /// The greatest event time of the view's streams at the cut.
    EventClock,
}

pub const EVENTS_PER_BUCKET: u64 = 500_000;

/// How often a switch of versions is tried anew because something else was committed meanwhile.
const SWITCH_ATTEMPTS: usize = 20;

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

/// What a run works under.
struct Under<'a> {
    lease: &'a KeepLease,
    clock: &'a Clock,
    progress: &'a (dyn Fn(i64) + Send + Sync),
}

/// What a run reads, and what it keeps.
struct Work {
    cut: Vector,
    t: Micros,
    floors: Floors,
    edges_from: EdgesFrom,
    files: Vec<FileRecord>,
    max_event_time: Option<Micros>,
}

impl Work {
    fn of(state: &CatalogState, run: &RunRecord, view: &LiveView, t: RunTime) -> Result<Work> {
        let cut = run.cut.clone().ok_or_else(|| Error::internal("a run began without a cut"))?;
        let streams: Vec<Arc<str>> = view.plan.streams.iter().map(|stream| stream.name.clone()).collect();
        let max_event_time = max_event_time(state, &streams);
        let t = match t {
            RunTime::At(t) => t,
            RunTime::EventClock => max_event_time.unwrap_or_default(),
        };
        let floors = view.plan.floors(t);
        let files = needed_files(state, &streams, &cut, view.plan.oldest_kept(t));
        Ok(Work { cut, t, floors, edges_from: view.plan.edges_from(t), files, max_event_time })
    }
}

impl Batch {
    /// Runs one view and answers the record of the run. `Conflict`: another process is running it.
    pub async fn run(&self, request: RunRequest, clock: Clock, progress: &(dyn Fn(i64) + Send + Sync)) -> Result<RunRecord> {
        let name = run_lease(&request.view);
        let lease = self.catalog.acquire_lease(&name, &self.worker, self.settings.lease, clock(), None).await?;
        let Some(lease) = lease else {
            return Err(Error::conflict(format!("the view \"{}\" is being run by another process", request.view)));
        };
        failpoint::hit("run.leased")?;
        let renewing = KeepLease::start(self.catalog.clone(), lease, self.settings.lease, clock.clone());
        let outcome = self.recorded(&request, &Under { lease: &renewing, clock: &clock, progress }).await;
        let lease = renewing.stop().await;
        if let Err(error) = self.catalog.release_lease(&lease).await {
            warn!(view = %request.view, %error, "the lease of a run was not released and will expire");
        }
        outcome
    }

    /// Begins a record, works, and closes the record as succeeded or failed.
    async fn recorded(&self, request: &RunRequest, under: &Under<'_>) -> Result<RunRecord> {
        let now = (under.clock)();
        let run = self.new_record(request, now).await?;
        let expect = vec![under.lease.expect(now)];
        let (state, run) = self.catalog.begin_run(run, expect).await?;
        info!(view = %run.view, version = run.version, run = %run.id, "run begins");
        failpoint::hit("run.begun")?;
        match self.attempt(&state, run.clone(), request.t, under).await {
            Ok(run) => Ok(run),
            Err(error) => {
                let error = self.with_limit(with_help(error));
                let finder = Finder { name: &self.worker, now: (under.clock)() };
                report_damage(&self.catalog, &self.storage, &state, std::slice::from_ref(&error), finder).await;
                self.record_failure(run, &error, (under.clock)()).await;
                Err(error)
            }
        }
    }

    /// DataFusion names settings of its own; ours is the one to raise.
    fn with_limit(&self, error: Error) -> Error {
        match error.kind() {
            ErrorKind::Limit => {
                let limit_mib = self.settings.memory_limit_bytes >> 20;
                error.with("help", format_args!("raise `memory_limit` in [batch], which is {limit_mib} MiB"))
            }
            _ => error,
        }
    }

    async fn new_record(&self, request: &RunRequest, now: Micros) -> Result<RunRecord> {
        let state = self.catalog.state().await?;
        let version = match request.version {
            Some(version) => version,
            None => version_to_run(&state, &request.view)?,
        };
        let id = request.requested.as_ref().map_or_else(Uuid::now_v7, |run| run.id);
        Ok(RunRecord {
            id,
            view: request.view.clone(),
            version,
            status: RunStatus::Running,
            scheduled_for: request.scheduled_for,
            attempt: request.attempt,
            started_at: Some(now),
            ended_at: None,
            cut: None,
            events_read: 0,
            rows_written: 0,
            bytes_written: 0,
            peak_memory_bytes: 0,
            error: None,
        })
    }

    /// Recomputes, writes, joins where the view is linked, and publishes.
    async fn attempt(&self, state: &CatalogState, mut run: RunRecord, t: RunTime, under: &Under<'_>) -> Result<RunRecord> {
        let registry = Registry::load(state, &self.functions).await?;
        let view = registry
            .view(&run.view, run.version)
            .ok_or_else(|| Error::not_found(format!("the view \"{}\" has no live version {} that keeps states", run.view, run.version)))?;
        let work = Work::of(state, &run, view, t)?;
        run.events_read = work.files.iter().map(|file| file.rows).sum();
        let buckets = buckets_for(run.events_read, self.settings.events_per_bucket);
        let pool = Arc::new(PeakPool::new(self.settings.memory_limit_bytes));
        let session = self.session(pool.clone())?;
        let source = |stream: &StreamDefinition| self.scan(stream, &work);
        let states = recompute(&self.ground(view, &work, buckets, pool.clone()), &session, &source).await?;
        let local = LocalEdges::of_linked(self.settings.temp_dir.clone(), view, pool.clone());
        let writer = self.writer(view, &work, run.id, &session);
        let mut written = writer.write(states, local.as_ref(), under.progress).await?;
        info!(view = %run.view, run = %run.id, rows = written.rows, "the states are written");
        let joined = match &local {
            Some(local) => {
                let (storage, threads) = (self.storage.clone(), self.settings.threads.max(1));
                let edges = Arc::new(local.mapped(buckets, threads, std::mem::take(&mut written.local)).await?);
                let join = Join { storage, view: view.clone(), links: local.links.clone(), edges, t: work.t, run: run.id, threads };
                let join = join.write(self.manifest_before(state, view).await.as_ref()).await?;
                written.bytes += join.files.iter().map(|file| file.bytes).sum::<i64>();
                written.files.extend(join.files);
                Some(join.joined)
            }
            None => None,
        };
        run.rows_written = written.rows;
        run.bytes_written = written.bytes;
        run.peak_memory_bytes = pool.peak_bytes() as i64;
        let manifest = Manifest {
            format: Manifest::format_of(&work.edges_from),
            view: view.name.clone(),
            version: view.version,
            run: run.id,
            cut: work.cut,
            stamp: view.plan.stamp.clone(),
            bucket_count: buckets,
            files: std::mem::take(&mut written.buckets),
            floors: work.floors,
            edges_from: work.edges_from,
            max_event_time: work.max_event_time,
            made_at: (under.clock)(),
            events: run.events_read,
            expired: 0,
            rows: run.rows_written,
            joined,
        };
        self.publish(view, run, manifest, written, under).await
    }

    fn ground(&self, view: &LiveView, work: &Work, buckets: u32, pool: Arc<PeakPool>) -> Ground {
        Ground {
            plan: view.plan.clone(),
            floors: work.floors.clone(),
            edges_from: work.edges_from,
            codec: view.codec.clone(),
            buckets,
            threads: self.settings.threads.max(1),
            temp_dir: self.settings.temp_dir.clone(),
            pool,
            limit_bytes: self.settings.memory_limit_bytes,
        }
    }

    fn writer(&self, view: &LiveView, work: &Work, run: Uuid, session: &SessionContext) -> SnapshotWriter {
        SnapshotWriter {
            storage: self.storage.clone(),
            plan: view.plan.clone(),
            codec: view.codec.clone(),
            version: view.version,
            run,
            floors: work.floors.clone(),
            limit_bytes: self.settings.memory_limit_bytes,
            threads: self.settings.threads.max(1),
            context: session.task_ctx(),
        }
    }

    /// The manifest of the snapshot that is served. `None` when there is none, or it cannot be read.
    async fn manifest_before(&self, state: &CatalogState, view: &LiveView) -> Option<Manifest> {
        let record = state.snapshot(&view.name, view.version);
        let file = record.and_then(|record| state.files.iter().find(|file| file.path == record.manifest));
        if_readable(read_manifest(&self.storage, file?).await)
    }

    async fn publish(
        &self,
        view: &LiveView,
        mut run: RunRecord,
        manifest: Manifest,
        written: Written,
        under: &Under<'_>,
    ) -> Result<RunRecord> {
        let manifest_file = write_manifest(&self.storage, &manifest).await?;
        run.status = RunStatus::Succeeded;
        run.ended_at = Some((under.clock)());
        let snapshot = SnapshotRecord {
            view: view.name.clone(),
            version: view.version,
            run: run.id,
            cut: manifest.cut.clone(),
            manifest: manifest_file.path.clone(),
            published_at: (under.clock)(),
        };
        let files = written.files.into_iter().chain([manifest_file]).collect();
        let commit = publish_commit(run.clone(), snapshot, files, &under.lease.current(), (under.clock)());
        match view.status {
            DefinitionStatus::Building => self.publish_and_switch(commit, view).await?,
            _ => self.catalog.commit_with_retry(commit).await.map(|_| ())?,
        }
        info!(view = %run.view, version = run.version, run = %run.id, events = run.events_read, rows = run.rows_written, "run published");
        metrics::counter!("basestream_batch_runs_total", "view" => run.view.to_string(), "outcome" => "succeeded").increment(1);
        Ok(run)
    }

    async fn publish_and_switch(&self, commit: Commit, view: &LiveView) -> Result<()> {
        let mut attempts = 0;
        loop {
            let state = self.catalog.state().await?;
            let mut switching = commit.clone();
            switch_version(&mut switching, &state, &view.name, view.version)?;
            match self.catalog.commit_with_retry(switching).await {
                Err(error) if error.kind() == ErrorKind::Conflict && attempts < SWITCH_ATTEMPTS => attempts += 1,
                outcome => return outcome.map(|_| ()),
            }
        }
    }

    async fn record_failure(&self, run: RunRecord, error: &Error, now: Micros) {
        metrics::counter!("basestream_batch_runs_total", "view" => run.view.to_string(), "outcome" => "failed").increment(1);
        warn!(view = %run.view, run = %run.id, %error, "run failed; the snapshot being served stays");
        let commit = failure_commit(Uuid::now_v7(), run.clone(), &self.worker, error.to_string(), now);
        if let Err(error) = self.catalog.commit_with_retry(commit).await {
            warn!(run = %run.id, %error, "the failure of a run was not recorded");
        }
    }

    fn scan(&self, stream: &StreamDefinition, work: &Work) -> Result<Arc<dyn ExecutionPlan>> {
        let of_stream: Vec<FileRecord> = work.files.iter().filter(|file| file.subject.as_deref() == Some(&*stream.name)).cloned().collect();
        let ranges = OffsetRanges { stream: stream.name.clone(), from: Vector::new(), to: work.cut.clone() };
        archive_plan(&self.storage, &of_stream, plan_schema(stream), &ranges, None, self.settings.threads.max(1))
    }

    /// Under a small limit a batch, and what a sort keeps aside for merging its spilled runs, have to be small as well.
    fn session_config(&self) -> SessionConfig {
        let limit = self.settings.memory_limit_bytes;
        let default = session_config();
        let execution = &default.options().execution;
        let reserved = execution.sort_spill_reservation_bytes.min(limit / 16);
        let rows = default.batch_size().min(limit / (16 << 10)).max(256);
        default.with_target_partitions(self.settings.threads.max(1)).with_batch_size(rows).with_sort_spill_reservation_bytes(reserved)
    }

    fn session(&self, pool: Arc<PeakPool>) -> Result<SessionContext> {
        let mode = match &self.settings.temp_dir {
            Some(folder) => {
                let at = |error: std::io::Error| Error::from(error).with("folder", folder.display()).with("setting", "batch.temp_dir");
                std::fs::create_dir_all(folder).map_err(at)?;
                DiskManagerMode::Directories(vec![folder.clone()])
            }
            None => DiskManagerMode::OsTmpDirectory,
        };
        let disk = DiskManagerBuilder::default().with_mode(mode);
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).with_disk_manager_builder(disk).build_arc()?;
        self.storage.register(&runtime);
        let state = session_builder().with_config(self.session_config()).with_runtime_env(runtime).build();
        let session = SessionContext::new_with_state(state);
        self.functions.register(&session)?;
        Ok(session)
    }
}

fn buckets_for(events: i64, per_bucket: u64) -> u32 {
    (events.max(0) as u64 / per_bucket.max(1) + 1).next_power_of_two().min(256) as u32
}
