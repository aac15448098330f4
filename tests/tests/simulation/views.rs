//! The views of the simulation: which streams each reads.

use std::sync::Arc;

use schemas::catalog::{Add, Commit, DefinitionKind, DefinitionRecord, DefinitionStatus};
use schemas::tiles::Micros;
use uuid::Uuid;

pub const VIEWS: [&str; 2] = ["of_a", "of_both"];

pub fn streams_of(view: &str) -> Vec<Arc<str>> {
    match view {
        "of_a" => vec!["a".into()],
        _ => vec!["a".into(), "b".into()],
    }
}

/// Puts a version of a view into the catalog; the first ones are served at once.
pub fn define(id: Uuid, view: &str, version: u32, now: Micros) -> Commit {
    let status = if version == 1 { DefinitionStatus::Active } else { DefinitionStatus::Building };
    let sql = format!("the places of {view}");
    let record = DefinitionRecord { kind: DefinitionKind::View, name: view.into(), version, sql, status, created_at: now };
    Commit { id, add: vec![Add::Definition(record)], ..Commit::default() }
}
