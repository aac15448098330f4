use std::collections::BTreeMap;

use catalog::{CatalogState, DefinitionKind, DefinitionRecord, ParameterRecord};
use definitions::parse;

use super::*;
use crate::apply::Change;

#[test]
fn what_is_unchanged_is_counted_in_one_line() {
    let nothing = crate::apply::plan_changes(&CatalogState::default(), &Default::default(), &Default::default());
    assert_eq!(changes_text(&nothing, false, Tense::Would), "nothing to change");
    let change = |name: &str, change_kind| Change::new(DefinitionKind::View, name, change_kind);
    let mut changes = vec![change("a", ChangeKind::Added { version: 1 })];
    changes.extend((0..12).map(|n| change(&format!("v{n}"), ChangeKind::Unchanged { version: 3 })));
    let changes = Changes { changes, revision: 7, ..Changes::default() };
    assert_eq!(changes_text(&changes, false, Tense::Would), "+ view a (version 1)\n  12 unchanged\nwith `basestream apply`: 1 added");
    assert_eq!(serde_json::to_value(&changes).unwrap()["changes"].as_array().unwrap().len(), 13, "JSON has them all");
}

#[test]
fn a_value_is_named_with_its_own_version() {
    const INITIAL: &str = "CREATE PARAMETER lim = 20";
    let record = ParameterRecord {
        parameter: "lim".into(),
        version: 3,
        value_type: "BIGINT".to_owned(),
        value: "60".to_owned(),
        set_at: 0,
        set_by: "ann".to_owned(),
    };
    let definitions = [DefinitionRecord::first(DefinitionKind::Parameter, "lim", INITIAL)];
    let state = CatalogState { definitions: definitions.into_iter().collect(), parameters: vec![record], ..CatalogState::default() };
    let planned = |state: &CatalogState, text: &str| {
        let (definitions, diagnostics) = parse::parse_definitions(&[(None, text.to_owned())]);
        diagnostics.into_result().unwrap();
        changes_text(&crate::apply::plan_changes(state, &definitions, &Default::default()), false, Tense::Would)
    };
    let stays = "  parameter lim (version 1) has the value 60 (lim@3), which was set; the files begin with 20";
    for (state, text, line) in [
        (&state, INITIAL, stays),
        (&state, "CREATE PARAMETER lim = 25", "    the value 60 becomes 25 (lim@4)"),
        (&state, "CREATE PARAMETER lim = 20 WITH (description = 'most')", "    the value stays 60 (lim@3)"),
        (&CatalogState::default(), INITIAL, "    the value is 20 (lim@1)"),
    ] {
        let printed = planned(state, text);
        assert!(printed.lines().any(|printed| printed == line), "{text}: {printed}");
    }
}

#[test]
fn a_change_that_cannot_be_made_is_not_called_nothing_to_change() {
    let refused =
        ChangeKind::Refused { reasons: vec!["the column \"amount\" is of another type".to_owned()], help: "name it otherwise".to_owned() };
    let changes = vec![Change::new(DefinitionKind::Stream, "payments", refused)];
    let text = changes_text(&Changes { changes, ..Changes::default() }, false, Tense::Would);
    assert_eq!(text.lines().last(), Some("`basestream apply` changes nothing: 1 of the changes cannot be made"), "{text}");
}

#[test]
fn a_stream_that_begins_anew_is_said_to() {
    let changed = ChangeKind::Changed { from: 1, version: 2, built_beside: false, diff: Vec::new() };
    let changes = vec![Change::new(DefinitionKind::Stream, "payments", changed)];
    let restarted = BTreeMap::from([("payments".into(), 2)]);
    let text = changes_text(&Changes { changes, restarted, ..Changes::default() }, false, Tense::Would);
    assert_eq!(text.lines().nth(1), Some("    no record of it is committed: it begins anew, at the beginning of the topic"), "{text}");
}
