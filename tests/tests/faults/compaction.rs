//! Compaction: many checkpoints and their files become few, and nobody notices.

use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::{Int32Type, Int64Type, TimestampMicrosecondType};
use basestream_tests::{Harness, now, until};
use batch::{Compacted, RunTime};
use catalog::DefinitionKind::{Stream, View};
use catalog::{CatalogState, CompactionRules, DefinitionStatus, RunStatus};
use futures::TryStreamExt;
use jobs::compact::Compacting;
use serving::Node;
use storage::read_archive;
use tokio_util::sync::CancellationToken;
use types::ErrorKind;
use types::Strategy::Incremental;
use types::files::{FileKind, FileRecord};
use types::vector::{Offset, Vector};

use crate::site::{DAY, STREAM, Site, WITH_X};
use crate::{put, record, table};

const COUNTS: &str =
    "CREATE VIEW counts WITH (windows = '30d') AS SELECT k, count(*) AS n, array_agg(id ORDER BY ts) AS ids FROM s GROUP BY k";

impl Site {
    async fn new() -> Site {
        Site::with(&[("counts", COUNTS)]).await
    }

    /// Publishes, collects the states objects that nobody needs any more, and compacts as if the day was over.
    async fn compact(&self) -> Compacted {
        self.harness.batch("counts", RunTime::At(now())).await.unwrap();
        self.harness.collect().await.unwrap();
        self.harness.compact().await.unwrap()
    }

    /// Serves until `stop`, with a pin.
    async fn serve(&self) -> Serving {
        let (node, stop) = (self.node().await, CancellationToken::new());
        node.refresh().await.unwrap();
        let task = tokio::spawn({
            let (node, stop) = (node.clone(), stop.clone());
            async move { node.run(stop).await }
        });
        let pinned = async || {
            let state = self.state().await;
            state.leases.iter().find(|lease| lease.name.starts_with("serve/")).map(|lease| lease.pin.clone())
        };
        until("the node to hold a lease", async || pinned().await.is_some()).await;
        let pin = pinned().await.unwrap().unwrap();
        Serving { node, pin, stop, task }
    }

    async fn assert_whole(&self) {
        let state = self.state().await;
        let lines = jobs::ledger::partitions(&self.harness.storage, &state, &Vector::new()).await.unwrap();
        assert!(!lines.is_empty(), "nothing is committed");
        for line in lines {
            assert_eq!(line.mismatch, None, "{line:?}");
        }
        self.assert_proven("counts").await;
    }
}

/// A node at work, and what it pinned first.
struct Serving {
    node: Node,
    pin: Vector,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

fn files_of_kind(state: &CatalogState, kind: FileKind) -> Vec<FileRecord> {
    state.readable(kind).cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_checkpoints_become_one_and_nothing_else_changes() {
    let site = Site::new().await;
    for round in 0..6 {
        site.append(&[round * 3, round * 3 + 1, round * 3 + 2]).await;
    }
    let before = site.state().await;
    let reader = site.node().await;
    let events = "SELECT id, k, __partition, __offset FROM s ORDER BY id";
    let (old_rows, old_table) = (crate::rows(&reader, events).await, table(&reader, "counts"));

    let done = site.compact().await;
    assert_eq!((done.checkpoints, done.files_read, done.files_written, done.rows), (6, 12, 2, 24));
    let state = site.state().await;
    assert_eq!(state.checkpoints.len(), 1);
    assert_eq!(state.vector(), before.vector());
    let [archive] = files_of_kind(&state, FileKind::Archive).try_into().unwrap();
    assert_eq!((archive.rows, files_of_kind(&state, FileKind::DeadLetters).len()), (18, 1));
    assert_eq!(crate::rows(&reader, events).await, old_rows, "a reader of the state before reads its files still");
    reader.refresh().await.unwrap();
    assert_eq!((crate::rows(&reader, events).await, table(&reader, "counts")), (old_rows, old_table));
    site.assert_whole().await;
    let full = site.harness.recompute("counts", RunTime::At(now())).await.unwrap();
    assert_eq!(full.events_read, 18);
    site.assert_whole().await;

    site.append(&[0, 5, 18]).await;
    let state = site.state().await;
    let duplicates: i64 = state.checkpoints.iter().flat_map(|checkpoint| &checkpoint.ranges).map(|range| range.duplicate).sum();
    assert_eq!(duplicates, 2, "a new owner knows the ids of the compacted file");
    site.assert_whole().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_by_day_partition_and_offset() {
    let site = Site::new().await;
    for round in 0..4 {
        site.append(&(round * 10..round * 10 + 10).collect::<Vec<_>>()).await;
    }
    site.compact().await;
    let [archive] = files_of_kind(&*site.state().await, FileKind::Archive).try_into().unwrap();
    let mut places = Vec::new();
    let batches: Vec<_> = read_archive(&site.harness.storage, &archive, None).await.unwrap().try_collect().await.unwrap();
    for batch in batches {
        let times = batch.column_by_name("__event_time").unwrap().as_primitive::<TimestampMicrosecondType>();
        let partitions = batch.column_by_name("__partition").unwrap().as_primitive::<Int32Type>();
        let offsets = batch.column_by_name("__offset").unwrap().as_primitive::<Int64Type>();
        places.extend((0..batch.num_rows()).map(|row| (times.value(row) / DAY, partitions.value(row), offsets.value(row))));
    }
    assert_eq!(places.len(), 40);
    assert!(places.is_sorted(), "{places:?}");
    assert!(places[0].0 < places[39].0, "there are several days");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_day_are_sorted_by_the_columns_of_cluster_by_and_found_by_them() {
    let site = Site::new().await;
    let clustered = STREAM.replace("key = 'k'", "key = 'k', cluster_by = 'k, id'");
    let replaced = record(Stream, "s", 1, STREAM, DefinitionStatus::Retired);
    put(&site.harness, vec![replaced, record(Stream, "s", 2, &clustered, DefinitionStatus::Active)]).await;
    for round in 0..4 {
        site.append(&(round * 10..round * 10 + 10).collect::<Vec<_>>()).await;
    }
    let filter = "SELECT id FROM s WHERE k = '1' AND id > 'e030' ORDER BY id";
    let expected: Vec<String> = (31..40).step_by(2).map(|id| format!("e{id:03}")).collect();
    assert_eq!(crate::rows(&site.node().await, filter).await, expected);
    site.compact().await;
    let [archive] = files_of_kind(&*site.state().await, FileKind::Archive).try_into().unwrap();
    let mut places = Vec::new();
    let batches: Vec<_> = read_archive(&site.harness.storage, &archive, None).await.unwrap().try_collect().await.unwrap();
    for batch in batches {
        let times = batch.column_by_name("__event_time").unwrap().as_primitive::<TimestampMicrosecondType>();
        let text = |name: &str| batch.column_by_name(name).unwrap().as_string::<i32>().clone();
        let (keys, ids) = (text("k"), text("id"));
        let place = |row: usize| (times.value(row) / DAY, keys.value(row).to_owned(), ids.value(row).to_owned());
        places.extend((0..batch.num_rows()).map(place));
    }
    assert_eq!(places.len(), 40);
    assert!(places.is_sorted(), "{places:?}");
    assert_eq!(crate::rows(&site.node().await, filter).await, expected);
    assert_eq!(crate::rows(&site.node().await, "SELECT count(*) FROM s WHERE k = 'no such'").await, ["0"]);
    site.assert_whole().await;
    site.append(&[0, 5, 40]).await;
    let state = site.state().await;
    let duplicates: i64 = state.checkpoints.iter().flat_map(|checkpoint| &checkpoint.ranges).map(|range| range.duplicate).sum();
    assert_eq!(duplicates, 2, "a new owner knows the ids of the compacted file");
}

/// A file is of one version, which says what a column that it lacks means.
#[tokio::test(flavor = "multi_thread")]
async fn files_of_two_versions_of_a_stream_stay_apart() {
    let site = Site::new().await;
    for round in 0..2 {
        site.append(&[round]).await;
    }
    let replaced = record(Stream, "s", 1, STREAM, DefinitionStatus::Retired);
    put(&site.harness, vec![replaced, record(Stream, "s", 2, WITH_X, DefinitionStatus::Active)]).await;
    for round in 2..5 {
        site.append(&[round]).await;
    }
    site.compact().await;
    let state = site.state().await;
    let rows: Vec<i64> = files_of_kind(&state, FileKind::Archive).iter().map(|file| file.rows).collect();
    assert_eq!(rows, [2, 3]);
    assert_eq!(
        crate::rows(&site.node().await, "SELECT id, x FROM s ORDER BY id").await,
        ["e000 NULL", "e001 NULL", "e002 2", "e003 3", "e004 4"]
    );
    site.assert_whole().await;
    assert_eq!(site.compact().await, Compacted::default(), "and nothing is due");
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_files_go_when_their_readers_are_past_them() {
    let site = Site::new().await;
    for round in 0..4 {
        site.append(&[round]).await;
    }
    site.compact().await;
    assert_eq!(site.state().await.files.iter().filter(|file| file.kind == FileKind::Superseded).count(), 8);
    site.harness.collect().await.unwrap();
    let state = site.state().await;
    assert!(state.files.iter().all(|file| file.kind != FileKind::Superseded), "an hour later");
    let stored = site.harness.storage.list("archive").await.unwrap();
    assert_eq!(stored.len(), 1);
    site.append(&[4]).await;
    assert_eq!(site.compact().await.checkpoints, 2, "a compacted checkpoint is compacted again");
    assert_eq!(site.state().await.checkpoints.len(), 1);
    site.assert_whole().await;
}

/// The database refuses to release the lease. What was compacted counts, and the lease expires.
#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_whose_lease_is_not_released_is_reported_as_what_it_was() {
    let site = Site::new().await;
    for round in 0..4 {
        site.append(&[round]).await;
    }
    site.harness.batch("counts", RunTime::At(now())).await.unwrap();
    site.harness.collect().await.unwrap();
    let database = sqlx::SqlitePool::connect(&format!("sqlite://{}", site.harness.path().join("catalog.db").display())).await.unwrap();
    let refuse = "CREATE TRIGGER refuse BEFORE DELETE ON lease WHEN OLD.name = 'compaction' BEGIN SELECT RAISE(ABORT, 'refused'); END";
    sqlx::raw_sql(refuse).execute(&database).await.unwrap();
    database.close().await;
    assert_eq!(site.harness.compact().await.unwrap().checkpoints, 4);
    assert!(site.state().await.leases.iter().any(|lease| lease.name == batch::COMPACTION_LEASE), "it was not released");
    site.assert_whole().await;
}

/// The collector died between the deletions: after a compaction's transaction, some of the superseded files are gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_died_among_the_replaced_files_is_gone_on_with() {
    let site = Site::new().await;
    for round in 0..4 {
        site.append(&[round]).await;
    }
    assert_eq!(site.compact().await.checkpoints, 4);
    site.assert_whole().await;
    let clock: types::tiles::Clock = std::sync::Arc::new(|| now() + 3_600_000_000);
    let Harness { catalog, storage, functions, .. } = &site.harness;
    let marked = jobs::collect::collect(catalog, storage, functions, &clock, false).await.unwrap().mark_for_deletion;
    assert_eq!(marked.len(), 8, "the archive and the dead letters of four checkpoints");
    for path in marked.iter().step_by(2) {
        storage.delete(path).await.unwrap();
    }
    site.assert_whole().await;
    let deleted = jobs::collect::collect(catalog, storage, functions, &clock, false).await.unwrap().delete;
    assert_eq!(deleted, marked);
    let stored = async |folder: &str| storage.list(folder).await.unwrap().len();
    assert_eq!((stored("archive").await, stored("dead-letters").await), (1, 1));
    assert!(site.state().await.files.iter().all(|file| !file.marked_for_deletion));
    site.append(&[4]).await;
    assert_eq!(site.compact().await.checkpoints, 2);
    site.assert_whole().await;
}

/// Nothing can be committed then, and each further group would be written for nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_that_lost_its_lease_does_not_go_on() {
    let site = Site::new().await;
    for round in 0..4 {
        site.append(&[round]).await;
    }
    site.harness.batch("counts", RunTime::At(now())).await.unwrap();
    site.harness.collect().await.unwrap();
    // Looked at when it is decided what is due, when the lease is taken, and then again for each.
    let (began, looks) = (now() + 2 * DAY, std::sync::atomic::AtomicI64::new(0));
    let clock: types::tiles::Clock =
        std::sync::Arc::new(move || began + if looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 2 { 0 } else { DAY });
    let rules = CompactionRules { target_bytes: 64 << 20, after: Duration::ZERO };
    let compacting = Compacting { batch: site.harness.batch_layer(256 << 20), rules, clock, group_starts: Default::default() };
    let error = compacting.compact().await.unwrap_err();
    assert!(error.kind() == ErrorKind::Conflict && error.to_string().contains("the lease of the compaction was lost"), "{error}");
    assert_eq!(site.state().await.checkpoints.len(), 4);
}

/// One version of the stream's definition has to make all of a file's dead letters again, should it be lost.
#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_that_two_versions_decided_stay_apart() {
    let site = Site::new().await;
    for _ in 0..2 {
        site.append(&[]).await;
    }
    let replaced = record(Stream, "s", 1, STREAM, DefinitionStatus::Retired);
    put(&site.harness, vec![replaced, record(Stream, "s", 2, WITH_X, DefinitionStatus::Active)]).await;
    for _ in 0..3 {
        site.append(&[]).await;
    }
    site.compact().await;
    let mut files = Vec::new();
    for file in files_of_kind(&*site.state().await, FileKind::DeadLetters) {
        files.push((file.rows, storage::dead_letters_decided_by(&site.harness.storage, &file).await.unwrap()));
    }
    assert_eq!(files, [(2, Some(1)), (3, Some(2))]);
    site.assert_whole().await;
    assert_eq!(site.compact().await, Compacted::default(), "and nothing is due");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the oracle: just test-oracle"]
async fn other_programs_read_the_archive_as_it_stands() {
    let site = Site::new().await;
    site.append(&[0, 1]).await;
    site.append(&[2]).await;
    let replaced = record(Stream, "s", 1, STREAM, DefinitionStatus::Retired);
    put(&site.harness, vec![replaced, record(Stream, "s", 2, WITH_X, DefinitionStatus::Active)]).await;
    site.append(&[3, 4, 5]).await;
    site.append(&[6]).await;
    site.compact().await;
    site.harness.collect().await.unwrap();
    site.append(&[7]).await;
    let columns = ["id", "k", "x", "__partition", "__offset"];
    let expected = crate::rows(&site.node().await, &format!("SELECT {} FROM s ORDER BY id", columns.join(", "))).await;
    assert_eq!(expected.len(), 8);

    assert_other_programs_read(&site, "archive", &columns, &expected);

    let mut expected = Vec::new();
    for file in files_of_kind(&*site.state().await, FileKind::DeadLetters) {
        let mut batches = storage::read_dead_letters(&site.harness.storage, &file).await.unwrap();
        while let Some(batch) = batches.try_next().await.unwrap() {
            let partitions = batch.column_by_name("partition").unwrap().as_primitive::<Int32Type>();
            let offsets = batch.column_by_name("offset").unwrap().as_primitive::<Int64Type>();
            expected.extend((0..batch.num_rows()).map(|row| format!("{} {}", partitions.value(row), offsets.value(row))));
        }
    }
    expected.sort();
    assert_eq!(expected.len(), 5);
    assert_other_programs_read(&site, "dead-letters", &["partition", "offset"], &expected);
}

/// They find these rows, as texts in their order, in the stream's files of one kind, and the same ids of columns in all
/// of them.
fn assert_other_programs_read(site: &Site, kind: &str, columns: &[&str], rows: &[String]) {
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("oracle/archive.py");
    let folder = site.harness.path().join("storage").join(kind).join("s");
    let mut python = std::process::Command::new(basestream_tests::oracle::needed());
    let output = python.arg(script).arg(folder).arg(columns.join(",")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["files"], 3, "one of each definition's version, and a new one");
    for program in ["duckdb", "pyarrow", "polars"] {
        assert_eq!(found["rows"][program], serde_json::json!(rows), "{kind}, {program}");
    }
    assert!(!found["ids"].as_object().unwrap().is_empty(), "{found}");
    for (column, ids) in found["ids"].as_object().unwrap() {
        assert_eq!(ids, &serde_json::json!([storage::field_id(column).to_string()]), "{kind}, {column}");
    }
}

/// The view has no snapshot, neither in the catalog nor in a node, which pins what it reads.
#[tokio::test(flavor = "multi_thread")]
async fn a_view_that_never_runs_holds_up_only_the_streams_that_it_reads() {
    let site = Site::new().await;
    let quiet = STREAM.replace("STREAM s", "STREAM q");
    let of_quiet = "CREATE VIEW of_quiet AS SELECT k, count(*) AS n FROM q GROUP BY k";
    site.harness.define(&[(Stream, "q", &quiet), (View, "of_quiet", of_quiet)]).await.unwrap();
    site.harness.log.create_topic("q", 2).await.unwrap();
    let event = |id: usize| (Some("a".to_owned()), format!(r#"{{"id":"q{id}","ts":"2026-03-01T10:00:00Z","k":"a"}}"#));
    for round in 0..4 {
        site.append(&[round]).await;
    }
    site.harness.append("q", 2, vec![event(1)]).await.unwrap();
    for round in 4..6 {
        site.append(&[round]).await;
    }
    site.harness.batch("counts", RunTime::At(now())).await.unwrap();
    let Serving { node, pin, stop, task } = site.serve().await;
    let mut streams = std::collections::BTreeSet::new();
    for (partition, end) in site.state().await.vector().iter() {
        assert_eq!(pin.get(partition), if &*partition.stream == "q" { Offset::ZERO } else { end }, "{partition}");
        streams.insert(partition.stream.to_string());
    }
    assert_eq!(streams.into_iter().collect::<Vec<_>>(), ["q", "s"]);
    assert_eq!(site.compact().await.checkpoints, 4, "those before the one that has an event of q");
    node.refresh().await.unwrap();
    assert_eq!(table(&node, "of_quiet"), ["a 1"]);
    site.assert_whole().await;
    stop.cancel();
    task.await.unwrap();
    let run = site.harness.batch("of_quiet", RunTime::At(now())).await.unwrap();
    assert_eq!((run.status, run.events_read), (RunStatus::Succeeded, 1));
    site.assert_whole().await;

    // Neither does one whose last run was long ago.
    site.append(&[6]).await;
    site.harness.batch("counts", RunTime::At(now())).await.unwrap();
    let Serving { pin, stop, task, .. } = site.serve().await;
    assert_eq!(pin, site.state().await.vector());
    stop.cancel();
    task.await.unwrap();
}

/// A skipped run advances the cut in the catalog only: what is compacted up to there crosses the manifest's.
#[tokio::test(flavor = "multi_thread")]
async fn a_view_whose_run_was_skipped_goes_on_after_a_compaction() {
    let site = Site::new().await;
    let quiet = STREAM.replace("STREAM s", "STREAM q");
    let of_quiet = "CREATE VIEW of_quiet AS SELECT k, count(*) AS n FROM q GROUP BY k";
    site.harness.define(&[(Stream, "q", &quiet), (View, "of_quiet", of_quiet)]).await.unwrap();
    site.harness.log.create_topic("q", 2).await.unwrap();
    let event = |id: usize| (Some("a".to_owned()), format!(r#"{{"id":"q{id}","ts":"2026-03-01T10:00:00Z","k":"a"}}"#));
    site.harness.append("q", 2, vec![event(1)]).await.unwrap();
    site.append(&[1, 2, 3]).await;
    site.harness.batch("of_quiet", RunTime::At(now())).await.unwrap();
    site.append(&[4, 5]).await;
    let skipped = site.harness.batch("of_quiet", RunTime::At(now())).await.unwrap();
    assert_eq!(skipped.status, RunStatus::Skipped);
    assert_eq!(site.compact().await.checkpoints, 2);

    let node = site.node().await;
    assert_eq!(table(&node, "of_quiet"), ["a 1"]);
    site.harness.append("q", 2, vec![event(2)]).await.unwrap();
    site.append(&[6]).await;
    let run = site.harness.batch("of_quiet", RunTime::At(now())).await.unwrap();
    assert_eq!((run.status, run.strategy, run.events_read), (RunStatus::Succeeded, Some(Incremental), 1));
    node.refresh().await.unwrap();
    assert_eq!(table(&node, "of_quiet"), ["a 2"]);
    site.assert_whole().await;
}
