use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use arrow::array::{ArrayRef, StringArray};
use engine::functions::Functions;
use engine::states::bucket_of;
use storage::{Manifest, ObjectStorage, Tier};
use tokio_util::sync::CancellationToken;
use types::tiles::Clock;
use types::{ErrorKind, Result};

use super::{LocalFiles, SnapshotCopy};
use crate::harness::{Harness, NOW, event};
use crate::json::rows;
use crate::{Keys, Meta, Node, NodeSettings, ServingClock, ViewKeys, WantedViews};
use gate::{Gate, WAYS, Way};

mod gate;

const DEVICES: usize = 24;
const BUCKETS: u32 = 3;
/// What does not come in this time does not come.
const SHORT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_millis(150);
const HOUR: i64 = 3_600_000_000;

/// A view with a snapshot of three buckets and a checkpoint after it.
struct Site {
    harness: Harness,
    gate: Arc<Gate>,
    /// Of each bucket.
    devices: Vec<Vec<String>>,
    /// What a node answers that has copied all.
    expected: BTreeMap<String, String>,
}

/// A node that answers at once, behind the gate.
struct Started {
    node: Node,
    wall: Arc<AtomicI64>,
    cache: tempfile::TempDir,
}

impl Site {
    async fn new() -> Site {
        let harness = Harness::new().await;
        let events = |from: usize| -> Vec<String> { (from..from + 2 * DEVICES).map(one_event).collect() };
        harness.checkpoint(0, &events(0)).await;
        harness.snapshot("velocity").await;
        harness.checkpoint(1, &events(2 * DEVICES)).await;
        harness.node.refresh().await.unwrap();
        let codec = harness.node.read_view().unwrap().view("velocity").unwrap().live.codec.clone();
        let mut devices = vec![Vec::new(); BUCKETS as usize];
        let mut expected = BTreeMap::new();
        for device in (0..DEVICES).map(device) {
            let column: ArrayRef = Arc::new(StringArray::from(vec![device.as_str()]));
            let key = codec.encode(&[column], 1).unwrap();
            devices[bucket_of(key.value(0), BUCKETS) as usize].push(device.clone());
            expected.insert(device.clone(), ask(&harness.node, &device).await.unwrap().0);
        }
        assert!(devices.iter().all(|devices| devices.len() > 1), "{devices:?}");
        let gate = Gate::before(harness.storage.object_store());
        Site { harness, gate, devices, expected }
    }

    async fn start(&self) -> Started {
        let cache = tempfile::tempdir().unwrap();
        let settings = NodeSettings {
            name: "started".into(),
            views: WantedViews::All,
            clock: ServingClock::Wall,
            at_once: true,
            cache: cache.path().to_owned(),
            cache_bytes: None,
            poll: Duration::from_millis(20),
            lease: LEASE,
            memory_limit_bytes: 64 << 20,
            max_rebuilt_events: committed::lacking::MAX_REBUILT_EVENTS,
            query_timeout: Duration::from_secs(30),
            limits: crate::ServingLimits::default(),
            hot_keys: crate::HotKeySettings::default(),
        };
        let storage = ObjectStorage::over(self.gate.clone()).unwrap();
        let wall = Arc::new(AtomicI64::new(NOW));
        let clock: Clock = Arc::new({
            let wall = wall.clone();
            move || wall.load(Ordering::Relaxed)
        });
        let node = Node::open(self.harness.catalog.clone(), storage, Functions::standard(), None, settings, clock);
        Started { node: node.await.unwrap(), wall, cache }
    }

    fn set_all(&self, way: Way) {
        (0..BUCKETS).for_each(|bucket| self.gate.set(bucket, way));
    }

    async fn assert_all_are_answered(&self, node: &Node) {
        for (device, expected) in &self.expected {
            assert_eq!(ask(node, device).await.unwrap().0, *expected);
        }
        assert_eq!(scan(node).await.unwrap(), self.expected.values().cloned().collect::<Vec<_>>());
    }
}

impl Started {
    fn copy(&self) -> Option<Arc<SnapshotCopy>> {
        self.node.loaded().unwrap().views.values().find_map(|view| view.snapshot.clone())
    }

    /// Follows the catalog until the token is cancelled.
    fn run(&self) -> (CancellationToken, tokio::task::JoinHandle<()>) {
        let (node, stop) = (self.node.clone(), CancellationToken::new());
        (stop.clone(), tokio::spawn(async move { node.run(stop).await }))
    }

    fn files(&self) -> usize {
        files_in(self.cache.path())
    }
}

/// The files of a folder that this process has open or mapped. They need no names.
fn files_in(folder: &Path) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps.lines().filter(|line| line.contains(folder.to_str().unwrap())).count();
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    mapped + open.filter(|file| file.starts_with(folder)).count()
}

/// The files that anybody can find in a folder.
fn named_files_in(folder: &Path) -> Vec<PathBuf> {
    let entries: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.into_iter().flat_map(|path| if path.is_dir() { named_files_in(&path) } else { vec![path] }).collect()
}

fn device(number: usize) -> String {
    format!("d{number:02}")
}

fn one_event(number: usize) -> String {
    let ts = format!("2026-03-{:02}T{:02}:{:02}:00Z", 1 + number % 2, number % 12, number % 60);
    event(&number.to_string(), &ts, &device(number % DEVICES), &format!("{number}.25"), "ok")
}

async fn ask(node: &Node, device: &str) -> Result<(String, Meta)> {
    let key = vec![("device".to_owned(), device.to_owned())];
    let response = node.lookup("velocity", Keys::Text(vec![key]), None).await?;
    Ok((rows(&response.rows)?[0].get().to_owned(), response.meta))
}

/// The same, by a lookup of several views.
async fn ask_views(node: &Node, device: &str) -> Result<(String, Meta)> {
    let keys = Keys::Text(vec![vec![("device".to_owned(), device.to_owned())]]);
    let response = node.lookup_views(vec![ViewKeys { view: "velocity".into(), keys }], None, None).await?;
    Ok((rows(&response.views[0].rows)?[0].get().to_owned(), response.meta))
}

async fn scan(node: &Node) -> Result<Vec<String>> {
    let batches = node.query("SELECT * FROM velocity ORDER BY device", Vec::new()).await?.collect().await?;
    let mut all = Vec::new();
    for batch in &batches {
        all.extend(rows(batch)?.iter().map(|row| row.get().to_owned()));
    }
    Ok(all)
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(LONG, async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("timed out: {what}"));
}

/// A lookup that had to build an index would be answered late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keys_of_a_small_copy_are_indexed_before_they_are_asked() {
    let site = Site::new().await;
    let started = site.start().await;
    let copy = started.copy().unwrap();
    copy.fetch_all().await.unwrap();
    let indexed = || copy.runs().unwrap().iter().map(|run| run.memory_bytes()).collect::<Vec<usize>>();
    let before = indexed();
    assert!(before.len() == BUCKETS as usize && before.iter().all(|bytes| *bytes > 0), "{before:?}");
    for _ in 0..3 {
        site.assert_all_are_answered(&started.node).await;
    }
    assert_eq!(indexed(), before, "no lookup built any");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_answered_while_another_keys_bucket_is_awaited() {
    let site = Site::new().await;
    site.gate.set(1, Way::Held);
    let started = site.start().await;
    assert_eq!(started.copy().unwrap().local(), LocalFiles { here: 0, all: 3 });
    let (near, far) = (&site.devices[0][0], &site.devices[1][0]);
    let (answer, meta) = ask(&started.node, near).await.unwrap();
    assert_eq!((&answer, meta.degraded), (&site.expected[near], false));
    assert_eq!(ask_views(&started.node, near).await.unwrap(), (answer, meta));
    assert_eq!(started.copy().unwrap().local(), LocalFiles { here: 1, all: 3 }, "only what was needed is fetched");

    let waiting = |device: String| {
        tokio::spawn({
            let node = started.node.clone();
            async move { ask(&node, &device).await.unwrap().0 }
        })
    };
    let mut many: Vec<_> = (0..8).map(|_| waiting(far.clone())).collect();
    let scanning = tokio::spawn({
        let node = started.node.clone();
        async move { scan(&node).await.unwrap() }
    });
    assert!(tokio::time::timeout(SHORT, &mut many[0]).await.is_err(), "an answer without its bucket");
    assert!(!scanning.is_finished(), "a scan without a bucket");
    assert_eq!(ask(&started.node, &site.devices[0][1]).await.unwrap().0, site.expected[&site.devices[0][1]]);
    site.gate.set(1, Way::Fine);
    for one in many {
        assert_eq!(one.await.unwrap(), site.expected[far]);
    }
    assert_eq!(scanning.await.unwrap().len(), DEVICES);
    assert_eq!((0..BUCKETS).map(|bucket| site.gate.reads(bucket)).collect::<Vec<_>>(), [1, 1, 1], "each is fetched once");
    site.assert_all_are_answered(&started.node).await;
}

/// The runtime of a test stands for the one that answers HTTP.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_query_waits_for_is_copied_by_the_threads_of_queries_and_the_rest_by_those_of_runs() {
    let site = Site::new().await;
    let started = site.start().await;
    ask(&started.node, &site.devices[0][0]).await.unwrap();
    let (stop, run) = started.run();
    until("the rest is copied", || started.copy().unwrap().is_whole()).await;
    let threads: Vec<_> = (0..BUCKETS).map(|bucket| site.gate.threads(bucket)).collect();
    assert_eq!(threads, [["queries"], ["runs"], ["runs"]]);
    site.harness.snapshot("velocity").await;
    until("the next one is copied", || (0..BUCKETS).all(|bucket| site.gate.reads(bucket) == 2)).await;
    assert!((0..BUCKETS).all(|bucket| site.gate.threads(bucket)[1] == "runs"), "nobody asked for it");
    stop.cancel();
    run.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rest_is_copied_by_itself_and_its_progress_is_reported() {
    let site = Site::new().await;
    site.gate.set(2, Way::Refused);
    let started = site.start().await;
    let copied = async || {
        let sql = "SELECT buckets, buckets_copied FROM system.views WHERE view = 'velocity'";
        let batches = started.node.query(sql, Vec::new()).await.unwrap().collect().await.unwrap();
        rows(&batches[0]).unwrap()[0].get().to_owned()
    };
    assert_eq!(copied().await, r#"{"buckets":3,"buckets_copied":0}"#);
    let (stop, run) = started.run();
    until("two are copied", || started.copy().unwrap().local() == LocalFiles { here: 2, all: 3 }).await;
    assert!(!started.copy().unwrap().is_whole());
    site.gate.set(2, Way::Fine);
    until("what was refused is tried again", || started.copy().unwrap().is_whole()).await;
    assert_eq!(copied().await, r#"{"buckets":3,"buckets_copied":3}"#);
    site.assert_all_are_answered(&started.node).await;
    stop.cancel();
    run.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_first_copy_fails_says_so_until_it_is_there() {
    let site = Site::new().await;
    site.set_all(Way::Refused);
    let started = site.start().await;
    let outage = || started.node.outages().into_iter().find(|outage| outage.what == "a snapshot cannot be copied");
    assert_eq!(outage(), None, "nothing was tried yet");
    let (stop, run) = started.run();
    until("the copy fails", || outage().is_some()).await;
    site.set_all(Way::Fine);
    until("the copy is there", || started.copy().unwrap().is_whole() && outage().is_none()).await;
    site.assert_all_are_answered(&started.node).await;
    stop.cancel();
    run.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_could_not_be_copied_leaves_no_file() {
    let site = Site::new().await;
    site.set_all(Way::Refused);
    let started = site.start().await;
    let error = ask(&started.node, &site.devices[1][0]).await.unwrap_err();
    assert_eq!((error.kind(), started.files()), (ErrorKind::Unavailable, 0), "{error}");
    site.set_all(Way::Fine);
    site.assert_all_are_answered(&started.node).await;
}

/// Who truncated a mapped file would end the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_finds_the_files_of_a_copy_and_they_are_gone_with_it() {
    let site = Site::new().await;
    site.gate.set(1, Way::Held);
    let started = site.start().await;
    let copy = started.copy().unwrap();
    assert!(tokio::time::timeout(SHORT, copy.fetch_all()).await.is_err(), "a bucket is held");
    until("two are copied and one is begun", || copy.local().here == 2 && started.files() > 2).await;
    assert_eq!(named_files_in(started.cache.path()), Vec::<PathBuf>::new());
    site.gate.set(1, Way::Fine);
    copy.fetch_all().await.unwrap();
    until("all are mapped and none is open", || started.files() == 3).await;
    assert_eq!(named_files_in(started.cache.path()), Vec::<PathBuf>::new());
    let bytes = copy.local_bytes();
    assert!(bytes > 0);
    site.assert_all_are_answered(&started.node).await;
    drop(copy);
    let Started { node, cache, .. } = started;
    drop(node);
    until("their space is given back", || files_in(cache.path()) == 0).await;
}

/// What cleans a folder of temporary files may remove it while the node runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_goes_on_in_a_folder_that_was_removed() {
    let site = Site::new().await;
    let started = site.start().await;
    let near = &site.devices[0][0];
    assert_eq!(ask(&started.node, near).await.unwrap().0, site.expected[near]);
    std::fs::remove_dir_all(started.cache.path()).unwrap();
    site.assert_all_are_answered(&started.node).await;
}

/// Each bucket in each way: every query gets the right answer, or an error that says to try again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_buckets_come_no_answer_is_wrong() {
    let site = Site::new().await;
    for case in 0..WAYS.len().pow(BUCKETS) {
        let ways: Vec<Way> = (0..BUCKETS).map(|bucket| WAYS[case / WAYS.len().pow(bucket) % WAYS.len()]).collect();
        (0..BUCKETS).for_each(|bucket| site.gate.set(bucket, ways[bucket as usize]));
        let started = site.start().await;
        // In every second case nothing but lookups fetches.
        let following = (case % 2 == 0).then(|| started.run());
        let asked: Vec<_> = site
            .expected
            .clone()
            .into_iter()
            .map(|(device, expected)| {
                let node = started.node.clone();
                tokio::spawn(async move {
                    let answer = loop {
                        match ask(&node, &device).await {
                            Ok(answer) => break answer.0,
                            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
                        }
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    };
                    assert_eq!(answer, expected);
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(10)).await;
        for bucket in (0..BUCKETS).filter(|bucket| matches!(ways[*bucket as usize], Way::Held | Way::Refused)) {
            site.gate.set(bucket, Way::Fine);
        }
        for one in asked {
            tokio::time::timeout(LONG, one).await.unwrap_or_else(|_| panic!("timed out: no answer: {ways:?}")).unwrap();
        }
        site.assert_all_are_answered(&started.node).await;
        let is_damaged = ways.contains(&Way::Damaged);
        let degraded = ask(&started.node, "d00").await.unwrap().1.degraded;
        assert_eq!((degraded, started.copy().is_none()), (is_damaged, is_damaged), "{ways:?}");
        if let Some((stop, run)) = following {
            stop.cancel();
            run.await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_bucket_is_found_by_its_reader_and_reported() {
    let readers = ["lookup", "lookup of several views", "query", "states"].map(|reader| (reader, Way::Damaged));
    for (finder, way) in readers.into_iter().chain([("nobody", Way::Damaged), ("nobody", Way::Missing)]) {
        let site = Site::new().await;
        site.gate.set(1, way);
        let started = site.start().await;
        let mut following = None;
        match finder {
            "lookup" => assert!(ask(&started.node, &site.devices[1][0]).await.unwrap().1.degraded),
            "lookup of several views" => assert!(ask_views(&started.node, &site.devices[1][0]).await.unwrap().1.degraded),
            "query" => assert_eq!(scan(&started.node).await.unwrap().len(), DEVICES),
            "states" => {
                // Not empty: who exports it would not notice.
                let error = started.node.query("SELECT * FROM velocity__batch", Vec::new()).await.err().unwrap();
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                assert!(error.message().contains("\"velocity__batch\" cannot be read: the last run's snapshot"), "{error}");
                let meta = started.node.query("SELECT * FROM velocity__speed", Vec::new()).await.unwrap().meta;
                assert!(meta.degraded && meta.versions.contains_key("velocity"), "{meta:?}");
            }
            _ => following = Some(started.run()),
        }
        until("it is answered without", || started.copy().is_none()).await;
        let damages = site.harness.catalog.state().await.unwrap().damages.clone();
        assert!(damages.len() == 1 && damages[0].path.ends_with("00001.parquet"), "{finder}: {damages:?}");
        site.assert_all_are_answered(&started.node).await;
        if let Some((stop, run)) = following {
            stop.cancel();
            run.await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_storage_does_not_answer_a_lookup_says_so_and_a_later_one_tries_again() {
    let site = Site::new().await;
    site.set_all(Way::Refused);
    let started = site.start().await;
    let far = &site.devices[2][0];
    for _ in 0..2 {
        assert_eq!(ask(&started.node, far).await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(scan(&started.node).await.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    site.set_all(Way::Fine);
    assert_eq!(ask(&started.node, far).await.unwrap().0, site.expected[far]);
    site.assert_all_are_answered(&started.node).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_snapshot_takes_the_place_of_one_that_is_being_copied_once_it_is_whole() {
    let site = Site::new().await;
    site.gate.set(1, Way::Held);
    let started = site.start().await;
    let (stop, run) = started.run();
    until("two are copied", || started.copy().unwrap().local() == LocalFiles { here: 2, all: 3 }).await;
    let old = started.copy().unwrap();
    let (buckets, former) = (Arc::downgrade(&old.tiers[0].buckets), old.manifest.run);
    drop(old);
    site.harness.snapshot("velocity").await;
    tokio::time::sleep(SHORT).await;
    assert_eq!(started.copy().unwrap().manifest.run, former, "the new one is not whole");
    assert_eq!(ask(&started.node, &site.devices[0][0]).await.unwrap().0, site.expected[&site.devices[0][0]]);
    site.gate.set(1, Way::Fine);
    until("the new one is served", || started.copy().unwrap().manifest.run != former).await;
    assert!(started.copy().unwrap().is_whole());
    until("the old one is gone", || buckets.upgrade().is_none() && started.files() == 3).await;
    site.assert_all_are_answered(&started.node).await;
    stop.cancel();
    run.await.unwrap();
}

/// Otherwise files of the state that is still served were collected while the next one is copied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lease_lives_on_however_long_a_snapshot_takes_to_copy() {
    let site = Site::new().await;
    let started = site.start().await;
    let (stop, run) = started.run();
    until("it is copied", || started.copy().unwrap().is_whole()).await;
    site.gate.set(1, Way::Held);
    let former = started.copy().unwrap().manifest.run;
    let read = site.gate.reads(1);
    site.harness.snapshot("velocity").await;
    until("the newer one is being copied", || site.gate.reads(1) > read).await;
    let later = NOW + HOUR;
    started.wall.store(later, Ordering::Relaxed);
    let renewed = async {
        while !site
            .harness
            .catalog
            .state()
            .await
            .unwrap()
            .leases
            .iter()
            .any(|lease| lease.name == "serve/started" && lease.expires_at > later)
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, renewed).await.expect("timed out: the lease is not renewed");
    assert_eq!(started.copy().unwrap().manifest.run, former, "the new one is not whole");
    site.gate.set(1, Way::Fine);
    stop.cancel();
    run.await.unwrap();
    assert!(site.harness.catalog.state().await.unwrap().leases.iter().all(|lease| lease.name != "serve/started"), "it is given back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_copies_a_newer_snapshot_ends_when_it_is_asked_to() {
    let site = Site::new().await;
    let started = site.start().await;
    let (stop, run) = started.run();
    until("it is copied", || started.copy().unwrap().is_whole()).await;
    let (former, read) = (started.copy().unwrap().manifest.run, site.gate.reads(1));
    site.gate.set(1, Way::Held);
    site.harness.snapshot("velocity").await;
    until("the newer one is being copied", || site.gate.reads(1) > read).await;
    stop.cancel();
    tokio::time::timeout(LONG, run).await.expect("timed out: it waits for a storage that does not answer").unwrap();
    assert_eq!(started.copy().unwrap().manifest.run, former);
    site.assert_all_are_answered(&started.node).await;
    until("the files of the newer one are gone", || started.files() == 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_ends_leaves_no_fetch_and_no_file() {
    let site = Site::new().await;
    site.gate.set(1, Way::Held);
    let started = site.start().await;
    let (stop, run) = started.run();
    until("two are copied", || started.copy().unwrap().local() == LocalFiles { here: 2, all: 3 }).await;
    let buckets = Arc::downgrade(&started.copy().unwrap().tiers[0].buckets);
    stop.cancel();
    run.await.unwrap();
    let Started { node, cache, .. } = started;
    drop(node);
    until("the fetch ends", || buckets.upgrade().is_none()).await;
    // Whoever held them last deletes them.
    until("no file is left", || files_in(cache.path()) == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tier_that_the_next_snapshot_names_too_is_not_fetched_again() {
    let site = Site::new().await;
    let started = site.start().await;
    let copy = started.copy().unwrap();
    copy.fetch_all().await.unwrap();
    let storage = ObjectStorage::over(site.gate.clone()).unwrap();
    let live = started.node.read_view().unwrap().view("velocity").unwrap().live.clone();
    let next = Manifest { deltas: vec![Tier::default()], ..copy.manifest.clone() };
    let begin = |before: Option<&SnapshotCopy>| SnapshotCopy::begin(&storage, next.clone(), &live, started.cache.path(), before);
    assert_eq!(begin(Some(&copy)).local(), LocalFiles { here: 3, all: 3 });
    assert_eq!(begin(None).local(), LocalFiles { here: 0, all: 3 });
    let again = begin(Some(&copy));
    again.fetch_all().await.unwrap();
    assert!(again.is_whole());
    assert_eq!((0..BUCKETS).map(|bucket| site.gate.reads(bucket)).collect::<Vec<_>>(), [1, 1, 1]);
}
