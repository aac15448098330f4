use std::collections::BTreeSet;

use definitions::parse::parse_definitions;
use types::ErrorKind;

use super::*;
use crate::apply::{ChangeKind, plan_changes, records_of};

const STREAM: &str = "CREATE STREAM s (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, k TEXT)
    WITH (topic = 'in', event_time = 'ts', id = 'id')";
const VIEW: &str = "CREATE VIEW by_key WITH (windows = '1h') AS SELECT k, count(*) AS n FROM s GROUP BY k";
const SINK: &str = "CREATE SINK scored WITH (topic = 'out') AS SELECT e.id FROM s e";
const CHANGED: &str = "CREATE SINK scored WITH (topic = 'out') AS SELECT e.id, e.k FROM s e";
const ALERT: &str = "CREATE ALERT many WITH (topic = 'alerts') AS SELECT k, n_1h FROM by_key WHERE n_1h > 3";

fn changes(state: &CatalogState, texts: &[&str]) -> crate::apply::Changes {
    let sources: Vec<_> = texts.iter().map(|text| (None, (*text).to_owned())).collect();
    let (definitions, problems) = parse_definitions(&sources);
    assert!(problems.is_empty(), "{problems}");
    plan_changes(state, &definitions, &BTreeSet::new())
}

fn applied(state: &CatalogState, texts: &[&str], now: Micros) -> CatalogState {
    with_records(state, &records_of(state, &changes(state, texts), true, now))
}

fn rolled_back(state: &CatalogState, now: Micros) -> (RolledBack, CatalogState) {
    let (outcome, records) = roll_back(state, "scored", now).unwrap();
    (outcome, with_records(state, &records))
}

fn change_kind(state: &CatalogState, sink: &str) -> ChangeKind {
    let changes = changes(state, &[STREAM, VIEW, sink, ALERT]).changes;
    changes.into_iter().find(|change| &*change.name == "scored").unwrap().change_kind
}

#[test]
fn a_rollback_makes_a_version_of_the_text_before_and_another_one_returns() {
    let state = applied(&CatalogState::default(), &[STREAM, VIEW, SINK, ALERT], 1);
    let none = roll_back(&state, "scored", 2).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::NotFound, "{none}");
    let state = applied(&state, &[STREAM, VIEW, CHANGED, ALERT], 2);
    let (first, state) = rolled_back(&state, 3);
    assert_eq!((first.from, first.version, first.text_of), (2, 3, 1));
    let (second, state) = rolled_back(&state, 3);
    assert_eq!((second.from, second.version, second.text_of), (3, 4, 2));
    let live: Vec<_> = state.live(DefinitionKind::Sink).map(|record| record.version).collect();
    assert_eq!(live, [4]);
}

/// An `apply` of unchanged files, as by a start of `up`, does not undo it.
#[test]
fn a_rollback_stands_until_the_files_change() {
    let state = applied(&CatalogState::default(), &[STREAM, VIEW, SINK, ALERT], 1);
    let state = applied(&state, &[STREAM, VIEW, CHANGED, ALERT], 2);
    let (_, state) = rolled_back(&state, 3);
    assert_eq!(change_kind(&state, CHANGED), ChangeKind::RolledBack { version: 3, from: 2, is_kept: false });
    assert_eq!(applied(&state, &[STREAM, VIEW, CHANGED, ALERT], 4).definitions, state.definitions);
    assert_eq!(change_kind(&state, SINK), ChangeKind::Unchanged { version: 3 });
    let third = CHANGED.replace("e.k", "e.ts");
    assert!(matches!(change_kind(&state, &third), ChangeKind::Changed { from: 3, version: 4, .. }));
    let state = applied(&state, &[STREAM, VIEW, &third, ALERT], 5);
    assert!(matches!(change_kind(&state, CHANGED), ChangeKind::Changed { from: 4, version: 5, .. }), "the rollback is over");
}

#[test]
fn a_pause_is_of_all_versions_and_ends_with_the_definition() {
    let state = applied(&CatalogState::default(), &[STREAM, VIEW, SINK, ALERT], 1);
    let (outcome, commit) = pause(&state, "many", 5).unwrap();
    assert_eq!((outcome.kind, outcome.changed), (DefinitionKind::Alert, true));
    let Some(Add::Pause(record)) = commit.add.first().cloned() else { panic!("{commit:?}") };
    let (outcome, commit) = pause(&state, "scored", 6).unwrap();
    assert_eq!(outcome.kind, DefinitionKind::Sink);
    let Some(Add::Pause(of_sink)) = commit.add.first().cloned() else { panic!("{commit:?}") };
    let state = CatalogState { pauses: vec![record, of_sink], ..state };
    let (again, commit) = pause(&state, "scored", 9).unwrap();
    assert!(!again.changed && commit.add.is_empty());
    assert_eq!(again.paused_since, Some(format_timestamp(6)));
    let (resumed, commit) = resume(&applied(&state, &[STREAM, VIEW, CHANGED, ALERT], 7), "scored").unwrap();
    assert_eq!((resumed.version, resumed.changed), (2, true));
    assert_eq!((resumed.paused_since, resumed.was_paused_since), (None, Some(format_timestamp(6))));
    assert_eq!(commit.remove, [Remove::Pause { kind: DefinitionKind::Sink, name: "scored".into() }]);
    let nothing = resume(&CatalogState { pauses: Vec::new(), ..state.clone() }, "scored").unwrap();
    assert!(!nothing.0.changed && nothing.1.remove.is_empty());
}

#[test]
fn what_is_no_sink_and_no_alert_is_refused_by_name() {
    let state = applied(&CatalogState::default(), &[STREAM, VIEW, SINK, ALERT], 1);
    let of = |name: &str| pause(&state, name, 2).unwrap_err().to_string();
    let resumed = resume(&state, "by_key").unwrap_err().to_string();
    for refused in [of("by_key"), resumed] {
        assert!(refused.contains("is a view") && refused.contains("views are not paused"), "{refused}");
        assert!(refused.contains("sinks and alerts are: scored, many") && !refused.contains("rollback"), "{refused}");
    }
    let rolled_back = roll_back(&state, "by_key", 2).unwrap_err().to_string();
    assert!(rolled_back.contains("is a view") && rolled_back.contains("view rollback by_key"), "{rolled_back}");
    assert!(of("s").contains("is a stream"), "{}", of("s"));
    assert!(of("scored_").contains("did you mean \"scored\"?"), "{}", of("scored_"));
}

#[test]
fn a_name_of_another_kind_is_reported_with_the_command_that_reads_it() {
    use crate::outputs::{live_alert, live_sink};
    let state = applied(&CatalogState::default(), &[STREAM, VIEW, SINK, ALERT], 1);
    let (many, scored) = (live_sink(&state, "many").unwrap_err(), live_alert(&state, "scored").unwrap_err());
    assert_eq!(many.message(), "\"many\" is an alert, and this is about sinks: expected one of scored");
    assert!(many.fact("help").unwrap().contains("`basestream alert read many` prints its records"), "{many}");
    assert_eq!(scored.message(), "\"scored\" is a sink, and this is about alerts: expected one of many");
    assert_eq!(scored.fact("help"), Some("`basestream sink read scored` prints its records"));
    for (name, kind) in [("by_key", "a view"), ("s", "a stream")] {
        let reported = live_sink(&state, name).unwrap_err();
        assert!(reported.message().starts_with(&format!("\"{name}\" is {kind}, and this is about sinks")), "{reported}");
        assert!(reported.fact("help").unwrap().contains(&format!("SELECT .. FROM {name}")), "{reported}");
    }
    let unknown = live_sink(&state, "score").unwrap_err();
    assert_eq!(unknown.message(), "there is no sink \"score\": did you mean \"scored\"? expected one of scored");
}

/// The events of its stream would wait for a sink that cannot be planned.
#[tokio::test]
async fn one_that_cannot_be_planned_is_not_resumed() {
    let sink = "CREATE SINK scored WITH (topic = 'out') AS SELECT e.id, v.m_1h FROM s e LEFT JOIN by_key v ON v.k = e.k";
    let with_sum = "CREATE VIEW by_key WITH (windows = '1h') AS SELECT k, count(*) AS m FROM s GROUP BY k";
    for (view, is_refused) in [(VIEW, true), (with_sum, false)] {
        let paused = PauseRecord { kind: DefinitionKind::Sink, name: "scored".into(), since: 5 };
        let state = CatalogState { pauses: vec![paused], ..applied(&CatalogState::default(), &[STREAM, view, sink], 1) };
        let registry = Registry::load(&state, &engine::functions::Functions::standard()).await.unwrap();
        let (resumed, _) = resume(&state, "scored").unwrap();
        let refused = refuse_broken(&registry, &resumed);
        assert_eq!(refused.is_err(), is_refused, "{refused:?}");
    }
}
