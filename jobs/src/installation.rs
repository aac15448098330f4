//! An installation: opens the services that the settings name, and builds the layers on them.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use batch::{Batch, RunMode, RunRequest, RunTime};
use catalog::{Catalog, CatalogState, CompactionRules, DefinitionKind, DefinitionRecord, RunRecord};
use committed::log_check::{check_topic, moved_to};
use definitions::settings::{ClockKind, LimitSettings, LogSettings, Settings};
use definitions::{Definitions, StreamDefinition, parse};
use engine::fresh::Fresh;
use engine::functions::Functions;
use event_alerts::{Alerts, StalledAlerts};
use event_log::Log;
use event_sinks::{SinkSettings, Sinks};
use serving::{HotFrom, HotKeySettings, Node, NodeSettings, ServingClock, ServingLimits, WantedViews};
use speed::{CheckpointWriters, ProcessIds, Speed};
use storage::ObjectStorage;
use tokio::sync::{OnceCell, watch};
use tracing::{debug, info};
use types::liveness::{LiveInstance, LockFolder};
use types::tiles::{Clock, Micros};
use types::vector::Offset;
use types::{Error, Result};

use crate::apply::{self, ApplyOptions, Changes, Wanted};
use crate::backfill::OnProgress;
use crate::check;
use crate::compact::Compacting;
use crate::ingest::{self, IngestProgress, Input, Summary};
use crate::replay::FromLog;
use crate::scheduler::Scheduler;
use crate::trim::Trimming;

/// How often a serving node checks whether the catalog changed.
const NODE_POLL: Duration = Duration::from_millis(200);
/// Merging as many state rows takes a few milliseconds, for which the events of the next micro-batch wait.
const MERGED_BESIDE_ROWS: usize = 2_048;

/// One installation, as opened by one process. Cheap to clone.
///
/// ```no_run
/// # async fn example() -> types::Result<()> {
/// use jobs::{Installation, now};
/// use engine::functions::Functions;
/// use definitions::settings::{Settings, Variables};
///
/// let settings = Settings::load("basestream.toml".as_ref(), &Variables::from_process())?;
/// let installation = Installation::open(&settings, Functions::standard()).await?;
/// let run = installation.run_view("device_velocity", &|_events| {}).await?;
/// println!("{} events read, {} rows written", run.events_read, run.rows_written);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Installation {
    pub settings: Settings,
    pub catalog: Catalog,
    pub storage: ObjectStorage,
    pub log: Arc<dyn Log>,
    pub functions: Functions,
    /// Identifies this process in leases and groups; unique.
    pub worker: String,
    cache: Arc<OnceLock<tempfile::TempDir>>,
    copies: batch::LocalCopies,
    processes: LockFolder,
    alive: Arc<OnceCell<LiveInstance>>,
}

impl Installation {
    /// Opens storage, catalog and log, and creates what is missing. A Kafka log is contacted on first use, so queries
    /// work without it.
    ///
    /// Errors: `Input` for a wrong URL, `Unavailable` for a service that does not answer; they name the setting.
    pub async fn open(settings: &Settings, functions: Functions) -> Result<Installation> {
        let storage = ObjectStorage::open(settings.storage.url.as_str()).map_err(|error| error.with("setting", "storage.url"))?;
        let catalog = Catalog::open(settings.catalog.url.as_str()).await.map_err(|error| error.with("setting", "catalog.url"))?;
        let log =
            event_log::open(settings.log.url.as_str(), &settings.log.properties).await.map_err(|error| error.with("setting", "log.url"))?;
        if settings.log.retention.is_some() && !log.is_trimmed() {
            let message = "log.retention is a setting of the embedded log; Kafka keeps records by the topic's retention.ms";
            return Err(Error::input(message).with("expected", "no log.retention"));
        }
        let processes = LockFolder::of_this_machine(settings.local_dir().join("processes"));
        let worker = format!("{}-{}", std::process::id(), &uuid::Uuid::new_v4().simple().to_string()[..8]);
        Ok(Installation {
            settings: settings.clone(),
            catalog: catalog.with_processes(processes.clone()),
            storage,
            log,
            functions,
            worker,
            cache: Arc::default(),
            copies: Default::default(),
            processes,
            alive: Arc::default(),
        })
    }

    /// Lets others of this machine see when this process is dead, so that they take over at once what it did under
    /// leases that are fenced. Call this before it takes the first of them. Where its lock file cannot be created,
    /// others wait until its leases expire.
    pub(crate) async fn show_alive(&self) {
        if let Err(error) = self.alive.get_or_try_init(|| self.begin_to_live()).await {
            info!(%error, setting = "serving.cache_dir", "should this process die, others wait until its leases expire");
        }
    }

    async fn begin_to_live(&self) -> Result<LiveInstance> {
        let (leases, now) = (self.catalog.leases("").await?, now());
        let holders = leases.into_iter().filter(|lease| lease.expires_at > now).map(|lease| lease.owner).collect();
        self.processes.begin(&self.worker, &holders)
    }

    /// Returns the speed layer's workers, as many as the settings say. With `fresh`, a node of this process sees their
    /// fresh layers.
    pub fn speed_workers(&self, fresh: Option<Fresh>) -> Vec<Speed> {
        let workers = self.settings.speed.workers.max(1);
        let name = |number: u32| if number == 0 { self.worker.clone() } else { format!("{}-{number}", self.worker) };
        let (ids, writers) = (ProcessIds::new(self.dedup(), workers as usize), CheckpointWriters::default());
        let fresh = || fresh.as_ref().map(Fresh::for_worker);
        (0..workers).map(|number| self.speed_of(&name(number), workers, (&ids, &writers), fresh())).collect()
    }

    /// Returns one worker of the speed layer, alone in its process. `worker` must be unique among the installation's
    /// workers.
    pub fn speed(&self, worker: &str, fresh: Option<Fresh>) -> Speed {
        self.speed_of(worker, 1, (&ProcessIds::new(self.dedup(), 1), &CheckpointWriters::default()), fresh)
    }

    /// Returns one of `workers` workers, which share the process's memory limits.
    fn speed_of(&self, worker: &str, workers: u32, (ids, writers): (&ProcessIds, &CheckpointWriters), fresh: Option<Fresh>) -> Speed {
        let speed = &self.settings.speed;
        let share = |bytes: u64| to_usize(bytes / u64::from(workers));
        let settings = speed::WorkerSettings {
            worker: worker.to_owned(),
            group: speed.group.clone(),
            checkpoint_interval: speed.checkpoint_interval,
            checkpoint_bytes: share(speed.checkpoint_bytes),
            merged_beside_rows: MERGED_BESIDE_ROWS,
            max_future: speed.max_future,
            partitions: self.settings.log.partitions,
            accept_gap: speed.accept_gap,
        };
        Speed {
            catalog: self.catalog.clone(),
            storage: self.storage.clone(),
            log: self.log.clone(),
            functions: self.functions.clone(),
            fresh,
            sinks: None,
            registration: None,
            ids: ids.clone(),
            writers: writers.clone(),
            settings,
            clock: clock(),
            progress: Default::default(),
        }
    }

    /// Returns what makes the records of sinks in a process with this node, which reads the workers' fresh layers; it
    /// may be opened later.
    pub fn sinks(&self, node: watch::Receiver<Option<Node>>) -> Arc<Sinks> {
        let speed = &self.settings.speed;
        let settings = SinkSettings { group: speed.group.clone(), partitions: self.settings.log.partitions, max_future: speed.max_future };
        Arc::new(Sinks::new(node, self.log.clone(), self.catalog.clone(), self.functions.clone(), settings))
    }

    /// Returns what runs alerts in a process with this node, which reads the workers' fresh layers, and takes note of
    /// those that are not evaluated.
    pub fn alerts(&self, node: Node, stalled: StalledAlerts) -> Alerts {
        let (group, partitions) = (self.settings.speed.group.clone(), self.settings.log.partitions);
        let (owner, lease) = (self.worker.clone(), event_alerts::LEASE);
        Alerts { node, log: self.log.clone(), group, partitions, owner, lease, clock: clock(), stalled }
    }

    /// Returns where and how ids are remembered for deduplication.
    pub fn dedup(&self) -> speed::DedupSettings {
        let folder = self.settings.local_dir().join("dedup");
        speed::DedupSettings { memory_bytes: to_usize(self.settings.speed.dedup_memory), folder }
    }

    /// Returns the batch layer.
    pub fn batch(&self) -> Batch {
        let settings = batch::RunSettings {
            memory_limit_bytes: to_usize(self.settings.batch.memory_limit),
            threads: self.settings.batch.threads as usize,
            temp_dir: self.settings.batch.temp_dir.clone(),
            lease: self.settings.batch.lease,
            report_every: batch::REPORT_EVERY,
            events_per_bucket: batch::EVENTS_PER_BUCKET,
            events_per_slice: batch::EVENTS_PER_SLICE,
        };
        let (catalog, storage, functions) = (self.catalog.clone(), self.storage.clone(), self.functions.clone());
        Batch::new(catalog, storage, self.replay_log(), functions, settings, &*self.worker).with_copies(self.copies.clone())
    }

    fn replay_log(&self) -> Arc<dyn batch::ReplayLog> {
        let (storage, log, max_future) = (self.storage.clone(), self.log.clone(), self.settings.speed.max_future);
        Arc::new(FromLog::new(storage, log, max_future, self.dedup()))
    }

    /// Returns the scheduler, which runs batch when it is due.
    pub fn scheduler(&self) -> Scheduler {
        Scheduler {
            batch: self.batch(),
            clock: clock(),
            event_clock: self.settings.serving.clock == ClockKind::Event,
            max_concurrent_runs: self.settings.scheduler.max_concurrent_runs as usize,
            tried: Default::default(),
            due_check: Default::default(),
        }
    }

    /// Returns what compacts the archive.
    pub fn compacting(&self) -> Compacting {
        let archive = &self.settings.archive;
        let target_bytes = i64::try_from(archive.target_bytes).unwrap_or(i64::MAX);
        let rules = CompactionRules { target_bytes, after: archive.compact_after };
        Compacting { batch: self.batch(), rules, clock: clock(), apart: Default::default() }
    }

    /// Returns what trims the log; `None` for a log that deletes by settings of its own.
    pub fn trimming(&self) -> Option<Trimming> {
        self.log.is_trimmed().then(|| Trimming {
            catalog: self.catalog.clone(),
            log: self.log.clone(),
            group: self.settings.speed.group.clone(),
            retention: self.settings.log.retention.unwrap_or(LogSettings::RETENTION),
            clock: clock(),
        })
    }

    /// Returns a serving node with the catalog's current state loaded. With `fresh` it also answers from this process's
    /// fresh layers.
    pub async fn node(&self, fresh: Option<Fresh>) -> Result<Node> {
        self.open_node(fresh, false, WantedViews::All).await
    }

    /// Like [`Installation::node`], but the node answers before its snapshots are copied.
    pub async fn node_at_once(&self, fresh: Option<Fresh>) -> Result<Node> {
        self.open_node(fresh, true, WantedViews::All).await
    }

    /// Like [`Installation::node`], but the node loads these views alone.
    pub async fn node_of(&self, views: WantedViews) -> Result<Node> {
        self.open_node(None, false, views).await
    }

    /// Like [`Installation::node_at_once`], but the node loads these views alone.
    pub async fn node_of_at_once(&self, views: WantedViews) -> Result<Node> {
        self.open_node(None, true, views).await
    }

    async fn open_node(&self, fresh: Option<Fresh>, at_once: bool, views: WantedViews) -> Result<Node> {
        let settings = NodeSettings {
            name: self.worker.clone(),
            views,
            clock: match self.settings.serving.clock {
                ClockKind::Wall => ServingClock::Wall,
                ClockKind::Event => ServingClock::Event,
            },
            at_once,
            cache: self.cache()?,
            cache_bytes: self.settings.serving.cache_bytes,
            poll: NODE_POLL,
            lease: self.settings.serving.lease,
            memory_limit_bytes: to_usize(self.settings.serving.memory_limit),
            max_rebuilt_events: committed::lacking::MAX_REBUILT_EVENTS,
            query_timeout: self.settings.serving.query_timeout,
            limits: self.serving_limits(),
            hot_keys: hot_keys(&self.settings),
        };
        Node::open(self.catalog.clone(), self.storage.clone(), self.functions.clone(), fresh, settings, clock()).await
    }

    /// Returns what clients may take of this process.
    pub(crate) fn serving_limits(&self) -> ServingLimits {
        limits(&self.settings.serving.limits)
    }

    /// Returns the time as of which a batch run prunes.
    pub fn run_time(&self) -> RunTime {
        match self.settings.serving.clock {
            ClockKind::Wall => RunTime::At(now()),
            ClockKind::Event => RunTime::EventClock,
        }
    }

    /// Checks definitions, writes them to the catalog and creates their topics. With `prune`, definitions that are not
    /// among them are retired.
    ///
    /// Errors: `Input` with every mistake found, or for a change that archived events would not survive.
    pub async fn apply(&self, definitions: &Definitions, prune: bool) -> Result<Changes> {
        let checked = check::check_definitions(definitions.clone(), &self.functions, now()).await;
        let checked = checked.with_batch_memory(self.settings.batch.memory_limit).with_group(&self.settings.speed.group);
        checked.diagnostics.clone().into_result()?;
        let wanted = Wanted::Definitions { definitions: &checked.definitions, staging: &checked.staging };
        let changes = self.apply_with(wanted, ApplyOptions { prune, ..ApplyOptions::default() }, &|_| {}).await?;
        changes.misfits()?;
        Ok(changes)
    }

    /// Like [`Installation::apply`], for definitions that are already checked, or for one stream's archive. Records
    /// that do not fit are in the result: nothing was changed then. `progress` is called while archives are decoded.
    pub async fn apply_with(&self, wanted: Wanted<'_>, options: ApplyOptions, progress: &OnProgress<'_>) -> Result<Changes> {
        apply::apply(&self.apply_target(progress), wanted, options, now()).await
    }

    /// Returns what [`Installation::apply_with`] would change, with the cost of decoding archives again.
    pub async fn plan(&self, wanted: Wanted<'_>, options: ApplyOptions, state: &CatalogState) -> Result<Changes> {
        apply::plan(&self.apply_target(&|_| {}), wanted, options, state).await
    }

    fn apply_target<'a>(&'a self, progress: &'a OnProgress<'a>) -> apply::ApplyTarget<'a> {
        apply::ApplyTarget {
            catalog: &self.catalog,
            storage: &self.storage,
            log: &*self.log,
            partitions: self.settings.log.partitions,
            functions: &self.functions,
            progress,
        }
    }

    /// Returns a live stream by its name.
    pub async fn stream(&self, name: &str) -> Result<Arc<StreamDefinition>> {
        let state = self.catalog.state().await?;
        let Some(record) = state.served_or_building(DefinitionKind::Stream, name) else {
            let known: Vec<&str> = state.live(DefinitionKind::Stream).map(|record| &*record.name).collect();
            let expected = if known.is_empty() { "`basestream apply` first".to_owned() } else { known.join(", ") };
            return Err(Error::not_found(format!("there is no stream \"{name}\" in the catalog")).with("expected", expected));
        };
        parse::parse_stream(&record.sql).map(Arc::new)
    }

    /// Appends a file's records to a stream's log; a repeat continues where the last run ended.
    ///
    /// Errors: beside those of [`ingest::ingest`], `Unavailable` for a log that the speed layer would not read, and
    /// `Conflict` if the stream began anew in another topic meanwhile, and if a stream that was removed has appended
    /// the file to the same topic.
    pub async fn ingest(
        &self,
        stream: &str,
        input: &Input,
        options: &ingest::IngestOptions,
        on_progress: impl FnMut(IngestProgress) + Send,
    ) -> Result<Summary> {
        let definition = self.stream(stream).await?;
        self.check_log(&definition).await?;
        self.log.create_topic(&definition.topic, self.settings.log.partitions).await?;
        let remembered = CatalogProgress { catalog: self.catalog.clone() };
        let removed = removed_of_topic(&*self.catalog.state().await?, &definition.topic);
        let options = ingest::IngestOptions { removed, ..options.clone() };
        let summary = ingest::ingest(&*self.log, &remembered, definition.clone(), input, &options, on_progress).await?;
        match moved_to(&self.catalog, None, &definition).await? {
            Some(topic) => Err(Error::conflict("the stream was defined anew while the file was appended to the topic before")
                .with("stream", stream)
                .with("appended to", &definition.topic)
                .with("topic", topic)
                .with("help", "`basestream ingest --again` appends the file to the new topic")),
            None => Ok(summary),
        }
    }

    /// Refuses a log that has other records of a stream than the committed ones, or fewer.
    async fn check_log(&self, stream: &StreamDefinition) -> Result<()> {
        let state = self.catalog.state().await?;
        let ends: Vec<(i32, Offset)> = self.log.bounds(&stream.topic).await?.iter().map(|bounds| (bounds.partition, bounds.end)).collect();
        let identity = if ends.is_empty() { String::new() } else { self.log.identity(&stream.topic).await? };
        check_topic(&state, &stream.name, &identity, &ends)
    }

    /// Runs a view now and publishes its snapshot, by the view's strategy; `progress` is called with the rows written.
    /// The run is skipped if there is nothing new. Errors: `Conflict` if another process is running it.
    pub async fn run_view(&self, view: &str, progress: &(dyn Fn(i64) + Send + Sync)) -> Result<RunRecord> {
        self.run(view, RunMode::ByStrategy, true, progress).await
    }

    /// The same, but recomputes from the archive whatever the view's strategy, and compares the outcome with the states
    /// that incremental runs had kept, unless `compare` is false.
    pub async fn recompute_view(&self, view: &str, compare: bool, progress: &(dyn Fn(i64) + Send + Sync)) -> Result<RunRecord> {
        self.run(view, RunMode::Full, compare, progress).await
    }

    /// The same, but computes all states from the events of the checkpoints, through the speed layer's code. They are
    /// compared as in [`Installation::recompute_view`].
    pub async fn replay_view(
        &self,
        view: &str,
        request: batch::ReplayRequest,
        compare: bool,
        progress: &(dyn Fn(i64) + Send + Sync),
    ) -> Result<RunRecord> {
        self.run(view, RunMode::Replay(request), compare, progress).await
    }

    /// Whether the log still has every record that a replay of a view reads; if not, the first that it lacks, in words.
    pub async fn log_lacks(&self, view: &str) -> Result<Option<String>> {
        let start = self.batch().replay_start(view, self.run_time()).await?;
        for (partition, first) in start.iter() {
            let topic = self.stream(&partition.stream).await?.topic.clone();
            let bounds = self.log.bounds(&topic).await?;
            let begin = bounds.iter().find(|bounds| bounds.partition == partition.partition).map(|bounds| bounds.begin);
            match begin {
                Some(begin) if begin <= first => {}
                Some(begin) => return Ok(Some(format!("the log of {partition} begins at offset {begin}, and a replay at {first}"))),
                None => return Ok(Some(format!("the log has no partition {partition}"))),
            }
        }
        Ok(None)
    }

    /// Says what a run of a view would read and write now; `compare` as in [`Installation::recompute_view`].
    pub async fn plan_run(&self, view: &str, mode: RunMode, compare: bool) -> Result<batch::RunPlan> {
        self.batch().plan(view, self.run_time(), (mode, compare), now()).await
    }

    async fn run(&self, view: &str, mode: RunMode, compare: bool, progress: &(dyn Fn(i64) + Send + Sync)) -> Result<RunRecord> {
        let request = RunRequest { mode, compare, ..RunRequest::new(view, self.run_time()) };
        self.show_alive().await;
        self.batch().run(request, clock(), progress).await
    }

    /// Closes the catalog; storage and log are closed when the last clone is dropped.
    pub async fn close(&self) {
        self.catalog.close().await;
        if let Some(Err(error)) = self.alive.get().map(|alive| alive.forget(&self.worker)) {
            debug!(%error, "the lock file of this process was not removed");
        }
    }

    /// Returns this process's folder of local copies; it is deleted when the last clone is dropped.
    fn cache(&self) -> Result<std::path::PathBuf> {
        if let Some(folder) = self.cache.get() {
            return Ok(folder.path().to_path_buf());
        }
        let parent = self.settings.serving.cache_dir.clone().unwrap_or_else(std::env::temp_dir);
        let failed = |error: std::io::Error| Error::from(error).with("folder", parent.display()).with("setting", "serving.cache_dir");
        std::fs::create_dir_all(&parent).map_err(failed)?;
        let folder = tempfile::Builder::new().prefix("basestream-cache-").tempdir_in(&parent).map_err(failed)?;
        Ok(self.cache.get_or_init(|| folder).path().to_path_buf())
    }
}

impl std::fmt::Debug for Installation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Installation").field("settings", &self.settings).field("worker", &self.worker).finish_non_exhaustive()
    }
}

/// The streams that were removed and had this topic.
fn removed_of_topic(state: &CatalogState, topic: &str) -> Vec<Arc<str>> {
    let had_topic = |stream: &&DefinitionRecord| parse::parse_stream(&stream.sql).is_ok_and(|stream| *stream.topic == *topic);
    state.dropped(DefinitionKind::Stream).filter(had_topic).map(|stream| stream.name.clone()).collect()
}

/// Stores positions in files in the catalog.
struct CatalogProgress {
    catalog: Catalog,
}

#[async_trait::async_trait]
impl ingest::PositionStore for CatalogProgress {
    async fn load_all(&self, stream: &str, prefix: &str) -> Result<HashMap<String, i64>> {
        let found = self.catalog.ingest_progress_of(stream, prefix).await?;
        Ok(found.into_iter().map(|record| (record.fingerprint, record.records_done)).collect())
    }

    async fn save(&self, stream: &str, numbers: Vec<(String, i64)>) -> Result<()> {
        use catalog::{Add, Commit, IngestRecord};
        let (stream, updated_at): (Arc<str>, _) = (stream.into(), now());
        let record = |(fingerprint, records_done)| IngestRecord { stream: stream.clone(), fingerprint, records_done, updated_at };
        let add = numbers.into_iter().map(|number| Add::Ingest(record(number))).collect();
        let commit = Commit { id: uuid::Uuid::now_v7(), add, ..Commit::default() };
        self.catalog.commit_with_retry(commit).await.map(|_| ())
    }
}

/// Returns the wall clock, in microseconds since 1970.
pub fn now() -> Micros {
    chrono::Utc::now().timestamp_micros()
}

/// [`now`] in the form that the layers take.
pub fn clock() -> Clock {
    Arc::new(now)
}

fn limits(settings: &LimitSettings) -> ServingLimits {
    let count = |number: u32| number as usize;
    ServingLimits {
        concurrent_queries: count(settings.concurrent_queries),
        concurrent_queries_per_principal: count(settings.concurrent_queries_per_principal),
        queued_queries: count(settings.queued_queries),
        queued_queries_per_principal: count(settings.queued_queries_per_principal),
        queue_wait: settings.queue_wait,
        query_time: settings.query_time,
        query_memory_bytes: settings.query_memory.map(to_usize),
        memory_per_principal_bytes: settings.memory_per_principal.map(to_usize),
        result_rows: settings.result_rows.map(u64::from),
        cursors_per_principal: count(settings.cursors_per_principal),
        cursor_idle: settings.cursor_idle,
        http_connections: count(settings.http_connections),
        postgres_connections: count(settings.postgres_connections),
    }
}

fn hot_keys(settings: &Settings) -> HotKeySettings {
    let (speed, serving) = (&settings.speed, &settings.serving);
    HotKeySettings {
        events: HotFrom { share: speed.hot_key_share, per_second: f64::from(speed.hot_key_rate) },
        lookups: HotFrom { share: serving.hot_key_share, per_second: f64::from(serving.hot_key_rate) },
        row_cache_bytes: to_usize(serving.row_cache),
    }
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
