use std::collections::BTreeMap;

use catalog::{AlertRunner, CheckpointRange, CheckpointRecord, DefinitionRecord, PartitionRecord, SnapshotRecord};
use event_log::PartitionBounds;
use types::vector::Offset;
use uuid::Uuid;

use super::*;

const STREAM: &str =
    "CREATE STREAM pay (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL) WITH (topic = 'payments', format = 'json', event_time = 'ts')";

fn state() -> CatalogState {
    let definition = |kind, name: &str, sql: &str, status| DefinitionRecord {
        kind,
        name: name.into(),
        version: 1,
        sql: sql.into(),
        status,
        created_at: 0,
        since: 0,
        kept_until: None,
        rolled_back: false,
    };
    let id = PartitionId::new("pay", 0);
    let partition = PartitionRecord {
        id: id.clone(),
        next_offset: Offset(10),
        log_identity: "log".into(),
        clock: None,
        max_event_time: Some(0),
        complete_to: Some(1_000_000),
    };
    let range = |start, end, archived, duplicate| CheckpointRange {
        partition: id.clone(),
        start: Offset(start),
        end: Offset(end),
        archived,
        duplicate,
        dead_lettered: 1,
        absent: 0,
        clock: None,
        max_event_time: None,
        complete_to: None,
    };
    let checkpoint = |range| CheckpointRecord { id: Uuid::now_v7(), worker: "w".into(), committed_at: 0, revision: 1, ranges: vec![range] };
    CatalogState {
        definitions: [
            definition(DefinitionKind::Stream, "pay", STREAM, DefinitionStatus::Active),
            definition(DefinitionKind::View, "old", "", DefinitionStatus::Retired),
            definition(DefinitionKind::View, "sums", "", DefinitionStatus::Active),
        ]
        .into_iter()
        .collect(),
        partitions: [(id.clone(), partition)].into(),
        checkpoints: [checkpoint(range(0, 6, 5, 0)), checkpoint(range(6, 10, 2, 1))].into_iter().collect(),
        snapshots: vec![SnapshotRecord {
            view: "sums".into(),
            version: 1,
            run: Uuid::nil(),
            cut: "pay/0:6".parse().unwrap(),
            manifest: String::new(),
            published_at: 0,
        }],
        ..CatalogState::default()
    }
}

fn ends(bounds: Result<Vec<PartitionBounds>, String>) -> TopicEnds {
    [("pay".into(), bounds)].into()
}

fn bounds(partition: i32, end: i64) -> PartitionBounds {
    PartitionBounds { partition, begin: Offset(0), end: Offset(end) }
}

#[test]
fn a_partitions_counts_are_those_of_its_checkpoints_and_its_lag_is_to_the_logs_end() {
    let status = status_of(&state(), &ends(Ok(vec![bounds(0, 13), bounds(1, 4)])), &StreamsByVersion::new(), &[]);
    let [first, second] = status.partitions.as_slice() else { panic!("expected two partitions") };
    assert_eq!((first.next_offset, first.end_offset, first.lag), (10, Some(13), Some(3)));
    assert_eq!((first.archived, first.duplicate, first.dead_lettered, first.absent), (7, 1, 2, 0));
    assert_eq!((second.partition, second.next_offset, second.lag), (1, 0, Some(4)), "a partition that is in the log alone is shown");
    assert_eq!(&*first.topic, "payments");
}

#[test]
fn a_log_that_does_not_answer_leaves_its_ends_unknown_and_says_why() {
    let status = status_of(&state(), &ends(Err("broker is down".into())), &StreamsByVersion::new(), &[]);
    assert_eq!((status.partitions[0].end_offset, status.partitions[0].lag), (None, None));
    assert_eq!(status.partitions[0].log_error.as_deref(), Some("broker is down"));
    assert!(status.text().contains("the end of pay is not known: broker is down"), "{}", status.text());
}

#[test]
fn what_is_no_problem_and_is_reported_is_counted_as_a_notice() {
    let notice = || Problem {
        fault: problems::Fault::Gap,
        severity: problems::Severity::Notice,
        what: "w".into(),
        cause: "c".into(),
        effect: "e".into(),
        next_step: "n".into(),
    };
    let mut status = status_of(&state(), &BTreeMap::new(), &StreamsByVersion::new(), &[]);
    for (notices, end) in [(0, "no problems found"), (1, "no problems; 1 notice above"), (2, "no problems; 2 notices above")] {
        status.problems = (0..notices).map(|_| notice()).collect();
        assert!(status.text().ends_with(end), "{}", status.text());
        assert!(!status.has_problems(), "{notices}");
    }
    for severity in [problems::Severity::Warning, problems::Severity::Error] {
        status.problems.push(Problem { severity, ..notice() });
        assert!(status.has_problems(), "{severity:?}");
        status.problems.pop();
    }
}

#[test]
fn a_view_shows_its_cut_and_how_much_came_after_it() {
    let status = status_of(&state(), &BTreeMap::new(), &StreamsByVersion::new(), &[]);
    assert_eq!(status.views.len(), 1, "retired versions are not shown");
    assert_eq!(status.views[0].after_cut, Some(4));
    assert_eq!(status.views[0].cut.as_ref().unwrap().to_string(), "pay/0:6");
    assert_eq!(serde_json::to_value(&status).unwrap()["views"][0]["status"], "active");
}

#[test]
fn a_view_that_a_node_refuses_is_not_shown_as_served() {
    let of_view = |view: &str, version| RefusedView { view: view.into(), version, error: "Divide by zero error".into() };
    let shown = |refused: &[RefusedView]| {
        let status = status_of(&state(), &BTreeMap::new(), &StreamsByVersion::new(), &[]).with_refused(refused);
        let text = status.text();
        (status.views[0].refused.clone(), text.contains("served"), text.contains("refused"))
    };
    assert_eq!(shown(&[of_view("sums", 2), of_view("others", 1)]), (None, true, false));
    assert_eq!(shown(&[of_view("sums", 1)]), (Some("Divide by zero error".into()), false, true));
}

#[test]
fn what_other_streams_get_is_not_after_the_cut_of_a_view() {
    let mut state = state();
    let grown = |id: PartitionId, next| {
        let known = PartitionRecord { id: id.clone(), next_offset: Offset(next), ..state.partitions[&PartitionId::new("pay", 0)].clone() };
        (id, known)
    };
    let more = [grown(PartitionId::new("clicks", 0), 500), grown(PartitionId::new("pay", 1), 2)];
    state.partitions.extend(more);
    state.snapshots[0].cut = "clicks/0:490,pay/0:6".parse().unwrap();
    let reads: StreamsByVersion = [(ViewVersion::new("sums", 1), vec!["pay".into()])].into();
    let status = status_of(&state, &BTreeMap::new(), &reads, &[]);
    assert_eq!(status.views[0].after_cut, Some(6), "4 of pay/0, and 2 of a partition that is new since");
    assert_eq!(status.views[0].cut.as_ref().unwrap().to_string(), "pay/0:6");
    assert!(state.snapshots[0].cut.to_string().contains("clicks"), "the run's cut is that of all streams");
}

#[test]
fn two_processes_that_read_are_reported_in_one_line() {
    let reader = |process: &str, workers, partitions| SpeedProcess { process: process.into(), workers, partitions };
    let mut status = status_of(&state(), &BTreeMap::new(), &StreamsByVersion::new(), &[]);
    status.readers = vec![reader("1-a", 4, 6)];
    assert!(!status.text().contains("processes read"), "{}", status.text());
    status.readers.push(reader("2-b", 1, 1));
    let text = status.text();
    assert!(text.contains("2 processes read: 1-a 6 partitions by 4 workers, 2-b 1 partition by 1 worker;"), "{text}");
}

#[test]
fn the_rows_of_runs_and_comparisons_are_called_state_rows() {
    let run = RunRecord { rows_written: 7, ..RunRecord::requested("sums".into(), 1) };
    let shown = runs_text(&[RunReport::from_run(&run)]);
    assert!(shown.lines().next().unwrap().contains("  read  state rows  written  "), "{shown}");
    let comparison = |rows, differences| Comparison { rows, differences, seconds: 0.5, ..Comparison::default() };
    assert_eq!(comparison_text(&comparison(1, 0)), "equal to the states that incremental runs had kept: 1 state row in 0.50 s");
    let differs = "1 difference from the states that incremental runs had kept, of 12 state rows in 0.50 s";
    assert_eq!(comparison_text(&comparison(12, 1)), differs);
}

/// A run that adds to a snapshot does not read all events, and ends soon.
#[tokio::test]
async fn a_run_that_reads_all_events_shows_how_far_it_is() {
    let mut built = state();
    built.definitions.rewrite(|all| {
        for record in all.iter_mut().filter(|record| &*record.name == "sums") {
            record.sql = "CREATE VIEW sums AS SELECT count(*) AS n FROM pay".into();
        }
    });
    let registry = Registry::load(&built, &Functions::standard()).await.unwrap();
    let is_shown = |state: &CatalogState, strategy| {
        let run = RunRecord { status: RunStatus::Running, strategy, ..RunRecord::requested("sums".into(), 1) };
        let mut runs = [RunReport::from_run(&run)];
        add_progress(&mut runs, state, &registry, 1);
        runs[0].building.is_some()
    };
    let strategies = [None, Some(Strategy::Incremental), Some(Strategy::Stream), Some(Strategy::Full), Some(Strategy::Replay)];
    assert_eq!(strategies.map(|strategy| is_shown(&built, strategy)), [false, false, false, true, true]);
    let unbuilt = CatalogState { snapshots: Vec::new(), ..built.clone() };
    assert_eq!(strategies.map(|strategy| is_shown(&unbuilt, strategy)), [true; 5]);
}

fn alert() -> AlertFacts {
    AlertFacts {
        alert: "silent".into(),
        version: 1,
        since: 0,
        open: 0,
        transitions: 0,
        run_by: None,
        runner: None,
        is_paused: false,
        refused: None,
    }
}

#[test]
fn an_alert_that_a_node_cannot_run_says_why() {
    let (error, errors) = ("the alert \"silent\": no right".into(), [("silent".into(), "no right".into())].into());
    let failing = vec![problems::Failing { what: event_alerts::ALERT_STALLED.into(), seconds: 1, error, errors }];
    let status = Status::from_facts(&Facts { alerts: vec![alert()], failing, ..Facts::default() }, &[]);
    assert_eq!(status.alerts[0].waits.as_deref(), Some("no right"));
}

/// By the clock of events an alert that was just evaluated may be far behind: after a file was ingested.
#[test]
fn an_alert_shows_for_which_time_it_was_evaluated() {
    let (evaluated_at, at) = (Some(2_000_000), Some(1_000_000));
    let runner = AlertRunner { alert: "silent".into(), version: 1, owner: "1-a".into(), evaluated_at, at, waits: None };
    let running = AlertFacts { run_by: Some("1-a".into()), runner: Some(runner), ..alert() };
    for (alert, row) in [(running, "1-a     1970-01-01T00:00:02Z  1970-01-01T00:00:01Z\n"), (alert(), "none    -          -\n")] {
        let text = Status::from_facts(&Facts { alerts: vec![alert], ..Facts::default() }, &[]).text();
        let (_, rows) = text.split_once("as of\n").unwrap();
        assert!(rows.starts_with(&format!("silent  1        0     0            {row}")), "{text}");
    }
}
