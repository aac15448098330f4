//! Tables `meta` and `commits`: the catalog's identity, its revision, and the commits it remembers.

use std::time::Duration;

use uuid::Uuid;

use super::session::{Session, values};
use crate::Revision;
use types::tiles::Micros;
use types::{Error, Result};

/// The format that this version reads and writes: the number of its migrations.
pub(super) const FORMAT: i64 = 19;

/// The one row of `meta`.
pub(super) struct MetaRow {
    pub(super) identity: String,
    pub(super) format: i64,
    pub(super) revision: Revision,
    /// What was removed up to this revision is not listed: a state from before it cannot be updated.
    pub(super) removed_revision: Revision,
}

/// How long a commit can be recognised by its id: far longer than any retry.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) const REVISION: &str = "SELECT revision FROM meta";

/// Creates the table and its row if missing.
pub(super) async fn create(session: &mut Session) -> Result<()> {
    session
        .script(
            "CREATE TABLE IF NOT EXISTS meta (
                only_row BIGINT NOT NULL PRIMARY KEY CHECK (only_row = 1),
                identity TEXT   NOT NULL,
                format   BIGINT NOT NULL,
                revision BIGINT NOT NULL,
                removed_revision BIGINT NOT NULL
            )",
        )
        .await?;
    let row = "INSERT INTO meta (only_row, identity, format, revision, removed_revision) VALUES (1, $1, 0, 0, 0)
        ON CONFLICT (only_row) DO NOTHING";
    session.execute(row, values![Uuid::new_v4()]).await.map(drop)
}

/// The revision of the last commit, as this session sees it.
pub(super) async fn revision(session: &mut Session) -> Result<Revision> {
    session.row(REVISION, values![]).await?.ok_or_else(no_row)?.integer("revision")
}

pub(super) async fn read(session: &mut Session) -> Result<MetaRow> {
    let row = session.row("SELECT identity, format, revision, removed_revision FROM meta", values![]).await?.ok_or_else(no_row)?;
    Ok(MetaRow {
        identity: row.text("identity")?,
        format: row.integer("format")?,
        revision: row.integer("revision")?,
        removed_revision: row.integer("removed_revision")?,
    })
}

pub(super) async fn set_format(session: &mut Session, format: i64) -> Result<()> {
    session.execute("UPDATE meta SET format = $1", values![format]).await.map(drop)
}

/// The first statement of every write: on PostgreSQL its row lock puts all commits in one order, and the statements
/// after it see everything committed before.
pub(super) async fn next_revision(session: &mut Session) -> Result<Revision> {
    let sql = "UPDATE meta SET revision = revision + 1 RETURNING revision, format";
    let row = session.row(sql, values![]).await?.ok_or_else(no_row)?;
    let format = row.integer("format")?;
    if format != FORMAT {
        return Err(Error::corrupt("the catalog's format was changed by another version of basestream; start again with that one")
            .with("found", format)
            .with("expected", FORMAT));
    }
    row.integer("revision")
}

/// Records that what was removed up to this revision is no longer listed.
pub(super) async fn forget_removals(session: &mut Session, revision: Revision) -> Result<()> {
    session.execute("UPDATE meta SET removed_revision = $1 WHERE removed_revision < $1", values![revision]).await.map(drop)
}

/// Returns the revision up to which transitions of alerts may be gone.
pub(super) async fn alerts_forgotten(session: &mut Session) -> Result<Revision> {
    session.row("SELECT alerts_forgotten FROM meta", values![]).await?.ok_or_else(no_row)?.integer("alerts_forgotten")
}

/// Records that transitions of alerts up to this revision are gone.
pub(super) async fn forget_alerts(session: &mut Session, revision: Revision) -> Result<()> {
    session.execute("UPDATE meta SET alerts_forgotten = $1 WHERE alerts_forgotten < $1", values![revision]).await.map(drop)
}

/// Returns the revision of the commit with this id, if it has already happened.
pub(super) async fn revision_of(session: &mut Session, id: Uuid) -> Result<Option<Revision>> {
    let row = session.row("SELECT revision FROM commits WHERE id = $1", values![id]).await?;
    row.map(|row| row.integer("revision")).transpose()
}

/// Returns the last commit that is remembered, with its revision.
pub(super) async fn last_commit(session: &mut Session) -> Result<Option<(Uuid, Revision)>> {
    let row = session.row("SELECT id, revision FROM commits ORDER BY revision DESC LIMIT 1", values![]).await?;
    row.map(|row| Ok((row.parse("id")?, row.integer("revision")?))).transpose()
}

/// Returns whether a commit is remembered under this revision. True if none is given.
pub(super) async fn has(session: &mut Session, commit: Option<(Uuid, Revision)>) -> Result<bool> {
    match commit {
        Some((id, revision)) => Ok(revision_of(session, id).await? == Some(revision)),
        None => Ok(true),
    }
}

/// Returns the time before which files of checkpoints can no longer be named.
pub(super) async fn orphaned_before(session: &mut Session) -> Result<Micros> {
    session.row("SELECT orphaned_before FROM meta", values![]).await?.ok_or_else(no_row)?.integer("orphaned_before")
}

/// Moves that time forward; it never goes back.
pub(super) async fn orphan_before(session: &mut Session, time: Micros) -> Result<()> {
    session.execute("UPDATE meta SET orphaned_before = $1 WHERE orphaned_before < $1", values![time]).await.map(drop)
}

/// Records a commit by its id, and forgets those that are too old to be retried.
pub(super) async fn remember(session: &mut Session, id: Uuid, revision: Revision, now: Micros) -> Result<()> {
    let oldest = now.saturating_sub(REMEMBERED.as_micros() as Micros);
    session.execute("DELETE FROM commits WHERE committed_at < $1", values![oldest]).await?;
    let sql = "INSERT INTO commits (id, revision, committed_at) VALUES ($1, $2, $3)";
    session.execute(sql, values![id, revision, now]).await.map(drop)
}

fn no_row() -> Error {
    Error::corrupt("the catalog's table meta has no row")
}
