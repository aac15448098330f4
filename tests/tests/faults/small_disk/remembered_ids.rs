//! The files of remembered ids on a disk that runs full: what is not decided waits.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use basestream_tests::small_disk::SmallDisk;
use basestream_tests::{Harness, Worker, until};
use catalog::DefinitionKind::{Stream, View};
use engine::fresh::Fresh;
use serving::{Node, ServingClock};
use speed::{DedupSettings, ProcessIds};
use tokio_util::sync::CancellationToken;

const STREAM: &str = "CREATE STREAM payments (id TEXT NOT NULL, k TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL) \
    WITH (event_time = 'ts', key = 'k', id = 'id', dedup_within = '1d')";
const VIEW: &str = "CREATE VIEW counts AS SELECT k, count(*) AS n FROM payments GROUP BY k";
/// Each has an id of its own, and is sent twice.
const EVENTS: usize = 10_000;
/// Those that are committed before the disk runs full.
const FIRST_EVENTS: usize = 2_000;
/// The ids of fewer than two thousand events stay in memory.
const DEDUP_MEMORY_BYTES: usize = 64 << 10;
/// Room for the ids of less than three thousand more: an id takes 24 bytes in a file.
const ROOM_BYTES: u64 = 64 << 10;

/// Follows the answers of a node: none counts fewer events than one before it, and none more than there are.
struct Counted {
    node: Node,
    events: i64,
}

impl Counted {
    async fn ask(&mut self) -> i64 {
        self.node.refresh().await.unwrap();
        let events = crate::counted(&self.node, "counts");
        assert!(self.events <= events && events <= EVENTS as i64, "{events} after {} of {EVENTS}", self.events);
        self.events = events;
        events
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a small disk: tests/services/test disk"]
async fn remembered_ids_on_a_small_disk_wait_for_space_and_no_event_is_lost_or_counted_twice() {
    let mut disk = SmallDisk::seen().expect("BASESTREAM_TEST_SMALL_DISK names a folder: tests/services/test disk");
    let folder = disk.path().join("dedup");
    // All else is on another disk.
    let harness = Harness::new().await.unwrap();
    harness.define(&[(Stream, "payments", STREAM), (View, "counts", VIEW)]).await.unwrap();
    append(&harness, 0..FIRST_EVENTS).await;
    let fresh = Fresh::default();
    let node = harness.node(ServingClock::Wall, Some(fresh.clone())).await.unwrap();
    let mut counted = Counted { node, events: 0 };
    let worker = start(&harness, &folder, fresh.clone());
    harness.committed("payments", "payments").await.unwrap();
    assert_eq!(decided(&harness).await, (FIRST_EVENTS, FIRST_EVENTS));
    assert!(files(&folder) > 0, "no id is in a file");

    disk.fill(ROOM_BYTES).unwrap();
    append(&harness, FIRST_EVENTS..EVENTS).await;
    let named = ["the ids for deduplication", "No space left", "setting: serving.cache_dir"];
    let is_full = || fresh.outage().is_some_and(|outage| named.iter().all(|part| outage.error.contains(part)));
    until("the disk to be full", async || {
        assert!(!worker.task.is_finished(), "the worker of the full disk ended");
        counted.ask().await;
        is_full()
    })
    .await;
    // It tries again, once a second.
    for _ in 0..60 {
        assert!(counted.ask().await < EVENTS as i64, "all ids found room: the disk was not full");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!worker.task.is_finished(), "the worker of the full disk ended");

    disk.give_space().unwrap();
    harness.committed("payments", "payments").await.unwrap();
    assert_eq!(decided(&harness).await, (EVENTS, EVENTS));
    // The ids are all there: each event is known when it is sent again.
    append(&harness, 0..EVENTS).await;
    harness.committed("payments", "payments").await.unwrap();
    assert_eq!(decided(&harness).await, (EVENTS, 3 * EVENTS));
    assert_eq!(counted.ask().await, EVENTS as i64);
    assert!(fresh.outage().is_none() && !worker.task.is_finished());
    worker.finish().await.unwrap();
    until("the worker's files to be gone", async || files(&folder) == 0).await;
}

/// Appends each of these events, followed by a repeat of an earlier one or of itself.
async fn append(harness: &Harness, numbers: Range<usize>) {
    let record = |number: usize| {
        let key = format!("k{}", number % 7);
        let event = format!(r#"{{"id":"i{number}","k":"{key}","ts":"2026-01-01T00:00:00Z"}}"#);
        (Some(key), event)
    };
    let numbers: Vec<usize> = numbers.flat_map(|number| [number, number / 2]).collect();
    for some in numbers.chunks(1_000) {
        harness.append("payments", 1, some.iter().map(|number| record(*number)).collect()).await.unwrap();
    }
}

/// A worker that remembers ids in this folder.
fn start(harness: &Harness, folder: &Path, fresh: Fresh) -> Worker {
    let mut speed = harness.speed("one", Duration::from_millis(100), Some(fresh));
    speed.ids = ProcessIds::new(DedupSettings { memory_bytes: DEDUP_MEMORY_BYTES, folder: folder.to_path_buf() }, 1);
    let stop = CancellationToken::new();
    let token = stop.clone();
    Worker { stop, task: tokio::spawn(async move { speed.run(token).await }) }
}

/// How many records were accepted, and how many were duplicates.
async fn decided(harness: &Harness) -> (usize, usize) {
    let state = harness.catalog.state().await.unwrap();
    let ranges = || state.checkpoints.iter().flat_map(|checkpoint| &checkpoint.ranges);
    let archived: i64 = ranges().map(|range| range.archived).sum();
    let duplicate: i64 = ranges().map(|range| range.duplicate).sum();
    (archived as usize, duplicate as usize)
}

/// The files of remembered ids, in the folders of all workers.
fn files(folder: &Path) -> usize {
    let homes = std::fs::read_dir(folder).unwrap().filter_map(|home| std::fs::read_dir(home.unwrap().path()).ok());
    homes.flatten().filter(|file| file.as_ref().is_ok_and(|file| file.path().extension().is_some_and(|ending| ending == "ids"))).count()
}
