//! Compares definitions with a catalog state: what becomes of each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use catalog::{CatalogState, DefinitionKind, DefinitionRecord, DefinitionStatus, ParameterRecord};
use definitions::{Definitions, ParameterDefinition, parse};

use super::changes::{Change, ChangeKind, Changes, ValueChange};
use super::compatible::{held_by_alert, incompatibilities};
use super::diff::line_diff;
use super::inline::{normalised, self_contained};

/// Returns what `definitions` would change in a catalog state. `staging` names the staging views. They keep nothing, so
/// a new version of one takes effect at once. (The views that name them are stored [`self_contained`] and change with
/// them.)
pub(crate) fn plan_changes(state: &CatalogState, definitions: &Definitions, staging: &BTreeSet<Arc<str>>) -> Changes {
    let mut changes = Vec::new();
    for stream in &definitions.streams {
        changes.push(plan_stream(state, definitions, stream));
    }
    for view in &definitions.views {
        changes.push(plan_view(state, definitions, view, staging.contains(&view.name)));
    }
    for sink in &definitions.sinks {
        changes.push(plan_at_once(state, DefinitionKind::Sink, &sink.name, &sink.sql));
    }
    for alert in &definitions.alerts {
        changes.push(plan_at_once(state, DefinitionKind::Alert, &alert.name, &alert.sql));
    }
    for parameter in &definitions.parameters {
        changes.push(plan_parameter(state, parameter));
    }
    let named: BTreeSet<(DefinitionKindOrder, Arc<str>)> = changes.iter().map(|change| (order(change.kind), change.name.clone())).collect();
    for kind in DefinitionKind::ALL {
        let missing: BTreeSet<&Arc<str>> =
            state.live(kind).map(|record| &record.name).filter(|name| !named.contains(&(order(kind), (*name).clone()))).collect();
        for name in missing {
            let newest = newest_version(state, kind, name);
            changes.push(Change {
                kind,
                name: name.clone(),
                change_kind: ChangeKind::Missing { version: newest.unwrap_or_default() },
                value: None,
                sql: String::new(),
                newest,
            });
        }
    }
    changes.sort_by(|a, b| (order(a.kind), &a.name).cmp(&(order(b.kind), &b.name)));
    let (sinks, alerts) = (definitions.sinks.clone(), definitions.alerts.clone());
    let restarted = restarted_streams(state, &changes);
    Changes { changes, restarted, sinks, alerts, revision: state.revision, ..Changes::default() }
}

type DefinitionKindOrder = u8;

pub(super) fn order(kind: DefinitionKind) -> DefinitionKindOrder {
    match kind {
        DefinitionKind::Stream => 0,
        DefinitionKind::View => 1,
        DefinitionKind::Sink => 2,
        DefinitionKind::Alert => 3,
        DefinitionKind::Parameter => 4,
    }
}

/// What to do where records of the stream are committed.
const FINAL: &str =
    "define a stream with another name, and views over it: with another topic, or with this one once this stream is removed";
/// What to do where an alert is in the way.
const HELD: &str = "drop the alert with `apply --prune` in an apply of its own, before this change, and define it again afterwards";

fn plan_stream(state: &CatalogState, definitions: &Definitions, stream: &definitions::StreamDefinition) -> Change {
    let kind = DefinitionKind::Stream;
    let sql = normalised(&stream.sql);
    let newest = state.definitions.versions(kind, &stream.name).max_by_key(|record| record.version);
    let change = |change_kind| Change {
        kind,
        name: stream.name.clone(),
        change_kind,
        value: None,
        sql: sql.clone(),
        newest: newest.map(|record| record.version),
    };
    if let Some(refused) = taken_name(state, kind, &stream.name).or_else(|| taken_topic(state, definitions, stream)) {
        return change(refused);
    }
    let Some(newest) = newest else { return change(ChangeKind::Added { version: 1 }) };
    let live = newest.status.is_live();
    if live && normalised(&newest.sql) == sql {
        return change(ChangeKind::Unchanged { version: newest.version });
    }
    // Events archived under an earlier version stay readable as this stream, so a retired version counts too.
    let (reasons, help) = match parse::parse_stream(&newest.sql) {
        Ok(before) if state.has_committed(&stream.name) => (incompatibilities(&before, stream), FINAL),
        Ok(before) => (held_by_alert(state, &before, stream).into_iter().collect(), HELD),
        Err(error) => (vec![format!("version {} in the catalog does not parse: {error}", newest.version)], FINAL),
    };
    if !reasons.is_empty() {
        return change(ChangeKind::Refused { reasons, help: help.into() });
    }
    let version = newest.version + 1;
    match live {
        false => change(ChangeKind::Added { version }),
        true => change(ChangeKind::Changed {
            from: newest.version,
            version,
            built_beside: false,
            diff: line_diff(&normalised(&newest.sql), &sql),
        }),
    }
}

/// Returns the streams that begin anew with one of these changes, each with its new version: what would be
/// incompatible is no change of decisions as long as none is committed.
fn restarted_streams(state: &CatalogState, changes: &[Change]) -> BTreeMap<Arc<str>, u32> {
    let restarted = |change: &Change| {
        let (DefinitionKind::Stream, ChangeKind::Added { version } | ChangeKind::Changed { version, .. }) =
            (change.kind, &change.change_kind)
        else {
            return None;
        };
        let before = state.definitions.get(change.kind, &change.name, change.newest?)?;
        let (before, after) = (parse::parse_stream(&before.sql).ok()?, parse::parse_stream(&change.sql).ok()?);
        (!incompatibilities(&before, &after).is_empty()).then(|| (change.name.clone(), *version))
    };
    changes.iter().filter_map(restarted).collect()
}

fn plan_view(state: &CatalogState, definitions: &Definitions, view: &definitions::ViewDefinition, staging: bool) -> Change {
    let kind = DefinitionKind::View;
    let sql = normalised(&self_contained(view, definitions));
    let newest = newest_version(state, kind, &view.name);
    let change = |change_kind| Change { kind, name: view.name.clone(), change_kind, value: None, sql: sql.clone(), newest };
    if let Some(refused) = taken_name(state, kind, &view.name) {
        return change(refused);
    }
    let version = newest.unwrap_or_default() + 1;
    let Some(last) = last_version(state, &view.name) else { return change(ChangeKind::Added { version }) };
    let is_unchanged = |record: &&DefinitionRecord| normalised(&record.sql) == sql;
    if is_unchanged(&last) {
        return change(ChangeKind::Unchanged { version: last.version });
    }
    let diff = || line_diff(&normalised(&last.sql), &sql);
    let is_same = |record: &&DefinitionRecord| means_the_same(&record.sql, &sql);
    if is_same(&last) {
        return change(ChangeKind::Adjusted { version: last.version, diff: diff() });
    }
    let served = versions_with_status(state, &view.name, DefinitionStatus::Active).next();
    if let Some(served) = served.filter(is_same) {
        return change(ChangeKind::Reverted { version: served.version, dropped: last.version });
    }
    let left = state.definitions.versions(kind, &view.name).filter(|record| record.rolled_back && is_unchanged(record));
    // Since then the version that was returned to may have been rebuilt, with its text.
    let is_last = |left: &&DefinitionRecord, served: &DefinitionRecord| {
        state
            .definitions
            .versions(kind, &view.name)
            .filter(|record| record.version > left.version)
            .all(|record| means_the_same(&record.sql, &served.sql))
    };
    if let Some(served) = served
        && let Some(from) = left.max_by_key(|record| record.version).filter(|left| is_last(left, served))
    {
        let is_kept = from.status == DefinitionStatus::Kept;
        return change(ChangeKind::RolledBack { version: served.version, from: from.version, is_kept });
    }
    let kept = versions_with_status(state, &view.name, DefinitionStatus::Kept).filter(is_same).max_by_key(|record| record.version);
    match kept.filter(|_| !staging) {
        Some(kept) => change(ChangeKind::Returned { from: last.version, version: kept.version }),
        None => {
            let built_beside = served.is_some() && !staging;
            change(ChangeKind::Changed { from: last.version, version, built_beside, diff: diff() })
        }
    }
}

/// A changed sink or alert takes effect at once: it keeps no states.
fn plan_at_once(state: &CatalogState, kind: DefinitionKind, name: &Arc<str>, sql: &str) -> Change {
    let sql = normalised(sql);
    let newest = state.definitions.versions(kind, name).max_by_key(|record| record.version);
    let change = |change_kind| Change {
        kind,
        name: name.clone(),
        change_kind,
        value: None,
        sql: sql.clone(),
        newest: newest.map(|record| record.version),
    };
    if let Some(refused) = taken_name(state, kind, name) {
        return change(refused);
    }
    let Some(newest) = newest else { return change(ChangeKind::Added { version: 1 }) };
    match newest.status.is_live() {
        true if normalised(&newest.sql) == sql => change(ChangeKind::Unchanged { version: newest.version }),
        true => match left_by_rollback(state, newest, &sql) {
            Some(from) => change(ChangeKind::RolledBack { version: newest.version, from, is_kept: false }),
            None => {
                let diff = line_diff(&normalised(&newest.sql), &sql);
                change(ChangeKind::Changed { from: newest.version, version: newest.version + 1, built_beside: false, diff })
            }
        },
        false => change(ChangeKind::Added { version: newest.version + 1 }),
    }
}

/// The version of this text from which a user returned to the live one: since then only that one's text was live.
fn left_by_rollback(state: &CatalogState, live: &DefinitionRecord, sql: &str) -> Option<u32> {
    let known = || state.definitions.versions(live.kind, &live.name);
    let left = known().filter(|record| record.rolled_back && normalised(&record.sql) == sql).max_by_key(|record| record.version)?;
    let mut since = known().filter(|record| record.version > left.version);
    since.all(|record| normalised(&record.sql) == normalised(&live.sql)).then_some(left.version)
}

/// A changed parameter takes effect at once. Its value is set where the initial value in the files is another one.
fn plan_parameter(state: &CatalogState, parameter: &ParameterDefinition) -> Change {
    let kind = DefinitionKind::Parameter;
    let change = plan_at_once(state, kind, &parameter.name, &parameter.sql);
    let last = state.parameters.iter().find(|record| record.parameter == parameter.name);
    let in_effect = last.filter(|_| state.served_or_building(kind, &parameter.name).is_some());
    let begins_otherwise = state.served_or_building(kind, &parameter.name).is_none_or(|before| match parse::parse_parameter(&before.sql) {
        Ok(before) => (before.value_type, &before.value) != (parameter.value_type, &parameter.value),
        Err(_) => true,
    });
    let value = match in_effect {
        Some(record) if !begins_otherwise => ValueChange::stays(parameter, record),
        _ => ValueChange {
            initial: parameter.value.clone(),
            before: in_effect.map(|record| record.value.clone()),
            after: parameter.value.clone(),
            version: last.map_or(0, |record| record.version) + 1,
            set: Some(parameter.value_type.to_string()),
        },
    };
    Change { value: Some(value), ..change }
}

impl ValueChange {
    fn stays(parameter: &ParameterDefinition, record: &ParameterRecord) -> ValueChange {
        let value = record.value.clone();
        ValueChange { initial: parameter.value.clone(), before: Some(value.clone()), after: value, version: record.version, set: None }
    }
}

/// Whether two stored views have the same states and answers. A text that does not parse means something else.
pub(crate) fn means_the_same(before: &str, after: &str) -> bool {
    let parsed = parse::parse_view(before).ok().zip(parse::parse_view(after).ok());
    parsed.is_some_and(|(before, after)| before.means_the_same(&after))
}

/// All definitions share one namespace.
fn taken_name(state: &CatalogState, kind: DefinitionKind, name: &str) -> Option<ChangeKind> {
    let others = DefinitionKind::ALL.into_iter().filter(|other| *other != kind);
    let mut taken = others.flat_map(|other| state.live(other)).filter(|record| &*record.name == name);
    taken.next().map(|record| ChangeKind::Refused {
        reasons: vec![format!("the catalog has {} of that name", record.kind.with_article())],
        help: "choose another name, or drop the other one with `apply --prune` first".into(),
    })
}

/// A topic belongs to at most one live stream.
fn taken_topic(state: &CatalogState, definitions: &Definitions, stream: &definitions::StreamDefinition) -> Option<ChangeKind> {
    let of_topic = |record: &&DefinitionRecord| {
        let in_files = definitions.streams.iter().any(|known| known.name == record.name);
        record.name != stream.name && !in_files && parse::parse_stream(&record.sql).is_ok_and(|other| other.topic == stream.topic)
    };
    state.live(DefinitionKind::Stream).find(of_topic).map(|record| ChangeKind::Refused {
        reasons: vec![format!("the topic \"{}\" belongs to the stream \"{}\", which is live in the catalog", stream.topic, record.name)],
        help: format!("choose another topic, or remove \"{}\" from the files and drop it with `apply --prune` first", record.name),
    })
}

pub(super) fn versions_with_status<'a>(
    state: &'a CatalogState,
    view: &'a str,
    status: DefinitionStatus,
) -> impl Iterator<Item = &'a DefinitionRecord> {
    state.definitions.versions(DefinitionKind::View, view).filter(move |record| record.status == status)
}

/// Returns the version of a view that was applied last and is live: the one being built, or else the served one.
pub(super) fn last_version<'a>(state: &'a CatalogState, view: &'a str) -> Option<&'a DefinitionRecord> {
    let building = versions_with_status(state, view, DefinitionStatus::Building).max_by_key(|record| record.version);
    building.or_else(|| versions_with_status(state, view, DefinitionStatus::Active).next())
}

pub(super) fn newest_version(state: &CatalogState, kind: DefinitionKind, name: &str) -> Option<u32> {
    state.definitions.versions(kind, name).map(|record| record.version).max()
}
