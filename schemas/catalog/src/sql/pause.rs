//! Table `pause`: which sinks and alerts are paused.

use super::definition::kinds;
use super::session::{Row, Session, values};
use crate::{DefinitionKind, PauseRecord};
use types::Result;

pub(super) async fn all(session: &mut Session) -> Result<Vec<PauseRecord>> {
    let rows = session.rows("SELECT kind, name, since FROM pause ORDER BY kind, name", values![]).await?;
    rows.iter().map(record).collect()
}

/// One that is paused already stays so since then.
pub(super) async fn put(session: &mut Session, pause: &PauseRecord) -> Result<()> {
    forget_runner(session, pause.kind, &pause.name).await?;
    let sql = "INSERT INTO pause (kind, name, since) VALUES ($1, $2, $3) ON CONFLICT (kind, name) DO NOTHING";
    session.execute(sql, values![pause.kind.word(), &*pause.name, pause.since]).await.map(drop)
}

pub(super) async fn remove(session: &mut Session, kind: DefinitionKind, name: &str) -> Result<()> {
    forget_runner(session, kind, name).await?;
    let sql = "DELETE FROM pause WHERE kind = $1 AND name = $2";
    session.execute(sql, values![kind.word(), name]).await.map(drop)
}

/// An alert that is resumed does not continue where it stopped: what happened during its pause is not put out.
async fn forget_runner(session: &mut Session, kind: DefinitionKind, name: &str) -> Result<()> {
    match kind {
        DefinitionKind::Alert => session.execute("DELETE FROM alert_runner WHERE alert = $1", values![name]).await.map(drop),
        _ => Ok(()),
    }
}

fn record(row: &Row) -> Result<PauseRecord> {
    Ok(PauseRecord { kind: row.word("kind", &kinds())?, name: row.text("name")?.into(), since: row.integer("since")? })
}
