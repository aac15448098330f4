//! A serving node over real parts in memory, for tests: events become archive files and checkpoints, snapshots are cut
//! from them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use catalog::{
    Add, Catalog, CheckpointRange, CheckpointRecord, Commit, DefinitionKind, DefinitionRecord, DefinitionStatus, NewWorker, SnapshotRecord,
    checkpoint_commit,
};
use definitions::StreamDefinition;
use engine::events::{Decoder, EventBatchBuilder};
use engine::fresh::{Complete, Fresh, FreshLayer};
use engine::functions::Functions;
use engine::states::{Partial, bucket_of, rollup, sort_and_merge};
use event_log::Log;
use storage::{BucketWriter, MANIFEST_FORMAT, Manifest, ObjectStorage, Tier, write_archive, write_manifest};
use types::files::FileRecord;
use types::files::ObjectName;
use types::record::Record;
use types::tiles::{Clock, Micros};
use types::vector::{Offset, PartitionId, Vector};
use uuid::Uuid;

use crate::archive::archive_layer;
use crate::follower::Follower;
use crate::query_context::QueryContext;
use crate::{Node, NodeSettings, ServingClock, WantedViews};

mod silent_log;

pub(crate) use silent_log::SilentLog;

pub(crate) const PAYMENTS: &str = "CREATE STREAM payments (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, device TEXT, amount DECIMAL(18,2) NOT NULL, \
    status TEXT NOT NULL) WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '10m', key = 'device')";
pub(crate) const VELOCITY: &str = "CREATE VIEW velocity WITH (windows = '1h, 7d') AS SELECT device, count(*) AS n, sum(amount) AS amount, \
    max(ts) FILTER (WHERE within(ts, 'all')) AS last_seen FROM payments WHERE status <> 'no' GROUP BY device";
pub(crate) const TOTALS: &str = "CREATE VIEW totals AS SELECT count(*) AS n, sum(amount) AS amount FROM payments";
pub(crate) const PAIRS: &str =
    "CREATE VIEW pairs AS SELECT device, status, count(*) AS n, approx_distinct(id) AS ids FROM payments GROUP BY device, status";

/// 2026-03-02T12:00:00Z: the harness's now.
pub(crate) const NOW: Micros = 1_772_452_800_000_000;

const BUCKETS: u32 = 3;

pub(crate) struct Harness {
    pub(crate) catalog: Catalog,
    pub(crate) storage: ObjectStorage,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) node: Node,
    fresh: Fresh,
    /// Where the next event of each partition of `payments` goes, fresh ones included.
    next: std::sync::Mutex<BTreeMap<i32, i64>>,
    stream: Arc<StreamDefinition>,
    folder: tempfile::TempDir,
}

/// An event of `payments`.
pub(crate) fn event(id: &str, ts: &str, device: &str, amount: &str, status: &str) -> String {
    let device = if device.is_empty() { "null".to_owned() } else { format!("\"{device}\"") };
    format!(r#"{{"id":"{id}","ts":"{ts}","device":{device},"amount":{amount},"status":"{status}"}}"#)
}

fn node_settings(cache: &Path, views: WantedViews) -> NodeSettings {
    NodeSettings {
        name: "harness".into(),
        views,
        clock: ServingClock::Wall,
        at_once: false,
        cache: cache.to_owned(),
        cache_bytes: None,
        poll: Duration::from_millis(20),
        lease: Duration::from_secs(30),
        memory_limit_bytes: 64 << 20,
        max_rebuilt_events: committed::lacking::MAX_REBUILT_EVENTS,
        query_timeout: Duration::from_secs(30),
        limits: crate::ServingLimits::default(),
        hot_keys: crate::HotKeySettings::default(),
    }
}

impl Harness {
    pub(crate) async fn new() -> Harness {
        Harness::with_settings(|settings| settings).await
    }

    /// With a node of these settings.
    pub(crate) async fn with_settings(change: impl FnOnce(NodeSettings) -> NodeSettings) -> Harness {
        Harness::with_definitions(PAYMENTS, &[("velocity", VELOCITY), ("totals", TOTALS), ("pairs", PAIRS)], change).await
    }

    /// Of this stream, which is `payments`, and these views.
    pub(crate) async fn with_definitions(
        stream: &str,
        views: &[(&str, &str)],
        change: impl FnOnce(NodeSettings) -> NodeSettings,
    ) -> Harness {
        let folder = tempfile::tempdir().unwrap();
        let catalog = Catalog::open("sqlite::memory:").await.unwrap();
        let storage = ObjectStorage::open("memory://").unwrap();
        let log = event_log::open(&format!("file://{}/log", folder.path().display()), &BTreeMap::new()).await.unwrap();
        let mut add = vec![definition(DefinitionKind::Stream, "payments", stream)];
        add.extend(views.iter().map(|(name, sql)| definition(DefinitionKind::View, name, sql)));
        catalog.commit(Commit { id: Uuid::now_v7(), add, ..Commit::default() }).await.unwrap();
        let settings = change(node_settings(&folder.path().join("cache"), WantedViews::All));
        let fresh = Fresh::default();
        let node = Node::open(catalog.clone(), storage.clone(), Functions::standard(), Some(fresh.clone()), settings, Arc::new(|| NOW))
            .await
            .unwrap();
        let stream = node.loaded().unwrap().registry.streams["payments"].definition.clone();
        Harness { catalog, storage, log, node, fresh, next: Default::default(), stream, folder }
    }

    /// Another node, which loads these views alone and has no fresh layers.
    pub(crate) async fn node_of(&self, views: WantedViews) -> Node {
        let settings = node_settings(&self.folder.path().join("another"), views);
        Node::open(self.catalog.clone(), self.storage.clone(), Functions::standard(), None, settings, Arc::new(|| NOW)).await.unwrap()
    }

    /// Another node, as in a process without a worker, with these fresh layers.
    pub(crate) async fn node_apart(&self, fresh: &Fresh) -> Node {
        let settings = node_settings(&self.folder.path().join(format!("apart-{}", Uuid::new_v4())), WantedViews::All);
        Node::open(self.catalog.clone(), self.storage.clone(), Functions::standard(), Some(fresh.clone()), settings, Arc::new(|| NOW))
            .await
            .unwrap()
    }

    /// Registers this process at an address, as the owner of both partitions, and returns what its worker shares.
    pub(crate) async fn register(&self, name: &str, address: &str) -> Fresh {
        let worker = NewWorker { name: name.into(), address: address.into(), expires_at: NOW + 1_000_000 };
        let commit = Commit { id: Uuid::now_v7(), add: vec![Add::NewWorker(worker)], ..Commit::default() };
        let epoch = self.catalog.commit(commit).await.unwrap();
        let partitions = [0, 1].map(|partition| PartitionId::new("payments", partition));
        self.fresh.take_over(epoch, &self.node.loaded().unwrap().vector, &partitions);
        let views = self.node.loaded().unwrap().registry.views.clone();
        self.fresh.keep(views.iter().map(|view| (view.view_version(), view.plan.stamp.as_str().into())));
        self.fresh.clone()
    }

    /// What follows the catalog in another node that reads the same fresh layers; nothing is loaded yet.
    pub(crate) fn follower_with_fresh(&self) -> Follower {
        let settings = node_settings(&self.folder.path().join("beside"), WantedViews::All);
        let (catalog, storage, fresh) = (self.catalog.clone(), self.storage.clone(), Some(self.fresh.clone()));
        Follower::new(catalog, storage, Functions::standard(), fresh, settings, Arc::new(|| NOW)).unwrap()
    }

    /// What follows the catalog in another node; nothing is loaded yet.
    pub(crate) fn follower(&self) -> Follower {
        self.follower_with_clock(Arc::new(|| NOW))
    }

    /// The same, with this clock.
    pub(crate) fn follower_with_clock(&self, wall: Clock) -> Follower {
        let settings = node_settings(&self.folder.path().join("follower"), WantedViews::All);
        Follower::new(self.catalog.clone(), self.storage.clone(), Functions::standard(), None, settings, wall).unwrap()
    }

    /// Another node, which computes the states of at most this many archived events in one refresh.
    pub(crate) async fn node_that_rebuilds(&self, max_rebuilt_events: i64) -> Node {
        let settings =
            NodeSettings { at_once: true, max_rebuilt_events, ..node_settings(&self.folder.path().join("busy"), WantedViews::All) };
        Node::open(self.catalog.clone(), self.storage.clone(), Functions::standard(), None, settings, Arc::new(|| NOW)).await.unwrap()
    }

    /// Another node, which stops queries over HTTP after this time.
    pub(crate) async fn node_with_query_timeout(&self, query_timeout: Duration) -> Node {
        let settings = NodeSettings { query_timeout, ..node_settings(&self.folder.path().join("brief"), WantedViews::All) };
        Node::open(self.catalog.clone(), self.storage.clone(), Functions::standard(), None, settings, Arc::new(|| NOW)).await.unwrap()
    }

    /// Some events in two checkpoints with a snapshot between them, so that an answer needs both sides.
    pub(crate) async fn filled() -> Harness {
        let harness = Harness::new().await;
        harness
            .checkpoint(
                0,
                &[
                    event("1", "2026-03-02T11:30:00Z", "a", "10.00", "ok"),
                    event("2", "2026-03-01T10:00:00Z", "a", "5.50", "ok"),
                    event("3", "2026-03-01T10:20:00Z", "b", "1.25", "no"),
                ],
            )
            .await;
        harness.checkpoint(1, &[event("4", "2026-03-01T09:00:00Z", "", "7.00", "ok")]).await;
        harness.snapshot("velocity").await;
        harness
            .checkpoint(
                0,
                &[event("5", "2026-03-02T11:45:00Z", "a", "100.00", "ok"), event("6", "2026-03-02T11:50:00Z", "c<&", "2.00", "ok")],
            )
            .await;
        harness.node.refresh().await.unwrap();
        harness
    }

    /// Archives events of one partition and commits them.
    pub(crate) async fn checkpoint(&self, partition: i32, events: &[String]) {
        let (start, batch) = self.batch(partition, events);
        let id = Uuid::now_v7();
        let newest = events
            .iter()
            .filter_map(|event| Decoder::new(self.stream.clone()).unwrap().decode(Some(event.as_bytes())).ok().map(|e| e.event_time()))
            .max();
        let file = write_archive(&self.storage, &self.stream.name, id, 1, vec![batch]).await.unwrap();
        let range = CheckpointRange {
            clock: Some(NOW),
            max_event_time: self.known_max(partition).await.max(newest),
            complete_to: Some(NOW),
            ..CheckpointRange::of_events(PartitionId::new("payments", partition), start, start + events.len() as i64)
        };
        let record = CheckpointRecord::new(id, "harness", NOW, vec![range.clone()]);
        let identities = BTreeMap::from([(range.partition.clone(), "log".to_owned())]);
        self.catalog.commit(checkpoint_commit(record, vec![file], &identities)).await.unwrap();
    }

    /// A stream that no view reads, with this many duplicate records.
    pub(crate) async fn other_stream(&self, name: &str, duplicates: i64) {
        let sql = PAYMENTS.replace("payments", name);
        let add = vec![definition(DefinitionKind::Stream, name, &sql)];
        self.catalog.commit(Commit { id: Uuid::now_v7(), add, ..Commit::default() }).await.unwrap();
        let range = CheckpointRange {
            partition: PartitionId::new(name, 0),
            start: Offset(0),
            end: Offset(duplicates),
            archived: 0,
            duplicate: duplicates,
            dead_lettered: 0,
            absent: 0,
            clock: Some(NOW),
            max_event_time: None,
            complete_to: Some(NOW),
        };
        let identities = BTreeMap::from([(range.partition.clone(), "log".to_owned())]);
        let record = CheckpointRecord::new(Uuid::now_v7(), "harness", NOW, vec![range]);
        self.catalog.commit(checkpoint_commit(record, Vec::new(), &identities)).await.unwrap();
    }

    async fn known_max(&self, partition: i32) -> Option<Micros> {
        self.catalog.state().await.unwrap().partitions.get(&PartitionId::new("payments", partition)).and_then(|p| p.max_event_time)
    }

    /// Publishes events as a layer that is not checkpointed.
    pub(crate) async fn fresh(&self, partition: i32, events: &[String]) {
        let (start, batch) = self.batch(partition, events);
        let id = PartitionId::new("payments", partition);
        let (mut states, mut failures) = (BTreeMap::new(), BTreeMap::new());
        for view in &self.node.loaded().unwrap().registry.views {
            let mut partial = Partial::new(view.plan.clone(), self.node.session()).unwrap();
            let made = partial.states("payments", std::slice::from_ref(&batch)).await.unwrap();
            failures.insert(view.view_version(), Arc::new(partial.take_failures()));
            states.insert(view.view_version(), Arc::new(sort_and_merge(&view.plan, &view.codec, &made).unwrap()));
        }
        let times = batch.column_by_name("__event_time").unwrap();
        let newest = arrow::compute::max(arrow::array::AsArray::as_primitive::<arrow::datatypes::TimestampMicrosecondType>(times)).unwrap();
        let layer = FreshLayer {
            start: Vector::from_iter([(id.clone(), Offset(start))]),
            end: Vector::from_iter([(id.clone(), Offset(start + events.len() as i64))]),
            states,
            failures,
            max_event_time: BTreeMap::from([(self.stream.name.clone(), newest)]),
        };
        let complete = Complete { position: layer.end.get(&id), partition: id, time: NOW + 1 };
        self.fresh.publish(layer, [complete]);
    }

    /// Publishes until when a partition is complete, as a worker does that finds nothing new in it.
    pub(crate) fn complete(&self, partition: i32, time: Micros) {
        let partition = PartitionId::new("payments", partition);
        let position = self.node.read_view().unwrap().vector.get(&partition);
        self.fresh.complete([Complete { partition, position, time }]);
    }

    /// Withdraws what is not checkpointed of a partition, as when its worker goes: it is to be read again.
    pub(crate) fn withdraw(&self, partition: i32) {
        let (id, committed) = (PartitionId::new("payments", partition), self.node.loaded().unwrap().vector.clone());
        self.next.lock().unwrap().insert(partition, committed.get(&id).0);
        self.fresh.take_over(0, &committed, &[id]);
    }

    /// What the speed layer of this process says of its commits.
    pub(crate) fn note(&self, outcome: types::Result<()>) {
        self.fresh.note(&outcome);
    }

    /// One more view, served from the archive's events.
    pub(crate) async fn define_view(&self, name: &str, sql: &str) {
        self.define(DefinitionKind::View, name, sql).await;
    }

    pub(crate) async fn define(&self, kind: DefinitionKind, name: &str, sql: &str) {
        let add = vec![definition(kind, name, sql)];
        self.catalog.commit(Commit { id: Uuid::now_v7(), add, ..Commit::default() }).await.unwrap();
        self.node.refresh().await.unwrap();
    }

    /// Publishes a snapshot of all that is committed.
    pub(crate) async fn snapshot(&self, view: &str) {
        self.snapshot_of_release(view, "").await;
    }

    /// The same, with this at the end of its states' stamp.
    pub(crate) async fn snapshot_of_release(&self, view: &str, release: &str) {
        self.node.refresh().await.unwrap();
        let read_view = self.node.read_view().unwrap();
        let live = read_view.live(view).unwrap().clone();
        let context = QueryContext::new(self.node.read_view().unwrap(), None, &[] as &[&str]).unwrap();
        let state = &read_view.loaded.state;
        let all = archive_layer(self.node.runtime(), &live, &context, None).await.unwrap();
        let (run, floors) = (Uuid::now_v7(), live.plan.floors(NOW));
        let (mut files, mut records): (Vec<_>, Vec<FileRecord>) = Default::default();
        let mut rows = 0;
        for bucket in 0..BUCKETS {
            let of_bucket: Vec<RecordBatch> = all
                .run
                .chunks()
                .iter()
                .map(|chunk| {
                    let inside = (0..chunk.len() as u32).filter(|row| bucket_of(chunk.keys().value(*row as usize), BUCKETS) == bucket);
                    take_record_batch(chunk.batch(), &UInt32Array::from_iter_values(inside)).unwrap()
                })
                .collect();
            let finest = sort_and_merge(&live.plan, &live.codec, &of_bucket).unwrap();
            let rolled_up = rollup(&live.plan, &finest, &floors).unwrap();
            if rolled_up.is_empty() {
                continue;
            }
            let schema = live.plan.state_schema().clone();
            let name = ObjectName::Bucket { view: live.name.clone(), version: live.version, run, bucket };
            let mut writer = BucketWriter::begin(&self.storage, name, bucket, schema, Vec::new()).await.unwrap();
            writer.push(rolled_up.batch()).await.unwrap();
            let (file, record) = writer.finish().await.unwrap();
            rows += rolled_up.len() as i64;
            files.push(file);
            records.push(record);
        }
        let manifest = Manifest {
            format: MANIFEST_FORMAT,
            view: live.name.clone(),
            version: live.version,
            run,
            cut: state.vector(),
            stamp: format!("{}{release}", live.plan.stamp),
            base: Tier { bucket_count: BUCKETS, files, pruned_at: None },
            deltas: Vec::new(),
            floors,
            edges_from: Default::default(),
            left_out: None,
            max_event_time: read_view.max_event_time(&live),
            made_at: NOW,
            recomputed_at: None,
            gaps: 0,
            events: 0,
            expired: 0,
            rows,
            failures: all.failures.clone(),
            joined: None,
        };
        let file = write_manifest(&self.storage, &manifest).await.unwrap();
        let record = SnapshotRecord {
            view: live.name.clone(),
            version: live.version,
            run,
            cut: state.vector(),
            manifest: file.path.clone(),
            published_at: NOW,
        };
        let mut add: Vec<Add> = records.into_iter().chain([file]).map(Add::File).collect();
        add.push(Add::Snapshot(record));
        self.catalog.commit(Commit { id: Uuid::now_v7(), add, ..Commit::default() }).await.unwrap();
        self.node.refresh().await.unwrap();
    }

    pub(crate) fn batch(&self, partition: i32, events: &[String]) -> (i64, RecordBatch) {
        let decoder = Decoder::new(self.stream.clone()).unwrap();
        let mut next = self.next.lock().unwrap();
        let next = next.entry(partition).or_default();
        let start = *next;
        let mut builder = EventBatchBuilder::new(&self.stream);
        for text in events {
            let record = Record { offset: Offset(*next), timestamp: NOW, key: None, value: Some(text.clone().into()), headers: Vec::new() };
            builder.append(&decoder.decode(Some(text.as_bytes())).unwrap(), partition, &record).unwrap();
            *next += 1;
        }
        (start, builder.finish().unwrap())
    }
}

/// An active definition, as a part of a commit.
pub fn definition(kind: DefinitionKind, name: &str, sql: &str) -> Add {
    let record = DefinitionRecord {
        kind,
        name: name.into(),
        version: 1,
        sql: sql.to_owned(),
        status: DefinitionStatus::Active,
        created_at: 0,
        since: 0,
        kept_until: None,
        rolled_back: false,
    };
    Add::Definition(record)
}
