//! Records of a transactional producer: aborted records are never seen, and the end is reached after the last marker.

use std::time::Duration;

use basestream_tests::services::engines;
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};

use crate::feed::event;
use crate::harness::{Engines, Routes};
use crate::{SERVICES, show_logs};

const TIMEOUT: Duration = Duration::from_secs(20);
const TRANSACTIONS: u64 = 40;
const EVENTS: u64 = 50;

/// Every third transaction is aborted, and also the last one.
fn is_aborted(transaction: u64) -> bool {
    transaction % 3 == 1 || transaction + 1 == TRANSACTIONS
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-outages"]
async fn aborted_transactions_are_never_seen_and_lag_still_reaches_0() {
    show_logs();
    let _shared = SERVICES.read().await;
    let urls = engines("transactions").await;
    let brokers = urls.log.trim_start_matches("kafka://").to_owned();
    let engines = Engines::open(urls, 3, Routes::default()).await;
    let worker = engines.worker("one", Duration::from_millis(200), None);
    let topic = engines.topic.clone();
    let produced = tokio::task::spawn_blocking(move || produce(&brokers, &topic)).await.unwrap();
    assert!(produced.iter().filter(|is_aborted| **is_aborted).count() >= 13, "transactions were aborted");

    let committed = (0..TRANSACTIONS).filter(|t| !is_aborted(*t)).flat_map(|t| t * EVENTS..(t + 1) * EVENTS);
    engines.holds_once(committed).await;
    worker.finish().await.unwrap();
    let state = engines.harness.catalog.state().await.unwrap();
    let absent: i64 = state.checkpoints.iter().flat_map(|checkpoint| &checkpoint.ranges).map(|range| range.absent).sum();
    let aborted = (0..TRANSACTIONS).filter(|t| is_aborted(*t)).count() as i64 * EVENTS as i64;
    assert!(absent > aborted, "{absent} offsets delivered no record: {aborted} aborted ones, and the markers");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-outages"]
async fn a_transaction_that_stays_open_holds_back_what_follows_it_and_no_more() {
    show_logs();
    let _shared = SERVICES.read().await;
    let urls = engines("open_transaction").await;
    let brokers = urls.log.trim_start_matches("kafka://").to_owned();
    let engines = Engines::open(urls, 1, Routes::default()).await;
    let worker = engines.worker("one", Duration::from_millis(200), None);
    let topic = engines.topic.clone();
    let open = tokio::task::spawn_blocking(move || {
        let (first, second) = (producer(&brokers, &format!("{topic}-1")), producer(&brokers, &format!("{topic}-2")));
        first.begin_transaction().unwrap();
        send(&first, &topic, 0..10);
        first.flush(TIMEOUT).unwrap();
        second.begin_transaction().unwrap();
        send(&second, &topic, 10..30);
        second.commit_transaction(TIMEOUT).unwrap();
        first
    });
    let open = open.await.unwrap();
    // Lag 0 is reached at the end of the decided transactions, and nothing after it is seen.
    engines.reaches_the_end().await;
    assert!(engines.vector_and_ends().await.unwrap().0.iter().all(|(_, at)| at.0 == 0), "the open transaction's records were passed");
    tokio::task::spawn_blocking(move || open.abort_transaction(TIMEOUT).unwrap()).await.unwrap();
    crate::until("what followed the open transaction", async || engines.vector_and_ends().await.unwrap().0.iter().any(|(_, at)| at.0 > 0))
        .await;
    engines.holds_once(10..30).await;
    worker.finish().await.unwrap();
}

/// Returns, for each transaction, whether it was aborted.
fn produce(brokers: &str, topic: &str) -> Vec<bool> {
    let producer = producer(brokers, topic);
    let transaction = |t: u64| {
        producer.begin_transaction().unwrap();
        send(&producer, topic, t * EVENTS..(t + 1) * EVENTS);
        match is_aborted(t) {
            true => producer.flush(TIMEOUT).and_then(|()| producer.abort_transaction(TIMEOUT)).unwrap(),
            false => producer.commit_transaction(TIMEOUT).unwrap(),
        }
        is_aborted(t)
    };
    (0..TRANSACTIONS).map(transaction).collect()
}

fn producer(brokers: &str, id: &str) -> ThreadedProducer<DefaultProducerContext> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("transactional.id", id);
    let producer: ThreadedProducer<DefaultProducerContext> = config.create().unwrap();
    producer.init_transactions(TIMEOUT).unwrap();
    producer
}

fn send(producer: &ThreadedProducer<DefaultProducerContext>, topic: &str, events: std::ops::Range<u64>) {
    let base = basestream_tests::now() - 3_600_000_000;
    for n in events {
        let record = event(n, base);
        let (key, value) = (record.key.unwrap(), record.value.unwrap());
        producer.send(BaseRecord::<[u8], [u8]>::to(topic).key(&key[..]).payload(&value[..])).map_err(|(error, _)| error).unwrap();
    }
}
