//! The views of the simulation: which streams each reads, and which of them are linked.

use std::sync::Arc;
use std::time::Duration;

use catalog::{Add, CatalogState, Commit, DefinitionKind, DefinitionRecord, DefinitionStatus, StreamsRead};
use types::tiles::Micros;
use uuid::Uuid;

pub const VIEWS: [&str; 4] = ["of_a", "of_both", "linked", "twins"];

/// Joins each event in `a` on a device with the user's events in `b`: the number of pairs, and each event of `b` by its
/// id.
const LINKED: &str = "CREATE VIEW linked AS SELECT near.device, count(*) AS pairs, array_agg(DISTINCT far.id ORDER BY far.id) AS ends \
    FROM a near JOIN b far ON near.user_id = far.user_id GROUP BY near.device";
/// The same for `a` joined with itself: what else the device's users did.
const TWINS: &str = "CREATE VIEW twins AS SELECT near.device, count(*) AS pairs, array_agg(DISTINCT far.id ORDER BY far.id) AS ends \
    FROM a near JOIN a far ON near.user_id = far.user_id WHERE near.id <> far.id GROUP BY near.device";

pub fn streams_of(view: &str) -> Vec<Arc<str>> {
    match view {
        "of_a" | "twins" => vec!["a".into()],
        _ => vec!["a".into(), "b".into()],
    }
}

/// Which streams the live view versions read.
pub fn reads(state: &CatalogState) -> StreamsRead {
    state.live(DefinitionKind::View).map(|view| ((view.name.clone(), view.version), streams_of(&view.name))).collect()
}

/// The definition of a linked view, and the stream of its far side.
pub fn link_of(view: &str) -> Option<(&'static str, &'static str)> {
    match view {
        "linked" => Some((LINKED, "b")),
        "twins" => Some((TWINS, "a")),
        _ => None,
    }
}

/// How long the version before this one is kept.
pub fn keep_old(version: u32) -> Duration {
    if version == 3 { Duration::ZERO } else { Duration::from_secs(3_600) }
}

/// Adds a version of a view to the catalog; first versions are served at once.
pub fn define(id: Uuid, view: &str, version: u32, now: Micros) -> Commit {
    let status = if version == 1 { DefinitionStatus::Active } else { DefinitionStatus::Building };
    let sql = link_of(view).map_or_else(|| format!("the positions of {view}"), |(sql, _)| sql.to_owned());
    let record = DefinitionRecord {
        kind: DefinitionKind::View,
        name: view.into(),
        version,
        sql,
        status,
        created_at: now,
        since: now,
        kept_until: None,
        rolled_back: false,
    };
    Commit { id, add: vec![Add::Definition(record)], ..Commit::default() }
}
