use std::sync::Arc;

use catalog::{Add, CheckpointRange, CheckpointRecord, Commit, DefinitionStatus, PartitionRecord, RunRecord, RunStatus, abandoned};
use tokio::runtime::Handle;
use tokio::task::block_in_place;
use types::files::{EventTimeBounds, FileKind, FileRecord, StoredObject};
use types::vector::{Offset, PartitionId, Vector};

use super::*;

const DAY: Micros = 86_400_000_000;
const NOW: Micros = 20_000 * DAY;

/// A stream that is kept for ten days, with a newest event in each partition, and one that is kept for ever.
fn state(newest: [Option<Micros>; 2]) -> CatalogState {
    let stream = |name: &str, options: &str| DefinitionRecord {
        kind: DefinitionKind::Stream,
        name: name.into(),
        version: 1,
        sql: format!("CREATE STREAM {name} (ts TIMESTAMPTZ NOT NULL) WITH (event_time = 'ts'{options})"),
        status: DefinitionStatus::Active,
        created_at: 0,
        since: 0,
        kept_until: None,
        rolled_back: false,
    };
    let partition = |number: usize| {
        let id = PartitionId::new("pay", number as i32);
        let record = PartitionRecord {
            id: id.clone(),
            next_offset: Offset(1),
            log_identity: "log".into(),
            clock: None,
            max_event_time: newest[number],
            complete_to: None,
        };
        (id, record)
    };
    CatalogState {
        definitions: [stream("pay", ", retention = '10d'"), stream("kept", "")].into_iter().collect(),
        partitions: [partition(0), partition(1)].into(),
        ..CatalogState::default()
    }
}

#[test]
fn the_archive_ages_by_the_clock_that_answers_follow() {
    let days = |event_clock, newest| {
        let found = retentions(&state(newest), &Registry::default(), (NOW, event_clock)).unwrap();
        assert_eq!(found.len(), 1, "a stream without retention is kept for ever: {found:?}");
        let found = found["pay"];
        [found.kept, found.clock_behind].map(|length| length.as_micros() as Micros / DAY)
    };
    let silent = [Some(NOW - 9 * DAY), Some(NOW - 7 * DAY)];
    assert_eq!((days(false, silent), days(true, silent)), ([10, 0], [10, 7]), "windows stand still since the newest event of a week ago");
    assert_eq!(days(true, [Some(NOW + DAY), None]), [10, 0], "an event that is dated ahead makes nothing older");
    assert_eq!(days(true, [None, None]), [10, 0]);
}

/// A version that is kept after its view was changed to shorter windows, and with it the stream's retention.
#[tokio::test]
async fn the_archive_is_kept_for_what_any_live_version_counts() {
    let view = |version: u32, windows: &str, status| DefinitionRecord {
        kind: DefinitionKind::View,
        name: "sums".into(),
        version,
        sql: format!("CREATE VIEW sums{windows} AS SELECT count(*) AS n FROM pay"),
        status,
        created_at: 0,
        since: 0,
        kept_until: None,
        rolled_back: false,
    };
    let days = async |before: DefinitionRecord| {
        let mut state = state([None, None]);
        state.definitions.extend([view(2, " WITH (windows = '7d')", DefinitionStatus::Active), before]);
        let registry = Registry::load(&state, &Functions::standard()).await.unwrap();
        assert!(registry.view("sums", 2).is_some());
        retentions(&state, &registry, (NOW, false)).unwrap().get("pay").map(|found| found.kept.as_micros() as Micros / DAY)
    };
    assert_eq!(days(view(1, " WITH (windows = '90d')", DefinitionStatus::Kept)).await, Some(91));
    assert_eq!(days(view(1, "", DefinitionStatus::Kept)).await, None, "it counts for ever");
    assert_eq!(days(view(1, "", DefinitionStatus::Retired)).await, Some(10));
}

/// A stream whose last version was dropped at this time, and one of another `retention` before it.
fn dropped_state(dropped_at: Micros, newest: Option<Micros>) -> CatalogState {
    let mut state = state([newest, None]);
    let last = state.definitions.iter().find(|record| &*record.name == "pay").unwrap().with_status(DefinitionStatus::Retired, dropped_at);
    let before = DefinitionRecord { sql: last.sql.replace("10d", "90d"), ..last.clone() };
    state.definitions.extend([before, DefinitionRecord { version: 2, ..last }]);
    state
}

#[test]
fn a_dropped_stream_is_kept_as_its_last_version_says() {
    let retention_of = |state: &CatalogState, event_clock| {
        let found = retentions(state, &Registry::default(), (NOW, event_clock)).unwrap();
        found.get("pay").map(|found| [found.kept, found.clock_behind].map(|length| length.as_micros() as Micros / DAY))
    };
    let mut state = dropped_state(NOW - 3 * DAY, Some(NOW - 9 * DAY));
    assert_eq!(retention_of(&state, false), Some([10, 0]));
    assert_eq!(retention_of(&state, true), Some([10, 6]), "its clock stood still until it was dropped");
    let last = state.definitions.get(DefinitionKind::Stream, "pay", 2).unwrap().clone();
    let again = |options: &str| DefinitionRecord {
        version: 3,
        sql: last.sql.replace(", retention = '10d'", options),
        status: DefinitionStatus::Active,
        ..last.clone()
    };
    state.definitions.extend([again("")]);
    assert_eq!(retention_of(&state, false), None, "it is defined again, for ever");
    state.definitions.extend([again(", retention = '20d'")]);
    assert_eq!(retention_of(&state, true), Some([20, 9]));
}

#[test]
fn files_of_a_dropped_stream_are_deleted_past_its_retention() {
    let mut state = dropped_state(NOW - DAY, None);
    for (at, (stream, days_ago)) in [("pay", 12), ("pay", 9), ("kept", 12)].into_iter().enumerate() {
        let (checkpoint, time) = (Uuid::from_u128(at as u128 + 1), NOW - days_ago * DAY);
        let range = CheckpointRange::of_events(PartitionId::new(stream, 0), at as i64, at as i64 + 1);
        state.checkpoints.extend([CheckpointRecord::new(checkpoint, "w", time, vec![range])]);
        let (name, times) = (ObjectName::Archive { stream: stream.into(), checkpoint }, EventTimeBounds { min: time, max: time });
        state.files.extend([name.record(StoredObject { bytes: 10, checksum: 0 }, 1, Some(times))]);
    }
    let (_, plan) = planned(&state, &Registry::default(), (NOW, false)).unwrap();
    assert_eq!(plan.mark_for_deletion, [ObjectName::Archive { stream: "pay".into(), checkpoint: Uuid::from_u128(1) }.to_string()]);
}

#[tokio::test]
async fn leases_of_processes_that_died_are_forgotten_and_those_that_are_held_again_are_not() {
    let catalog = Catalog::open("sqlite::memory:").await.unwrap();
    let acquire =
        async |name: &str, now: Micros| catalog.acquire_lease(name, "p", Duration::from_secs(3_600), now, None).await.unwrap().unwrap();
    let names = async || catalog.leases("").await.unwrap().into_iter().map(|lease| lease.name).collect::<Vec<_>>();
    for (name, at) in [("replay/pay", NOW - 2 * DAY), ("serve/dead", NOW - 2 * DAY), ("serve/late", NOW - DAY), ("serve/live", NOW)] {
        acquire(name, at).await;
    }
    let clock: Clock = Arc::new(|| NOW);
    assert_eq!(forget_leases(&catalog, &clock).await.unwrap(), 1);
    assert_eq!(names().await, ["replay/pay", "serve/late", "serve/live"], "a replay that died began there");
    assert_eq!(forget_leases(&catalog, &clock).await.unwrap(), 0);
    // A process that slept goes on after the state was read.
    let later = NOW + 2 * DAY;
    let state = catalog.state().await.unwrap();
    let commit = forget_leases_commit(&state, Uuid::now_v7(), later).unwrap();
    acquire("serve/live", later).await;
    assert_eq!(catalog.commit(commit).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(names().await, ["replay/pay", "serve/late", "serve/live"]);
}

/// The process of one of two runs is killed while it writes. Nothing holds its lease, so a scheduler closes it.
#[tokio::test]
async fn what_a_killed_run_left_is_deleted_within_minutes() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = Catalog::open(&format!("sqlite://{}", folder.path().join("catalog.db").display())).await.unwrap();
    let storage = ObjectStorage::open("memory://").unwrap();
    let begun = |view: &str| RunRecord {
        status: RunStatus::Running,
        started_at: Some(NOW),
        cut: Some(Vector::new()),
        ..RunRecord::requested(view.into(), 1)
    };
    let (killed, alive) = (begun("killed"), begun("alive"));
    let lease = catalog.acquire_lease(&catalog::run_lease("alive", 1), "p-2", Duration::from_secs(3_600), NOW, None).await.unwrap();
    assert!(lease.is_some());
    let add = vec![Add::Run(killed.clone()), Add::Run(alive.clone())];
    catalog.commit(Commit { id: Uuid::now_v7(), add, ..Commit::default() }).await.unwrap();
    for (run, bucket) in [(&killed, 0), (&killed, 1), (&alive, 0)] {
        let name = ObjectName::Bucket { view: run.view.clone(), version: 1, run: run.id, bucket };
        storage.put_new(&name, bytes::Bytes::from_static(b"rows")).await.unwrap();
    }
    let minute = 60_000_000;
    let mut looked_after = HashSet::new();
    let mut collected_at = async |now: Micros| {
        let clock: Clock = Arc::new(move || now);
        collect_left_by_runs(&catalog, &storage, &clock, &mut looked_after).await.unwrap()
    };
    assert_eq!(collected_at(NOW + minute).await, 0, "it may be alive");
    let state = catalog.state().await.unwrap();
    let closable = abandoned(&state, Uuid::now_v7, NOW + minute, |_| false);
    assert_eq!(closable.iter().map(|(run, _)| run.id).collect::<Vec<_>>(), [killed.id]);
    for (_, commit) in closable {
        catalog.commit(commit).await.unwrap();
    }
    assert_eq!(collected_at(NOW + 2 * minute - 1).await, 0, "a write may be under way");
    assert_eq!(collected_at(NOW + 2 * minute).await, 2);
    let left: Vec<String> = storage.list("").await.unwrap().into_iter().map(|object| object.path).collect();
    assert_eq!(left, [format!("snapshots/alive/1/{}/00000.parquet", alive.id)]);
    assert_eq!(collected_at(NOW + 9 * minute).await, 0);
}

/// The next recomputation goes on with the slices, and deletes them in vain: its process dies before that.
#[tokio::test]
async fn of_what_a_failed_run_left_its_slices_go_once_no_run_goes_on_with_them() {
    const MINUTE: Micros = 60_000_000;
    let folder = tempfile::tempdir().unwrap();
    let catalog = Catalog::open(&format!("sqlite://{}", folder.path().join("catalog.db").display())).await.unwrap();
    let storage = ObjectStorage::open("memory://").unwrap();
    let recomputed = |status, ended_at| RunRecord {
        status,
        ended_at: Some(ended_at),
        strategy: Some(types::Strategy::Full),
        ..RunRecord::requested("v".into(), 1)
    };
    let draft = Some(catalog::RunDraft { path: "draft".into(), bytes: 1, checksum: 2, events: 3, resumed: 0, format: 1 });
    let failed = RunRecord { draft, ..recomputed(RunStatus::Failed, NOW) };
    let slice = ObjectName::SliceBucket { view: "v".into(), version: 1, run: failed.id, slice: 0, bucket: 0 };
    for name in [ObjectName::Bucket { view: "v".into(), version: 1, run: failed.id, bucket: 0 }, slice.clone()] {
        storage.put_new(&name, bytes::Bytes::from_static(b"rows")).await.unwrap();
    }
    let add = async |run: RunRecord| {
        catalog.commit(Commit { id: Uuid::now_v7(), add: vec![Add::Run(run)], ..Commit::default() }).await.unwrap();
    };
    let mut looked_after = HashSet::new();
    let mut collected_at = async |now: Micros| {
        let clock: Clock = Arc::new(move || now);
        collect_left_by_runs(&catalog, &storage, &clock, &mut looked_after).await.unwrap()
    };
    add(failed).await;
    assert_eq!(collected_at(NOW + MINUTE).await, 1);
    let left: Vec<String> = storage.list("").await.unwrap().into_iter().map(|object| object.path).collect();
    assert_eq!(left, [slice.to_string()]);
    add(recomputed(RunStatus::Succeeded, NOW + 2 * MINUTE)).await;
    assert_eq!(collected_at(NOW + 2 * MINUTE).await, 1);
    assert_eq!(storage.list("").await.unwrap().len(), 0);
}

/// A catalog in the folder, and a storage, with files of a run that failed: they can go at once.
async fn files_of_a_failed_run(folder: &tempfile::TempDir, count: u32) -> (Catalog, ObjectStorage) {
    let catalog = Catalog::open(&format!("sqlite://{}", folder.path().join("catalog.db").display())).await.unwrap();
    let storage = ObjectStorage::open("memory://").unwrap();
    let run = RunRecord { status: RunStatus::Failed, ended_at: Some(NOW), ..RunRecord::requested("v".into(), 1) };
    let mut add = vec![Add::Run(run.clone())];
    for bucket in 0..count {
        let name = ObjectName::Bucket { view: run.view.clone(), version: 1, run: run.id, bucket };
        storage.put_new(&name, bytes::Bytes::from_static(b"rows")).await.unwrap();
        add.push(Add::File(FileRecord {
            path: name.to_string(),
            kind: FileKind::Snapshot,
            checkpoint: None,
            run: Some(run.id),
            subject: Some(run.view.clone()),
            bytes: 4,
            rows: 1,
            checksum: 0,
            min_event_time: None,
            max_event_time: None,
            marked_for_deletion: false,
        }));
    }
    catalog.commit(Commit { id: Uuid::now_v7(), add, ..Commit::default() }).await.unwrap();
    (catalog, storage)
}

#[tokio::test]
async fn a_round_takes_as_many_transactions_as_its_files_need() {
    let folder = tempfile::tempdir().unwrap();
    let (catalog, storage) = files_of_a_failed_run(&folder, 5).await;
    let functions = Functions::standard();
    let clock: Clock = Arc::new(|| NOW);
    let round = async || {
        let (catalog, storage, functions, clock) = (&catalog, &storage, &functions, &clock);
        let before = catalog.revision().await.unwrap();
        let round = Round { catalog, storage, functions, clock, event_clock: false, most: 2, registry: None };
        let done = round.run().await.unwrap();
        (done, catalog.revision().await.unwrap() - before)
    };
    let (marked, transactions) = round().await;
    assert_eq!((marked.mark_for_deletion.len(), marked.delete.len(), transactions), (5, 0, 3));
    let (deleted, transactions) = round().await;
    assert_eq!((deleted.delete, transactions), (marked.mark_for_deletion, 3));
    assert!(catalog.state().await.unwrap().files.is_empty() && storage.list("").await.unwrap().is_empty());
}

/// Something is committed whenever the collector has read a state, before it commits what that state allows.
#[tokio::test(flavor = "multi_thread")]
async fn files_are_marked_however_often_others_commit() {
    let folder = tempfile::tempdir().unwrap();
    let (catalog, storage) = files_of_a_failed_run(&folder, 2).await;
    let busy = catalog.clone();
    let clock: Clock = Arc::new(move || {
        block_in_place(|| Handle::current().block_on(busy.commit(Commit::default()))).unwrap();
        NOW
    });
    let marked = collect(&catalog, &storage, &Functions::standard(), &clock, false).await.unwrap();
    assert_eq!(marked.mark_for_deletion.len(), 2);
    assert!(catalog.state().await.unwrap().files.iter().all(|file| file.marked_for_deletion));
}

#[test]
fn a_clock_that_is_ahead_by_more_than_half_a_lease_collects_nothing() {
    let lease = Duration::from_secs(60);
    let is_refused = |ahead_s| check_clock(Duration::from_secs(ahead_s), lease).is_err();
    assert_eq!([0, 5, 30, 31, 3_600].map(is_refused), [false, false, false, true, true]);
    assert_eq!(check_clock(Duration::from_secs(90), lease).unwrap_err().kind(), ErrorKind::Unavailable);
}

/// As when `catalog.url` is another one for a while: its files, of which the catalog knows nothing, are not orphans.
#[tokio::test]
async fn the_files_of_another_catalog_are_not_orphans() {
    let catalogs = [Catalog::open("sqlite::memory:").await.unwrap(), Catalog::open("sqlite::memory:").await.unwrap()];
    let checkpoint = Uuid::now_v7();
    let two_days_later = types::files::made_at(checkpoint).unwrap() + 2 * DAY;
    let clock: Clock = Arc::new(move || two_days_later);
    let written = async |storage: &ObjectStorage| {
        let name = ObjectName::Archive { stream: "pay".into(), checkpoint };
        storage.put_new(&name, bytes::Bytes::from_static(b"events")).await.unwrap();
        name.to_string()
    };
    let refused = async |catalog: &Catalog, storage: &ObjectStorage| {
        let error = collect_orphans(catalog, storage, &clock).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input, "{error}");
    };
    let storage = ObjectStorage::open("memory://").unwrap();
    assert_eq!(collect_orphans(&catalogs[0], &storage, &clock).await.unwrap(), 0);
    let file = written(&storage).await;
    refused(&catalogs[1], &storage).await;
    assert_eq!(storage.get(&file).await.unwrap(), "events");
    assert_eq!(collect_orphans(&catalogs[0], &storage, &clock).await.unwrap(), 1, "no transaction of its own catalog named it");

    // An earlier release did not say whose files they are.
    let earlier = ObjectStorage::open("memory://").unwrap();
    let file = written(&earlier).await;
    refused(&catalogs[1], &earlier).await;
    assert_eq!(earlier.get(&file).await.unwrap(), "events");
}
