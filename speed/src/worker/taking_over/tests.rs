use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use catalog::{Add, Catalog, Commit, DefinitionKind, DefinitionRecord, DefinitionStatus};
use committed::registry::Registry;
use datafusion::prelude::SessionContext;
use engine::fresh::{Fresh, FreshLayer};
use engine::plan::planning_session;
use event_log::{Consumer, Fetched, Log, LogEvent, NewRecord, Subscription};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use types::record::Record;
use types::vector::Vector;

use super::*;
use crate::harness::speed_layer;
use crate::layer::Speed;
use crate::progress::Activity;
use crate::worker::Next;

const STREAM: &str = "CREATE STREAM pay (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL)
    WITH (topic = 'payments', format = 'json', event_time = 'ts', key = 'id')";
const PARTITIONS: u32 = 8;

/// A log that counts what it is asked about its topics.
#[derive(Debug)]
struct CountingLog {
    log: Arc<dyn Log>,
    topic_id: Mutex<String>,
    identities: AtomicUsize,
    bounds: AtomicUsize,
    /// It has no records before this offset any more.
    begins_at: AtomicI64,
    /// While the bounds are asked for, somebody else commits a position of partition 0 here.
    other_owner: Option<Catalog>,
    /// The same of another commit, once.
    meanwhile: Mutex<Option<(Catalog, Commit)>>,
    /// It does not answer when it is asked for bounds.
    is_silent: bool,
}

#[async_trait]
impl Log for CountingLog {
    async fn create_topic(&self, topic: &str, partitions: u32) -> Result<u32> {
        self.log.create_topic(topic, partitions).await
    }

    async fn bounds(&self, topic: &str) -> Result<Vec<PartitionBounds>> {
        self.bounds.fetch_add(1, Ordering::SeqCst);
        if self.is_silent {
            std::future::pending::<()>().await;
        }
        let mut bounds = self.log.bounds(topic).await?;
        let begins_at = Offset(self.begins_at.load(Ordering::SeqCst));
        for partition in &mut bounds {
            (partition.begin, partition.end) = (partition.begin.max(begins_at), partition.end.max(begins_at));
        }
        if let Some(catalog) = &self.other_owner {
            let identity = self.log.identity(topic).await?;
            let partition = PartitionId::new("pay", 0);
            let gap = GapRecord { partition, start: Offset(0), end: Offset(5), reason: "elsewhere".into(), accepted_at: 0 };
            let commit = gap_commit(Uuid::now_v7(), None, gap, &identity);
            catalog.commit(commit).await?;
        }
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some((catalog, commit)) = meanwhile {
            catalog.commit(commit).await?;
        }
        Ok(bounds)
    }

    async fn identity(&self, topic: &str) -> Result<String> {
        self.identities.fetch_add(1, Ordering::SeqCst);
        self.log.identity(topic).await
    }

    async fn topic_id(&self, _: &str) -> Result<String> {
        Ok(self.topic_id.lock().unwrap().clone())
    }

    async fn append(&self, topic: &str, records: Vec<NewRecord>) -> Result<Vec<(i32, Offset)>> {
        self.log.append(topic, records).await
    }

    async fn read(&self, source: &TopicPartition, from: Offset, max_records: usize) -> Result<Fetched> {
        self.log.read(source, from, max_records).await
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Consumer> {
        self.log.subscribe(subscription).await
    }
}

async fn define(catalog: &Catalog, kind: DefinitionKind, name: &str, sql: &str) {
    let record = DefinitionRecord::first(kind, name, sql);
    catalog.commit(Commit { id: Uuid::now_v7(), add: vec![Add::Definition(record)], ..Commit::default() }).await.unwrap();
}

/// A speed layer over a new log, and that log.
async fn speed_over_counting(folder: &Path, is_owned_elsewhere: bool, is_silent: bool) -> (Arc<CountingLog>, Speed) {
    let mut speed = speed_layer(folder).await;
    define(&speed.catalog, DefinitionKind::Stream, "pay", STREAM).await;
    speed.log.create_topic("payments", PARTITIONS).await.unwrap();
    let other_owner = is_owned_elsewhere.then(|| speed.catalog.clone());
    let (identities, bounds) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (begins_at, meanwhile) = (AtomicI64::default(), Mutex::default());
    let (inner, topic_id) = (speed.log.clone(), Mutex::new("one".to_owned()));
    let log = Arc::new(CountingLog { log: inner, topic_id, identities, bounds, begins_at, other_owner, meanwhile, is_silent });
    speed.log = log.clone();
    (log, speed)
}

async fn worker<'a>(speed: &'a Speed, session: &'a SessionContext, stop: &CancellationToken) -> Worker<'a> {
    let state = speed.catalog.state().await.unwrap();
    let registry = Registry::load(&state, &speed.functions).await.unwrap();
    Worker::new(speed, session, (registry, state.revision), Default::default(), stop.clone()).await.unwrap()
}

fn all_partitions() -> Vec<TopicPartition> {
    (0..PARTITIONS as i32).map(|partition| TopicPartition { topic: "payments".into(), partition }).collect()
}

/// Lets a worker take all partitions over; answers the log, and where they start.
async fn assigned(is_owned_elsewhere: bool) -> (Arc<CountingLog>, Result<Vec<(TopicPartition, Offset)>>) {
    let folder = tempfile::tempdir().unwrap();
    let (log, speed) = speed_over_counting(folder.path(), is_owned_elsewhere, false).await;
    let session = planning_session(&speed.functions).unwrap();
    let mut worker = worker(&speed, &session, &CancellationToken::new()).await;
    let starts = worker.take_over(&all_partitions()).await;
    (log, starts)
}

#[tokio::test]
async fn a_log_is_asked_once_about_a_topic_however_many_of_its_partitions_are_taken_over() {
    let (log, starts) = assigned(false).await;
    let starts = starts.unwrap();
    assert_eq!(starts.len(), PARTITIONS as usize);
    assert!(starts.iter().all(|(_, offset)| *offset == Offset::ZERO), "{starts:?}");
    assert_eq!((log.identities.load(Ordering::SeqCst), log.bounds.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test]
async fn a_position_that_another_owner_commits_while_the_log_is_asked_is_not_taken_for_one_past_its_end() {
    let (_, starts) = assigned(true).await;
    // From where the catalog's state said, which the commit will refuse; and not "the log is shorter than the catalog".
    assert_eq!(starts.unwrap()[0].1, Offset::ZERO);
}

/// An event of partition 0.
fn fetched(offset: i64) -> Fetched {
    let value = format!(r#"{{"id": "{offset}", "ts": "1970-01-01T00:00:00Z"}}"#);
    let record = Record { offset: Offset(offset), timestamp: 0, key: None, value: Some(value.into()), headers: Vec::new() };
    let source = all_partitions().swap_remove(0);
    Fetched { source, records: vec![record], position: Offset(offset + 1), at_end: false, fetched_at: 0 }
}

/// Its consumer may have gone on at the same offset of the new topic, whose earlier records would be left out.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_read_of_a_topic_that_is_recreated_meanwhile_is_not_committed() {
    let folder = tempfile::tempdir().unwrap();
    let (log, speed) = speed_over_counting(folder.path(), false, false).await;
    let session = planning_session(&speed.functions).unwrap();
    let mut worker = worker(&speed, &session, &CancellationToken::new()).await;
    worker.take_over(&all_partitions()).await.unwrap();
    worker.take(fetched(0)).await.unwrap();
    worker.checkpoint().await.unwrap();
    *log.topic_id.lock().unwrap() = "another".to_owned();
    worker.take(fetched(1)).await.unwrap();
    let error = worker.checkpoint().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("topic: payments, found: another, expected: one"), "{error}");
    let committed = speed.catalog.state().await.unwrap().vector();
    assert_eq!(committed.get(&PartitionId::new("pay", 0)), Offset(1));
}

/// The stream begins anew, in another topic.
async fn begin_anew(catalog: &Catalog) -> Commit {
    let state = catalog.state().await.unwrap();
    let before = state.definitions.get(DefinitionKind::Stream, "pay", 1).unwrap();
    let sql = STREAM.replace("topic = 'payments'", "topic = 'orders'");
    let anew = DefinitionRecord { version: 2, sql, ..before.clone() };
    let before = DefinitionRecord { status: DefinitionStatus::Redecoded, ..before.clone() };
    Commit { id: Uuid::now_v7(), add: vec![Add::Definition(before), Add::Definition(anew)], ..Commit::default() }
}

#[tokio::test]
async fn a_gap_at_the_beginning_of_a_topic_that_a_stream_has_left_is_not_committed() {
    let folder = tempfile::tempdir().unwrap();
    let (log, speed) = speed_over_counting(folder.path(), false, false).await;
    log.begins_at.store(5, Ordering::SeqCst);
    let session = planning_session(&speed.functions).unwrap();
    let mut worker = worker(&speed, &session, &CancellationToken::new()).await;
    let anew = begin_anew(&speed.catalog).await;
    *log.meanwhile.lock().unwrap() = Some((speed.catalog.clone(), anew));
    assert_eq!(worker.take_over(&all_partitions()).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert!(speed.catalog.state().await.unwrap().partitions.is_empty());
}

/// It may take over only now what a worker by the new definition has already read.
#[tokio::test]
async fn a_worker_of_the_topic_before_withdraws_nothing_of_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let (_, mut speed) = speed_over_counting(folder.path(), false, false).await;
    let fresh = Fresh::default();
    speed.fresh = Some(fresh.for_worker());
    let session = planning_session(&speed.functions).unwrap();
    let mut late = worker(&speed, &session, &CancellationToken::new()).await;
    speed.catalog.commit(begin_anew(&speed.catalog).await).await.unwrap();
    let end: Vector = [(PartitionId::new("pay", 0), Offset(3))].into_iter().collect();
    let start = end.iter().map(|(id, _)| (id.clone(), Offset::ZERO)).collect();
    let layer = FreshLayer { start, end, states: Default::default(), failures: Default::default(), max_event_time: Default::default() };
    fresh.for_worker().publish(layer, []);
    assert_eq!(late.take_over(&all_partitions()).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(fresh.layers(), 1);
}

#[tokio::test]
async fn a_stop_does_not_wait_until_partitions_are_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let (_, speed) = speed_over_counting(folder.path(), false, true).await;
    let session = planning_session(&speed.functions).unwrap();
    let stop = CancellationToken::new();
    let mut worker = worker(&speed, &session, &stop).await;
    let (start, started) = oneshot::channel();
    let assigned = LogEvent::Assigned { partitions: all_partitions(), start };
    let stopping = async {
        while speed.progress.activity() != (Activity::TakingOver { partitions: PARTITIONS as usize }) {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    };
    let stopped = async { tokio::join!(worker.handle(assigned), stopping) };
    let (next, ()) = tokio::time::timeout(Duration::from_secs(60), stopped).await.expect("timed out: the worker does not stop");
    assert_eq!(next.unwrap(), Next::Stop);
    assert!(started.await.is_err(), "the consumer got no start");
}

#[tokio::test]
async fn a_worker_shows_what_it_is_doing() {
    let folder = tempfile::tempdir().unwrap();
    let (_, speed) = speed_over_counting(folder.path(), false, false).await;
    assert_eq!(speed.progress.activity(), Activity::Starting);
    let session = planning_session(&speed.functions).unwrap();
    let mut worker = worker(&speed, &session, &CancellationToken::new()).await;
    let (start, _started) = oneshot::channel();
    assert_eq!(worker.handle(LogEvent::Assigned { partitions: all_partitions(), start }).await.unwrap(), Next::Continue);
    assert_eq!(speed.progress.activity(), Activity::Reading { partitions: PARTITIONS as usize });
    let (done, _is_done) = oneshot::channel();
    let half = all_partitions().split_off(PARTITIONS as usize / 2);
    assert_eq!(worker.handle(LogEvent::Revoked { partitions: half, done }).await.unwrap(), Next::Continue);
    assert_eq!(speed.progress.activity(), Activity::Reading { partitions: PARTITIONS as usize / 2 });
}

/// Otherwise its process would claim them from their next owner.
#[tokio::test]
async fn a_worker_gives_up_what_is_revoked_and_all_it_has_when_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (_, mut speed) = speed_over_counting(folder.path(), false, false).await;
    let fresh = Fresh::unread();
    speed.fresh = Some(fresh.for_worker());
    let session = planning_session(&speed.functions).unwrap();
    let mut worker = worker(&speed, &session, &CancellationToken::new()).await;
    let owned = || fresh.subscribe().snapshot.claims.len();
    let (start, _started) = oneshot::channel();
    worker.handle(LogEvent::Assigned { partitions: all_partitions(), start }).await.unwrap();
    assert_eq!(owned(), PARTITIONS as usize);
    let (done, _is_done) = oneshot::channel();
    let half = all_partitions().split_off(PARTITIONS as usize / 2);
    worker.handle(LogEvent::Revoked { partitions: half, done }).await.unwrap();
    assert_eq!(owned(), PARTITIONS as usize / 2);
    worker.withdraw().await;
    assert_eq!(owned(), 0);
}

/// The owner before may have put records out by newer definitions and values of parameters.
#[tokio::test]
async fn a_worker_that_takes_over_has_the_definitions_of_then_before_it_decides_an_event() {
    const BY_ID: &str = "CREATE VIEW by_id AS SELECT id, count(*) AS n FROM pay GROUP BY id";
    const OTHER: &str = "CREATE STREAM other (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL)
        WITH (topic = 'others', format = 'json', event_time = 'ts', key = 'id')";
    let folder = tempfile::tempdir().unwrap();
    let (_, speed) = speed_over_counting(folder.path(), false, false).await;
    let session = planning_session(&speed.functions).unwrap();
    let mut worker = worker(&speed, &session, &CancellationToken::new()).await;
    define(&speed.catalog, DefinitionKind::View, "by_id", BY_ID).await;
    worker.take_over(&all_partitions()).await.unwrap();
    assert!(!worker.poll_definitions().await.unwrap());
    assert!(worker.registry.view("by_id", 1).is_some());
    // Where it has to subscribe anew for that, it decides nothing before.
    define(&speed.catalog, DefinitionKind::Stream, "other", OTHER).await;
    worker.take_over(&all_partitions()).await.unwrap();
    assert_eq!(worker.poll_definitions().await.unwrap_err().kind(), ErrorKind::Conflict);
}
