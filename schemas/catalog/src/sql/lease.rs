//! Table `lease`: named rights that expire, and what their holders need to be kept.

use super::session::{Row, Session, values};
use crate::LeaseRecord;
use types::Result;

pub(super) async fn all(session: &mut Session) -> Result<Vec<LeaseRecord>> {
    let sql = "SELECT name, owner, epoch, expires_at, pin FROM lease ORDER BY name";
    session.rows(sql, values![]).await?.iter().map(record).collect()
}

pub(super) async fn get(session: &mut Session, name: &str) -> Result<Option<LeaseRecord>> {
    let sql = "SELECT name, owner, epoch, expires_at, pin FROM lease WHERE name = $1";
    session.row(sql, values![name]).await?.as_ref().map(record).transpose()
}

/// Those whose names begin with `prefix`. PostgreSQL has no `substr` that takes a BIGINT, as integers are bound.
pub(super) async fn with_prefix(session: &mut Session, prefix: &str) -> Result<Vec<LeaseRecord>> {
    let sql = "SELECT name, owner, epoch, expires_at, pin FROM lease WHERE substr(name, 1, length($1)) = $1 ORDER BY name";
    session.rows(sql, values![prefix]).await?.iter().map(record).collect()
}

pub(super) async fn put(session: &mut Session, lease: &LeaseRecord) -> Result<()> {
    let sql = "INSERT INTO lease (name, owner, epoch, expires_at, pin) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, epoch = excluded.epoch, expires_at = excluded.expires_at,
            pin = excluded.pin";
    let values = values![lease.name.as_str(), lease.owner.as_str(), lease.epoch, lease.expires_at, lease.pin.as_ref()];
    session.execute(sql, values).await.map(drop)
}

/// Deletes the lease if `owner` holds it.
pub(super) async fn remove(session: &mut Session, name: &str, owner: &str) -> Result<()> {
    session.execute("DELETE FROM lease WHERE name = $1 AND owner = $2", values![name, owner]).await.map(drop)
}

fn record(row: &Row) -> Result<LeaseRecord> {
    Ok(LeaseRecord {
        name: row.text("name")?,
        owner: row.text("owner")?,
        epoch: row.integer("epoch")?,
        expires_at: row.integer("expires_at")?,
        pin: row.parse_or_null("pin")?,
    })
}
