//! A test harness: one installation in a temporary folder, whose layers a test drives step by step.

pub mod certificates;
pub mod disk;
pub mod gate;
pub mod oracle;
pub mod patience;
pub mod process;
pub mod services;
pub mod small_disk;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use batch::RunMode;
use bytes::Bytes;
use catalog::{
    Add, Catalog, Commit, CompactionRules, DefinitionKind, DefinitionRecord, DefinitionStatus, RunRecord, RunStatus, serve_version,
    version_before, versions_commit,
};
use committed::lacking::MAX_REBUILT_EVENTS;
use definitions::KEEP_OLD;
use engine::fresh::Fresh;
use engine::functions::Functions;
use event_log::{Log, NewRecord, TopicPartition};
use serving::{Node, NodeSettings, ServingClock, ServingLimits, WantedViews};
use storage::ObjectStorage;
use tokio_util::sync::CancellationToken;
use types::record::Record;
use types::tiles::Micros;
use types::vector::Vector;
use types::{Error, Result, timed_out};
use uuid::Uuid;

use patience::PATIENCE;

/// Events per bucket of a snapshot.
const FEW_EVENTS: u64 = 20;
const MAX_FUTURE: Duration = Duration::from_secs(600);

/// One installation on the embedded log, catalog and storage.
pub struct Harness {
    pub folder: tempfile::TempDir,
    pub catalog: Catalog,
    pub storage: ObjectStorage,
    pub log: Arc<dyn Log>,
    pub functions: Functions,
    pub copies: batch::LocalCopies,
}

/// What tests vary of a node.
struct NodeOptions {
    clock: ServingClock,
    now: types::tiles::Clock,
    fresh: Option<Fresh>,
    max_rebuilt_events: i64,
    cache_bytes: Option<u64>,
    limits: ServingLimits,
    memory_limit_bytes: usize,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            clock: ServingClock::Event,
            now: Arc::new(now),
            fresh: None,
            max_rebuilt_events: MAX_REBUILT_EVENTS,
            cache_bytes: None,
            limits: ServingLimits::default(),
            memory_limit_bytes: 256 << 20,
        }
    }
}

/// A speed worker that runs until it is stopped.
pub struct Worker {
    pub stop: CancellationToken,
    pub task: tokio::task::JoinHandle<Result<()>>,
}

impl Harness {
    pub async fn new() -> Result<Harness> {
        Self::in_folder(tempfile::tempdir()?).await
    }

    /// With everything in this folder.
    pub async fn in_folder(folder: tempfile::TempDir) -> Result<Harness> {
        let url = |name: &str| format!("file://{}", folder.path().join(name).display());
        let catalog = Catalog::open(&format!("sqlite://{}", folder.path().join("catalog.db").display())).await?;
        let storage = ObjectStorage::open(&url("storage"))?;
        let log = event_log::open(&url("log"), &Default::default()).await?;
        Ok(Harness { catalog, storage, log, functions: Functions::standard(), copies: Default::default(), folder })
    }

    /// Adds definitions to the catalog: streams, then views. They are served at once.
    pub async fn define(&self, definitions: &[(DefinitionKind, &str, &str)]) -> Result<()> {
        let add = definitions.iter().map(|(kind, name, sql)| {
            Add::Definition(DefinitionRecord {
                kind: *kind,
                name: (*name).into(),
                version: 1,
                sql: (*sql).to_owned(),
                status: DefinitionStatus::Active,
                created_at: 0,
                since: 0,
                kept_until: None,
                rolled_back: false,
            })
        });
        let commit = Commit { id: Uuid::now_v7(), add: add.collect(), ..Commit::default() };
        self.catalog.commit(commit).await.map(|_| ())
    }

    pub async fn append(&self, topic: &str, partitions: u32, records: Vec<(Option<String>, String)>) -> Result<()> {
        self.log.create_topic(topic, partitions).await?;
        let record = |(key, value): (Option<String>, String)| NewRecord {
            key: key.map(Bytes::from),
            value: Some(Bytes::from(value)),
            headers: Vec::new(),
            partition_by: None,
        };
        self.log.append(topic, records.into_iter().map(record).collect()).await.map(|_| ())
    }

    pub fn worker(&self, name: &str, checkpoint_interval: Duration, fresh: Option<Fresh>) -> Worker {
        let speed = self.speed(name, checkpoint_interval, fresh);
        let stop = CancellationToken::new();
        let token = stop.clone();
        Worker { stop, task: tokio::spawn(async move { speed.run(token).await }) }
    }

    pub fn speed(&self, name: &str, checkpoint_interval: Duration, fresh: Option<Fresh>) -> speed::Speed {
        speed::Speed {
            catalog: self.catalog.clone(),
            storage: self.storage.clone(),
            log: self.log.clone(),
            functions: self.functions.clone(),
            fresh,
            sinks: None,
            registration: None,
            ids: speed::ProcessIds::new(self.dedup(), 1),
            writers: Default::default(),
            settings: speed::WorkerSettings {
                worker: name.to_owned(),
                group: "basestream".into(),
                checkpoint_interval,
                checkpoint_bytes: 64 << 20,
                merged_beside_rows: 20,
                max_future: MAX_FUTURE,
                partitions: 4,
                accept_gap: false,
            },
            clock: Arc::new(now),
            progress: Default::default(),
        }
    }

    /// Waits until the committed vector reaches the log's end of this stream.
    pub async fn committed(&self, stream: &str, topic: &str) -> Result<Vector> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let vector = self.catalog.state().await?.vector();
            if self.is_at_end(&vector, stream, topic).await? {
                return Ok(vector);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Err(patience::ended("the speed layer did not reach the log's end in two minutes"))
    }

    /// Lets a worker read these streams to the end of their topics. It commits all of it as one epoch, when it is
    /// stopped.
    pub async fn commit_at_once(&self, worker: &str, streams: &[(&str, &str)]) -> Result<()> {
        let fresh = Fresh::unread();
        let worker = self.worker(worker, Duration::from_secs(3_600), Some(fresh.clone()));
        for (stream, topic) in streams {
            let began = Instant::now();
            while !self.is_at_end(&fresh.after(&self.catalog.state().await?.vector()).end, stream, topic).await? {
                if worker.task.is_finished() {
                    worker.finish().await?;
                    return Err(Error::internal("the worker ended by itself"));
                }
                if began.elapsed() > PATIENCE {
                    return Err(patience::ended(format!("no worker read {topic} to its end in two minutes")));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        worker.finish().await?;
        let vector = self.catalog.state().await?.vector();
        for (stream, topic) in streams {
            assert!(self.is_at_end(&vector, stream, topic).await?, "{stream} is committed up to {vector}");
        }
        Ok(())
    }

    async fn is_at_end(&self, vector: &Vector, stream: &str, topic: &str) -> Result<bool> {
        let bounds = self.log.bounds(topic).await?;
        Ok(!bounds.is_empty() && bounds.iter().all(|b| vector.get(&types::vector::PartitionId::new(stream, b.partition)) >= b.end))
    }

    /// The log as a source of replays.
    pub fn replay_log(&self) -> Arc<dyn batch::ReplayLog> {
        Arc::new(jobs::replay::FromLog::new(self.storage.clone(), self.log.clone(), MAX_FUTURE, self.dedup()))
    }

    fn dedup(&self) -> speed::DedupSettings {
        speed::DedupSettings { memory_bytes: 64 << 20, folder: self.folder.path().join("dedup") }
    }

    pub async fn batch(&self, view: &str, t: batch::RunTime) -> Result<RunRecord> {
        self.batch_within(view, t, 256 << 20).await
    }

    /// Runs a batch within a memory limit. A small limit gives a snapshot several buckets even for few events.
    pub async fn batch_within(&self, view: &str, t: batch::RunTime, memory_limit_bytes: usize) -> Result<RunRecord> {
        self.run((view, t), memory_limit_bytes, RunMode::ByStrategy).await
    }

    /// Runs a batch that recomputes from the archive.
    pub async fn recompute(&self, view: &str, t: batch::RunTime) -> Result<RunRecord> {
        self.run((view, t), 256 << 20, RunMode::Full).await
    }

    /// Replays a view's events, as fast as it goes.
    pub async fn replay(&self, view: &str, t: batch::RunTime, from: batch::ReplayFrom) -> Result<RunRecord> {
        self.run((view, t), 256 << 20, RunMode::Replay(batch::ReplayRequest { from, events_a_second: None })).await
    }

    async fn run(&self, (view, t): (&str, batch::RunTime), memory_limit_bytes: usize, mode: RunMode) -> Result<RunRecord> {
        let request = batch::RunRequest { mode, ..batch::RunRequest::new(view, t) };
        let batch = self.batch_layer(memory_limit_bytes);
        let before = self.ended_runs(view).await;
        let planned = batch.plan(view, t, (mode, true), now()).await;
        let run = batch.run(request, Arc::new(now), &|_| {}).await?;
        // Nobody committed in between, and what is new fitted the memory limit.
        let is_planned = |planned: &batch::RunPlan| run.cut.as_ref() == Some(&planned.cut) && run.strategy == Some(planned.strategy);
        if let Some(planned) = planned.ok().filter(is_planned)
            // Another run that ended meanwhile may have published what this one was to compute.
            && let (Some(before), Some(after)) = (before, self.ended_runs(view).await)
            && after.iter().all(|ended| *ended == run.id || before.contains(ended))
        {
            let is_skipped = run.status == RunStatus::Skipped;
            assert_eq!((planned.skipped, planned.events), (is_skipped, run.events_read), "{planned:?}, and {run:?}");
        }
        Ok(run)
    }

    /// The runs of a view that have ended; `None` while the catalog does not answer.
    async fn ended_runs(&self, view: &str) -> Option<BTreeSet<Uuid>> {
        let state = self.catalog.state().await.ok()?;
        Some(state.runs.iter().filter(|run| *run.view == *view && run.ended_at.is_some()).map(|run| run.id).collect())
    }

    pub fn batch_layer(&self, memory_limit_bytes: usize) -> batch::Batch {
        self.batch_layer_of(memory_limit_bytes, 2)
    }

    /// With one thread, sorts do not compete for memory: whether it suffices does not depend on their progress.
    pub fn batch_layer_of(&self, memory_limit_bytes: usize, threads: usize) -> batch::Batch {
        let events_per_bucket = if memory_limit_bytes < 256 << 20 { FEW_EVENTS } else { batch::EVENTS_PER_BUCKET };
        let settings = batch::RunSettings {
            memory_limit_bytes,
            threads,
            temp_dir: None,
            lease: Duration::from_secs(30),
            report_every: batch::REPORT_EVERY,
            events_per_bucket,
            // Most histories of tests are recomputed in several slices.
            events_per_slice: 16,
        };
        let (catalog, storage, functions) = (self.catalog.clone(), self.storage.clone(), self.functions.clone());
        batch::Batch::new(catalog, storage, self.replay_log(), functions, settings, "harness").with_copies(self.copies.clone())
    }

    /// Runs two rounds of the collector after every grace period: the first marks, the second deletes.
    pub async fn collect(&self) -> Result<()> {
        let clock: types::tiles::Clock = Arc::new(|| now() + 3_600_000_000);
        for _ in 0..2 {
            jobs::collect::collect(&self.catalog, &self.storage, &self.functions, &clock, false).await?;
        }
        Ok(())
    }

    /// Compacts all checkpoints that nobody reads one by one, as if their day was over.
    pub async fn compact(&self) -> Result<batch::Compacted> {
        let rules = CompactionRules { target_bytes: 64 << 20, after: Duration::ZERO };
        let batch = self.batch_layer(256 << 20);
        let clock: types::tiles::Clock = Arc::new(|| now() + 2 * 86_400_000_000);
        jobs::compact::Compacting { batch, rules, clock, group_starts: Default::default() }.compact().await
    }

    /// Serves the version of a view again that was served before the present one, and returns its number; `None` if it
    /// is not kept.
    pub async fn roll_back(&self, view: &str) -> Result<Option<u32>> {
        let state = self.catalog.state().await?;
        let Some(before) = version_before(&state, view) else { return Ok(None) };
        let records = serve_version(&state, view, before.version, KEEP_OLD, now())?;
        self.catalog.commit(versions_commit(&state, Uuid::now_v7(), records)).await?;
        Ok(Some(before.version))
    }

    /// Returns the version of a view that is served.
    pub async fn served(&self, view: &str) -> Result<Option<u32>> {
        let state = self.catalog.state().await?;
        let served = state.definitions.live_versions(DefinitionKind::View, view).find(|record| record.status == DefinitionStatus::Active);
        Ok(served.map(|record| record.version))
    }

    pub async fn node(&self, clock: ServingClock, fresh: Option<Fresh>) -> Result<Node> {
        self.node_by(clock, fresh, Arc::new(now)).await
    }

    /// Opens a node that reads the time from `now`.
    pub async fn node_by(&self, clock: ServingClock, fresh: Option<Fresh>, now: types::tiles::Clock) -> Result<Node> {
        self.open_node(NodeOptions { clock, now, fresh, ..NodeOptions::default() }).await
    }

    /// Opens a node that computes the states of at most this many archived events in one refresh.
    pub async fn node_that_rebuilds(&self, max_rebuilt_events: i64, fresh: Option<Fresh>) -> Result<Node> {
        self.open_node(NodeOptions { max_rebuilt_events, fresh, ..NodeOptions::default() }).await
    }

    /// Opens a node whose local copies may take this much.
    pub async fn node_with_cache(&self, cache_bytes: u64) -> Result<Node> {
        self.open_node(NodeOptions { cache_bytes: Some(cache_bytes), ..NodeOptions::default() }).await
    }

    /// Opens a node whose queries have these limits.
    pub async fn node_with_limits(&self, fresh: Option<Fresh>, limits: ServingLimits) -> Result<Node> {
        self.open_node(NodeOptions { fresh, limits, ..NodeOptions::default() }).await
    }

    /// Opens a node whose queries have this much memory.
    pub async fn node_with_memory(&self, fresh: Option<Fresh>, memory_limit_bytes: usize) -> Result<Node> {
        self.open_node(NodeOptions { fresh, memory_limit_bytes, ..NodeOptions::default() }).await
    }

    async fn open_node(&self, options: NodeOptions) -> Result<Node> {
        let NodeOptions { clock, now, fresh, max_rebuilt_events, cache_bytes, limits, memory_limit_bytes } = options;
        let cache = self.folder.path().join("cache");
        serving::clean_cache(&cache)?;
        let settings = NodeSettings {
            name: "harness".into(),
            views: WantedViews::All,
            clock,
            at_once: false,
            cache,
            cache_bytes,
            poll: Duration::from_millis(50),
            lease: Duration::from_secs(30),
            memory_limit_bytes,
            max_rebuilt_events,
            query_timeout: Duration::from_secs(30),
            limits,
            hot_keys: serving::HotKeySettings::default(),
        };
        Node::open(self.catalog.clone(), self.storage.clone(), self.functions.clone(), fresh, settings, now).await
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Worker {
    /// Stops the worker: it drains, checkpoints and releases its partitions.
    pub async fn finish(self) -> Result<()> {
        self.stop.cancel();
        self.task.await?
    }
}

/// Polls until `is_so` returns true; fails after two minutes.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        if began.elapsed() >= PATIENCE {
            timed_out::fail(format!("waited two minutes for {what}"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// All records that a topic has, partition by partition, each in the order of its offsets.
pub async fn records_of(log: &dyn Log, topic: &str) -> Result<Vec<(TopicPartition, Record)>> {
    const AT_ONCE: usize = 10_000;
    let mut records = Vec::new();
    for bounds in log.bounds(topic).await? {
        let source = TopicPartition { topic: topic.into(), partition: bounds.partition };
        let mut position = bounds.begin;
        while position < bounds.end {
            let fetched = log.read(&source, position, AT_ONCE).await?;
            records.extend(fetched.records.into_iter().map(|record| (source.clone(), record)));
            position = fetched.position;
        }
    }
    Ok(records)
}

/// The wall clock in microseconds since 1970.
pub fn now() -> Micros {
    chrono::Utc::now().timestamp_micros()
}
