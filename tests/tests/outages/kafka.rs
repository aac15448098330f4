//! Brokers that die and restart, connections to them that break, topics that grow.

use std::sync::Arc;
use std::time::{Duration, Instant};

use basestream_tests::services::{engines, needed};
use engine::fresh::Fresh;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions};
use rdkafka::client::DefaultClientContext;

use crate::feed::Feed;
use crate::harness::{Engines, Routes};
use crate::load::Load;
use crate::proxy::Proxy;
use crate::service::kill;
use crate::{SERVICES, show_logs, until};

const CHECKPOINTS: Duration = Duration::from_millis(200);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-outages"]
async fn a_broker_that_is_killed_and_comes_back_is_gone_on_with() {
    show_logs();
    let _alone = SERVICES.write().await;
    let urls = engines("broker").await;
    let engines = Arc::new(Engines::open(urls, 4, Routes::default()).await);
    let fresh = Fresh::default();
    let workers = [engines.worker("one", CHECKPOINTS, Some(fresh.clone())), engines.worker("two", CHECKPOINTS, None)];
    let load = Load::start(&engines, None).await;
    let feed = Feed::start(engines.direct_log().await, &engines.topic, 100, Duration::from_millis(20));
    for signal in ["KILL", "TERM"] {
        let before = feed.sent();
        until("events on the way", async || feed.sent() > before + 3_000).await;
        let down = kill("kafka", signal).await;
        let away = Instant::now();
        let (sent, failed, lookups) = (feed.sent(), feed.failed(), load.lookups());
        tokio::time::sleep(Duration::from_secs(2)).await;
        if signal == "KILL" {
            // Longer than a producer waits for an acknowledgement: its appends fail, and are repeated.
            until("an append that fails", async || feed.failed() > failed).await;
        }
        until("lookups that go on", async || load.lookups() > lookups).await;
        assert!(feed.sent() <= sent + 100, "{signal}: the log took events while its broker was gone");
        down.start().await;
        until("events after the restart", async || feed.sent() > sent + 1_000).await;
        println!("{signal}: the broker was away for {:?}", away.elapsed());
    }
    let fed = feed.finish().await;
    assert!(fed.failed_appends > 0, "no append failed while the broker was away");
    engines.holds_once(0..fed.events).await;
    for worker in workers {
        assert!(!worker.task.is_finished(), "a worker gave up: {:?}", worker.task.await);
        worker.finish().await.unwrap();
    }
    let counts = load.finish().await;
    println!("{fed:?}, {counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-outages"]
async fn broken_slow_and_silent_connections_to_the_broker_are_gone_on_with() {
    show_logs();
    let _shared = SERVICES.read().await;
    let urls = engines("broker_connections").await;
    let names = ["BASESTREAM_TEST_TOXIPROXY", "BASESTREAM_TEST_KAFKA_PROXIED", "BASESTREAM_TEST_KAFKA_BEHIND"];
    let [toxiproxy, proxied, behind] = needed(names);
    let proxy = Proxy::at(&toxiproxy, &proxied, &behind).await;
    let engines = Engines::open(urls, 4, Routes { kafka: Some(proxied), ..Routes::default() }).await;
    // Producer, worker and metadata all go through the proxy.
    let feed = Feed::start(engines.harness.log.clone(), &engines.topic, 100, Duration::from_millis(20));
    let worker = engines.worker("one", CHECKPOINTS, None);
    until("the first events", async || feed.sent() > 1_000).await;
    for round in 0..8u64 {
        proxy.cut().await;
        tokio::time::sleep(Duration::from_millis(300 + 100 * round)).await;
    }
    let before = feed.sent();
    proxy.delay_replies(400).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    proxy.heal().await;
    // Acknowledgements and records are dropped: both are requested again.
    proxy.swallow_replies().await;
    let (swallowed, failed) = (feed.sent(), feed.failed());
    until("an append that fails while replies are swallowed", async || feed.failed() > failed).await;
    assert!(feed.sent() <= swallowed + 100, "appends were acknowledged though replies are swallowed");
    proxy.heal().await;
    proxy.cut().await;
    until("events after the faults", async || feed.sent() > before + 1_000).await;
    let fed = feed.finish().await;
    engines.holds_once(0..fed.events).await;
    assert!(!worker.task.is_finished(), "the worker gave up: {:?}", worker.task.await);
    worker.finish().await.unwrap();
    proxy.remove().await;
    println!("{fed:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-outages"]
async fn partitions_that_are_added_are_read_from_their_beginning() {
    show_logs();
    let _shared = SERVICES.read().await;
    let urls = engines("partitions").await;
    let brokers = urls.log.trim_start_matches("kafka://").to_owned();
    let engines = Engines::open(urls, 1, Routes::default()).await;
    let worker = engines.worker("one", CHECKPOINTS, None);
    let mut sent = 0;
    let feed = async |from: u64, topic: &str| {
        // A log opened now uses the current number of partitions.
        let feed = Feed::from(from, engines.direct_log().await, topic, 50, Duration::from_millis(5));
        until("events", async || feed.sent() > from + 2_000).await;
        feed.finish().await.events
    };
    sent = feed(sent, &engines.topic).await;
    // With a running worker, and without one.
    grow(&brokers, &engines.topic, 3).await;
    sent = feed(sent, &engines.topic).await;
    engines.reaches_the_end().await;
    let held = engines.vector_and_ends().await.unwrap().0;
    assert_eq!(held.iter().filter(|(_, at)| at.0 > 0).count(), 3, "{held}");
    worker.finish().await.unwrap();
    grow(&brokers, &engines.topic, 5).await;
    sent = feed(sent, &engines.topic).await;
    let worker = engines.worker("two", CHECKPOINTS, None);
    engines.holds_once(0..sent).await;
    worker.finish().await.unwrap();
    let state = engines.harness.catalog.state().await.unwrap();
    assert_eq!(state.vector().iter().filter(|(_, at)| at.0 > 0).count(), 5, "{}", state.vector());
    assert_eq!(state.gaps, [], "nothing was skipped");
}

async fn grow(brokers: &str, topic: &str, partitions: usize) {
    let admin: AdminClient<DefaultClientContext> = ClientConfig::new().set("bootstrap.servers", brokers).create().unwrap();
    let grown = admin.create_partitions([&NewPartitions::new(topic, partitions)], &AdminOptions::new()).await.unwrap();
    assert!(grown.iter().all(Result::is_ok), "{grown:?}");
    tokio::time::sleep(Duration::from_millis(500)).await;
}
