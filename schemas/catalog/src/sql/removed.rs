//! Table `removed`: the checkpoints and files that recent commits removed, for readers that have an earlier state.

use std::time::Duration;

use uuid::Uuid;

use super::meta;
use super::session::{Session, values};
use crate::Revision;
use types::tiles::Micros;
use types::{Error, Result};

/// How long a removal is listed. A reader with a state from before that reads everything again.
const LISTED: Duration = Duration::from_secs(60 * 60);

const CHECKPOINT: &str = "checkpoint";
const FILE: &str = "file";

/// What was removed after a revision.
#[derive(Debug, Default)]
pub(super) struct Removed {
    pub(super) checkpoints: Vec<Uuid>,
    pub(super) files: Vec<String>,
}

pub(super) async fn since(session: &mut Session, revision: Revision) -> Result<Removed> {
    let mut removed = Removed::default();
    for row in session.rows("SELECT kind, name FROM removed WHERE revision > $1", values![revision]).await? {
        match row.text("kind")?.as_str() {
            CHECKPOINT => removed.checkpoints.push(row.parse("name")?),
            FILE => removed.files.push(row.text("name")?),
            other => return Err(Error::corrupt(format!("the catalog's table removed has an unknown kind \"{other}\""))),
        }
    }
    Ok(removed)
}

/// Lists checkpoints, in one statement however many they are. `list` is a JSON array of their ids.
pub(super) async fn note_checkpoints(session: &mut Session, list: &str, revision: Revision, now: Micros) -> Result<()> {
    note(session, CHECKPOINT, list, revision, now).await
}

/// Lists files, in one statement however many they are. `list` is a JSON array of their paths, each of them once.
pub(super) async fn note_files(session: &mut Session, list: &str, revision: Revision, now: Micros) -> Result<()> {
    note(session, FILE, list, revision, now).await
}

/// Forgets what was removed long ago: readers of earlier states see it by `meta.removed_revision`.
pub(super) async fn forget(session: &mut Session, now: Micros) -> Result<()> {
    let sql = "SELECT MAX(revision) AS revision FROM removed WHERE removed_at < $1";
    let oldest = now.saturating_sub(LISTED.as_micros() as Micros);
    let Some(row) = session.row(sql, values![oldest]).await? else { return Ok(()) };
    let Some(revision) = row.integer_or_null("revision")? else { return Ok(()) };
    session.execute("DELETE FROM removed WHERE revision <= $1", values![revision]).await?;
    meta::forget_removals(session, revision).await
}

async fn note(session: &mut Session, kind: &str, list: &str, revision: Revision, now: Micros) -> Result<()> {
    let sql = match session {
        // Without a condition SQLite takes the conflict for that of a join.
        Session::Sqlite(_) => {
            "INSERT INTO removed (kind, name, revision, removed_at) SELECT $1, value, $2, $3 FROM json_each($4) WHERE true
            ON CONFLICT (kind, name) DO UPDATE SET revision = excluded.revision, removed_at = excluded.removed_at"
        }
        Session::Postgres(_) => {
            "INSERT INTO removed (kind, name, revision, removed_at) SELECT $1, json_array_elements_text($4::json), $2, $3
            ON CONFLICT (kind, name) DO UPDATE SET revision = excluded.revision, removed_at = excluded.removed_at"
        }
    };
    session.execute(sql, values![kind, revision, now, list]).await.map(drop)
}
