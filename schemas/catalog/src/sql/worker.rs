//! Table `worker`: the processes whose workers offer their fresh layers.

use std::time::Duration;

use super::session::{Row, Session, values};
use crate::WorkerRecord;
use types::Result;
use types::tiles::Micros;

/// How long a process that died is still listed after its registration expired.
const LISTED: Duration = Duration::from_secs(60 * 60);

pub(super) async fn all(session: &mut Session) -> Result<Vec<WorkerRecord>> {
    let sql = "SELECT name, address, epoch, expires_at FROM worker ORDER BY name";
    session.rows(sql, values![]).await?.iter().map(record).collect()
}

/// Stores a registration, and forgets those that expired long before it does.
pub(super) async fn put(session: &mut Session, worker: &WorkerRecord) -> Result<()> {
    let sql = "INSERT INTO worker (name, address, epoch, expires_at) VALUES ($1, $2, $3, $4)
        ON CONFLICT (name) DO UPDATE SET address = excluded.address, epoch = excluded.epoch, expires_at = excluded.expires_at";
    session.execute(sql, values![worker.name.as_str(), worker.address.as_str(), worker.epoch, worker.expires_at]).await?;
    let forgotten = worker.expires_at.saturating_sub(LISTED.as_micros() as Micros);
    session.execute("DELETE FROM worker WHERE expires_at < $1", values![forgotten]).await.map(drop)
}

pub(super) async fn remove(session: &mut Session, name: &str) -> Result<()> {
    session.execute("DELETE FROM worker WHERE name = $1", values![name]).await.map(drop)
}

fn record(row: &Row) -> Result<WorkerRecord> {
    Ok(WorkerRecord {
        name: row.text("name")?,
        address: row.text("address")?,
        epoch: row.integer("epoch")?,
        expires_at: row.integer("expires_at")?,
    })
}
