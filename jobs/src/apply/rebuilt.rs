//! Finds the views that get a new version because a stream is decoded in a new way.

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::{CatalogState, DefinitionKind, DefinitionRecord, DefinitionStatus};

use super::changes::{Change, ChangeKind, Changes};
use super::diff::line_diff;
use super::inline::normalised;
use super::planning::{last_version, newest_version, order, versions_with_status};
use crate::backfill::ReadingView;

/// Gives each view that reads a column which is decoded again a new version. The states of the old one are of the old
/// decoding, and events that are decoded otherwise must not be added to them: if it is the served version, it is
/// retired by the switch, and the new one answers from then on. Returns the versions that do.
pub(super) fn rebuild_readers(state: &CatalogState, changes: &mut Changes, readers: &[ReadingView], prune: bool) -> Vec<(Arc<str>, u32)> {
    let mut by_view: BTreeMap<&Arc<str>, Vec<&ReadingView>> = BTreeMap::new();
    for reader in readers {
        by_view.entry(&reader.view).or_default().push(reader);
    }
    changes.stale = readers.to_vec();
    by_view
        .retain(|_, versions| versions.iter().any(|reader| reader.status != DefinitionStatus::Kept) || is_returned_to(changes, versions));
    for (view, versions) in &by_view {
        rebuild(state, changes, view, versions, prune);
    }
    changes.changes.sort_by(|a, b| (order(a.kind), &a.name).cmp(&(order(b.kind), &b.name)));
    let at_once = changes.changes.iter().filter_map(|change| match change.change_kind {
        ChangeKind::Rebuilt { version, built_beside: false, .. } | ChangeKind::Changed { version, built_beside: false, .. } => {
            (change.kind == DefinitionKind::View && by_view.contains_key(&change.name)).then(|| (change.name.clone(), version))
        }
        _ => None,
    });
    at_once.collect()
}

/// True if a version that reads such a column is the one to return to.
fn is_returned_to(changes: &Changes, readers: &[&ReadingView]) -> bool {
    let is_to = |change: &Change, reader: &ReadingView| {
        change.name == reader.view && matches!(change.change_kind, ChangeKind::Returned { version, .. } if version == reader.version)
    };
    changes.changes.iter().any(|change| readers.iter().any(|reader| is_to(change, reader)))
}

fn rebuild(state: &CatalogState, changes: &mut Changes, view: &Arc<str>, readers: &[&ReadingView], prune: bool) {
    let kind = DefinitionKind::View;
    let (Some(last), newest) = (last_version(state, view), newest_version(state, kind, view)) else { return };
    let served = versions_with_status(state, view, DefinitionStatus::Active).next();
    let reads = |version: &DefinitionRecord| readers.iter().any(|reader| reader.version == version.version);
    let is_served_stale = served.is_some_and(reads);
    let version = newest.unwrap_or_default() + 1;
    let current = readers.iter().filter(|reader| reader.status != DefinitionStatus::Kept);
    let mut columns: Vec<String> = current.flat_map(|reader| reader.columns.iter().cloned()).collect();
    columns.sort();
    columns.dedup();
    let rebuilt = ChangeKind::Rebuilt { from: last.version, version, built_beside: served.is_some() && !is_served_stale, columns };
    let Some(change) = changes.changes.iter_mut().find(|change| change.kind == kind && change.name == *view) else {
        changes.changes.push(Change { kind, name: view.clone(), change_kind: rebuilt, value: None, sql: last.sql.clone(), newest });
        return;
    };
    match &mut change.change_kind {
        ChangeKind::Missing { .. } if prune => {}
        ChangeKind::Missing { .. } | ChangeKind::RolledBack { .. } => (change.change_kind, change.sql) = (rebuilt, last.sql.clone()),
        ChangeKind::Unchanged { .. } | ChangeKind::Adjusted { .. } => change.change_kind = rebuilt,
        ChangeKind::Changed { built_beside, .. } => *built_beside &= !is_served_stale,
        // Its states are of the old decoding.
        ChangeKind::Returned { version: kept, .. } if readers.iter().any(|reader| reader.version == *kept) => {
            let diff = line_diff(&normalised(&last.sql), &change.sql);
            change.change_kind =
                ChangeKind::Changed { from: last.version, version, built_beside: served.is_some() && !is_served_stale, diff };
        }
        // The served version alone stays: the other one is dropped anyway.
        ChangeKind::Reverted { .. } if is_served_stale => change.change_kind = rebuilt,
        ChangeKind::Reverted { .. }
        | ChangeKind::Returned { .. }
        | ChangeKind::Added { .. }
        | ChangeKind::Rebuilt { .. }
        | ChangeKind::Refused { .. } => {}
    }
}
