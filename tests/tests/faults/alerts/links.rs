//! Alerts over a linked view: who shares what with how many others. An event changes the rows of keys that it does not
//! name, and a link that leaves its window changes them without an event.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use basestream_tests::Harness;
use catalog::DefinitionKind;
use serde_json::json;
use serving::ServingClock;
use types::tiles::Micros;

use super::{Fresh, Process, SECOND, put_out, show_logs, state, time, until};

const STREAM: &str = "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL OPTIONS (unit = 'us'), k TEXT, x TEXT)
    WITH (topic = 'one', event_time = 'ts', key = 'k')";
const MINUTE: Micros = 60 * SECOND;
/// 2026-03-01T12:00:00Z
const FIRST: Micros = 1_772_366_400_000_000;

async fn harness(view: &str, ring: &str) -> Harness {
    let harness = Harness::new().await.unwrap();
    harness.log.create_topic("one", 1).await.unwrap();
    let definitions = [(DefinitionKind::Stream, "s", STREAM), (DefinitionKind::View, "links", view), (DefinitionKind::Alert, "ring", ring)];
    harness.define(&definitions).await.unwrap();
    harness
}

/// A key, what it shares, and when.
async fn append(harness: &Harness, events: &[(&str, &str, Micros)]) {
    let record =
        |(key, shared, ts): &(&str, &str, Micros)| (Some((*key).to_owned()), json!({ "ts": ts, "k": key, "x": shared }).to_string());
    harness.append("one", 1, events.iter().map(record).collect()).await.unwrap();
}

/// Each of three keys has this many records.
async fn until_each_has(harness: &Harness, records: usize) {
    until("the records of three keys", async || {
        let found = put_out(harness, "ring").await;
        found.len() == 3 && found.values().all(|of_key| of_key.len() == records)
    })
    .await;
}

async fn start(harness: &Harness, name: &str) -> Process {
    Process::start_by(ServingClock::Event, harness, name, true, &Arc::new(AtomicUsize::new(0))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_begins_and_ceases_over_links_is_put_out_once_also_where_only_time_moves() {
    show_logs();
    // Edges that keep when they were last seen, and edges that keep tiles.
    for aggregate in ["count(DISTINCT theirs.k)", "count(*)"] {
        let view = format!(
            "CREATE VIEW links WITH (windows = '1m') AS SELECT mine.k, {aggregate} AS linked
             FROM s mine JOIN s theirs ON mine.x = theirs.x WHERE mine.k <> theirs.k GROUP BY mine.k"
        );
        let ring = "CREATE ALERT ring WITH (topic = 'ring', resolve = true) AS SELECT k, linked_1m FROM links WHERE linked_1m >= 2";
        let harness = harness(&view, ring).await;
        let process = start(&harness, "w1").await;
        append(&harness, &[("a", "one", FIRST), ("b", "one", FIRST), ("d", "two", FIRST)]).await;
        // The third one to share it changes the rows of the first two.
        append(&harness, &[("c", "one", FIRST + SECOND)]).await;
        until_each_has(&harness, 1).await;
        process.kill().await;

        let process = start(&harness, "w2").await;
        append(&harness, &[("d", "two", FIRST + 2 * MINUTE)]).await;
        until_each_has(&harness, 2).await;
        process.kill().await;

        let process = start(&harness, "w3").await;
        let again = FIRST + 3 * MINUTE;
        append(&harness, &[("a", "three", again), ("b", "three", again), ("c", "three", again)]).await;
        until_each_has(&harness, 3).await;
        process.finish().await;
        let found = put_out(&harness, "ring").await;
        for (key, records) in &found {
            assert_eq!(records.iter().map(|record| state(Some(record))).collect::<Vec<_>>(), ["began", "resolved", "began"], "{key}");
            assert_eq!(records[0]["linked_1m"], 2, "{aggregate}: {:#}", records[0]);
            assert_eq!(records[0]["_id"], records[1]["_id"], "{aggregate}: {key}");
            assert_ne!(records[1]["_id"], records[2]["_id"], "{aggregate}: {key}");
            // The edges of the first two go first.
            assert_eq!(time(&records[1], "_at"), FIRST + MINUTE + SECOND, "{aggregate}: {:#}", records[1]);
        }
    }
}

/// Each edge of the index takes 16 bytes, and half of the node's memory may hold them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alert_whose_index_has_no_room_says_so_and_goes_on_where_there_is_room() {
    const MEMORY: usize = 64 << 10;
    show_logs();
    let view = "CREATE VIEW links AS SELECT mine.k, count(DISTINCT theirs.k) AS linked
        FROM s mine JOIN s theirs ON mine.x = theirs.x WHERE mine.k <> theirs.k GROUP BY mine.k";
    let ring = "CREATE ALERT ring WITH (topic = 'ring', resolve = true) AS SELECT k, linked FROM links WHERE linked >= 2";
    let harness = harness(view, ring).await;
    let fresh = Fresh::default();
    let node = harness.node_with_memory(Some(fresh.clone()), MEMORY).await.unwrap();
    let process = Process::start_with(node, Some(fresh), &harness, "small", &Arc::new(AtomicUsize::new(0)));
    let names: Vec<String> = (0..=MEMORY / 2 / 16).map(|number| number.to_string()).collect();
    append(&harness, &names.iter().map(|name| (&**name, &**name, FIRST)).collect::<Vec<_>>()).await;
    let waits = async || harness.catalog.alert_runners().await.unwrap().pop().and_then(|runner| runner.waits);
    let expected = "there is no room for the index of near edges of the view \"links\": the indexes of all alerts of a process may take \
        32KiB, half of serving.memory_limit";
    until("the runner to say why it waits", async || waits().await.as_deref() == Some(expected)).await;
    let of_process = format!("the alert \"ring\": {expected}");
    until("the process to say so", async || process.stalled.outage().is_some_and(|outage| outage.error == of_process)).await;
    append(&harness, &[("a", "one", FIRST), ("b", "one", FIRST), ("c", "one", FIRST)]).await;
    harness.committed("s", "one").await.unwrap();
    process.finish().await;
    assert!(put_out(&harness, "ring").await.is_empty());

    let process = start(&harness, "large").await;
    until_each_has(&harness, 1).await;
    until("the runner to say no more that it waits", async || waits().await.is_none()).await;
    process.finish().await;
}

/// Each read view has a newer event of what all of them share than is known to be complete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_next_to_a_busy_node_begin_while_its_events_go_on() {
    show_logs();
    let view = "CREATE VIEW links AS SELECT mine.k, count(DISTINCT theirs.k) AS linked
        FROM s mine JOIN s theirs ON mine.x = theirs.x WHERE mine.k <> theirs.k GROUP BY mine.k";
    let ring = "CREATE ALERT ring WITH (topic = 'ring', resolve = true) AS SELECT k, linked FROM links WHERE linked >= 2";
    let harness = harness(view, ring).await;
    let process = Process::start_by(ServingClock::Event, &harness, "alone", false, &Arc::new(AtomicUsize::new(0))).await;
    append(&harness, &[("b", "one", FIRST), ("c", "one", FIRST)]).await;
    let mut last = FIRST;
    until("the records of three keys", async || {
        last += 2 * SECOND;
        append(&harness, &[("a", "one", last)]).await;
        harness.commit_at_once("w0", &[("s", "one")]).await.unwrap();
        put_out(&harness, "ring").await.len() == 3
    })
    .await;
    process.finish().await;
    for (key, records) in &put_out(&harness, "ring").await {
        assert_eq!(records.iter().map(|record| state(Some(record))).collect::<Vec<_>>(), ["began"], "{key}");
    }
}
