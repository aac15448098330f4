use catalog::{Add, DefinitionRecord, Expect, LeaseRecord, Remove, abandoned};
use engine::functions::Functions;
use uuid::Uuid;

use super::*;

const HOUR: Micros = 3_600_000_000;
const STREAM: &str = "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL, k TEXT) WITH (format = 'json', event_time = 'ts')";
const VIEW: &str = "CREATE VIEW v WITH (every = '1h') AS SELECT k, count(*) AS n FROM s GROUP BY k";

fn definition(kind: DefinitionKind, name: &str, sql: &str, status: DefinitionStatus) -> DefinitionRecord {
    DefinitionRecord { kind, name: name.into(), version: 1, sql: sql.into(), status, created_at: HOUR / 2 }
}

async fn fixture(status: DefinitionStatus) -> (CatalogState, Registry) {
    let definitions = vec![
        definition(DefinitionKind::Stream, "s", STREAM, DefinitionStatus::Active),
        definition(DefinitionKind::View, "v", VIEW, status),
    ];
    let state = CatalogState { definitions, ..CatalogState::default() };
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

/// The retry is not put off until the other clock's time has come; and what fails then is tried later and later, as ever.
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
    let lease = LeaseRecord { name: "run/v".into(), owner: "p".into(), epoch: 1, expires_at: 2 * HOUR, pin: None };
    state.leases.push(lease);
    assert_eq!(due_runs(&state, &registry, 5 * HOUR), vec![]);
    assert_eq!(abandoned(&state, Uuid::now_v7, 2 * HOUR - 1), vec![]);
    let (closed, commit) = &abandoned(&state, Uuid::now_v7, 2 * HOUR)[0];
    assert_eq!(commit.expect, [Expect::Running { run: closed.id }, Expect::Revision(state.revision)]);
    assert_eq!(commit.remove, [Remove::Lease { name: "run/v".into(), owner: "p".into() }]);
    assert!(matches!(&commit.add[..], [Add::Run(run)] if run.status == RunStatus::Failed));
}

#[tokio::test]
async fn one_request_is_answered_by_the_version_it_names() {
    let (mut state, _) = fixture(DefinitionStatus::Active).await;
    let second = DefinitionRecord { version: 2, ..definition(DefinitionKind::View, "v", VIEW, DefinitionStatus::Building) };
    state.definitions.push(second);
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

#[tokio::test]
async fn a_damaged_snapshot_is_due_now_and_once() {
    let (mut state, registry) = fixture(DefinitionStatus::Active).await;
    let published = run(RunStatus::Succeeded, HOUR, 1);
    let manifest = types::files::ObjectName::Manifest { view: "v".into(), version: 1, run: published.id };
    state.files.extend([manifest.record(types::files::Stored { bytes: 1, checksum: 1 }, 0, None)]);
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
    use types::files::{ObjectName, Stored};
    let id = Uuid::now_v7();
    let record = catalog::CheckpointRecord::new(id, "w", at, Vec::new());
    state.checkpoints.extend([record]);
    let file = ObjectName::Archive { stream: stream.into(), checkpoint: id };
    state.files.extend([file.record(Stored { bytes: 1, checksum: 1 }, events, None)]);
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

#[tokio::test]
async fn what_reads_little_runs_first() {
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
    let registry = Registry::load(&state, &Functions::standard()).await.unwrap();
    let due: Vec<String> = due_runs(&state, &registry, 2 * HOUR).iter().map(|due| due.view.to_string()).collect();
    assert_eq!(due, ["x", "w", "v"], "a snapshot that is added to, few events, many");
}
