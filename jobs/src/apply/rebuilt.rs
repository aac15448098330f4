//! Which views a stream's new decoding gives a new version.

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::{CatalogState, DefinitionKind, DefinitionRecord, DefinitionStatus};

use super::{Change, Changes, What, newest_version, of_name, order};
use crate::backfill::Reader;

/// Gives each view that reads a column which is decoded again a new version. The states of the old one are of the old
/// decoding, and events that are decoded otherwise must not be added to them: if it is the served version, it is retired
/// by the switch, and the new one answers from then on. Returns the versions that do.
pub(super) fn rebuild_readers(state: &CatalogState, changes: &mut Changes, readers: &[Reader], prune: bool) -> Vec<(Arc<str>, u32)> {
    let mut by_view: BTreeMap<&Arc<str>, Vec<&Reader>> = BTreeMap::new();
    for reader in readers {
        by_view.entry(&reader.view).or_default().push(reader);
    }
    for (view, versions) in &by_view {
        rebuild(state, changes, view, versions, prune);
    }
    changes.changes.sort_by(|a, b| (order(a.kind), &a.name).cmp(&(order(b.kind), &b.name)));
    let at_once = changes.changes.iter().filter_map(|change| match change.what {
        What::Rebuilt { version, built_beside: false, .. } | What::Changed { version, built_beside: false, .. } => {
            (change.kind == DefinitionKind::View && by_view.contains_key(&change.name)).then(|| (change.name.clone(), version))
        }
        _ => None,
    });
    at_once.collect()
}

fn rebuild(state: &CatalogState, changes: &mut Changes, view: &Arc<str>, readers: &[&Reader], prune: bool) {
    let kind = DefinitionKind::View;
    let live = || of_name(state, kind, view).filter(|record| record.status.is_live());
    let (Some(last), newest) = (live().max_by_key(|record| record.version), newest_version(state, kind, view)) else { return };
    let served = live().find(|record| record.status == DefinitionStatus::Active);
    let reads = |version: &DefinitionRecord| readers.iter().any(|reader| reader.version == version.version);
    let is_served_stale = served.is_some_and(reads);
    let mut columns: Vec<String> = readers.iter().flat_map(|reader| reader.columns.iter().cloned()).collect();
    columns.sort();
    columns.dedup();
    let rebuilt = What::Rebuilt {
        from: last.version,
        version: newest.unwrap_or_default() + 1,
        built_beside: served.is_some() && !is_served_stale,
        columns,
    };
    let Some(change) = changes.changes.iter_mut().find(|change| change.kind == kind && change.name == *view) else {
        changes.changes.push(Change { kind, name: view.clone(), what: rebuilt, sql: last.sql.clone(), newest });
        return;
    };
    match &mut change.what {
        What::Missing { .. } if prune => {}
        What::Missing { .. } => (change.what, change.sql) = (rebuilt, last.sql.clone()),
        What::Unchanged { .. } | What::Adjusted { .. } => change.what = rebuilt,
        What::Changed { built_beside, .. } => *built_beside &= !is_served_stale,
        // The served version alone stays: the other one is dropped anyway.
        What::Reverted { .. } if is_served_stale => change.what = rebuilt,
        What::Reverted { .. } | What::Added { .. } | What::Rebuilt { .. } | What::Refused { .. } => {}
    }
}
