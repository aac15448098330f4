//! Table `definition`: the versions of streams, views, sinks, alerts and parameters.

use std::sync::Arc;

use super::session::{Row, Session, values, word_of};
use crate::{DefinitionKind, DefinitionRecord, DefinitionStatus, LiveVersion, Revision};
use types::Result;

/// The words of kinds, as they are read back.
pub(super) fn kinds() -> [(DefinitionKind, &'static str); 5] {
    DefinitionKind::ALL.map(|kind| (kind, kind.word()))
}

const STATUSES: [(DefinitionStatus, &str); 5] = [
    (DefinitionStatus::Building, "building"),
    (DefinitionStatus::Active, "active"),
    (DefinitionStatus::Kept, "kept"),
    (DefinitionStatus::Retired, "retired"),
    (DefinitionStatus::Redecoded, "redecoded"),
];

pub(super) const SINCE: &str =
    "SELECT kind, name, version, sql, status, created_at, since, kept_until, rolled_back FROM definition WHERE revision > $1";

/// Returns the definitions written after `revision`, in no order.
pub(super) async fn since(session: &mut Session, revision: Revision) -> Result<Vec<DefinitionRecord>> {
    session.rows(SINCE, values![revision]).await?.iter().map(record).collect()
}

pub(super) async fn put(session: &mut Session, definition: &DefinitionRecord, revision: Revision) -> Result<()> {
    let sql = "INSERT INTO definition (kind, name, version, sql, status, created_at, since, kept_until, rolled_back, revision)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        ON CONFLICT (kind, name, version) DO UPDATE SET sql = excluded.sql, status = excluded.status, created_at = excluded.created_at,
            since = excluded.since, kept_until = excluded.kept_until, rolled_back = excluded.rolled_back, revision = excluded.revision";
    let values = values![
        definition.kind.word(),
        &*definition.name,
        definition.version,
        definition.sql.as_str(),
        word_of(&definition.status, &STATUSES)?,
        definition.created_at,
        definition.since,
        definition.kept_until,
        definition.rolled_back,
        revision,
    ];
    session.execute(sql, values).await.map(drop)
}

pub(super) async fn newest_version(session: &mut Session, kind: DefinitionKind, name: &Arc<str>) -> Result<Option<u32>> {
    let sql = "SELECT version FROM definition WHERE kind = $1 AND name = $2 ORDER BY version DESC LIMIT 1";
    let row = session.row(sql, values![kind.word(), &**name]).await?;
    row.map(|row| row.number("version")).transpose()
}

/// Returns the status of one version; `None` if the catalog does not have it.
pub(super) async fn status(session: &mut Session, kind: DefinitionKind, name: &Arc<str>, version: u32) -> Result<Option<DefinitionStatus>> {
    let sql = "SELECT status FROM definition WHERE kind = $1 AND name = $2 AND version = $3";
    let row = session.row(sql, values![kind.word(), &**name, version]).await?;
    row.map(|row| row.word("status", &STATUSES)).transpose()
}

/// Returns the live versions, without their texts.
pub(super) async fn live(session: &mut Session) -> Result<Vec<LiveVersion>> {
    let sql = "SELECT kind, name, version, status FROM definition WHERE status IN ('building', 'active', 'kept')";
    let version = |row: &Row| -> Result<LiveVersion> {
        Ok(LiveVersion {
            kind: row.word("kind", &kinds())?,
            name: row.text("name")?.into(),
            version: row.number("version")?,
            status: row.word("status", &STATUSES)?,
        })
    };
    session.rows(sql, values![]).await?.iter().map(version).collect()
}

fn record(row: &Row) -> Result<DefinitionRecord> {
    Ok(DefinitionRecord {
        kind: row.word("kind", &kinds())?,
        name: row.text("name")?.into(),
        version: row.number("version")?,
        sql: row.text("sql")?,
        status: row.word("status", &STATUSES)?,
        created_at: row.integer("created_at")?,
        since: row.integer("since")?,
        kept_until: row.integer_or_null("kept_until")?,
        rolled_back: row.flag("rolled_back")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;

    /// The words are stored: another one would not be read back.
    #[test]
    fn the_words_of_kinds_and_roles_stay_as_they_are_stored() {
        assert_eq!(DefinitionKind::ALL.map(DefinitionKind::word), ["stream", "view", "sink", "alert", "parameter"]);
        assert_eq!(Role::ALL.map(Role::word), ["reader", "writer", "operator", "admin"]);
    }
}
