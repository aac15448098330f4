//! Runs beside each other, runs that take too long, and options of runs that change while everything goes on.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use basestream_tests::{Harness, now};
use batch::{Batch, BatchSettings, RunMode, RunRequest, RunTime};
use bytes::Bytes;
use catalog::DefinitionKind::{Stream, View};
use catalog::{CatalogState, RunStatus, run_lease};
use definitions::parse::parse_definitions;
use futures::stream::BoxStream;
use jobs::apply::{Options, Target, Wanted, apply};
use jobs::scheduler::Scheduler;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use serving::ServingClock;
use storage::ObjectStorage;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use types::ErrorKind;

use crate::table;

const STREAM: &str = "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL, k TEXT) WITH (format = 'json', event_time = 'ts', key = 'k')";
const LONG: Duration = Duration::from_secs(60);

/// A store that does not take the snapshots of the view `slow` while it is shut.
#[derive(Debug)]
struct Gate {
    inner: Arc<dyn ObjectStore>,
    open: watch::Receiver<bool>,
}

impl Gate {
    async fn pass(&self, location: &Path) {
        if location.as_ref().starts_with("snapshots/slow/") {
            let _ = self.open.clone().wait_for(|open| *open).await;
        }
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a gate before {}", self.inner)
    }
}

#[async_trait]
impl ObjectStore for Gate {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.pass(location).await;
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(&self, location: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.pass(location).await;
        self.inner.put_multipart_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

fn view(name: &str, options: &str) -> String {
    let with = if options.is_empty() { String::new() } else { format!(" WITH ({options})") };
    format!("CREATE VIEW {name}{with} AS SELECT k, count(*) AS n FROM s GROUP BY k")
}

/// A harness with ten committed events, a batch layer on a store with a gate that is shut, and what opens the gate.
async fn gated(views: &[(&str, &str)]) -> (Harness, Batch, watch::Sender<bool>) {
    crate::show_logs();
    let harness = Harness::new().await.unwrap();
    let views: Vec<(&str, String)> = views.iter().map(|(name, options)| (*name, view(name, options))).collect();
    let views = views.iter().map(|(name, sql)| (View, *name, sql.as_str()));
    harness.define(&[(Stream, "s", STREAM)].into_iter().chain(views).collect::<Vec<_>>()).await.unwrap();
    more(&harness, 10).await;
    let (opener, open) = watch::channel(false);
    let storage = ObjectStorage::over(Arc::new(Gate { inner: harness.storage.object_store(), open })).unwrap();
    let batch = Batch {
        catalog: harness.catalog.clone(),
        storage,
        log: harness.replay_log(),
        functions: harness.functions.clone(),
        settings: BatchSettings {
            memory_limit_bytes: 64 << 20,
            threads: 2,
            temp_dir: Some(harness.path().join("spill")),
            lease: Duration::from_secs(3600),
            report_every: batch::REPORT_EVERY,
            events_per_bucket: batch::EVENTS_PER_BUCKET,
        },
        worker: "harness".into(),
        copies: Default::default(),
    };
    (harness, batch, opener)
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
        looks: Default::default(),
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
    tokio::time::timeout(LONG, waiting).await.expect("it never came")
}

fn statuses(state: &CatalogState, view: &str) -> Vec<RunStatus> {
    let mut runs: Vec<_> = state.runs.iter().filter(|run| &*run.view == view).collect();
    runs.sort_by_key(|run| run.started_at);
    runs.iter().map(|run| run.status).collect()
}

fn request(view: &str) -> RunRequest {
    RunRequest {
        view: view.into(),
        version: None,
        requested: None,
        scheduled_for: None,
        attempt: 1,
        t: RunTime::EventClock,
        mode: RunMode::ByStrategy,
        compare: true,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_run_leaves_a_place_to_others_and_what_has_none_waits() {
    let views = [("slow", "every = '1h'"), ("tenant", "every = '1h'"), ("third", "every = '1h'")];
    let (harness, batch, opener) = gated(&views).await;
    let clock = Arc::new(AtomicI64::new(now()));
    let stop = CancellationToken::new();
    let scheduler = scheduler(batch, 2, &clock);
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { scheduler.run(stop).await }
    });
    let published = |view: &'static str| move |state: &CatalogState| state.snapshot(view, 1).is_some();
    let state = until(&harness, |state| published("tenant")(state) && published("third")(state)).await;
    assert_eq!(statuses(&state, "slow"), [RunStatus::Running]);
    let overlap = |view: &str| state.runs.iter().filter(|run| &*run.view == view).map(|run| (run.started_at, run.ended_at)).next().unwrap();
    let (tenant, third) = (overlap("tenant"), overlap("third"));
    assert!(tenant.1 <= third.0 || third.1 <= tenant.0, "two at a time: {tenant:?}, {third:?}");
    opener.send(true).unwrap();
    until(&harness, published("slow")).await;
    stop.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_takes_too_long_fails_leaves_nothing_and_is_tried_again() {
    let (harness, batch, opener) = gated(&[("slow", "every = '1h', timeout = '1s'")]).await;
    let error = batch.run(request("slow"), Arc::new(now), &|_| {}).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let state = harness.catalog.state().await.unwrap();
    assert_eq!(statuses(&state, "slow"), [RunStatus::Failed]);
    let failed = &state.runs[0];
    assert!(failed.error.as_ref().unwrap().starts_with("timed out after 1s: "), "{failed:?}");
    assert!(state.snapshots.is_empty() && state.files.iter().all(|file| file.run.is_none()), "nothing is published");
    assert!(!state.leases.iter().any(|lease| lease.name == run_lease("slow")), "{:?}", state.leases);
    let spilled = std::fs::read_dir(harness.path().join("spill")).map(|entries| entries.count()).unwrap_or_default();
    assert_eq!(spilled, 0, "nothing is left of what it spilled");
    let stored = harness.storage.list("snapshots").await.unwrap();
    assert!(stored.is_empty(), "{stored:?}");

    // A longer timeout is in use at once, in the version that is there.
    opener.send(true).unwrap();
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
    let target = Target {
        catalog: &harness.catalog,
        storage: &harness.storage,
        log: &*harness.log,
        partitions: 1,
        functions: &harness.functions,
        progress: &|_| {},
    };
    let wanted = Wanted::Definitions { definitions: &definitions, staging: &BTreeSet::new() };
    apply(&target, wanted, Options::default(), now()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn options_of_runs_change_in_place_and_every_layer_goes_on() {
    let (harness, batch, opener) = gated(&[("quick", "every = '1d'")]).await;
    opener.send(true).unwrap();
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
    assert_eq!(versions, [(1, catalog::DefinitionStatus::Active)]);
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
