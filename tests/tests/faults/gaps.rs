//! A log that changed: expired, recreated, shortened, or grown again after that. Nothing is lost or merged silently.

use std::time::Duration;

use basestream_tests::{Harness, until};
use catalog::DefinitionKind::{Stream, View};
use serving::ServingClock;
use speed::Activity;
use sqlx::SqlitePool;
use tokio_util::sync::CancellationToken;
use types::vector::{Offset, PartitionId};
use types::{Error, ErrorKind, Result};

use crate::table;

const STREAM: &str = "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL, k TEXT) WITH (format = 'json', event_time = 'ts', key = 'k')";
const COUNTS: &str = "CREATE VIEW counts AS SELECT k, count(*) AS n FROM s GROUP BY k";

fn events(k: &str, count: usize) -> Vec<(Option<String>, String)> {
    (0..count).map(|_| (Some(k.into()), format!(r#"{{"ts":"2026-03-01T10:00:00Z","k":"{k}"}}"#))).collect()
}

/// An installation with one partition and ten committed events.
async fn harness() -> Harness {
    crate::show_logs();
    let harness = Harness::new().await.unwrap();
    harness.define(&[(Stream, "s", STREAM), (View, "counts", COUNTS)]).await.unwrap();
    harness.append("s", 1, events("a", 10)).await.unwrap();
    read(&harness, false).await.unwrap();
    assert_eq!(committed(&harness).await, 10);
    harness
}

/// A worker takes the partition over, reads what is there, and is stopped, unless it ends by itself with an error.
async fn read(harness: &Harness, accept_gap: bool) -> Result<()> {
    let mut speed = harness.speed("one", Duration::from_millis(30), None);
    speed.settings.accept_gap = accept_gap;
    let progress = speed.progress.clone();
    let stop = CancellationToken::new();
    let token = stop.clone();
    let task = tokio::spawn(async move { speed.run(token).await });
    // Taken over, every record before the end is read.
    until("the worker to read, or to refuse", async || {
        let end = harness.log.bounds("s").await.unwrap()[0].end.0;
        task.is_finished() || (progress.activity() == Activity::Reading { partitions: 1 } && committed(harness).await >= end)
    })
    .await;
    stop.cancel();
    task.await.unwrap()
}

async fn committed(harness: &Harness) -> i64 {
    harness.catalog.state().await.unwrap().vector().get(&PartitionId::new("s", 0)).0
}

async fn in_log(harness: &Harness, sql: &'static str) {
    let pool = SqlitePool::connect(&format!("sqlite://{}", harness.path().join("log/log.db").display())).await.unwrap();
    sqlx::raw_sql(sql).execute(&pool).await.unwrap();
    pool.close().await;
}

fn names(error: &Error, parts: &[&str]) {
    assert_eq!(error.kind(), ErrorKind::Input, "{error}");
    for part in ["s/0"].iter().chain(parts) {
        assert!(error.to_string().contains(part), "\"{part}\" in: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_expired_past_the_committed_offset_is_gone_on_with_when_the_gap_is_accepted() {
    let harness = harness().await;
    harness.append("s", 1, events("b", 6)).await.unwrap();
    in_log(&harness, "UPDATE topic_partition SET begin_offset = 14").await;
    names(&read(&harness, false).await.unwrap_err(), &["14..16", "offsets 10..14 of s/0 as lost", "--accept-gap"]);
    assert!(harness.catalog.state().await.unwrap().gaps.is_empty());

    read(&harness, true).await.unwrap();
    let state = harness.catalog.state().await.unwrap();
    assert_eq!(committed(&harness).await, 16);
    assert_eq!((state.gaps.len(), state.gaps[0].start, state.gaps[0].end), (1, Offset(10), Offset(14)));
    let node = harness.node(ServingClock::Event, None).await.unwrap();
    assert_eq!(table(&node, "counts"), ["a 10", "b 2"]);
    let lines = jobs::ledger::partitions(&harness.storage, &state, &Default::default()).await.unwrap();
    assert!(!lines.is_empty(), "nothing is committed");
    for line in lines {
        assert_eq!(line.mismatch, None, "{line:?}");
    }
    // The gap is accepted once: the next worker needs no option.
    read(&harness, false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_made_anew_is_refused_whatever_is_accepted() {
    let harness = harness().await;
    in_log(
        &harness,
        "DELETE FROM batch; UPDATE topic SET identity = 'another'; UPDATE topic_partition SET begin_offset = 0, end_offset = 0",
    )
    .await;
    harness.append("s", 1, events("b", 30)).await.unwrap();
    for accept_gap in [false, true] {
        names(&read(&harness, accept_gap).await.unwrap_err(), &["recreated", "0..30", "new name"]);
    }
    assert_eq!(committed(&harness).await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shortened_topic_is_refused_also_when_it_grew_past_the_committed_offset_again() {
    let harness = harness().await;
    in_log(&harness, "DELETE FROM batch; UPDATE topic_partition SET end_offset = 0").await;
    harness.append("s", 1, events("b", 4)).await.unwrap();
    for accept_gap in [false, true] {
        names(&read(&harness, accept_gap).await.unwrap_err(), &["shorter", "0..4", "new name"]);
    }
    harness.append("s", 1, events("b", 30)).await.unwrap();
    for accept_gap in [false, true] {
        names(&read(&harness, accept_gap).await.unwrap_err(), &["not the one that was committed", "offset: 9", "new name"]);
    }
    assert_eq!(committed(&harness).await, 10);
    let node = harness.node(ServingClock::Event, None).await.unwrap();
    assert_eq!(table(&node, "counts"), ["a 10"]);
}
