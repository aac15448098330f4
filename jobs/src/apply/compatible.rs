//! Checks which changes of a stream keep the decisions about its records.

use std::sync::Arc;

use catalog::{CatalogState, DefinitionKind};
use definitions::{Column, StreamDefinition, parse};

use super::inline::{relations, relations_of_select};

/// Returns why `new` cannot follow `old` under the same name once records are committed; empty if it can. What was
/// decided of a record stays: which partition it is in, whether it is an event, its id and its time. All other columns
/// may change: the archive is decoded again.
pub(super) fn incompatibilities(old: &StreamDefinition, new: &StreamDefinition) -> Vec<String> {
    let mut reasons = Vec::new();
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".into());
    let fixed = [
        ("topic", old.topic.to_string(), new.topic.to_string(), "offsets of one topic mean nothing in another"),
        ("event_time", old.event_time.clone(), new.event_time.clone(), "archived events are dated by the old column"),
        ("id", text(&old.id), text(&new.id), "duplicates were detected by the old id"),
        ("key", text(&old.key), text(&new.key), "events of one key would be in other partitions than before"),
    ];
    for (option, before, after, why) in fixed {
        if before != after {
            reasons.push(format!("{option} would change from {before} to {after}, and {why}"));
        }
    }
    let roles = [
        ("the event time", Some(&new.event_time), "archived events are dated as it was"),
        ("the id", new.id.as_ref(), "duplicates were detected as it was"),
        ("the key", new.key.as_ref(), "events are in the partitions of the key as it was"),
    ];
    for (role, name, why) in roles {
        let (Some(before), Some(after)) = (column(old, name), column(new, name)) else { continue };
        if (&before.column_type, &before.path, before.unit) != (&after.column_type, &after.path, after.unit) {
            reasons.push(format!("\"{}\" is {role}, and its type, path or unit would change: {why}", after.name));
        }
    }
    reasons
}

/// Returns why a stream cannot begin anew with another topic, if it cannot. An alert never goes back behind a position
/// that it has evaluated, and this may be one of the topic before that was not committed yet.
pub(super) fn held_by_alert(state: &CatalogState, old: &StreamDefinition, new: &StreamDefinition) -> Option<String> {
    if old.topic == new.topic {
        return None;
    }
    let views = state.live(DefinitionKind::View).filter(|view| relations(&view.sql).contains(&*new.name));
    let views: Vec<&Arc<str>> = views.map(|view| &view.name).collect();
    let reads_one = |select: &str| relations_of_select(select).iter().any(|name| views.iter().any(|view| ***view == **name));
    let mut alerts = state.live(DefinitionKind::Alert);
    let alert = alerts.find(|alert| parse::parse_alert(&alert.sql).is_ok_and(|alert| reads_one(&alert.select)))?;
    Some(format!(
        "topic would change from {} to {}, and the alert \"{}\" may have evaluated offsets of {0}",
        old.topic, new.topic, alert.name
    ))
}

fn column<'a>(stream: &'a StreamDefinition, name: Option<&String>) -> Option<&'a Column> {
    stream.columns.iter().find(|column| Some(&column.name) == name)
}
