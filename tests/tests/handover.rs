//! The whole path, once: log, speed, batch, serving; answers before, across and after a cut.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use arrow::util::pretty::pretty_format_batches;
use basestream_tests::Harness;
use batch::RunTime;
use catalog::DefinitionKind::{Stream, View};
use serving::{Node, ServingClock, StateSource, scan, scan_parts};

const STREAM: &str = "CREATE STREAM payments (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, device TEXT, amount DECIMAL(18,2) NOT NULL, status TEXT NOT NULL) \
    WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '10m', key = 'device')";
const VIEW: &str = "CREATE VIEW velocity WITH (windows = '1h, 7d') AS SELECT device, count(*) AS n, sum(amount) AS amount, avg(amount) AS mean, \
    count(DISTINCT status) AS kinds, max(ts) FILTER (WHERE within(ts, 'all')) AS last_seen, \
    count(*) FILTER (WHERE within(ts, '2d', '1d')) AS before FROM payments WHERE status <> 'no' GROUP BY device";

fn event(i: usize, ts: &str, device: &str, amount: &str, status: &str) -> (Option<String>, String) {
    (Some(device.into()), format!(r#"{{"id":"e{i}","ts":"{ts}","device":"{device}","amount":{amount},"status":"{status}"}}"#))
}

async fn table(node: &Node) -> String {
    let read_view = node.read_view().unwrap();
    let view = read_view.view("velocity").unwrap();
    let t = read_view.t_of(&view.live);
    let wanted: Vec<usize> = (0..view.live.plan.columns.len()).collect();
    let source = StateSource::Layers { read_view: &read_view, view };
    let parts: Vec<_> = (0..scan_parts(&source)).map(|part| scan(&view.live, &source, part, t, &wanted).unwrap().0).collect();
    let mut lines: Vec<String> = pretty_format_batches(&parts).unwrap().to_string().lines().map(str::to_owned).collect();
    lines.sort();
    lines.dedup();
    lines.join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_the_same_from_segments_from_a_snapshot_and_from_both() {
    let harness = Harness::new().await.unwrap();
    harness.define(&[(Stream, "payments", STREAM), (View, "velocity", VIEW)]).await.unwrap();
    let early = vec![
        event(1, "2026-03-01T10:00:00Z", "a", "10.00", "ok"),
        event(2, "2026-03-01T10:10:00Z", "a", "5.50", "ok"),
        event(2, "2026-03-01T10:10:00Z", "a", "5.50", "ok"),
        event(3, "2026-03-01T10:20:00Z", "b", "1.25", "late"),
        event(4, "2026-03-01T10:20:00Z", "b", "1.25", "no"),
        (None, "not json".into()),
    ];
    harness.append("payments", 2, early).await.unwrap();
    let worker = harness.worker("w1", Duration::from_millis(200), None);
    harness.committed("payments", "payments").await.unwrap();
    let node = harness.node(ServingClock::Event, None).await.unwrap();
    let before = table(&node).await;
    println!("{before}");
    assert!(before.contains("| a      | 2    | 2    | 15.50"), "{before}");

    let run = harness.batch("velocity", RunTime::EventClock).await.unwrap();
    assert_eq!(run.events_read, 4);
    node.refresh().await.unwrap();
    assert_eq!(table(&node).await, before, "the snapshot answers as the segments did");

    let late = vec![event(5, "2026-03-01T10:05:00Z", "a", "100.00", "ok"), event(6, "2026-03-02T12:00:00Z", "c", "2.00", "ok")];
    harness.append("payments", 2, late).await.unwrap();
    harness.committed("payments", "payments").await.unwrap();
    worker.finish().await.unwrap();
    node.refresh().await.unwrap();
    let across = table(&node).await;
    println!("{across}");
    assert!(across.contains("115.50"), "a late event before the cut's event times is counted once: {across}");
    harness.batch("velocity", RunTime::EventClock).await.unwrap();
    node.refresh().await.unwrap();
    assert_eq!(table(&node).await, across, "a new snapshot answers as snapshot and segments did");
}
