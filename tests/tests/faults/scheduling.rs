//! Runs beside each other, runs that take too long, and options of runs that change while everything goes on.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use basestream_tests::gate::{Gate, Way};
use basestream_tests::{Harness, now};
use batch::{Batch, RunRequest, RunSettings, RunTime};
use catalog::DefinitionKind::{Stream, View};
use catalog::{CatalogState, DefinitionStatus, RunStatus, run_lease};
use definitions::parse::parse_definitions;
use jobs::apply::{ApplyOptions, ApplyTarget, Wanted, apply};
use jobs::scheduler::Scheduler;
use serving::ServingClock;
use storage::ObjectStorage;
use tokio_util::sync::CancellationToken;
use types::ErrorKind;

use crate::{put, record, table};

const STREAM: &str = "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL, k TEXT) WITH (format = 'json', event_time = 'ts', key = 'k')";
const LONG: Duration = Duration::from_secs(60);

fn view(name: &str, options: &str) -> String {
    let with = if options.is_empty() { String::new() } else { format!(" WITH ({options})") };
    format!("CREATE VIEW {name}{with} AS SELECT k, count(*) AS n FROM s GROUP BY k")
}

/// A harness with ten committed events, and a batch layer on a store whose gate holds what is written to `folder`.
async fn gated(views: &[(&str, &str)], folder: &'static str) -> (Harness, Batch, Arc<Gate>) {
    crate::show_logs();
    let harness = Harness::new().await.unwrap();
    let views: Vec<(&str, String)> = views.iter().map(|(name, options)| (*name, view(name, options))).collect();
    let views = views.iter().map(|(name, sql)| (View, *name, sql.as_str()));
    harness.define(&[(Stream, "s", STREAM)].into_iter().chain(views).collect::<Vec<_>>()).await.unwrap();
    more(&harness, 10).await;
    let gate = Gate::before(harness.storage.object_store(), folder, Way::Held);
    let mut batch = harness.batch_layer(256 << 20);
    batch.storage = ObjectStorage::over(gate.clone()).unwrap();
    let (temp_dir, lease) = (Some(harness.path().join("spill")), Duration::from_secs(3600));
    batch.settings = RunSettings { memory_limit_bytes: 64 << 20, temp_dir, lease, ..batch.settings };
    (harness, batch, gate)
}

async fn more(harness: &Harness, events: usize) {
    let event = (Some("a".to_owned()), r#"{"ts":"2026-03-01T10:00:00Z","k":"a"}"#.to_owned());
    harness.append("s", 1, vec![event; events]).await.unwrap();
    let worker = harness.worker("one", Duration::from_millis(20), None);
    harness.committed("s", "s").await.unwrap();
    worker.finish().await.unwrap();
}

fn scheduler(batch: Batch, max_concurrent_runs: usize, clock: &Arc<AtomicI64>) -> Scheduler {
    let clock = clock.clone();
    Scheduler {
        batch,
        clock: Arc::new(move || clock.load(Ordering::Relaxed)),
        event_clock: true,
        max_concurrent_runs,
        tried: Default::default(),
        due_check: Default::default(),
    }
}

/// Waits until the catalog is so.
async fn until(harness: &Harness, is_so: impl Fn(&CatalogState) -> bool) -> Arc<CatalogState> {
    let waiting = async {
        loop {
            let state = harness.catalog.state().await.unwrap();
            if is_so(&state) {
                return state;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, waiting).await.expect("timed out: the catalog does not become what is awaited")
}

fn statuses(state: &CatalogState, view: &str) -> Vec<RunStatus> {
    let mut runs: Vec<_> = state.runs.iter().filter(|run| &*run.view == view).collect();
    runs.sort_by_key(|run| run.started_at);
    runs.iter().map(|run| run.status).collect()
}

fn request(view: &str) -> RunRequest {
    RunRequest::new(view, RunTime::EventClock)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_run_leaves_a_place_to_others_and_what_has_none_waits() {
    let views = [("slow", "every = '1h'"), ("tenant", "every = '1h'"), ("third", "every = '1h'")];
    let (harness, batch, gate) = gated(&views, "snapshots/slow/").await;
    let clock = Arc::new(AtomicI64::new(now()));
    let stop = CancellationToken::new();
    let scheduler = scheduler(batch, 2, &clock);
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { scheduler.run(stop).await }
    });
    let published = |view: &'static str| move |state: &CatalogState| state.snapshot(view, 1).is_some();
    let state =
        until(&harness, |state| published("tenant")(state) && published("third")(state) && !statuses(state, "slow").is_empty()).await;
    assert_eq!(statuses(&state, "slow"), [RunStatus::Running]);
    let overlap = |view: &str| state.runs.iter().filter(|run| &*run.view == view).map(|run| (run.started_at, run.ended_at)).next().unwrap();
    let (tenant, third) = (overlap("tenant"), overlap("third"));
    assert!(tenant.1 <= third.0 || third.1 <= tenant.0, "two at a time: {tenant:?}, {third:?}");
    gate.set(Way::Fine);
    until(&harness, published("slow")).await;
    stop.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_long_first_run_of_a_new_version_holds_up_no_run_of_the_served_one() {
    let (harness, batch, gate) = gated(&[("v", "every = '1h'")], "snapshots/v/2/").await;
    harness.batch("v", RunTime::At(now())).await.unwrap();
    let changed = view("v", "every = '1h'").replace("count(*)", "count(*) + 0");
    put(&harness, vec![record(View, "v", 2, &changed, DefinitionStatus::Building)]).await;
    more(&harness, 5).await;
    let clock = Arc::new(AtomicI64::new(now() + 3_600_000_000));
    let stop = CancellationToken::new();
    let scheduler = scheduler(batch.clone(), 2, &clock);
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { scheduler.run(stop).await }
    });
    let ended = |state: &CatalogState, version| {
        let mut runs = state.runs.iter().filter(|run| run.version == version);
        runs.any(|run| run.events_read == 5 && run.status == RunStatus::Succeeded)
    };
    let state = until(&harness, |state| ended(state, 1) && state.runs.iter().any(|run| run.version == 2)).await;
    let of_second: Vec<_> = state.runs.iter().filter(|run| run.version == 2).map(|run| run.status).collect();
    assert_eq!(of_second, [RunStatus::Running]);
    let mut another = batch;
    another.worker = "another".into();
    let again = another.run(RunRequest { version: Some(2), ..request("v") }, Arc::new(now), &|_| {}).await.unwrap_err();
    assert_eq!(again.to_string(), "version 2 of the view \"v\" is being run already");
    gate.set(Way::Fine);
    until(&harness, |state| state.snapshot("v", 2).is_some()).await;
    stop.cancel();
    running.await.unwrap().unwrap();
}

/// Also a first run, and also while one of them fails.
#[tokio::test(flavor = "multi_thread")]
async fn views_that_recompute_at_the_same_time_read_the_archive_once() {
    let full = "every = '1h', strategy = 'full'";
    let (harness, batch, gate) = gated(&[("one", full), ("two", "every = '1h'"), ("three", full)], "archive/").await;
    gate.set(Way::Fine);
    let failing =
        format!("CREATE VIEW failing WITH ({full}, on_error = 'refuse') AS SELECT k, sum(CAST(k AS BIGINT)) AS n FROM s GROUP BY k");
    put(&harness, vec![record(View, "failing", 1, &failing, DefinitionStatus::Active)]).await;
    more(&harness, 7).await;
    batch.run(request("one"), Arc::new(now), &|_| {}).await.unwrap();
    let alone = gate.take_reads();

    let clock = Arc::new(AtomicI64::new(now() + 3_600_000_000));
    let mut registry = None;
    scheduler(batch, 1, &clock).round(&mut registry, &CancellationToken::new()).await.unwrap();
    let state = harness.catalog.state().await.unwrap();
    assert_eq!(statuses(&state, "one"), [RunStatus::Succeeded; 2]);
    assert_eq!((statuses(&state, "two"), statuses(&state, "three")), (vec![RunStatus::Succeeded], vec![RunStatus::Succeeded]));
    assert_eq!(statuses(&state, "failing"), [RunStatus::Failed]);
    let together = gate.take_reads();
    assert_eq!(together, alone, "parts of archive files that were read");
    let node = harness.node(ServingClock::Event, None).await.unwrap();
    for view in ["one", "two", "three"] {
        assert_eq!(table(&node, view), ["a 17"]);
        let run = state.runs.iter().find(|run| &*run.view == view).unwrap();
        assert_eq!((run.events_read, run.strategy), (17, Some(types::Strategy::Full)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_takes_too_long_fails_leaves_nothing_and_is_tried_again() {
    let (harness, batch, gate) = gated(&[("slow", "every = '1h', timeout = '1s'")], "snapshots/slow/").await;
    let error = batch.run(request("slow"), Arc::new(now), &|_| {}).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let state = harness.catalog.state().await.unwrap();
    assert_eq!(statuses(&state, "slow"), [RunStatus::Failed]);
    let failed = &state.runs[0];
    assert!(failed.error.as_ref().unwrap().starts_with("timed out after 1s: "), "{failed:?}");
    assert!(state.snapshots.is_empty() && state.files.iter().all(|file| file.run.is_none()), "nothing is published");
    assert!(!state.leases.iter().any(|lease| lease.name == run_lease("slow", 1)), "{:?}", state.leases);
    let spilled = std::fs::read_dir(harness.path().join("spill")).map(|entries| entries.count()).unwrap_or_default();
    assert_eq!(spilled, 0, "nothing is left of what it spilled");
    let stored = harness.storage.list("snapshots").await.unwrap();
    assert!(stored.is_empty(), "{stored:?}");

    // A longer timeout is in use at once, in the version that is there.
    gate.set(Way::Fine);
    change(&harness, &[&view("slow", "every = '1h', timeout = '1h'")]).await;
    let clock = Arc::new(AtomicI64::new(failed.ended_at.unwrap() + 5_000_000));
    scheduler(batch, 1, &clock).round(&mut None, &CancellationToken::new()).await.unwrap();
    let state = harness.catalog.state().await.unwrap();
    assert_eq!(statuses(&state, "slow"), [RunStatus::Failed, RunStatus::Succeeded]);
    assert_eq!(state.runs.iter().map(|run| run.attempt).collect::<BTreeSet<_>>(), BTreeSet::from([1, 2]));
}

/// Applies the stream and these views.
async fn change(harness: &Harness, views: &[&str]) {
    let sources: Vec<(Option<PathBuf>, String)> = [STREAM].iter().chain(views).map(|text| (None, (*text).to_owned())).collect();
    let (definitions, problems) = parse_definitions(&sources);
    assert!(problems.is_empty(), "{problems}");
    let target = ApplyTarget {
        catalog: &harness.catalog,
        storage: &harness.storage,
        log: &*harness.log,
        partitions: 1,
        functions: &harness.functions,
        progress: &|_| {},
    };
    let wanted = Wanted::Definitions { definitions: &definitions, staging: &BTreeSet::new() };
    apply(&target, wanted, ApplyOptions::default(), now()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn options_of_runs_change_in_place_and_every_layer_goes_on() {
    let (harness, batch, gate) = gated(&[("quick", "every = '1d'")], "snapshots/slow/").await;
    gate.set(Way::Fine);
    let fresh = engine::fresh::Fresh::default();
    let node = harness.node(ServingClock::Event, Some(fresh.clone())).await.unwrap();
    let worker = harness.worker("two", Duration::from_millis(20), Some(fresh));
    let day = 86_400_000_000;
    let clock = Arc::new(AtomicI64::new(now() / day * day + day));
    let scheduler = scheduler(batch, 1, &clock);
    let mut registry = None;
    let stop = CancellationToken::new();
    scheduler.round(&mut registry, &stop).await.unwrap();
    let before = harness.catalog.state().await.unwrap();
    let snapshot = before.snapshot("quick", 1).cloned().unwrap();
    clock.fetch_add(2 * 3_600_000_000, Ordering::Relaxed);
    scheduler.round(&mut registry, &stop).await.unwrap();
    assert_eq!(statuses(&harness.catalog.state().await.unwrap(), "quick"), [RunStatus::Succeeded], "it is due tomorrow");

    change(&harness, &[&view("quick", "every = '1h', memory_limit = '32MiB', strategy = 'incremental', full_every = '7d'")]).await;
    let state = harness.catalog.state().await.unwrap();
    let versions: Vec<_> = state.live(View).map(|record| (record.version, record.status)).collect();
    assert_eq!(versions, [(1, DefinitionStatus::Active)]);
    assert_eq!(state.snapshot("quick", 1), Some(&snapshot), "nothing is computed again");
    node.refresh().await.unwrap();
    assert_eq!(table(&node, "quick"), ["a 10"]);

    // The scheduler's registry was loaded before.
    scheduler.round(&mut registry, &stop).await.unwrap();
    let state = harness.catalog.state().await.unwrap();
    assert_eq!(statuses(&state, "quick"), [RunStatus::Succeeded, RunStatus::Skipped], "it is due each hour");
    harness.append("s", 1, vec![(Some("a".into()), r#"{"ts":"2026-03-01T10:00:00Z","k":"a"}"#.into()); 5]).await.unwrap();
    harness.committed("s", "s").await.unwrap();
    worker.finish().await.unwrap();
    clock.fetch_add(3_600_000_000, Ordering::Relaxed);
    scheduler.round(&mut registry, &stop).await.unwrap();
    let state = harness.catalog.state().await.unwrap();
    let last = state.runs.iter().max_by_key(|run| run.started_at).unwrap();
    assert_eq!((last.status, last.events_read, last.strategy), (RunStatus::Succeeded, 5, Some(types::Strategy::Incremental)));
    node.refresh().await.unwrap();
    assert_eq!(table(&node, "quick"), ["a 15"]);
}
