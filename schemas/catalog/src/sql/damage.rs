//! Table `damage`: named files that were found missing or damaged.

use super::session::{Row, Session, values};
use crate::DamageRecord;
use types::Result;

pub(super) async fn all(session: &mut Session) -> Result<Vec<DamageRecord>> {
    let sql = "SELECT path, error, found_by, found_at FROM damage";
    let mut damages: Vec<DamageRecord> = session.rows(sql, values![]).await?.iter().map(record).collect::<Result<_>>()?;
    // Not sorted by the database: its text order depends on its locale.
    damages.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(damages)
}

/// The first report of a file stays. A report on a file that is not named (any more) is ignored: it is based on an
/// older state.
pub(super) async fn put(session: &mut Session, damage: &DamageRecord) -> Result<()> {
    let sql = "INSERT INTO damage (path, error, found_by, found_at) SELECT path, $2, $3, $4 FROM file WHERE path = $1 AND doomed = 0
        ON CONFLICT (path) DO NOTHING";
    let values = values![damage.path.as_str(), damage.error.as_str(), damage.found_by.as_str(), damage.found_at];
    session.execute(sql, values).await.map(drop)
}

pub(super) async fn remove(session: &mut Session, path: &str) -> Result<()> {
    session.execute("DELETE FROM damage WHERE path = $1", values![path]).await.map(drop)
}

/// The same for several files, in one statement. `list` is a JSON array of their paths.
pub(super) async fn remove_all(session: &mut Session, list: &str) -> Result<()> {
    let sql = match session {
        Session::Sqlite(_) => "DELETE FROM damage WHERE path IN (SELECT value FROM json_each($1))",
        Session::Postgres(_) => "DELETE FROM damage WHERE path IN (SELECT json_array_elements_text($1::json))",
    };
    session.execute(sql, values![list]).await.map(drop)
}

fn record(row: &Row) -> Result<DamageRecord> {
    Ok(DamageRecord {
        path: row.text("path")?,
        error: row.text("error")?,
        found_by: row.text("found_by")?,
        found_at: row.integer("found_at")?,
    })
}
