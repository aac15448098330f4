//! Runs that are given up because their process stops.

use std::sync::Arc;
use std::time::Duration;

use basestream_tests::{Harness, now};
use batch::{RunRequest, RunTime};
use catalog::DefinitionKind::{Stream, View};
use catalog::{RunStatus, run_lease};
use types::ErrorKind;

const STREAM: &str = "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL, k TEXT) WITH (format = 'json', event_time = 'ts', key = 'k')";
const COUNTS: &str = "CREATE VIEW counts AS SELECT k, count(*) AS n FROM s GROUP BY k";

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_given_up_publishes_nothing_and_its_view_can_be_run_at_once() {
    crate::show_logs();
    let harness = Harness::new().await.unwrap();
    harness.define(&[(Stream, "s", STREAM), (View, "counts", COUNTS)]).await.unwrap();
    harness.append("s", 1, vec![(Some("a".into()), r#"{"ts":"2026-03-01T10:00:00Z","k":"a"}"#.into())]).await.unwrap();
    let worker = harness.worker("one", Duration::from_millis(20), None);
    harness.committed("s", "s").await.unwrap();
    worker.finish().await.unwrap();
    let mut batch = harness.batch_layer(256 << 20);
    // A lease that is not released would keep the second run away.
    batch.settings.lease = Duration::from_secs(3600);
    let request = RunRequest::new("counts", RunTime::EventClock);
    // The attempt needs more than one step, and it is given up after the first.
    let error = batch.run_until(request.clone(), Arc::new(now), &|_| {}, std::future::ready(())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let state = harness.catalog.state().await.unwrap();
    assert!(state.snapshots.is_empty(), "nothing is published");
    assert_eq!(state.runs.iter().map(|run| run.status).collect::<Vec<_>>(), [RunStatus::Failed]);
    assert!(state.runs[0].error.as_ref().unwrap().contains("given up because its process stops"), "{:?}", state.runs[0].error);
    assert!(!state.leases.iter().any(|lease| lease.name == run_lease("counts", 1)), "{:?}", state.leases);

    let run = batch.run(request, Arc::new(now), &|_| {}).await.unwrap();
    assert_eq!((run.status, run.events_read), (RunStatus::Succeeded, 1));
}
