//! What a worker reads when it takes partitions over.

use std::time::Duration;

use basestream_tests::gate::{Gate, Way};
use basestream_tests::{Harness, Worker, until};
use catalog::DefinitionKind::Stream;
use catalog::{Commit, Remove};
use futures::TryStreamExt;
use speed::{Activity, Speed};
use storage::{ObjectStorage, read_archive};
use tokio_util::sync::CancellationToken;
use types::columns::{PARTITION, TIMESTAMP};
use types::files::{FileKind, FileRecord};
use types::vector::PartitionId;
use uuid::Uuid;

const STREAM: &str = "CREATE STREAM s (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL)
    WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '1h', key = 'id')";
const PARTITIONS: u32 = 4;
const EVENTS: i64 = 40;

/// The same events, numbered from `first` on, whenever they are appended.
async fn append(harness: &Harness, first: i64) {
    append_to(harness, "s", first).await;
}

async fn append_to(harness: &Harness, topic: &str, first: i64) {
    let event = |number: i64| (Some(number.to_string()), format!(r#"{{"id":"{number}","ts":"2026-03-01T10:00:00Z"}}"#));
    harness.append(topic, PARTITIONS, (first..first + EVENTS).map(event).collect()).await.unwrap();
}

/// A worker that reads this storage.
fn start(harness: &Harness, storage: ObjectStorage) -> Worker {
    let mut speed = harness.speed("two", Duration::from_millis(20), None);
    speed.storage = storage;
    run(speed)
}

fn run(speed: Speed) -> Worker {
    let stop = CancellationToken::new();
    let token = stop.clone();
    Worker { stop, task: tokio::spawn(async move { speed.run(token).await }) }
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
    let worker = start(&harness, storage);
    harness.committed("s", "s").await.unwrap();
    worker.finish().await.unwrap();
    assert_eq!(gate.take_reads(), once, "parts of archive files that were read");
    assert_refused_once(&harness).await;
}

/// Each event was appended twice, and each partition has some.
async fn assert_refused_once(harness: &Harness) {
    let state = harness.catalog.state().await.unwrap();
    for partition in 0..PARTITIONS as i32 {
        let ranges = state.checkpoints.iter().flat_map(|checkpoint| &checkpoint.ranges);
        let ranges = ranges.filter(|range| range.partition.partition == partition);
        let (archived, duplicate) =
            ranges.fold((0, 0), |(archived, duplicate), range| (archived + range.archived, duplicate + range.duplicate));
        assert!(archived > 0 && archived == duplicate, "{archived} events of partition {partition}, {duplicate} of them again");
    }
}

/// A worker that ended would end `up`, and all answers with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_holds_up_its_stream_alone_until_it_is_repaired() {
    crate::show_logs();
    let harness = Harness::new().await.unwrap();
    let other = STREAM.replace("STREAM s ", "STREAM o ");
    harness.define(&[(Stream, "s", STREAM), (Stream, "o", other.as_str())]).await.unwrap();
    append_to(&harness, "s", 0).await;
    append_to(&harness, "o", 0).await;
    harness.commit_at_once("one", &[("s", "s"), ("o", "o")]).await.unwrap();
    let state = harness.catalog.state().await.unwrap();
    let archive = state.files.iter().find(|file| file.kind == FileKind::Archive && file.subject.as_deref() == Some("s")).unwrap();
    let path = harness.path().join("storage").join(&archive.path);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();

    append_to(&harness, "s", 0).await;
    append_to(&harness, "o", 0).await;
    let speed = harness.speed("two", Duration::from_millis(20), None);
    let progress = speed.progress.clone();
    let worker = run(speed);
    until("the worker to leave the stream out", async || progress.damaged().is_some()).await;
    harness.committed("o", "o").await.unwrap();
    let outage = progress.damaged().expect("it is not repaired");
    assert!(outage.error.contains(&archive.path) && outage.error.contains("`basestream repair`"), "{}", outage.error);
    let vector = harness.catalog.state().await.unwrap().vector();
    for partition in 0..PARTITIONS as i32 {
        let id = PartitionId::new("s", partition);
        assert_eq!(vector.get(&id), state.vector().get(&id), "{id} is not decided without its ids");
    }

    std::fs::write(&path, bytes).unwrap();
    let repaired = Commit { id: Uuid::now_v7(), remove: vec![Remove::Damage(archive.path.clone())], ..Commit::default() };
    harness.catalog.commit(repaired).await.unwrap();
    harness.committed("s", "s").await.unwrap();
    assert_eq!(progress.damaged(), None);
    worker.finish().await.unwrap();
    assert_refused_once(&harness).await;
}

/// As when a process begins: the worker that joins first gets all partitions, and gives the next one its share.
#[tokio::test(flavor = "multi_thread")]
async fn what_one_worker_lets_go_another_of_its_process_takes_over_without_reading() {
    const SHARE: Activity = Activity::Reading { partitions: PARTITIONS as usize / 2 };
    crate::show_logs();
    let harness = Harness::new().await.unwrap();
    harness.define(&[(Stream, "s", STREAM)]).await.unwrap();
    append(&harness, 0).await;
    let gate = Gate::before(harness.storage.object_store(), "archive/", Way::Fine);
    let mut one = harness.speed("one", Duration::from_millis(20), None);
    one.storage = ObjectStorage::over(gate.clone()).unwrap();
    let mut two = one.clone();
    two.settings.worker = "two".into();
    two.progress = Default::default();
    let one = run(one);
    harness.committed("s", "s").await.unwrap();

    let progress = two.progress.clone();
    let two = run(two);
    until("both workers to have partitions", async || progress.activity() == SHARE).await;
    append(&harness, 0).await;
    harness.committed("s", "s").await.unwrap();
    one.finish().await.unwrap();
    two.finish().await.unwrap();
    assert_eq!(gate.take_reads(), 0, "parts of archive files that were read");
    assert_refused_once(&harness).await;
    let state = harness.catalog.state().await.unwrap();
    let of_two = state.checkpoints.iter().filter(|checkpoint| checkpoint.worker == "two").flat_map(|checkpoint| &checkpoint.ranges);
    assert!(of_two.map(|range| range.duplicate).sum::<i64>() > 0, "it decided some of them");
}

/// As many as `GROUPS_AT_ONCE` and `FILES_TOGETHER` of `speed/src/recover.rs` say: storage that answers slowly is asked
/// for many small files, and a long archive is not read into memory.
#[tokio::test(flavor = "multi_thread")]
async fn four_groups_of_small_files_are_read_at_once_for_their_ids() {
    const AT_ONCE: usize = 4 * 32;
    crate::show_logs();
    let harness = Harness::new().await.unwrap();
    harness.define(&[(Stream, "s", STREAM)]).await.unwrap();
    for file in 0..AT_ONCE as i64 + 2 {
        append(&harness, file * EVENTS).await;
        harness.commit_at_once("one", &[("s", "s")]).await.unwrap();
    }
    let gate = Gate::before(harness.storage.object_store(), "archive/", Way::Unread);
    append(&harness, 0).await;
    let worker = start(&harness, ObjectStorage::over(gate.clone()).unwrap());
    let mut asked_for = 0;
    until("reads of several files", async || {
        asked_for += gate.take_reads();
        asked_for >= AT_ONCE
    })
    .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(asked_for + gate.take_reads(), AT_ONCE);
    gate.set(Way::Fine);
    harness.committed("s", "s").await.unwrap();
    worker.finish().await.unwrap();
    let state = harness.catalog.state().await.unwrap();
    let duplicates: i64 = state.checkpoints.iter().flat_map(|checkpoint| &checkpoint.ranges).map(|range| range.duplicate).sum();
    assert_eq!(duplicates, EVENTS, "each id is known");
}
