//! Which columns archived events do not have as their stream's definition reads them.

use std::collections::BTreeSet;

use catalog::{CatalogState, DefinitionKind, DefinitionStatus};
use definitions::{Column, StreamDefinition, parse};
use engine::events::columns_to_decode;
use serde::Serialize;
use types::Result;

use super::BackfillTarget;

/// A column that archived events do not have as the definition reads it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ChangedColumn {
    pub column: String,
    pub change: String,
}

/// Returns the columns that events of earlier versions do not have as the definition reads them. A version whose
/// archive was decoded again has no such events.
pub(crate) fn changed_columns(state: &CatalogState, target: &BackfillTarget) -> Result<BTreeSet<ChangedColumn>> {
    let mut changed = BTreeSet::new();
    for record in state.definitions.versions(DefinitionKind::Stream, target.stream()) {
        if record.version != target.version && record.status != DefinitionStatus::Redecoded {
            changed.extend(changes_between(&parse::parse_stream(&record.sql)?, &target.definition));
        }
    }
    Ok(changed)
}

pub(super) fn changes_between<'a>(before: &'a StreamDefinition, after: &'a StreamDefinition) -> impl Iterator<Item = ChangedColumn> + 'a {
    columns_to_decode(before, after).into_iter().map(|column| {
        let known = before.columns.iter().find(|known| known.name == column.name);
        ChangedColumn { column: column.name.clone(), change: known.map_or_else(|| "added".to_owned(), |known| change(known, column)) }
    })
}

fn change(before: &Column, after: &Column) -> String {
    let path = |column: &Column| format!("$.{}", column.path.join("."));
    let mut changes = Vec::new();
    if before.column_type != after.column_type {
        changes.push(format!("type {} -> {}", before.column_type, after.column_type));
    }
    if before.path != after.path {
        changes.push(format!("path {} -> {}", path(before), path(after)));
    }
    if before.unit != after.unit {
        changes.push("unit".to_owned());
    }
    if before.nullable && !after.nullable {
        changes.push("NOT NULL".to_owned());
    }
    changes.join(", ")
}
