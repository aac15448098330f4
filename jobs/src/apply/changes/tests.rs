//! The members of a change as JSON, against the table in docs/reference/commands.md.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::*;

fn members(value: &impl Serialize) -> Map<String, Value> {
    let Value::Object(members) = serde_json::to_value(value).unwrap() else { panic!("an object is expected") };
    members
}

fn every_change() -> Vec<ChangeKind> {
    let (diff, columns) = (vec![DiffLine::Same("SELECT".to_owned())], vec!["amount".to_owned()]);
    vec![
        ChangeKind::Added { version: 1 },
        ChangeKind::Changed { from: 1, version: 2, built_beside: true, diff: diff.clone() },
        ChangeKind::Adjusted { version: 1, diff },
        ChangeKind::Reverted { version: 1, dropped: 2 },
        ChangeKind::Returned { from: 2, version: 1 },
        ChangeKind::RolledBack { version: 1, from: 2, is_kept: true },
        ChangeKind::Rebuilt { from: 1, version: 2, built_beside: true, columns },
        ChangeKind::Unchanged { version: 1 },
        ChangeKind::Missing { version: 1 },
        ChangeKind::Refused { reasons: vec!["it is final".to_owned()], help: "define another stream".to_owned() },
    ]
}

/// For each member of a change other than `change` itself, the changes that have it.
fn members_of_changes() -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for change in every_change() {
        let members = members(&change);
        let name = members["change"].as_str().unwrap();
        for member in members.keys().filter(|member| *member != "change") {
            found.entry(member.clone()).or_default().insert(name.to_owned());
        }
    }
    found
}

/// The names in backticks.
fn names(cell: &str) -> BTreeSet<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_reference_lists_the_members_of_each_change() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/commands.md")).unwrap();
    let table = page.split("| member | of | meaning |\n|---|---|---|\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let all: BTreeSet<String> = every_change().iter().map(|change| members(change)["change"].as_str().unwrap().to_owned()).collect();
    let (mut of_changes, mut of_parameters) = (BTreeMap::new(), BTreeSet::new());
    for row in table.lines() {
        let cells: Vec<&str> = row.split(" | ").collect();
        let (members, of) = (names(cells[0]), cells[1]);
        match of.strip_prefix("all but ") {
            Some(others) => of_changes.extend(members.into_iter().map(|member| (member, &all - &names(others)))),
            None if names(of).is_empty() => of_parameters.extend(members),
            None => of_changes.extend(members.into_iter().map(|member| (member, names(of)))),
        }
    }
    assert_eq!(of_changes, members_of_changes());
    let value = ValueChange { initial: "1".to_owned(), before: None, after: "2".to_owned(), version: 3, set: None };
    assert_eq!(of_parameters, members(&value).keys().cloned().collect::<BTreeSet<_>>());
}

#[test]
fn a_plan_as_json_has_the_streams_that_begin_anew() {
    let changes = Changes { restarted: BTreeMap::from([("payments".into(), 2)]), ..Changes::default() };
    assert_eq!(members(&changes)["begins_anew"], serde_json::json!({ "payments": 2 }));
    assert!(!members(&Changes::default()).contains_key("begins_anew"));
}
