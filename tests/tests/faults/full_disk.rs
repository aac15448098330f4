//! A disk that is full for a while: nothing is lost, no answer goes back, and everything goes on by itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use basestream_tests::gate::{Gate, Way};
use basestream_tests::{Harness, now};
use catalog::DefinitionKind::{Stream, View};
use engine::fresh::Fresh;
use serving::{Node, ServingClock};
use storage::ObjectStorage;
use types::vector::Vector;

const PAYMENTS: &str = "CREATE STREAM payments (ts TIMESTAMPTZ NOT NULL, k TEXT) WITH (format = 'json', event_time = 'ts', key = 'k')";
const COUNTS: &str = "CREATE VIEW counts AS SELECT k, count(*) AS n FROM payments GROUP BY k";
/// Longer than anything takes that is waited for.
const LONG: Duration = Duration::from_secs(60);

/// Follows a node's answers: none is older than one before it.
struct Reader {
    node: Node,
    vector: Vector,
}

impl Reader {
    /// Returns how many events are counted.
    async fn ask(&mut self) -> i64 {
        self.node.refresh().await.unwrap();
        let read_view = self.node.read_view().unwrap();
        assert!(read_view.vector.covers(&self.vector), "{} after {}", read_view.vector, self.vector);
        self.vector = read_view.vector.clone();
        super::counted(&self.node, "counts")
    }

    async fn until_counted(&mut self, expected: i64) {
        let begun = Instant::now();
        loop {
            let counted = self.ask().await;
            assert!(counted <= expected, "{counted} of {expected}");
            if counted == expected {
                return;
            }
            assert!(begun.elapsed() < LONG, "timed out: {counted} of {expected}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn append(harness: &Harness, events: usize) {
    for number in 0..events {
        let event = format!(r#"{{"ts": "2026-01-01T00:00:{:02}Z", "k": "k{}"}}"#, number % 60, number % 7);
        harness.append("payments", 2, vec![(Some(format!("k{}", number % 7)), event)]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storage_without_room_costs_no_event_no_answer_and_no_file() {
    let mut harness = Harness::new().await.unwrap();
    // Archive files still fit; the states objects that follow them do not.
    let disk = Gate::before(Arc::new(object_store::memory::InMemory::new()), "states/", Way::Refused);
    harness.storage = ObjectStorage::over(disk.clone()).unwrap();
    harness.define(&[(Stream, "payments", PAYMENTS), (View, "counts", COUNTS)]).await.unwrap();
    let fresh = Fresh::default();
    let mut reader = Reader { node: harness.node(ServingClock::Wall, Some(fresh.clone())).await.unwrap(), vector: Vector::new() };
    let worker = harness.worker("one", Duration::from_millis(20), Some(fresh));

    append(&harness, 30).await;
    reader.until_counted(30).await;
    let begun = Instant::now();
    let outages = ["the object storage takes no files", "the speed layer cannot commit"];
    while reader.node.outages().iter().map(|outage| outage.what).collect::<Vec<_>>() != outages {
        assert!(begun.elapsed() < LONG, "timed out: the disk was never full: {:?}", reader.node.outages());
        assert_eq!(reader.ask().await, 30);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    append(&harness, 10).await;
    reader.until_counted(40).await;
    assert!(harness.catalog.state().await.unwrap().checkpoints.is_empty());

    let has_room_since = now();
    disk.set(Way::Fine);
    harness.committed("payments", "payments").await.unwrap();
    assert_eq!(reader.ask().await, 40);
    // The log keeps records for a while after their commit, however long the commit had to wait.
    let state = harness.catalog.state().await.unwrap();
    let first = state.checkpoints.iter().next().unwrap();
    assert!(first.sealed_at() < has_room_since && first.committed_at >= has_room_since, "{has_room_since}: {first:?}");
    append(&harness, 10).await;
    reader.until_counted(50).await;
    worker.finish().await.unwrap();
    assert!(reader.node.outages().is_empty());

    // Each attempt went on with the files of the one before it: none is left that no checkpoint names.
    let state = harness.catalog.state().await.unwrap();
    let mut named: Vec<&str> = state.files.iter().map(|file| file.path.as_str()).collect();
    named.sort();
    let stored = harness.storage.list("").await.unwrap();
    assert_eq!(stored.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), named);
}
