use catalog::{Add, DefinitionRecord, Expect, LeaseRecord, Remove, abandoned};
use engine::functions::Functions;
use uuid::Uuid;

use super::*;

const HOUR: Micros = 3_600_000_000;
const STREAM: &str = "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL, k TEXT) WITH (format = 'json', event_time = 'ts')";
const VIEW: &str = "CREATE VIEW v WITH (every = '1h') AS SELECT k, count(*) AS n FROM s GROUP BY k";

fn definition(kind: DefinitionKind, name: &str, sql: &str, status: DefinitionStatus) -> DefinitionRecord {
    DefinitionRecord {
        kind,
        name: name.into(),
        version: 1,
        sql: sql.into(),
        status,
        created_at: HOUR / 2,
        since: HOUR / 2,
        kept_until: None,
        rolled_back: false,
    }
}

async fn fixture(status: DefinitionStatus) -> (CatalogState, Registry) {
    let definitions = vec![
        definition(DefinitionKind::Stream, "s", STREAM, DefinitionStatus::Active),
        definition(DefinitionKind::View, "v", VIEW, status),
    ];
    let state = CatalogState { definitions: definitions.into_iter().collect(), ..CatalogState::default() };
    let registry = Registry::load(&state, &Functions::standard()).await.unwrap();
    (state, registry)
}

fn run(status: RunStatus, started_at: Micros, attempt: u32) -> RunRecord {
    RunRecord {
        id: Uuid::now_v7(),
        view: "v".into(),
        version: 1,
        status,
        scheduled_for: None,
        attempt,
        started_at: Some(started_at),
        ended_at: Some(started_at),
        cut: None,
        strategy: None,
        events_read: 0,
        rows_written: 0,
        bytes_written: 0,
        peak_memory_bytes: 0,
        bytes_read: 0,
        tiers: 0,
        peak_resident_bytes: 0,
        comparison: None,
        draft: None,
        beside: false,
        error: None,
    }
}

#[tokio::test]
async fn however_many_runs_were_missed_one_catches_up() {
    let (mut state, registry) = fixture(DefinitionStatus::Active).await;
    assert_eq!(due_runs(&state, &registry, HOUR - 1), vec![]);
    let due = due_runs(&state, &registry, 9 * HOUR + 5);
    assert_eq!(due.iter().map(|due| due.scheduled_for).collect::<Vec<_>>(), vec![Some(9 * HOUR)]);
    state.runs.push(RunRecord { scheduled_for: Some(9 * HOUR), ..run(RunStatus::Succeeded, 9 * HOUR + 5, 1) });
    assert_eq!(due_runs(&state, &registry, 10 * HOUR - 1), vec![]);
}

#[tokio::test]
async fn a_failed_run_is_tried_again_later_and_later() {
    let (mut state, registry) = fixture(DefinitionStatus::Active).await;
    state.runs.push(run(RunStatus::Failed, HOUR, 2));
    assert_eq!(due_runs(&state, &registry, HOUR + 9_999_999), vec![]);
    assert_eq!(due_runs(&state, &registry, HOUR + 10_000_000)[0].attempt, 3);
}

/// The retry is not put off until the other clock's time has come; and what fails then is tried later and later, as
/// ever.
#[tokio::test]
async fn a_run_that_failed_by_a_clock_that_was_ahead_is_tried_again_at_once_and_once() {
    let (mut state, registry) = fixture(DefinitionStatus::Active).await;
    state.runs.push(run(RunStatus::Failed, 9 * HOUR, 2));
    assert_eq!(due_runs(&state, &registry, HOUR)[0].attempt, 3);
    state.runs.insert(0, run(RunStatus::Failed, HOUR, 3));
    assert_eq!(due_runs(&state, &registry, HOUR + 19_999_999), vec![]);
    assert_eq!(due_runs(&state, &registry, HOUR + 20_000_000)[0].attempt, 4);
    state.runs[0].status = RunStatus::Succeeded;
    assert_eq!(due_runs(&state, &registry, HOUR + 20_000_000), vec![]);
}

/// A run that succeeded while the clock was a month ahead: the schedule does not wait for a month.
#[tokio::test]
async fn a_run_by_a_clock_that_was_ahead_puts_off_none_that_is_due() {
    let (mut state, registry) = fixture(DefinitionStatus::Active).await;
    let month = 30 * 24 * HOUR;
    state.runs.push(RunRecord { scheduled_for: Some(month), ..run(RunStatus::Succeeded, month + 5, 1) });
    assert_eq!(due_runs(&state, &registry, 9 * HOUR + 5)[0].scheduled_for, Some(9 * HOUR));
    state.runs.insert(0, RunRecord { scheduled_for: Some(9 * HOUR), ..run(RunStatus::Succeeded, 9 * HOUR + 5, 1) });
    assert_eq!(due_runs(&state, &registry, 9 * HOUR + 6), vec![], "once");
    assert_eq!(due_runs(&state, &registry, 10 * HOUR)[0].scheduled_for, Some(10 * HOUR));
}

#[tokio::test]
async fn a_view_that_cannot_be_answered_is_tried_until_it_is_built() {
    let (mut state, registry) = fixture(DefinitionStatus::Building).await;
    state.runs.push(run(RunStatus::Failed, HOUR, 50));
    let ten_minutes = 600_000_000;
    assert_eq!(due_runs(&state, &registry, HOUR + ten_minutes - 1), vec![]);
    assert_eq!(due_runs(&state, &registry, HOUR + ten_minutes)[0].attempt, 51);
}

#[tokio::test]
async fn a_version_that_is_being_built_runs_at_once() {
    let (state, registry) = fixture(DefinitionStatus::Building).await;
    assert_eq!(due_runs(&state, &registry, HOUR / 2)[0].reason, "a new version is built");
}

#[tokio::test]
async fn nothing_is_due_while_a_run_is_on_and_a_dead_one_is_closed_when_its_lease_ends() {
    let (mut state, registry) = fixture(DefinitionStatus::Active).await;
    state.runs.push(run(RunStatus::Running, HOUR, 1));
    let lease = LeaseRecord { name: catalog::run_lease("v", 1), owner: "p".into(), epoch: 1, expires_at: 2 * HOUR, pin: None };
    state.leases.push(lease);
    assert_eq!(due_runs(&state, &registry, 5 * HOUR), vec![]);
    assert_eq!(abandoned(&state, Uuid::now_v7, 2 * HOUR - 1, |owner| owner != "p"), vec![]);
    assert_eq!(abandoned(&state, Uuid::now_v7, HOUR, |owner| owner == "p").len(), 1, "it need not expire: its owner is dead");
    let (closed, commit) = &abandoned(&state, Uuid::now_v7, 2 * HOUR, |_| false)[0];
    assert_eq!(commit.expect, [Expect::Running { run: closed.id }, Expect::Revision(state.revision)]);
    assert_eq!(commit.remove, [Remove::Lease { name: catalog::run_lease("v", 1), owner: "p".into() }]);
    assert!(matches!(&commit.add[..], [Add::Run(run)] if run.status == RunStatus::Failed));
}

#[tokio::test]
async fn others_are_due_while_a_run_recomputes_beside_them_and_a_dead_one_is_closed_when_its_own_lease_ends() {
    let (mut state, registry) = fixture(DefinitionStatus::Active).await;
    state.runs.push(RunRecord { beside: true, strategy: Some(Strategy::Full), ended_at: None, ..run(RunStatus::Running, HOUR, 1) });
    let lease = |name, expires_at| LeaseRecord { name, owner: "p".into(), epoch: 1, expires_at, pin: None };
    state.leases.push(lease(catalog::recompute_lease("v", 1), 4 * HOUR));
    assert_eq!(due_runs(&state, &registry, 3 * HOUR)[0].reason, "its schedule");
    assert_eq!(abandoned(&state, Uuid::now_v7, 4 * HOUR - 1, |_| false), vec![]);
    // That of the other runs says nothing about it.
    state.leases.push(lease(catalog::run_lease("v", 1), 9 * HOUR));
    let (closed, commit) = &abandoned(&state, Uuid::now_v7, 4 * HOUR, |_| false)[0];
    assert!(closed.beside);
    assert_eq!(commit.remove, [Remove::Lease { name: catalog::recompute_lease("v", 1), owner: "p".into() }]);
    // It has what the others have: only what they added meanwhile is left to do.
    state.runs[0].beside = false;
    assert_eq!(due_runs(&state, &registry, 3 * HOUR), vec![]);
}

#[test]
fn of_several_places_one_remains_for_the_runs_beside_which_others_recompute() {
    let under_way = |is_full_every, is_concurrent: bool| {
        let due = Due {
            view: "v".into(),
            version: 1,
            since: 0,
            events: 1,
            scheduled_for: None,
            requested: None,
            attempt: 1,
            reason: "",
            scans: None,
            is_full_every,
        };
        [RunUnderWay { slot: 0, due, is_concurrent: Arc::new(is_concurrent.into()) }]
    };
    let may = |under_way: &[RunUnderWay]| [1, 2, 3].map(|most| may_recompute_beside(under_way, most));
    assert_eq!(may(&[]), [true; 3]);
    assert_eq!(may(&under_way(false, false)), [true; 3]);
    // It may have begun a moment ago, or only turn out to recompute.
    for begun in [under_way(true, false), under_way(false, true)] {
        assert_eq!(may(&begun), [false, false, true]);
    }
}

#[tokio::test]
async fn the_run_of_one_version_holds_up_no_other_one() {
    let (mut state, _) = fixture(DefinitionStatus::Active).await;
    let second = DefinitionRecord { version: 2, ..definition(DefinitionKind::View, "v", VIEW, DefinitionStatus::Building) };
    state.definitions.extend([second]);
    let registry = Registry::load(&state, &Functions::standard()).await.unwrap();
    let due = |state: &CatalogState| due_runs(state, &registry, 5 * HOUR).iter().map(|due| due.version).collect::<Vec<_>>();
    state.runs.push(RunRecord { version: 2, ..run(RunStatus::Running, HOUR, 1) });
    assert_eq!(due(&state), [1]);
    state.runs[0].version = 1;
    assert_eq!(due(&state), [2]);
}

/// So that processes of two releases can run beside each other while one replaces the other.
#[test]
fn a_run_under_its_views_lease_as_of_earlier_releases_is_not_taken_for_dead() {
    let mut state = CatalogState { runs: vec![run(RunStatus::Running, HOUR, 1)], ..CatalogState::default() };
    state.leases.push(LeaseRecord { name: "run/v".into(), owner: "p".into(), epoch: 1, expires_at: 2 * HOUR, pin: None });
    assert_eq!(abandoned(&state, Uuid::now_v7, 2 * HOUR - 1, |_| false), vec![]);
    let (_, commit) = &abandoned(&state, Uuid::now_v7, 2 * HOUR, |_| false)[0];
    assert_eq!(commit.remove, [Remove::Lease { name: "run/v".into(), owner: "p".into() }]);
}

#[tokio::test]
async fn one_request_is_answered_by_the_version_it_names() {
    let (mut state, _) = fixture(DefinitionStatus::Active).await;
    let second = DefinitionRecord { version: 2, ..definition(DefinitionKind::View, "v", VIEW, DefinitionStatus::Building) };
    state.definitions.extend([second]);
    let registry = Registry::load(&state, &Functions::standard()).await.unwrap();
    let asked = RunRecord { version: 2, started_at: None, ..run(RunStatus::Requested, HOUR, 1) };
    state.runs.push(asked.clone());
    let answering = |state: &CatalogState| {
        due_runs(state, &registry, HOUR / 2).iter().filter(|due| due.requested.is_some()).map(|due| due.version).collect::<Vec<_>>()
    };
    assert_eq!(answering(&state), vec![2]);
    state.runs = vec![RunRecord { version: 7, ..asked }];
    assert_eq!(answering(&state), vec![1], "one that names a version that is gone is answered by the served one");
}

/// A kept version is kept up to date, but no query waits for it.
#[tokio::test]
async fn a_kept_version_runs_by_its_schedule_after_the_others() {
    let (mut state, _) = fixture(DefinitionStatus::Kept).await;
    let second = DefinitionRecord { version: 2, ..definition(DefinitionKind::View, "v", VIEW, DefinitionStatus::Active) };
    state.definitions.extend([second]);
    let registry = Registry::load(&state, &Functions::standard()).await.unwrap();
    let due = due_runs(&state, &registry, 2 * HOUR);
    assert_eq!(due.iter().map(|due| (due.version, due.reason)).collect::<Vec<_>>(), [(2, "its schedule"), (1, "its schedule")]);
}

#[tokio::test]
async fn a_damaged_snapshot_is_due_now_and_once() {
    let (mut state, registry) = fixture(DefinitionStatus::Active).await;
    let published = run(RunStatus::Succeeded, HOUR, 1);
    let manifest = types::files::ObjectName::Manifest { view: "v".into(), version: 1, run: published.id };
    state.files.extend([manifest.record(types::files::StoredObject { bytes: 1, checksum: 1 }, 0, None)]);
    state.snapshots.push(catalog::SnapshotRecord {
        view: "v".into(),
        version: 1,
        run: published.id,
        cut: Default::default(),
        manifest: manifest.to_string(),
        published_at: HOUR,
    });
    state.runs.push(published);
    assert_eq!(due_runs(&state, &registry, HOUR + 1), vec![]);
    let damage = catalog::DamageRecord { path: manifest.to_string(), error: "x".into(), found_by: "y".into(), found_at: HOUR + 1 };
    state.damages.push(damage);
    assert_eq!(due_runs(&state, &registry, HOUR + 2)[0].reason, "its snapshot is damaged");
    // A run that could not replace it is retried like every failed run, and then by the schedule: not endlessly.
    state.runs.push(run(RunStatus::Failed, HOUR + 2, 8));
    assert_eq!(due_runs(&state, &registry, HOUR + 3), vec![]);
}

/// Archives events of `s`, committed at this time.
fn archive(state: &mut CatalogState, stream: &str, at: Micros, events: i64) {
    use types::files::{ObjectName, StoredObject};
    let id = Uuid::now_v7();
    let record = catalog::CheckpointRecord::new(id, "w", at, Vec::new());
    state.checkpoints.extend([record]);
    let file = ObjectName::Archive { stream: stream.into(), checkpoint: id };
    state.files.extend([file.record(StoredObject { bytes: 1, checksum: 1 }, events, None)]);
}

#[tokio::test]
async fn a_view_over_events_before_it_runs_at_once_and_one_without_any_by_its_schedule() {
    let (mut state, registry) = fixture(DefinitionStatus::Active).await;
    archive(&mut state, "s", HOUR / 2, 5);
    assert_eq!(due_runs(&state, &registry, HOUR / 2 + 1), vec![], "these have its states");
    archive(&mut state, "s", HOUR / 2 - 1, 5);
    assert_eq!(due_runs(&state, &registry, HOUR / 2 + 1)[0].reason, "a new view is built over the events before it");
    state.runs.push(run(RunStatus::Succeeded, HOUR / 2 + 1, 1));
    assert_eq!(due_runs(&state, &registry, HOUR / 2 + 2), vec![]);
}

#[tokio::test]
async fn a_run_that_died_while_it_built_a_view_is_tried_again() {
    let (mut state, registry) = fixture(DefinitionStatus::Active).await;
    archive(&mut state, "s", 0, 5);
    state.runs.push(RunRecord { error: Some("died".into()), ..run(RunStatus::Failed, HOUR / 2, 1) });
    assert_eq!(due_runs(&state, &registry, HOUR / 2 + 4_999_999), vec![]);
    assert_eq!(due_runs(&state, &registry, HOUR / 2 + 5_000_000)[0].attempt, 2);
}

/// Two views that were added at the same time, over many and few events, and one that is added to and was due later.
async fn views_of_three_sizes() -> (CatalogState, Registry) {
    let (mut state, _) = fixture(DefinitionStatus::Active).await;
    let of = |kind, name: &str, sql: &str| definition(kind, name, sql, DefinitionStatus::Active);
    let (small, reads_small) = (STREAM.replace("STREAM s", "STREAM small"), VIEW.replace("FROM s", "FROM small"));
    state.definitions.extend([
        of(DefinitionKind::Stream, "small", &small),
        of(DefinitionKind::View, "w", &reads_small.replace("VIEW v", "VIEW w")),
        of(DefinitionKind::View, "x", &VIEW.replace("VIEW v", "VIEW x")),
    ]);
    archive(&mut state, "s", 0, 1_000);
    archive(&mut state, "small", 0, 10);
    let cut = state.vector();
    state.snapshots.push(catalog::SnapshotRecord {
        view: "x".into(),
        version: 1,
        run: Uuid::now_v7(),
        cut,
        manifest: String::new(),
        published_at: 0,
    });
    let ran = |view: &str, at| RunRecord { view: view.into(), ..run(RunStatus::Succeeded, at, 1) };
    state.runs.push(ran("x", HOUR));
    let registry = Registry::load(&state, &Functions::standard()).await.unwrap();
    (state, registry)
}

fn views(due: &[Due]) -> Vec<&str> {
    due.iter().map(|due| &*due.view).collect()
}

#[tokio::test]
async fn what_was_due_first_runs_first_and_of_those_what_reads_little() {
    let (state, registry) = views_of_three_sizes().await;
    let due = due_runs(&state, &registry, 2 * HOUR);
    assert_eq!(views(&due), ["w", "v", "x"], "due since half past with few events, with many, and since two");
    assert_eq!(due.iter().map(|due| (due.since, due.events)).collect::<Vec<_>>(), [(HOUR / 2, 10), (HOUR / 2, 1_000), (2 * HOUR, 0)]);
}

#[tokio::test]
async fn a_long_run_lets_those_go_first_that_are_done_before_it_would_be_and_no_others() {
    let (mut state, registry) = views_of_three_sizes().await;
    // At a million events a second: until just before two, and until just after.
    archive(&mut state, "s", 0, HOUR / 2 * 3 - 1_000 - 1);
    assert_eq!(views(&due_runs(&state, &registry, 2 * HOUR)), ["w", "v", "x"]);
    archive(&mut state, "s", 0, 2);
    assert_eq!(views(&due_runs(&state, &registry, 2 * HOUR)), ["w", "x", "v"]);
}

#[tokio::test]
async fn a_request_waits_since_it_was_made() {
    let (mut state, registry) = fixture(DefinitionStatus::Active).await;
    let before = crate::now();
    state.runs.push(RunRecord::requested("v".into(), 1));
    let due = due_runs(&state, &registry, crate::now() + HOUR);
    assert!(before / 1_000 <= due[0].since / 1_000 && due[0].since <= crate::now(), "{due:?}");
}

#[tokio::test]
async fn a_run_that_recomputes_from_one_stream_is_known_to() {
    let (mut state, _) = fixture(DefinitionStatus::Active).await;
    let of = |name: &str, options: &str| {
        let sql = VIEW.replace("VIEW v", &format!("VIEW {name}")).replace("every = '1h'", &format!("every = '1h'{options}"));
        definition(DefinitionKind::View, name, &sql, DefinitionStatus::Active)
    };
    let both = "CREATE VIEW both WITH (every = '1h') AS WITH u AS (SELECT k FROM s UNION ALL SELECT k FROM other) \
        SELECT k, count(*) AS n FROM u GROUP BY k";
    state.definitions.extend([
        definition(DefinitionKind::Stream, "other", &STREAM.replace("STREAM s", "STREAM other"), DefinitionStatus::Active),
        of("whole", ", strategy = 'full'"),
        of("again", ", full_every = '1d'"),
        of("stream", ", strategy = 'stream'"),
        definition(DefinitionKind::View, "both", both, DefinitionStatus::Active),
    ]);
    let registry = Registry::load(&state, &Functions::standard()).await.unwrap();
    let scans = |state: &CatalogState, now| {
        let due = due_runs(state, &registry, now).into_iter().filter(|due| due.scans.as_deref() == Some("s"));
        due.map(|due| due.view.to_string()).collect::<BTreeSet<_>>()
    };
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(scans(&state, HOUR), named(&["v", "whole", "again"]), "first runs; not over two streams, nor from segments");
    for view in ["v", "whole", "again", "stream", "both"] {
        let run = RunRecord { view: view.into(), strategy: Some(Strategy::Full), ..run(RunStatus::Succeeded, HOUR, 1) };
        let (cut, manifest) = (state.vector(), String::new());
        state.snapshots.push(catalog::SnapshotRecord { view: view.into(), version: 1, run: run.id, cut, manifest, published_at: 0 });
        state.runs.push(run);
    }
    assert_eq!(scans(&state, 3 * HOUR), named(&["whole"]));
    assert_eq!(scans(&state, 25 * HOUR), named(&["whole", "again"]), "a day after its last full run");
    for run in &mut state.runs {
        run.status = RunStatus::Failed;
    }
    assert_eq!(scans(&state, 3 * HOUR), named(&[]), "what failed is tried again alone: the others' files may be damaged");
}

/// Until it is tried again, runs add to the snapshot: they wait for no place of a long one.
#[tokio::test]
async fn after_a_recomputation_that_failed_no_run_is_taken_for_another() {
    const MINUTE: Micros = 60_000_000;
    let (mut state, _) = fixture(DefinitionStatus::Active).await;
    let sql = VIEW.replace("VIEW v", "VIEW again").replace("every = '1h'", "every = '1m', full_every = '1d'");
    state.definitions.extend([definition(DefinitionKind::View, "again", &sql, DefinitionStatus::Active)]);
    let registry = Registry::load(&state, &Functions::standard()).await.unwrap();
    let of = |status, strategy, at| RunRecord { view: "again".into(), strategy: Some(strategy), ..run(status, at, 1) };
    let first = of(RunStatus::Succeeded, Strategy::Full, HOUR);
    let (cut, manifest) = (state.vector(), String::new());
    state.snapshots.push(catalog::SnapshotRecord { view: "again".into(), version: 1, run: first.id, cut, manifest, published_at: 0 });
    let failed_at = 26 * HOUR;
    let failed = of(RunStatus::Failed, Strategy::Full, failed_at);
    state.runs = vec![of(RunStatus::Succeeded, Strategy::Incremental, failed_at + MINUTE), failed, first];
    let is_full_every = |now| {
        let due = due_runs(&state, &registry, now).into_iter().find(|due| &*due.view == "again").unwrap();
        (due.is_full_every, due.scans.is_some())
    };
    assert_eq!(is_full_every(failed_at + 3 * MINUTE), (false, false));
    assert_eq!(is_full_every(failed_at + 11 * MINUTE), (true, true));
}

async fn after_fixture() -> (CatalogState, Registry) {
    let (mut state, _) = fixture(DefinitionStatus::Active).await;
    let after = VIEW.replace("VIEW v", "VIEW w").replace("every = '1h'", "after = 'v'");
    state.definitions.extend([definition(DefinitionKind::View, "w", &after, DefinitionStatus::Active)]);
    let registry = Registry::load(&state, &Functions::standard()).await.unwrap();
    (state, registry)
}

/// When `w`, which comes after `v`, is due at `now`: `scheduled_for`.
fn due_after(state: &CatalogState, registry: &Registry, now: Micros) -> Option<Micros> {
    due_runs(state, registry, now).into_iter().find(|due| &*due.view == "w").map(|due| due.scheduled_for.unwrap())
}

#[tokio::test]
async fn a_view_runs_after_each_run_of_the_other_one_that_ended_well() {
    let (mut state, registry) = after_fixture().await;
    let of_w = |status, at| RunRecord { view: "w".into(), ..run(status, at, 1) };
    assert_eq!(due_after(&state, &registry, 9 * HOUR), None, "the other one never ran");
    for (number, status) in [RunStatus::Succeeded, RunStatus::Skipped].into_iter().enumerate() {
        let at = (number as i64 + 1) * HOUR;
        state.runs.push(run(RunStatus::Failed, at - 2, 1));
        state.runs.push(RunRecord { ended_at: None, ..run(RunStatus::Running, at - 1, 2) });
        assert_eq!(due_after(&state, &registry, at), None, "it failed, and runs again");
        state.runs.pop();
        state.runs.push(run(status, at, 2));
        assert_eq!(due_after(&state, &registry, at + 1), Some(at));
        state.runs.push(RunRecord { scheduled_for: Some(at), ..of_w(RunStatus::Succeeded, at + 1) });
        assert_eq!(due_after(&state, &registry, at + 2), None, "once");
    }
}

#[tokio::test]
async fn a_run_that_ended_by_a_clock_ahead_is_followed_once() {
    let (mut state, registry) = after_fixture().await;
    state.runs.push(run(RunStatus::Succeeded, HOUR + 5, 1));
    assert_eq!(due_after(&state, &registry, HOUR), None, "it has not ended yet by this clock");
    state.runs.push(RunRecord { view: "w".into(), scheduled_for: Some(HOUR + 5), ..run(RunStatus::Succeeded, HOUR + 1, 1) });
    assert_eq!(due_after(&state, &registry, HOUR + 9), None);
}

#[tokio::test]
async fn a_view_runs_after_another_one_although_runs_of_both_are_dated_ahead() {
    let (mut state, registry) = after_fixture().await;
    let month = 30 * 24 * HOUR;
    state.runs = vec![run(RunStatus::Succeeded, HOUR, 1), run(RunStatus::Succeeded, month, 1)];
    assert_eq!(due_after(&state, &registry, HOUR), Some(HOUR));
    state.runs.push(RunRecord { view: "w".into(), scheduled_for: Some(month), ..run(RunStatus::Succeeded, month + 1, 1) });
    assert_eq!(due_after(&state, &registry, HOUR), Some(HOUR));
    state.runs.insert(0, RunRecord { view: "w".into(), scheduled_for: Some(HOUR), ..run(RunStatus::Succeeded, HOUR, 1) });
    assert_eq!(due_after(&state, &registry, HOUR + 1), None, "once");
}

mod laws {
    use chrono::{DateTime, TimeDelta, Utc};
    use definitions::ViewDefinition;
    use proptest::prelude::*;

    use super::*;

    fn instant(text: &str) -> DateTime<Utc> {
        DateTime::parse_from_rfc3339(text).unwrap().to_utc()
    }

    /// A view of this schedule that was added at `created`, served, and has no events before it.
    fn scheduled(options: &str, created: DateTime<Utc>) -> (CatalogState, Registry) {
        let sql = VIEW.replace("every = '1h'", options);
        let mut state = CatalogState {
            definitions: [
                definition(DefinitionKind::Stream, "s", STREAM, DefinitionStatus::Active),
                definition(DefinitionKind::View, "v", &sql, DefinitionStatus::Active),
            ]
            .into_iter()
            .collect(),
            ..CatalogState::default()
        };
        state.definitions.rewrite(|all| all[1].created_at = created.timestamp_micros());
        let registry = futures::executor::block_on(Registry::load(&state, &Functions::standard())).unwrap();
        (state, registry)
    }

    /// Looks at these times; what is due runs at once. Returns the due times that ran, with the time of the run.
    fn played(
        (state, registry): &(CatalogState, Registry),
        looks: impl IntoIterator<Item = DateTime<Utc>>,
    ) -> Vec<(DateTime<Utc>, DateTime<Utc>)> {
        let mut state = state.clone();
        let mut ran = Vec::new();
        for look in looks {
            let now = look.timestamp_micros();
            let due = due_runs(&state, registry, now);
            assert!(due.len() <= 1, "one run makes up for all that were missed: {due:?}");
            for due in due {
                assert!(due.since <= now);
                ran.push((date(due.scheduled_for.unwrap()), look));
                state.runs = vec![RunRecord { scheduled_for: due.scheduled_for, ..run(RunStatus::Succeeded, now, 1) }];
            }
            assert_eq!(due_runs(&state, registry, now), vec![], "what ran is not due again");
        }
        ran
    }

    /// Each minute of some days.
    fn minutes(from: DateTime<Utc>, days: i64) -> impl Iterator<Item = DateTime<Utc>> {
        (0..days * 24 * 60).map(move |minute| from + TimeDelta::minutes(minute))
    }

    #[test]
    fn a_time_that_a_zone_leaves_out_or_repeats_runs_once_a_day() {
        for (zone, first) in [
            ("Europe/Berlin", "2026-03-27T12:00:00Z"),
            ("Europe/Berlin", "2026-10-23T12:00:00Z"),
            ("America/New_York", "2026-03-06T12:00:00Z"),
            ("America/New_York", "2026-10-30T12:00:00Z"),
            ("Australia/Lord_Howe", "2026-04-03T00:00:00Z"),
            ("Australia/Lord_Howe", "2026-10-02T00:00:00Z"),
        ] {
            let first = instant(first);
            for time in ["30 2", "15 2", "30 1", "45 1"] {
                let view = scheduled(&format!("schedule = '{time} * * *', timezone = '{zone}'"), first);
                let Some(Schedule::Cron { timezone, .. }) = &view.1.views[0].definition.schedule else { panic!("expected cron") };
                let ran = played(&view, minutes(first, 5));
                let days: Vec<_> = ran.iter().map(|(due, _)| due.with_timezone(timezone).date_naive()).collect();
                assert_eq!(days.len(), 5, "{zone} {time}: {ran:?}");
                assert!(days.windows(2).all(|pair| pair[1] == pair[0].succ_opt().unwrap()), "{zone} {time}: {ran:?}");
                assert!(ran.iter().all(|(due, at)| due == at), "on time: {ran:?}");
            }
        }
    }

    const SCHEDULES: [&str; 6] = [
        "every = '7m'",
        "every = '1h'",
        "every = '1h', jitter = '20m'",
        "schedule = '*/10 * * * *', jitter = '9m'",
        "schedule = '30 2 * * *', timezone = 'Europe/Berlin'",
        "schedule = '15,45 1,2 * * *', timezone = 'America/New_York', jitter = '29m'",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// The law of schedules: whenever a scheduler looks, also after being away, the newest due time that has begun
        /// has a run, each due time has one at most, and none begins before it is due.
        #[test]
        fn the_newest_due_time_has_run_and_none_twice(
            options in prop::sample::select(SCHEDULES.as_slice()),
            start in 1_770_000_000i64..1_800_000_000,
            pauses in prop::collection::vec(prop_oneof![4 => 1i64..900, 1 => 900i64..300_000], 1..60),
        ) {
            let start = DateTime::from_timestamp(start, 0).unwrap();
            let view = scheduled(options, start);
            let looks: Vec<_> = pauses.iter().scan(start, |at, pause| { *at += TimeDelta::seconds(*pause); Some(*at) }).collect();
            let ran = played(&view, looks.iter().copied());
            let definition: &ViewDefinition = &view.1.views[0].definition;
            prop_assert!(ran.windows(2).all(|pair| pair[0].0 < pair[1].0), "{:?}", ran);
            for (due, at) in &ran {
                prop_assert!(definition.begins_at(*due) <= *at);
            }
            for look in looks {
                let newest = definition.latest_due(start, look);
                let last = ran.iter().filter(|(_, at)| *at <= look).map(|(due, _)| *due).next_back();
                prop_assert_eq!(last, newest, "at {}", look);
            }
        }

        /// The law of the queue: as many begin as have a place, one per view version, in order; those that share a
        /// place scan the same stream, and all that could share it do; one that does not begin lacks a place of its own
        /// kind, and long ones never take the last. Where there is one place, and who has it recomputes beside others,
        /// there is another one.
        #[test]
        fn places_are_filled_in_the_order_of_the_queue(
            runs in prop::collection::vec((0u8..6, 1u32..3, any::<bool>(), prop::option::of(0u8..2)), 0..10),
            busy in prop::collection::btree_map((0u8..3, 1u32..3), (any::<bool>(), 0u64..3, any::<bool>()), 0..4),
            most in 1usize..5,
        ) {
            let due = |view: u8, version, is_long, scans: Option<u8>| Due {
                view: format!("v{view}").into(), version, since: 0, events: if is_long { LONG_RUN_EVENTS } else { 1 },
                scheduled_for: None, requested: None, attempt: 1, reason: "", scans: scans.map(|stream| format!("s{stream}").into()),
                is_full_every: false,
            };
            let queue: Vec<Due> = runs.into_iter().map(|(view, version, is_long, scans)| due(view, version, is_long, scans)).collect();
            let busy = busy.into_iter().map(|((view, version), (is_long, slot, is_concurrent))| {
                let due = due(view, version, is_long, None);
                RunUnderWay { slot: slot % most as u64, due, is_concurrent: Arc::new(is_concurrent.into()) }
            });
            let under_way: Vec<RunUnderWay> = busy.collect();
            let begin = to_begin(&queue, &under_way, most);
            let is_one_more = most == 1 && under_way.iter().any(RunUnderWay::is_concurrent);
            let (most, most_long) = if is_one_more { (2, 2) } else { (most, most.saturating_sub(1).max(1)) };
            let taken: BTreeSet<RunSlot> = under_way.iter().map(|run| run.slot).collect();
            let taken_by_long: BTreeSet<RunSlot> = under_way.iter().filter(|run| run.due.is_long()).map(|run| run.slot).collect();
            let places = taken.len() + begin.len();
            let is_long = |together: &Vec<&Due>| together.iter().any(|due| due.is_long());
            let long = taken_by_long.len() + begin.iter().filter(|together| is_long(together)).count();
            prop_assert!(places <= most.max(taken.len()));
            prop_assert!(long <= most_long.max(taken_by_long.len()), "a place is left to the others");
            for together in &begin {
                prop_assert!(together.len() <= MOST_TOGETHER);
                prop_assert!(together.iter().all(|due| due.scans == together[0].scans) && (together.len() == 1 || together[0].scans.is_some()));
            }
            let alone = under_way.iter().filter(|run| !run.is_concurrent()).map(|run| &run.due);
            let all: Vec<&Due> = alone.chain(begin.iter().flatten().copied()).collect();
            let versions: BTreeSet<(&str, u32)> = all.iter().map(|due| (&*due.view, due.version)).collect();
            prop_assert_eq!(versions.len(), all.len(), "one per view version");
            let mut rest = queue.iter();
            prop_assert!(begin.iter().all(|together| rest.any(|due| std::ptr::eq(due, together[0]))), "in order");
            for due in queue.iter().filter(|due| !versions.contains(&(&*due.view, due.version))) {
                let has_place = places < most && (!due.is_long() || long < most_long);
                prop_assert!(!has_place, "{:?} waits for nothing", due);
                let shared = begin.iter().find(|together| due.scans.is_some() && together[0].scans == due.scans);
                let has_room = shared.is_some_and(|together| together.len() < MOST_TOGETHER && !due.is_long());
                prop_assert!(!has_room, "{:?} could share a scan", due);
            }
        }

        /// The law of fairness: a run waits for none that became due after the time at which it would have ended.
        #[test]
        fn none_waits_for_what_is_due_after_its_end(runs in prop::collection::vec((0i64..1_000, 0i64..1_000), 1..12)) {
            let due = |(since, events): &(i64, i64)| Due {
                view: "v".into(), version: 1, since: *since, events: *events, scheduled_for: None, requested: None, attempt: 1, reason: "", scans: None, is_full_every: false,
            };
            let mut queue: Vec<Due> = runs.iter().map(due).collect();
            queue.sort_by_key(Due::would_end);
            for (place, waiting) in queue.iter().enumerate() {
                prop_assert!(queue[..place].iter().all(|first| first.since <= waiting.since + waiting.events));
            }
        }
    }
}
