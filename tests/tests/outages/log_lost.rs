//! A topic that lost unread records, or that was replaced by another: it is refused, with partition and range, and
//! nothing changes.

use std::time::Duration;

use basestream_tests::patience::PATIENCE;
use basestream_tests::services::engines;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use types::vector::Vector;
use types::{ErrorKind, timed_out};

use crate::feed::{Feed, truth};
use crate::harness::{Engines, Routes, table};
use crate::{SERVICES, show_logs, until};

const CHECKPOINTS: Duration = Duration::from_millis(200);

struct Read {
    _shared: tokio::sync::RwLockReadGuard<'static, ()>,
    engines: Engines,
    admin: AdminClient<DefaultClientContext>,
    events: u64,
    committed: Vector,
}

/// A topic of one partition that a worker read to its end before it was stopped.
async fn read(test: &str) -> Read {
    show_logs();
    let _shared = SERVICES.read().await;
    let urls = engines(test).await;
    let brokers = urls.log.trim_start_matches("kafka://").to_owned();
    let engines = Engines::open(urls, 1, Routes::default()).await;
    let worker = engines.worker("one", CHECKPOINTS, None);
    let events = feed(&engines, 0, 1_000).await;
    engines.reaches_the_end().await;
    worker.finish().await.unwrap();
    let committed = engines.harness.catalog.state().await.unwrap().vector();
    let admin = ClientConfig::new().set("bootstrap.servers", brokers).create().unwrap();
    Read { _shared, engines, admin, events, committed }
}

async fn feed(engines: &Engines, from: u64, events: u64) -> u64 {
    let feed = Feed::from(from, engines.direct_log().await, &engines.topic, 50, Duration::from_millis(1));
    until("events", async || feed.sent() >= from + events).await;
    feed.finish().await.events
}

impl Read {
    /// Checks that a new worker refuses to continue with these words in its error, and that what is served and
    /// committed does not change.
    async fn is_refused(&self, words: &[&str]) {
        let worker = self.engines.worker("two", CHECKPOINTS, None);
        let ended = tokio::time::timeout(PATIENCE, worker.task).await;
        let error = ended.unwrap_or_else(|_| timed_out::fail("the worker goes on")).unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input, "{error}");
        for word in words.iter().chain(&["payments/0"]) {
            assert!(error.to_string().contains(word), "\"{word}\" in: {error}");
        }
        let state = self.engines.harness.catalog.state().await.unwrap();
        assert_eq!((state.vector(), state.gaps.len()), (self.committed.clone(), 0));
        let node = self.engines.harness.node(serving::ServingClock::Event, None).await.unwrap();
        assert_eq!(table(&node), truth(0..self.events));
    }

    async fn recreate(&self) {
        self.delete().await;
        self.engines.direct_log().await.create_topic(&self.engines.topic, 1).await.unwrap();
    }

    async fn delete(&self) {
        let topic = &self.engines.topic;
        let deleted = self.admin.delete_topics(&[topic], &AdminOptions::new()).await.unwrap();
        assert!(deleted.iter().all(Result::is_ok), "{deleted:?}");
        until("the topic to be gone", async || self.engines.direct_log().await.bounds(topic).await.is_ok_and(|bounds| bounds.is_empty()))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-outages"]
async fn retention_past_the_committed_offset_is_refused_with_partition_and_range() {
    let read = read("retention").await;
    let end = feed(&read.engines, read.events, 1_000).await;
    let mut upto = rdkafka::TopicPartitionList::new();
    let begin = read.events as i64 + 500;
    upto.add_partition_offset(&read.engines.topic, 0, rdkafka::Offset::Offset(begin)).unwrap();
    read.admin.delete_records(&upto, &AdminOptions::new()).await.unwrap();
    let log = read.engines.direct_log().await;
    until("the records to be gone", async || log.bounds(&read.engines.topic).await.unwrap()[0].begin.0 == begin).await;
    let (committed, has) = (format!("committed: {}", read.events), format!("{begin}..{end}"));
    read.is_refused(&["expired past the committed offset", &committed, &has]).await;

    // An operator accepts the gap: it is recorded, and the worker continues.
    let worker = read.engines.worker_that("three", CHECKPOINTS, None, true);
    read.engines.reaches_the_end().await;
    worker.finish().await.unwrap();
    let state = read.engines.harness.catalog.state().await.unwrap();
    let gaps: Vec<(i64, i64)> = state.gaps.iter().map(|gap| (gap.start.0, gap.end.0)).collect();
    assert_eq!(gaps, [(read.events as i64, begin)]);
    let node = read.engines.harness.node(serving::ServingClock::Event, None).await.unwrap();
    assert_eq!(table(&node), truth((0..read.events).chain(begin as u64..end)));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-outages"]
async fn a_topic_made_anew_that_is_shorter_is_refused_with_partition_and_range() {
    let read = read("shortened").await;
    read.recreate().await;
    let end = feed(&read.engines, 0, 300).await;
    assert!(end < read.events);
    read.is_refused(&[&format!("committed: {}", read.events), &format!("0..{end}")]).await;
}

/// Its bounds and its name are unchanged; only its records show that it is another.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-outages"]
async fn a_topic_made_anew_that_grew_past_the_committed_offset_is_refused_by_its_record() {
    let read = read("regrown").await;
    read.recreate().await;
    let end = feed(&read.engines, read.events, read.events + 300).await;
    assert!(end > read.events);
    let last = format!("offset: {}", read.events - 1);
    read.is_refused(&["record at the last committed offset is not the one", &last, "new name"]).await;
}

/// Kafka's own error says no more than that an offset or a topic is not there. The worker begins again from the
/// catalog, which knows what was there before.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-outages"]
async fn a_topic_that_changes_under_a_worker_is_refused_with_what_changed() {
    for (test, is_recreated, words) in [("emptied", true, "the log is shorter"), ("deleted", false, "the topic is gone")] {
        let read = read(test).await;
        let worker = read.engines.worker("under", CHECKPOINTS, None);
        feed(&read.engines, read.events, 300).await;
        read.engines.reaches_the_end().await;
        match is_recreated {
            true => read.recreate().await,
            false => read.delete().await,
        }
        let ended = tokio::time::timeout(PATIENCE, worker.task).await;
        let error = ended.unwrap_or_else(|_| timed_out::fail("the worker goes on")).unwrap().unwrap_err();
        assert!(error.kind() == ErrorKind::Input && error.to_string().contains(words), "{error}");
        let bounds = read.engines.direct_log().await.bounds(&read.engines.topic).await.unwrap();
        assert_eq!(bounds.len(), usize::from(is_recreated), "a topic that is gone was created anew");
    }
}
