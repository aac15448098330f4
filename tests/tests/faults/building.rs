//! Views over events that were archived before them: built by a run, while all others are served and stay fresh.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use basestream_tests::gate::{Gate, Way};
use basestream_tests::{Harness, now, until};
use batch::{Batch, RunRequest, RunSettings, RunTime};
use catalog::DefinitionKind::{Stream, View};
use catalog::DefinitionStatus::{Active, Building, Kept, Retired};
use catalog::{Expect, RunRecord, RunStatus, serve_version, versions_commit};
use definitions::KEEP_OLD;
use engine::fresh::Fresh;
use jobs::scheduler::Scheduler;
use serving::{Node, OnValueError, ServingClock};
use storage::ObjectStorage;
use tokio_util::sync::CancellationToken;
use types::files::FileKind;
use types::vector::Vector;
use types::{ErrorKind, Strategy};
use uuid::Uuid;

use crate::{put, record, rows, table, table_at};

const STREAM: &str = "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL, k TEXT, x BIGINT) WITH (format = 'json', event_time = 'ts', key = 'k')";
const COUNTS: &str = "CREATE VIEW counts AS SELECT k, count(*) AS n FROM s GROUP BY k";
const SUMS: &str = "CREATE VIEW sums AS SELECT k, sum(x) AS x FROM s GROUP BY k";
/// In one refresh a node computes the states of fewer events than are archived.
const FEW: i64 = 10;

async fn archive(harness: &Harness, events: usize) {
    let event = |i: usize| (Some("a".to_owned()), format!(r#"{{"ts":"2026-03-01T10:00:00Z","k":"{}","x":2}}"#, ["a", "b"][i % 2]));
    harness.append("s", 2, (0..events).map(event).collect()).await.unwrap();
    let worker = harness.worker("one", Duration::from_millis(20), None);
    harness.committed("s", "s").await.unwrap();
    worker.finish().await.unwrap();
}

/// A stream with 40 archived events, and a view of them that was there before.
async fn with_history() -> Harness {
    crate::show_logs();
    let harness = Harness::new().await.unwrap();
    harness.define(&[(Stream, "s", STREAM), (View, "counts", COUNTS)]).await.unwrap();
    archive(&harness, 40).await;
    harness
}

fn batch(harness: &Harness, report_every: Duration) -> Batch {
    let mut batch = harness.batch_layer(256 << 20);
    batch.settings = RunSettings { memory_limit_bytes: 64 << 20, threads: 1, report_every, ..batch.settings };
    batch
}

fn refusal(node: &Node, view: &str) -> String {
    let error = node.read_view().unwrap().view(view).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    error.message().to_owned()
}

/// Takes the archive away: who needs it fails.
struct ArchiveAway(PathBuf, PathBuf);

impl ArchiveAway {
    fn take(harness: &Harness) -> Self {
        let (there, away) = (harness.path().join("storage/archive"), harness.path().join("away"));
        std::fs::rename(&there, &away).unwrap();
        Self(there, away)
    }
}

impl Drop for ArchiveAway {
    fn drop(&mut self) {
        std::fs::rename(&self.1, &self.0).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_view_over_many_events_holds_no_other_and_is_served_after_its_run() {
    let harness = with_history().await;
    let node = harness.node_that_rebuilds(FEW, None).await.unwrap();
    put(&harness, vec![record(View, "sums", 1, SUMS, Active)]).await;
    let away = ArchiveAway::take(&harness);
    node.refresh().await.unwrap();
    assert_eq!(refusal(&node, "sums"), "the view \"sums\" is being built from 40 archived events: waits for its run");
    assert_eq!(table(&node, "counts"), ["a 20", "b 20"]);
    assert_eq!(table(&harness.node_that_rebuilds(FEW, None).await.unwrap(), "counts"), ["a 20", "b 20"], "nor a node that starts");
    drop(away);

    archive(&harness, 10).await;
    node.refresh().await.unwrap();
    assert_eq!(table(&node, "counts"), ["a 25", "b 25"], "the others stay fresh");
    assert!(refusal(&node, "sums").contains("from 50 archived events"));
    harness.batch("sums", RunTime::EventClock).await.unwrap();
    archive(&harness, 4).await;
    node.refresh().await.unwrap();
    assert_eq!(
        (table(&node, "sums"), table(&node, "counts")),
        (vec!["a 54".to_owned(), "b 54".into()], vec!["a 27".into(), "b 27".into()])
    );
    assert!(node.loaded().unwrap().building.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_over_few_events_and_one_that_was_there_before_them_need_no_run() {
    let harness = with_history().await;
    put(&harness, vec![record(View, "sums", 1, SUMS, Active)]).await;
    let node = harness.node_that_rebuilds(40, None).await.unwrap();
    assert_eq!(table(&node, "sums"), ["a 40", "b 40"]);
    let away = ArchiveAway::take(&harness);
    assert_eq!(table(&harness.node_that_rebuilds(0, None).await.unwrap(), "counts"), ["a 20", "b 20"], "its states are in states objects");
    drop(away);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_changed_view_is_built_the_version_before_is_served() {
    let harness = with_history().await;
    let node = harness.node_that_rebuilds(FEW, None).await.unwrap();
    put(&harness, vec![record(View, "counts", 2, &COUNTS.replace("count(*)", "sum(x)"), Building)]).await;
    node.refresh().await.unwrap();
    assert_eq!(table(&node, "counts"), ["a 20", "b 20"]);
    assert_eq!(node.loaded().unwrap().building.len(), 1);
    harness.batch("counts", RunTime::EventClock).await.unwrap();
    node.refresh().await.unwrap();
    assert_eq!(table(&node, "counts"), ["a 40", "b 40"]);
}

/// The workers have events that they have not committed when the new version is switched to, and look for definitions
/// once a second.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_view_is_answered_all_the_time_while_workers_learn_of_it() {
    const NEVER: Duration = Duration::from_secs(3_600);
    let harness = with_history().await;
    let fresh = Fresh::default();
    let node = harness.node(ServingClock::Event, Some(fresh.clone())).await.unwrap();
    let workers = ["two", "three"].map(|name| harness.worker(name, NEVER, Some(fresh.for_worker())));
    let event = |k: &str| (Some(k.to_owned()), format!(r#"{{"ts":"2026-03-01T10:00:00Z","k":"{k}","x":2}}"#));
    harness.append("s", 2, ["a", "b"].map(event).to_vec()).await.unwrap();
    until("answers that count what is not committed", async || table(&node, "counts") == ["a 21", "b 21"]).await;
    put(&harness, vec![record(View, "counts", 2, &COUNTS.replace("count(*)", "sum(x)"), Building)]).await;
    harness.batch("counts", RunTime::EventClock).await.unwrap();
    assert_eq!(versions(&harness).await, [(1, Kept), (2, Active)]);
    let mut position = Vector::new();
    until("answers of the new version", async || {
        node.refresh().await.unwrap();
        let read_view = node.read_view().unwrap();
        assert!(read_view.vector.covers(&position), "{} is behind {position}", read_view.vector);
        position = read_view.vector.clone();
        let is_new = read_view.view("counts").unwrap().live.version == 2;
        assert_eq!(table_at(&read_view, "counts"), if is_new { ["a 42", "b 42"] } else { ["a 21", "b 21"] });
        is_new
    })
    .await;
    for worker in workers {
        worker.finish().await.unwrap();
    }
}

/// The versions of `counts`, with their statuses.
async fn versions(harness: &Harness) -> Vec<(u32, catalog::DefinitionStatus)> {
    let state = harness.catalog.state().await.unwrap();
    state.definitions.iter().filter(|record| record.kind == View).map(|record| (record.version, record.status)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_version_is_kept_up_to_date_returned_to_at_once_and_deleted_after_its_time() {
    let harness = with_history().await;
    harness.batch("counts", RunTime::EventClock).await.unwrap();
    put(&harness, vec![record(View, "counts", 2, &COUNTS.replace("count(*)", "sum(x)"), Building)]).await;
    harness.batch("counts", RunTime::EventClock).await.unwrap();
    assert_eq!(versions(&harness).await, [(1, Kept), (2, Active)]);
    archive(&harness, 4).await;
    let node = harness.node_that_rebuilds(0, None).await.unwrap();
    assert_eq!(table(&node, "counts"), ["a 44", "b 44"]);

    // The states of what came in since are in states objects: neither a run nor the archive is needed.
    let away = ArchiveAway::take(&harness);
    let state = harness.catalog.state().await.unwrap();
    let records = serve_version(&state, "counts", 1, KEEP_OLD, now()).unwrap();
    harness.catalog.commit(versions_commit(&state, Uuid::now_v7(), records)).await.unwrap();
    node.refresh().await.unwrap();
    assert_eq!(table(&node, "counts"), ["a 22", "b 22"]);
    assert_eq!(table(&harness.node_that_rebuilds(0, None).await.unwrap(), "counts"), ["a 22", "b 22"], "nor by a node that starts");
    drop(away);
    assert_eq!(versions(&harness).await, [(1, Active), (2, Kept)]);

    let clock = Arc::new(AtomicI64::new(now() + 3_600_000_000));
    let scheduler = Scheduler {
        batch: batch(&harness, batch::REPORT_EVERY),
        clock: Arc::new({
            let clock = clock.clone();
            move || clock.load(Ordering::Relaxed)
        }),
        event_clock: true,
        max_concurrent_runs: 1,
        tried: Default::default(),
        due_check: Default::default(),
    };
    scheduler.round(&mut None, &CancellationToken::new()).await.unwrap();
    assert_eq!(versions(&harness).await, [(1, Active), (2, Kept)], "an hour later");
    clock.fetch_add(24 * 3_600_000_000, Ordering::Relaxed);
    scheduler.round(&mut None, &CancellationToken::new()).await.unwrap();
    assert_eq!(versions(&harness).await, [(1, Active), (2, Retired)]);
    let later: types::tiles::Clock = Arc::new(|| now() + 26 * 3_600_000_000);
    for _ in 0..2 {
        jobs::collect::collect(&harness.catalog, &harness.storage, &harness.functions, &later, true).await.unwrap();
    }
    let state = harness.catalog.state().await.unwrap();
    assert!(state.snapshot("counts", 2).is_none() && state.snapshot("counts", 1).is_some());
    assert!(!state.readable(FileKind::Manifest).any(|file| file.path.starts_with("snapshots/counts/2/")));
    assert_eq!(table(&harness.node_that_rebuilds(0, None).await.unwrap(), "counts"), ["a 22", "b 22"]);
}

/// What is served keeps its copy, however small the bound is.
#[tokio::test(flavor = "multi_thread")]
async fn the_copy_of_a_kept_version_goes_where_there_is_no_room_and_comes_as_it_is_asked_for() {
    let harness = with_history().await;
    harness.batch("counts", RunTime::EventClock).await.unwrap();
    put(&harness, vec![record(View, "counts", 2, &COUNTS.replace("count(*)", "sum(x)"), Building)]).await;
    harness.batch("counts", RunTime::EventClock).await.unwrap();
    assert_eq!(versions(&harness).await, [(1, Kept), (2, Active)]);
    let node = harness.node_with_cache(1).await.unwrap();
    let is_copied = |version: u32| {
        let read_view = node.read_view().unwrap().with_version("counts", version).unwrap();
        read_view.view("counts").unwrap().snapshot.as_ref().is_some_and(|copy| copy.is_whole())
    };
    assert_eq!((is_copied(1), is_copied(2)), (false, true));
    for _ in 0..2 {
        let kept = node.read_view().unwrap().with_version("counts", 1).unwrap();
        let answer = node.query_at(kept, "SELECT k, n FROM counts ORDER BY k", OnValueError::List).await.unwrap();
        let rows: Vec<String> = answer.collect().await.unwrap().iter().flat_map(crate::lines_of).collect();
        assert_eq!(rows, ["a 20", "b 20"]);
        assert!(is_copied(1));
        node.refresh().await.unwrap();
        assert_eq!((is_copied(1), is_copied(2)), (false, true));
    }
    let state = harness.catalog.state().await.unwrap();
    let records = serve_version(&state, "counts", 1, KEEP_OLD, now()).unwrap();
    harness.catalog.commit(versions_commit(&state, Uuid::now_v7(), records)).await.unwrap();
    node.refresh().await.unwrap();
    assert_eq!(rows(&node, "SELECT k, n FROM counts ORDER BY k").await, ["a 20", "b 20"]);
    assert_eq!((is_copied(1), is_copied(2)), (true, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn states_objects_that_are_lost_are_not_computed_while_others_wait() {
    let harness = with_history().await;
    put(&harness, vec![record(View, "sums", 1, SUMS, Active)]).await;
    harness.batch("counts", RunTime::EventClock).await.unwrap();
    archive(&harness, 40).await;
    let _ = std::fs::remove_dir_all(harness.path().join("storage/states"));
    let node = harness.node_that_rebuilds(FEW, None).await.unwrap();
    assert!(refusal(&node, "counts").starts_with("the view \"counts\" is being built"), "too many for a node");
    for view in ["counts", "sums"] {
        harness.batch(view, RunTime::EventClock).await.unwrap();
    }
    node.refresh().await.unwrap();
    assert_eq!(
        (table(&node, "counts"), table(&node, "sums")),
        (vec!["a 40".to_owned(), "b 40".into()], vec!["a 80".into(), "b 80".into()])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_dies_leaves_the_view_to_the_next_one() {
    let harness = with_history().await;
    put(&harness, vec![record(View, "sums", 1, SUMS, Active)]).await;
    let node = harness.node_that_rebuilds(FEW, None).await.unwrap();

    // What a killed process leaves: a record under way, and a lease that has expired once the scheduler looks.
    let (name, ttl) = (catalog::run_lease("sums", 1), Duration::from_secs(50));
    let lease = harness.catalog.acquire_lease(&name, "dead", ttl, now(), None).await.unwrap().unwrap();
    let dead = RunRecord { started_at: Some(now()), status: RunStatus::Running, ..RunRecord::requested("sums".into(), 1) };
    let held = Expect::Lease { name: lease.name, owner: lease.owner, epoch: lease.epoch, now: now() };
    harness.catalog.begin_run(dead, vec![held]).await.unwrap();
    node.refresh().await.unwrap();
    assert!(refusal(&node, "sums").ends_with("archived events: 0 %"), "{}", refusal(&node, "sums"));

    let clock = Arc::new(AtomicI64::new(now() + 60_000_000));
    let scheduler = Scheduler {
        batch: batch(&harness, batch::REPORT_EVERY),
        clock: Arc::new({
            let clock = clock.clone();
            move || clock.load(Ordering::Relaxed)
        }),
        event_clock: true,
        max_concurrent_runs: 1,
        tried: Default::default(),
        due_check: Default::default(),
    };
    scheduler.round(&mut None, &CancellationToken::new()).await.unwrap();
    node.refresh().await.unwrap();
    let error = node.read_view().unwrap().view("sums").map(|_| ()).unwrap_err();
    assert_eq!(error.fact("last_error"), Some("the process that ran it died before it was done"));
    clock.fetch_add(60_000_000, Ordering::Relaxed);
    scheduler.round(&mut None, &CancellationToken::new()).await.unwrap();
    node.refresh().await.unwrap();
    assert_eq!(table(&node, "sums"), ["a 40", "b 40"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn how_far_a_run_is_can_be_seen_while_it_reads() {
    let harness = with_history().await;
    archive(&harness, 30_000).await;
    put(&harness, vec![record(View, "sums", 1, &SUMS.replace("sum(x)", "array_agg(x ORDER BY x)"), Active)]).await;
    let node = harness.node_that_rebuilds(FEW, None).await.unwrap();
    // The run does not end before it was seen.
    let gate = Gate::before(harness.storage.object_store(), "snapshots/sums/", Way::Held);
    let mut batch = batch(&harness, Duration::from_millis(1));
    batch.storage = ObjectStorage::over(gate.clone()).unwrap();
    let running = tokio::spawn(async move {
        let request = RunRequest::new("sums", RunTime::EventClock);
        batch.run(request, Arc::new(now), &|_| {}).await
    });
    let mut seen = None;
    until("a report of the run", async || {
        let state = harness.catalog.state().await.unwrap();
        let reported = state.runs.iter().find(|run| run.status == RunStatus::Running && run.events_read > 0);
        seen = reported.map(|run| (run.events_read, run.strategy));
        seen.is_some()
    })
    .await;
    node.refresh().await.unwrap();
    gate.set(Way::Fine);
    let run = running.await.unwrap().unwrap();
    let (events_read, strategy) = seen.unwrap();
    assert!((1..=30_040).contains(&events_read), "{events_read}");
    assert_eq!(strategy, Some(Strategy::Full), "so `status` knows that it recomputes");
    assert_eq!((run.status, run.events_read), (RunStatus::Succeeded, 30_040));
    let ended = harness.catalog.state().await.unwrap();
    assert!(ended.runs.iter().all(|run| run.status == RunStatus::Succeeded && run.events_read == 30_040), "no report comes after the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_that_always_fails_does_not_keep_others_from_being_loaded() {
    let harness = with_history().await;
    let bad = "CREATE VIEW bad WITH (on_error = 'refuse') AS SELECT k, sum(1 / (x - 2)) AS x FROM s GROUP BY k";
    put(&harness, vec![record(View, "bad", 1, bad, Active), record(View, "sums", 1, SUMS, Active)]).await;
    // Enough for either of the two, and not for both.
    let opening = harness.node_that_rebuilds(50, None);
    let node = tokio::time::timeout(Duration::from_secs(60), opening).await.expect("timed out: the node does not end loading").unwrap();
    assert_eq!(table(&node, "sums"), ["a 40", "b 40"]);
    assert_eq!(node.loaded().unwrap().failed.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn views_that_are_served_do_not_wait_for_each_others_states() {
    let harness = with_history().await;
    put(&harness, vec![record(View, "sums", 1, SUMS, Active)]).await;
    for view in ["counts", "sums"] {
        harness.batch(view, RunTime::EventClock).await.unwrap();
    }
    let node = harness.node_that_rebuilds(40, None).await.unwrap();
    archive(&harness, 30).await;
    std::fs::remove_dir_all(harness.path().join("storage/states")).unwrap();
    node.refresh().await.unwrap();
    assert_eq!(
        (table(&node, "counts"), table(&node, "sums")),
        (vec!["a 35".to_owned(), "b 35".into()], vec!["a 70".into(), "b 70".into()])
    );
}
