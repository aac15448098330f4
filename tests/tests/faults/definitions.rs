//! Definitions that change while events are processed, and views that fail on an event.

use std::sync::Arc;
use std::time::Duration;

use basestream_tests::{Harness, Worker, now, until};
use batch::{RunRequest, RunTime};
use catalog::DefinitionKind::{Stream, View};
use catalog::DefinitionStatus::{Active, Building, Retired};
use catalog::{Add, Commit, DefinitionKind, RunStatus};
use engine::fresh::Fresh;
use serving::ServingClock;
use types::ErrorKind;
use uuid::Uuid;

use crate::{put, record, table, table_at};

const STREAM: &str = "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL, k TEXT, x BIGINT) WITH (format = 'json', event_time = 'ts', key = 'k')";
const COUNTS: &str = "CREATE VIEW counts AS SELECT k, count(*) AS n FROM s GROUP BY k";

fn event(k: &str, x: i64, more: &str) -> (Option<String>, String) {
    (Some(k.into()), format!(r#"{{"ts":"2026-03-01T10:00:00Z","k":"{k}","x":{x}{more}}}"#))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_on_which_one_view_fails_is_counted_by_the_others() {
    crate::show_logs();
    let harness = Harness::new().await.unwrap();
    let shares = "CREATE VIEW shares AS SELECT k, sum(10 / x) AS share FROM s GROUP BY k";
    harness.define(&[(Stream, "s", STREAM), (View, "counts", COUNTS), (View, "shares", shares)]).await.unwrap();
    let fresh = Fresh::default();
    let node = harness.node(ServingClock::Event, Some(fresh.clone())).await.unwrap();
    // Before the worker begins, which would create the topic with another number of partitions.
    harness.append("s", 2, vec![event("a", 5, "")]).await.unwrap();
    let worker = harness.worker("one", Duration::from_millis(50), Some(fresh));
    harness.committed("s", "s").await.unwrap();
    node.refresh().await.unwrap();
    assert_eq!(table(&node, "shares"), ["a 2"]);

    harness.append("s", 2, vec![event("a", 0, ""), event("b", 1, "")]).await.unwrap();
    harness.committed("s", "s").await.unwrap();
    assert!(!worker.task.is_finished(), "the speed layer goes on");
    node.refresh().await.unwrap();
    assert_eq!(table(&node, "counts"), ["a 2", "b 1"]);
    let failed = |node: &serving::Node| {
        let read_view = node.read_view().unwrap();
        let shares = read_view.view("shares").unwrap();
        read_view.failures_of(shares).flat_map(|part| part.listed()).map(|failure| failure.to_string()).collect::<Vec<_>>()
    };
    let reason = ["the event at offset 1 of s/1 fails: division by zero"];
    assert_eq!((table(&node, "shares"), failed(&node)), (vec!["a 2".to_owned(), "b 10".to_owned()], reason.map(str::to_owned).to_vec()));
    harness.batch("shares", RunTime::EventClock).await.unwrap();
    harness.batch("counts", RunTime::EventClock).await.unwrap();
    node.refresh().await.unwrap();
    assert_eq!((table(&node, "shares"), failed(&node)), (vec!["a 2".to_owned(), "b 10".to_owned()], reason.map(str::to_owned).to_vec()));
    worker.finish().await.unwrap();
}

/// A worker and a node with two events of one key, once `counts` has them beside a view that has no answer.
async fn counts_beside(view: &str, sql: &str) -> (Harness, serving::Node, Worker) {
    crate::show_logs();
    let harness = Harness::new().await.unwrap();
    harness.define(&[(Stream, "s", STREAM), (View, view, sql), (View, "counts", COUNTS)]).await.unwrap();
    let fresh = Fresh::default();
    let node = harness.node(ServingClock::Event, Some(fresh.clone())).await.unwrap();
    let worker = harness.worker("one", Duration::from_millis(50), Some(fresh));
    harness.append("s", 2, vec![event("a", 5, ""), event("a", 0, "")]).await.unwrap();
    harness.committed("s", "s").await.unwrap();
    assert!(!worker.task.is_finished(), "the speed layer goes on");
    node.refresh().await.unwrap();
    assert_eq!(table(&node, "counts"), ["a 2"]);
    (harness, node, worker)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_that_refuses_is_not_answered_and_the_others_are() {
    let shares = "CREATE VIEW shares WITH (on_error = 'refuse') AS SELECT k, sum(10 / x) AS share FROM s GROUP BY k";
    let (harness, node, worker) = counts_beside("shares", shares).await;
    let refused = node.read_view().unwrap().view("shares").map(|_| ()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "no answer, rather than a wrong one");
    assert!(harness.batch("shares", RunTime::EventClock).await.is_err());
    worker.finish().await.unwrap();
}

/// `check` and `apply` refuse such a view. One that was applied before they did is in the catalog.
#[tokio::test(flavor = "multi_thread")]
async fn a_stored_view_that_cannot_be_computed_stops_no_other() {
    let odd = "CREATE VIEW odd AS SELECT k, count(*) AS n FROM s WHERE x > 'abc' GROUP BY k";
    let (harness, node, worker) = counts_beside("odd", odd).await;
    assert!(node.read_view().unwrap().view("odd").is_err(), "no answer, rather than a wrong one");
    assert!(harness.batch("odd", RunTime::EventClock).await.is_err());
    // The corrected view takes its place.
    let corrected = odd.replace("'abc'", "1");
    put(&harness, vec![record(View, "odd", 1, odd, Retired), record(View, "odd", 2, &corrected, Active)]).await;
    until("the corrected view", async || {
        harness.append("s", 2, vec![event("b", 7, "")]).await.unwrap();
        harness.committed("s", "s").await.unwrap();
        node.refresh().await.unwrap();
        node.read_view().unwrap().view("odd").is_ok()
    })
    .await;
    worker.finish().await.unwrap();
    node.refresh().await.unwrap();
    assert_eq!(table(&node, "odd")[0], "a 1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_and_its_views_change_while_events_come_in() {
    crate::show_logs();
    let harness = Harness::new().await.unwrap();
    harness.define(&[(Stream, "s", STREAM), (View, "counts", COUNTS)]).await.unwrap();
    let fresh = Fresh::default();
    let node = harness.node(ServingClock::Event, Some(fresh.clone())).await.unwrap();
    let worker = harness.worker("one", Duration::from_millis(80), Some(fresh));
    let mut sent = 0;
    for round in 0..60 {
        harness.append("s", 2, (0..5).map(|i| event(["a", "b"][i % 2], 1, r#","c":"red""#)).collect()).await.unwrap();
        sent += 5;
        if round == 15 {
            // What came before is read by the version before.
            harness.committed("s", "s").await.unwrap();
            let wider = STREAM.replace("x BIGINT", "x BIGINT, c TEXT");
            let colours = "CREATE VIEW colours AS SELECT c, count(*) AS n FROM s GROUP BY c";
            let streams = [record(Stream, "s", 1, STREAM, Retired), record(Stream, "s", 2, &wider, Active)];
            put(&harness, streams.into_iter().chain([record(View, "colours", 1, colours, Active)]).collect()).await;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
        if round % 7 == 0 {
            node.refresh().await.unwrap();
            let read_view = node.read_view().unwrap();
            let count = |line: &String| line.rsplit(' ').next().unwrap().parse::<i64>().unwrap();
            let total = |name: &str| table_at(&read_view, name).iter().map(count).sum::<i64>();
            if read_view.loaded.registry.served("colours").is_some() && read_view.view("colours").is_ok() {
                assert!((total("counts") - total("colours")).abs() <= 10, "both views count about the same events");
            }
        }
    }
    assert!(!worker.task.is_finished(), "the speed layer goes on");
    // However slow the machine is, the worker reads events by the version after.
    until("an event with a colour", async || {
        harness.append("s", 2, (0..5).map(|i| event(["a", "b"][i % 2], 1, r#","c":"red""#)).collect()).await.unwrap();
        sent += 5;
        harness.committed("s", "s").await.unwrap();
        node.refresh().await.unwrap();
        let is_answered = node.read_view().unwrap().view("colours").is_ok();
        is_answered && table(&node, "colours").iter().any(|line| line.starts_with("red "))
    })
    .await;
    worker.finish().await.unwrap();
    node.refresh().await.unwrap();
    assert_eq!(table(&node, "counts"), [format!("a {}", sent / 5 * 3), format!("b {}", sent / 5 * 2)]);
    let colours = table(&node, "colours");
    assert!(colours.len() == 2 && colours[0].starts_with("NULL ") && colours[1].starts_with("red "), "{colours:?}");
    let before = table(&node, "colours");
    harness.batch("colours", RunTime::EventClock).await.unwrap();
    node.refresh().await.unwrap();
    assert_eq!(table(&node, "colours"), before, "the batch layer reads the older files as the speed layer did");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_dropped_while_it_is_built_stays_dropped() {
    let harness = Harness::new().await.unwrap();
    harness.define(&[(Stream, "s", STREAM), (View, "counts", COUNTS)]).await.unwrap();
    let second = COUNTS.replace("count(*)", "sum(x)");
    put(&harness, vec![record(View, "counts", 2, &second, Building)]).await;
    harness.append("s", 1, vec![event("a", 3, "")]).await.unwrap();
    let worker = harness.worker("one", Duration::from_millis(20), None);
    harness.committed("s", "s").await.unwrap();
    worker.finish().await.unwrap();
    let batch = harness.batch_layer(256 << 20);
    let request = RunRequest { version: Some(2), ..RunRequest::new("counts", RunTime::EventClock) };
    // A run reads the time last before it publishes.
    let (catalog, dropped) = (harness.catalog.clone(), record(View, "counts", 2, &second, Retired));
    let clock = move || {
        let drop_it = async {
            if catalog.state().await.unwrap().runs.iter().any(|run| run.status == RunStatus::Running) {
                let commit = Commit { id: Uuid::now_v7(), add: vec![Add::Definition(dropped.clone())], ..Commit::default() };
                catalog.commit(commit).await.unwrap();
            }
        };
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(drop_it));
        now()
    };
    let error = batch.run(request, Arc::new(clock), &|_| {}).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let state = harness.catalog.state().await.unwrap();
    let status = |version| state.definitions.iter().find(|d| d.kind == DefinitionKind::View && d.version == version).unwrap().status;
    assert_eq!((status(1), status(2)), (Active, Retired));
    assert!(state.snapshots.is_empty());
    let ended: Vec<_> = state.runs.iter().map(|run| (run.status, run.error.is_none())).collect();
    assert_eq!(ended, [(RunStatus::Dropped, true)], "going back is no failure");
}
