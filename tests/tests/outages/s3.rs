//! An object storage that refuses requests, loses replies, is slow, and whose connections break in the middle of an
//! object.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use basestream_tests::services::{engines, needed};
use batch::RunTime;
use bytes::Bytes;
use types::files::ObjectName;
use uuid::Uuid;

use crate::feed::{Feed, truth};
use crate::front::Front;
use crate::harness::{Engines, Routes, table};
use crate::load::Load;
use crate::proxy::Proxy;
use crate::{SERVICES, show_logs, until};

const CHECKPOINTS: Duration = Duration::from_millis(200);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-outages"]
async fn refusals_and_lost_replies_of_the_object_storage_lose_nothing_and_name_nothing_half() {
    show_logs();
    let _shared = SERVICES.read().await;
    let urls = engines("s3_errors").await;
    let [s3] = needed(["AWS_ENDPOINT"]);
    let (front, address) = Front::before(s3.trim_start_matches("http://")).await;
    let engines = Arc::new(Engines::open(urls, 4, Routes { s3: Some(address), ..Routes::default() }).await);
    let worker = engines.worker("one", CHECKPOINTS, None);
    let load = Load::start(&engines, None).await;
    let feed = Feed::start(engines.direct_log().await, &engines.topic, 50, Duration::from_millis(20));
    until("the first run", async || load.runs() > 0).await;
    front.fail(25, 15);
    let committed = engines.vector_and_ends().await.unwrap().0;
    until("refused and lost requests", async || front.refusals.load(Ordering::SeqCst) >= 40 && front.losses.load(Ordering::SeqCst) >= 25)
        .await;
    until("a checkpoint among the refusals", async || engines.vector_and_ends().await.unwrap().0 != committed).await;
    // All requests fail for a while: nothing can be stored, and known data is still served.
    front.fail(100, 0);
    let lookups = load.lookups();
    // A checkpoint that was stored before may still be committed.
    until("five seconds without a checkpoint", async || {
        let at = engines.vector_and_ends().await.unwrap().0;
        tokio::time::sleep(Duration::from_secs(5)).await;
        engines.vector_and_ends().await.unwrap().0 == at
    })
    .await;
    until("lookups that go on", async || load.lookups() > lookups + 20).await;
    front.fail(0, 0);
    let runs = load.runs();
    until("a run after the refusals", async || load.runs() > runs).await;
    let fed = feed.finish().await;
    load.finish().await;
    assert!(!worker.task.is_finished(), "the worker gave up: {:?}", worker.task.await);
    engines.holds_once(0..fed.events).await;
    worker.finish().await.unwrap();
    println!("{fed:?}, {} refused, {} lost", front.refusals.load(Ordering::SeqCst), front.losses.load(Ordering::SeqCst));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-outages"]
async fn a_node_that_cannot_read_a_new_file_answers_from_the_state_before_and_goes_on_by_itself() {
    show_logs();
    let _shared = SERVICES.read().await;
    let urls = engines("s3_reads").await;
    let [s3] = needed(["AWS_ENDPOINT"]);
    let (front, address) = Front::before(s3.trim_start_matches("http://")).await;
    let engines = Engines::open(urls, 2, Routes { s3: Some(address), ..Routes::default() }).await;
    let worker = engines.worker("one", CHECKPOINTS, None);
    let feed = Feed::start(engines.direct_log().await, &engines.topic, 50, Duration::from_millis(5));
    until("events", async || feed.sent() > 1_000).await;
    let first = feed.finish().await.events;
    engines.reaches_the_end().await;
    let node = engines.harness.node(serving::ServingClock::Event, None).await.unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let following = tokio::spawn({
        let (node, stop) = (node.clone(), stop.clone());
        async move { node.run(stop).await }
    });
    front.refuse_gets(true);
    let feed = Feed::from(first, engines.direct_log().await, &engines.topic, 50, Duration::from_millis(5));
    until("events", async || feed.sent() > first + 1_000).await;
    let all = feed.finish().await.events;
    // Checkpoints are written but cannot be read.
    engines.reaches_the_end().await;
    until("refused reads", async || front.refusals.load(Ordering::SeqCst) > 3).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(table(&node), truth(0..first));
    front.refuse_gets(false);
    // Nothing more is committed: the node retries by itself.
    until("the new checkpoints to be served", async || table(&node) == truth(0..all)).await;
    worker.finish().await.unwrap();
    stop.cancel();
    following.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-outages"]
async fn connections_that_break_inside_an_object_leave_nothing_half() {
    show_logs();
    let _shared = SERVICES.read().await;
    let urls = engines("s3_cuts").await;
    let [toxiproxy, s3] = needed(["BASESTREAM_TEST_TOXIPROXY", "AWS_ENDPOINT"]);
    let proxy = Proxy::before(&toxiproxy, s3.trim_start_matches("http://")).await;
    let engines = Engines::open(urls, 2, Routes { s3: Some(proxy.address.clone()), ..Routes::default() }).await;
    let storage = &engines.harness.storage;

    // In parts and in one piece: the name does not exist until the whole object does.
    for (bytes, cut_after) in [(40 << 20, 3 << 20), (4 << 20, 1 << 20)] {
        let content = Bytes::from((0..bytes).map(|n: u64| (n.wrapping_mul(2_654_435_761) >> 7) as u8).collect::<Vec<u8>>());
        let name = ObjectName::States { checkpoint: Uuid::now_v7() };
        proxy.cut_uploads_after(cut_after).await;
        let began = Instant::now();
        let cut = tokio::time::timeout(Duration::from_secs(8), storage.put_new(&name, content.clone())).await;
        assert!(!matches!(cut, Ok(Ok(_))), "{bytes} bytes got through a connection that is cut after {cut_after}");
        println!("{bytes} bytes: {:?} after {:?}", cut.map(|outcome| outcome.map_err(|error| error.to_string())), began.elapsed());
        proxy.heal().await;
        proxy.cut().await;
        let seen = storage.get(&name.to_string()).await;
        assert!(seen.is_err_and(|error| error.kind() == types::ErrorKind::NotFound), "half an object has its name");
        let stored = storage.put_new(&name, content.clone()).await.unwrap();

        proxy.cut_downloads_after(cut_after / 2).await;
        let read =
            tokio::time::timeout(Duration::from_secs(8), storage.get_checked(&name.to_string(), stored.bytes, stored.checksum)).await;
        match &read {
            Ok(Ok(whole)) => assert!(*whole == content, "another content was read"),
            Ok(Err(error)) => assert_eq!(error.kind(), types::ErrorKind::Unavailable, "{error}"),
            Err(_) => {}
        }
        println!("{bytes} bytes read: {:?}", read.map(|outcome| outcome.map(|_| ()).map_err(|error| error.to_string())));
        proxy.heal().await;
        proxy.cut().await;
        assert_eq!(storage.get_checked(&name.to_string(), stored.bytes, stored.checksum).await.unwrap(), content);
    }
    proxy.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-outages"]
async fn a_slow_object_storage_with_breaking_connections_is_worked_with() {
    show_logs();
    let _shared = SERVICES.read().await;
    let urls = engines("s3_slow").await;
    let [toxiproxy, s3] = needed(["BASESTREAM_TEST_TOXIPROXY", "AWS_ENDPOINT"]);
    let proxy = Proxy::before(&toxiproxy, s3.trim_start_matches("http://")).await;
    let engines = Arc::new(Engines::open(urls, 4, Routes { s3: Some(proxy.address.clone()), ..Routes::default() }).await);
    let worker = engines.worker("one", CHECKPOINTS, None);
    let feed = Feed::start(engines.direct_log().await, &engines.topic, 100, Duration::from_millis(10));
    let load = Load::start(&engines, None).await;
    until("the first run", async || load.runs() > 0).await;
    proxy.delay_replies(200).await;
    let began = Instant::now();
    let _ = engines.harness.storage.get("no/such/object").await;
    assert!(began.elapsed() > Duration::from_millis(200), "replies were not late");
    for round in 0..8 {
        tokio::time::sleep(Duration::from_millis(400 + 37 * round)).await;
        proxy.cut().await;
    }
    proxy.heal().await;
    // Connections end after a few objects' worth of bytes, in both directions.
    proxy.cut_uploads_after(60_000).await;
    proxy.cut_downloads_after(90_000).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    proxy.heal().await;
    proxy.cut().await;
    let runs = load.runs();
    until("a run after the faults", async || load.runs() > runs).await;
    let fed = feed.finish().await;
    load.finish().await;
    assert!(!worker.task.is_finished(), "the worker gave up: {:?}", worker.task.await);
    engines.holds_once(0..fed.events).await;
    worker.finish().await.unwrap();
    proxy.remove().await;
    println!("{fed:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-outages"]
async fn a_run_that_fails_on_the_object_storage_leaves_what_is_served() {
    show_logs();
    let _shared = SERVICES.read().await;
    let urls = engines("s3_run").await;
    let [s3] = needed(["AWS_ENDPOINT"]);
    let (front, address) = Front::before(s3.trim_start_matches("http://")).await;
    let engines = Engines::open(urls, 2, Routes { s3: Some(address), ..Routes::default() }).await;
    let worker = engines.worker("one", CHECKPOINTS, None);
    let feed = Feed::start(engines.direct_log().await, &engines.topic, 100, Duration::from_millis(5));
    until("events", async || feed.sent() > 2_000).await;
    let fed = feed.finish().await;
    engines.reaches_the_end().await;
    worker.finish().await.unwrap();
    let published = engines.harness.batch("by_account", RunTime::EventClock).await.unwrap();
    front.fail(100, 0);
    let for_a_while = async {
        until("a refused request", async || front.refusals.load(Ordering::SeqCst) > 0).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
    };
    let ended = tokio::select! {
        ended = engines.harness.batch("by_account", RunTime::EventClock) => Some(ended),
        () = for_a_while => None,
    };
    assert!(!matches!(ended, Some(Ok(_))), "a run without an object storage succeeded");
    assert!(front.refusals.load(Ordering::SeqCst) > 0);
    front.fail(0, 0);
    let state = engines.harness.catalog.state().await.unwrap();
    assert_eq!(state.snapshots.iter().map(|snapshot| snapshot.run).collect::<Vec<_>>(), [published.id]);
    engines.holds_once(0..fed.events).await;
}
