//! A node's copy of a snapshot on a disk that runs full: the node answers from what it has until there is space.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use basestream_tests::small_disk::SmallDisk;
use basestream_tests::{Harness, now, until};
use batch::RunTime;
use catalog::DefinitionKind::{Stream, View};
use committed::lacking::MAX_REBUILT_EVENTS;
use serving::{HotKeySettings, Node, NodeSettings, ServingClock, ServingLimits, WantedViews};
use tokio_util::sync::CancellationToken;

use super::{STREAM, VIEW};
use crate::table;

/// Of a thousand bytes each, and a copy has each of them twice.
const KEYS: usize = 4_000;
/// The ballast leaves less than the copy takes.
const ROOM_BYTES: u64 = 1 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a small disk: tests/services/test disk"]
async fn a_copy_on_a_small_disk_waits_for_space_and_what_is_loaded_is_answered_meanwhile() {
    let mut disk = SmallDisk::seen().expect("BASESTREAM_TEST_SMALL_DISK names a folder: tests/services/test disk");
    let cache = disk.path().join("copies");
    // All else is on another disk.
    let harness = Harness::new().await.unwrap();
    harness.define(&[(Stream, "payments", STREAM.trim_end_matches(';')), (View, "counts", VIEW.trim_end_matches(';'))]).await.unwrap();
    append(&harness, 0).await;
    append(&harness, KEYS / 2).await;
    let node = open(&harness, &cache, ServingLimits::default()).await;
    let before = table(&node, "counts");
    assert_eq!(before.len(), KEYS);
    let stop = CancellationToken::new();
    let following = tokio::spawn({
        let (node, stop) = (node.clone(), stop.clone());
        async move { node.run(stop).await }
    });

    disk.fill(ROOM_BYTES).unwrap();
    harness.batch("counts", RunTime::EventClock).await.unwrap();
    let outage = || node.outages().into_iter().find(|outage| outage.what == "the catalog's newest state cannot be loaded");
    until("the disk to be full", async || {
        assert!(is_without_copy(&node), "the copy found room: the disk was not full");
        assert!(table(&node, "counts") == before, "another answer while the disk is full");
        outage().is_some()
    })
    .await;
    let error = outage().unwrap().error;
    assert!(error.contains("No space left") && error.contains("setting: serving.cache_dir"), "{error}");
    // It is committed, and waits too.
    append(&harness, 0).await;
    assert!(table(&node, "counts") == before, "another answer while the disk is full");

    disk.give_space().unwrap();
    let expected = table(&harness.node(ServingClock::Event, None).await.unwrap(), "counts");
    assert!(expected != before);
    until("what was committed meanwhile", async || table(&node, "counts") == expected).await;
    assert!(!is_without_copy(&node));
    until("the outage to end", async || node.outages().is_empty()).await;
    stop.cancel();
    following.await.unwrap();
}

/// Commits an event of each key of one half, beginning with this one.
async fn append(harness: &Harness, first: usize) {
    let event = |number: usize| (Some(number.to_string()), format!(r#"{{"k":"{number:x<1000}","ts":"2026-01-01T00:00:00Z"}}"#));
    harness.append("payments", 1, (first..first + KEYS / 2).map(event).collect()).await.unwrap();
    harness.commit_at_once("one", &[("payments", "payments")]).await.unwrap();
}

/// A node whose copies, and what queries spill, are in this folder.
pub(super) async fn open(harness: &Harness, cache: &Path, limits: ServingLimits) -> Node {
    serving::clean_cache(cache).unwrap();
    let settings = NodeSettings {
        name: "copying".into(),
        views: WantedViews::All,
        clock: ServingClock::Event,
        at_once: false,
        cache: cache.to_path_buf(),
        cache_bytes: None,
        poll: Duration::from_millis(50),
        lease: Duration::from_secs(30),
        memory_limit_bytes: 256 << 20,
        max_rebuilt_events: MAX_REBUILT_EVENTS,
        query_timeout: Duration::from_secs(30),
        limits,
        hot_keys: HotKeySettings::default(),
    };
    let (catalog, storage, functions) = (harness.catalog.clone(), harness.storage.clone(), harness.functions.clone());
    Node::open(catalog, storage, functions, None, settings, Arc::new(now)).await.unwrap()
}

fn is_without_copy(node: &Node) -> bool {
    node.read_view().unwrap().view("counts").unwrap().snapshot.is_none()
}
