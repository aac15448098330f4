//! The catalog's server restarts, its connections break, its replies are late or lost, while checkpoints, runs and
//! lookups continue.

use std::sync::Arc;
use std::time::{Duration, Instant};

use basestream_tests::patience::PATIENCE;
use basestream_tests::services::{engines, needed};
use catalog::{Add, Commit, IngestRecord};
use types::timed_out;
use uuid::Uuid;

use crate::feed::Feed;
use crate::harness::{Engines, Routes};
use crate::load::Load;
use crate::proxy::Proxy;
use crate::service::kill;
use crate::{SERVICES, show_logs, until};

const CHECKPOINTS: Duration = Duration::from_millis(150);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-outages"]
async fn a_server_that_restarts_costs_no_answer_and_no_event() {
    show_logs();
    let _alone = SERVICES.write().await;
    let urls = engines("restart").await;
    let engines = Arc::new(Engines::open(urls, 4, Routes::default()).await);
    let worker = engines.worker("one", CHECKPOINTS, None);
    let load = Load::start(&engines, None).await;
    let feed = Feed::start(engines.direct_log().await, &engines.topic, 50, Duration::from_millis(20));
    // Fast, immediate and killed; the last time for longer than a commit is retried.
    for (signal, away) in [("INT", 1), ("QUIT", 1), ("KILL", 1), ("KILL", 15)] {
        let (runs, vector) = (load.runs(), engines.vector_and_ends().await.unwrap().0);
        until("a run and a checkpoint", async || load.runs() > runs && engines.vector_and_ends().await.unwrap().0 != vector).await;
        let down = kill("postgres", signal).await;
        let began = Instant::now();
        let (lookups, failed) = (load.lookups(), load.failed_runs());
        // What a killed server had started ends a moment after it.
        until("a catalog that does not answer", async || engines.harness.catalog.revision().await.is_err()).await;
        tokio::time::sleep(Duration::from_secs(away)).await;
        until("lookups that go on", async || load.lookups() > lookups + 10).await;
        if away > 10 {
            until("a run that is hit", async || load.failed_runs() > failed).await;
        }
        down.start().await;
        println!("{signal}: the server was away for {:?}, {} runs failed", began.elapsed(), load.failed_runs() - failed);
    }
    let runs = load.runs();
    until("runs after the restarts", async || load.runs() > runs + 1).await;
    let fed = feed.finish().await;
    load.finish().await;
    assert!(!worker.task.is_finished(), "the worker gave up: {:?}", worker.task.await);
    engines.holds_once(0..fed.events).await;
    worker.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-outages"]
async fn a_commit_whose_reply_is_lost_is_recognised_as_ones_own() {
    show_logs();
    let _shared = SERVICES.read().await;
    let urls = engines("lost_reply").await;
    let [toxiproxy] = needed(["BASESTREAM_TEST_TOXIPROXY"]);
    let proxy = Proxy::before(&toxiproxy, address_of(&urls.catalog)).await;
    let direct = sqlx::PgPool::connect(&urls.catalog).await.unwrap();
    let engines = Engines::open(urls, 2, Routes { postgres: Some(proxy.address.clone()), ..Routes::default() }).await;
    let mut lost = 0;
    // On a busy machine a reply may arrive before the connection is cut.
    for number in 0..40 {
        if lost == 4 {
            break;
        }
        let record = IngestRecord { stream: "payments".into(), fingerprint: format!("f{number}"), records_done: number, updated_at: 1 };
        let commit = Commit { id: Uuid::now_v7(), add: vec![Add::Ingest(record)], ..Commit::default() };
        let before = revision(&direct).await;
        proxy.delay_replies(400).await;
        let catalog = engines.harness.catalog.clone();
        let committing = tokio::spawn(async move { catalog.commit_with_retry(commit).await });
        // The server has committed and its reply is held back: the connection is cut before the reply arrives.
        until("the commit", async || revision(&direct).await > before).await;
        proxy.close().await;
        lost += u32::from(!committing.is_finished());
        proxy.heal().await;
        proxy.open().await;
        assert_eq!(committing.await.unwrap().unwrap(), before + 1, "the commit answers the revision that it had made");
        assert_eq!(revision(&direct).await, before + 1, "it happened once");
    }
    assert_eq!(lost, 4, "replies that were lost");
    proxy.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-outages"]
async fn checkpoints_and_runs_whose_replies_are_lost_count_once() {
    show_logs();
    let _shared = SERVICES.read().await;
    let urls = engines("lost_replies").await;
    let [toxiproxy] = needed(["BASESTREAM_TEST_TOXIPROXY"]);
    let proxy = Proxy::before(&toxiproxy, address_of(&urls.catalog)).await;
    let direct = sqlx::PgPool::connect(&urls.catalog).await.unwrap();
    let engines = Arc::new(Engines::open(urls, 4, Routes { postgres: Some(proxy.address.clone()), ..Routes::default() }).await);
    let worker = engines.worker("one", CHECKPOINTS, None);
    let load = Load::start(&engines, None).await;
    let feed = Feed::start(engines.direct_log().await, &engines.topic, 50, Duration::from_millis(20));
    until("the first events", async || feed.sent() > 500).await;
    for _ in 0..12 {
        proxy.delay_replies(60).await;
        let (before, began) = (revision(&direct).await, Instant::now());
        while revision(&direct).await == before {
            if began.elapsed() >= PATIENCE {
                timed_out::fail("nothing is committed after a cut");
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        proxy.cut().await;
        proxy.heal().await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let fed = feed.finish().await;
    let counts = load.finish().await;
    assert!(!worker.task.is_finished(), "the worker gave up: {:?}", worker.task.await);
    engines.holds_once(0..fed.events).await;
    worker.finish().await.unwrap();
    proxy.remove().await;
    println!("{fed:?}, {counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-outages"]
async fn late_replies_and_a_silent_server_are_waited_for_and_lookups_go_on() {
    show_logs();
    let _shared = SERVICES.read().await;
    let urls = engines("silent").await;
    let [toxiproxy] = needed(["BASESTREAM_TEST_TOXIPROXY"]);
    let proxy = Proxy::before(&toxiproxy, address_of(&urls.catalog)).await;
    let engines = Arc::new(Engines::open(urls, 2, Routes { postgres: Some(proxy.address.clone()), ..Routes::default() }).await);
    let worker = engines.worker("one", CHECKPOINTS, None);
    let load = Load::start(&engines, None).await;
    let feed = Feed::start(engines.direct_log().await, &engines.topic, 50, Duration::from_millis(20));
    until("the first events", async || feed.sent() > 500).await;
    proxy.delay_replies(250).await;
    let began = Instant::now();
    engines.harness.catalog.state().await.unwrap();
    assert!(began.elapsed() > Duration::from_millis(400), "replies were not late");
    let committed = engines.vector_and_ends().await.unwrap().0;
    until("a checkpoint with late replies", async || engines.vector_and_ends().await.unwrap().0 != committed).await;
    proxy.heal().await;
    proxy.swallow_replies().await;
    let lookups = load.lookups();
    let silent = tokio::time::timeout(Duration::from_secs(4), engines.harness.catalog.state()).await;
    assert!(!matches!(silent, Ok(Ok(_))), "the server was not silent");
    until("lookups that go on", async || load.lookups() > lookups + 20).await;
    proxy.heal().await;
    proxy.cut().await;
    let fed = feed.finish().await;
    load.finish().await;
    engines.holds_once(0..fed.events).await;
    worker.finish().await.unwrap();
    proxy.remove().await;
}

/// `host:port` of a URL.
fn address_of(url: &str) -> &str {
    let after = url.rsplit_once('@').unwrap().1;
    after.split('/').next().unwrap()
}

async fn revision(direct: &sqlx::PgPool) -> i64 {
    sqlx::query_scalar("SELECT revision FROM meta").fetch_one(direct).await.unwrap()
}
