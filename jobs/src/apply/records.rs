//! The definition records and parameter values that changes result in, and the catalog state with them.

use catalog::{CatalogState, DefinitionKind, DefinitionRecord, DefinitionStatus, ParameterRecord, serve_version};
use definitions::{KEEP_OLD, parse};
use types::tiles::Micros;

use super::changes::{Change, ChangeKind, Changes};
use super::inline::normalised;
use super::planning::versions_with_status;

/// Returns the definition records that the changes result in: new versions, and the versions that they retire.
pub fn records_of(state: &CatalogState, changes: &Changes, prune: bool, now: Micros) -> Vec<DefinitionRecord> {
    let mut records = Vec::new();
    for change in &changes.changes {
        let live = || state.definitions.live_versions(change.kind, &change.name);
        let building = || live().filter(|record| record.status == DefinitionStatus::Building);
        let retired = |record: &DefinitionRecord| record.with_status(DefinitionStatus::Retired, now);
        // Options of its runs may have changed.
        let adjusted = |record: &DefinitionRecord| DefinitionRecord { sql: change.sql.clone(), ..record.clone() };
        let new = |version, status| DefinitionRecord {
            kind: change.kind,
            name: change.name.clone(),
            version,
            sql: change.sql.clone(),
            status,
            created_at: now,
            since: now,
            kept_until: None,
            rolled_back: false,
        };
        match &change.change_kind {
            ChangeKind::Added { version } => records.push(new(*version, DefinitionStatus::Active)),
            ChangeKind::Changed { version, built_beside: true, .. } | ChangeKind::Rebuilt { version, built_beside: true, .. } => {
                records.extend(building().map(retired));
                records.push(new(*version, DefinitionStatus::Building));
            }
            ChangeKind::Changed { version, built_beside: false, .. } | ChangeKind::Rebuilt { version, built_beside: false, .. } => {
                records.extend(live().map(retired));
                records.push(new(*version, DefinitionStatus::Active));
            }
            ChangeKind::Adjusted { version, .. } => records.extend(live().filter(|record| record.version == *version).map(adjusted)),
            ChangeKind::Reverted { version, .. } => {
                records.extend(building().map(retired));
                let served = live().filter(|record| record.version == *version);
                records.extend(served.filter(|record| normalised(&record.sql) != change.sql).map(adjusted));
            }
            ChangeKind::Returned { version, .. } => {
                let keep_old = parse::parse_view(&change.sql).map_or(KEEP_OLD, |view| view.keep_old);
                records.extend(building().map(retired));
                let switched = serve_version(state, &change.name, *version, keep_old, now).unwrap_or_default();
                records.extend(switched.iter().map(|record| if record.version == *version { adjusted(record) } else { record.clone() }));
            }
            ChangeKind::Missing { .. } if prune => records.extend(live().map(retired)),
            ChangeKind::Missing { .. } | ChangeKind::Unchanged { .. } | ChangeKind::RolledBack { .. } | ChangeKind::Refused { .. } => {}
        }
    }
    keep_none_stale(state, changes, &mut records, now);
    records
}

/// States of two decodings are never merged: a version that reads a column which is decoded again is not kept.
fn keep_none_stale(state: &CatalogState, changes: &Changes, records: &mut Vec<DefinitionRecord>, now: Micros) {
    for stale in &changes.stale {
        let is_it = |record: &DefinitionRecord| record.name == stale.view && record.version == stale.version;
        let known = records.iter_mut().find(|record| record.kind == DefinitionKind::View && is_it(record));
        match known {
            Some(record) if record.status == DefinitionStatus::Kept => *record = record.with_status(DefinitionStatus::Retired, now),
            Some(_) => {}
            None => {
                let kept = versions_with_status(state, &stale.view, DefinitionStatus::Kept).find(|record| is_it(record));
                records.extend(kept.map(|record| record.with_status(DefinitionStatus::Retired, now)));
            }
        }
    }
}

/// Returns the values of parameters that the changes set.
pub fn values_of(changes: &Changes, set_by: &str, now: Micros) -> Vec<ParameterRecord> {
    let value = |change: &Change| {
        let value = change.value.as_ref()?;
        let value_type = value.set.clone()?;
        Some(ParameterRecord {
            parameter: change.name.clone(),
            version: value.version,
            value_type,
            value: value.after.clone(),
            set_at: now,
            set_by: set_by.to_owned(),
        })
    };
    changes.changes.iter().filter_map(value).collect()
}

/// Returns the catalog state as it would be with these values.
pub fn with_values(state: &CatalogState, values: &[ParameterRecord]) -> CatalogState {
    let mut after = state.clone();
    after.parameters.retain(|old| values.iter().all(|new| new.parameter != old.parameter));
    after.parameters.extend(values.iter().cloned());
    after
}

/// Returns the catalog state as it would be with these records.
pub fn with_records(state: &CatalogState, records: &[DefinitionRecord]) -> CatalogState {
    let mut after = state.clone();
    after.definitions.extend(records.iter().cloned());
    after
}
