use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use catalog::{Add, Catalog, Commit, DefinitionKind, DefinitionRecord, DefinitionStatus};
use committed::registry::Registry;
use engine::functions::Functions;
use engine::plan::planning_session;
use event_log::{Consumer, Fetched, Log, NewRecord, Subscription};
use storage::ObjectStorage;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::decide::DedupSettings;
use crate::layer::{Speed, SpeedSettings};

const STREAM: &str = "CREATE STREAM pay (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL)
    WITH (topic = 'payments', format = 'json', event_time = 'ts', key = 'id')";
const PARTITIONS: u32 = 8;

/// A log that counts what it is asked about its topics.
#[derive(Debug)]
struct Asked {
    log: Arc<dyn Log>,
    identities: AtomicUsize,
    bounds: AtomicUsize,
    /// While the bounds are asked for, somebody else commits a position of partition 0 here.
    other_owner: Option<Catalog>,
}

#[async_trait]
impl Log for Asked {
    async fn create_topic(&self, topic: &str, partitions: u32) -> Result<u32> {
        self.log.create_topic(topic, partitions).await
    }

    async fn bounds(&self, topic: &str) -> Result<Vec<PartitionBounds>> {
        self.bounds.fetch_add(1, Ordering::SeqCst);
        let bounds = self.log.bounds(topic).await?;
        if let Some(catalog) = &self.other_owner {
            let identity = self.log.identity(topic).await?;
            let id = PartitionId::new("pay", 0);
            let commit = gap_commit(Uuid::now_v7(), None, &id, (Offset(0), Offset(5)), "elsewhere".into(), &identity, 0);
            catalog.commit(commit).await?;
        }
        Ok(bounds)
    }

    async fn identity(&self, topic: &str) -> Result<String> {
        self.identities.fetch_add(1, Ordering::SeqCst);
        self.log.identity(topic).await
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

/// Lets a worker take all partitions over; answers the log, and where they start.
async fn assigned(is_owned_elsewhere: bool) -> (Arc<Asked>, Result<Vec<(TopicPartition, Offset)>>) {
    let folder = tempfile::tempdir().unwrap();
    let url = |name: &str| format!("file://{}", folder.path().join(name).display());
    let catalog = Catalog::open("sqlite::memory:").await.unwrap();
    let stream = DefinitionRecord {
        kind: DefinitionKind::Stream,
        name: "pay".into(),
        version: 1,
        sql: STREAM.into(),
        status: DefinitionStatus::Active,
        created_at: 0,
    };
    catalog.commit(Commit { id: Uuid::now_v7(), add: vec![Add::Definition(stream)], ..Commit::default() }).await.unwrap();
    let log = event_log::open(&url("log"), &BTreeMap::new()).await.unwrap();
    log.create_topic("payments", PARTITIONS).await.unwrap();
    let other_owner = is_owned_elsewhere.then(|| catalog.clone());
    let log = Arc::new(Asked { log, identities: AtomicUsize::new(0), bounds: AtomicUsize::new(0), other_owner });
    let speed = Speed {
        catalog: catalog.clone(),
        storage: ObjectStorage::open(&url("storage")).unwrap(),
        log: log.clone(),
        functions: Functions::standard(),
        fresh: None,
        settings: SpeedSettings {
            worker: "worker".into(),
            group: "basestream".into(),
            checkpoint_interval: Duration::from_secs(1),
            checkpoint_bytes: 1 << 20,
            max_future: Duration::from_secs(600),
            partitions: PARTITIONS,
            dedup: DedupSettings { memory_bytes: 1 << 20, folder: folder.path().join("dedup") },
            accept_gap: false,
        },
        clock: Arc::new(|| 0),
    };
    let session = planning_session(&speed.functions).unwrap();
    let state = catalog.state().await.unwrap();
    let registry = Registry::load(&state, &speed.functions).await.unwrap();
    let mut worker = Worker::new(&speed, &session, registry, state.revision, CancellationToken::new()).await.unwrap();
    let source = |partition| TopicPartition { topic: "payments".into(), partition };
    let partitions: Vec<TopicPartition> = (0..PARTITIONS as i32).map(source).collect();
    let starts = worker.assign(&partitions).await;
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
