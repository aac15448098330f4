//! What a worker reads when it takes partitions over.

use std::time::Duration;

use basestream_tests::gate::{Gate, Way};
use basestream_tests::{Harness, Worker};
use catalog::DefinitionKind::Stream;
use futures::TryStreamExt;
use storage::{ObjectStorage, read_archive};
use tokio_util::sync::CancellationToken;
use types::columns::{PARTITION, TIMESTAMP};
use types::files::{FileKind, FileRecord};

const STREAM: &str = "CREATE STREAM s (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL)
    WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '1h', key = 'id')";
const PARTITIONS: u32 = 4;
const EVENTS: i64 = 40;

/// The same events, numbered from `first` on, whenever they are appended.
async fn append(harness: &Harness, first: i64) {
    let event = |number: i64| (Some(number.to_string()), format!(r#"{{"id":"{number}","ts":"2026-03-01T10:00:00Z"}}"#));
    harness.append("s", PARTITIONS, (first..first + EVENTS).map(event).collect()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_file_is_read_once_for_the_ids_of_all_partitions() {
    crate::show_logs();
    let harness = Harness::new().await.unwrap();
    harness.define(&[(Stream, "s", STREAM)]).await.unwrap();
    for first in [0, EVENTS] {
        append(&harness, first).await;
        harness.commit_at_once("one", &[("s", "s")]).await.unwrap();
    }
    let gate = Gate::before(harness.storage.object_store(), "archive/", Way::Fine);
    let storage = ObjectStorage::over(gate.clone()).unwrap();
    let state = harness.catalog.state().await.unwrap();
    let files: Vec<&FileRecord> = state.files.iter().filter(|file| file.kind == FileKind::Archive).collect();
    assert_eq!(files.len(), 2);
    let columns = ["id", PARTITION, TIMESTAMP].map(str::to_owned);
    for file in files {
        read_archive(&storage, file, Some(&columns)).await.unwrap().try_collect::<Vec<_>>().await.unwrap();
    }
    let once = gate.take_reads();
    assert!(once > 0);

    append(&harness, 0).await;
    append(&harness, EVENTS).await;
    let mut speed = harness.speed("two", Duration::from_millis(20), None);
    speed.storage = storage;
    let stop = CancellationToken::new();
    let token = stop.clone();
    let worker = Worker { stop, task: tokio::spawn(async move { speed.run(token).await }) };
    harness.committed("s", "s").await.unwrap();
    worker.finish().await.unwrap();
    assert_eq!(gate.take_reads(), once, "parts of archive files that were read");

    let state = harness.catalog.state().await.unwrap();
    for partition in 0..PARTITIONS as i32 {
        let ranges = state.checkpoints.iter().flat_map(|checkpoint| &checkpoint.ranges);
        let ranges = ranges.filter(|range| range.partition.partition == partition);
        let (archived, duplicate) =
            ranges.fold((0, 0), |(archived, duplicate), range| (archived + range.archived, duplicate + range.duplicate));
        assert!(archived > 0 && archived == duplicate, "{archived} events of partition {partition}, {duplicate} of them again");
    }
}
