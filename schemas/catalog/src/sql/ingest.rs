//! Table `ingest`: how far `ingest` got in each file, so that a repeated run appends nothing twice.

use super::session::{Row, Session, values};
use crate::IngestRecord;
use types::Result;

/// The records whose fingerprint begins so. It has no `%` and no `_`.
pub(super) async fn beginning(session: &mut Session, stream: &str, prefix: &str) -> Result<Vec<IngestRecord>> {
    let sql = "SELECT stream, fingerprint, records_done, updated_at FROM ingest WHERE stream = $1 AND fingerprint LIKE $2";
    let pattern = format!("{prefix}%");
    session.rows(sql, values![stream, pattern.as_str()]).await?.iter().map(record).collect()
}

pub(super) async fn put(session: &mut Session, ingest: &IngestRecord) -> Result<()> {
    let sql = "INSERT INTO ingest (stream, fingerprint, records_done, updated_at) VALUES ($1, $2, $3, $4)
        ON CONFLICT (stream, fingerprint) DO UPDATE SET records_done = excluded.records_done, updated_at = excluded.updated_at";
    let values = values![&*ingest.stream, ingest.fingerprint.as_str(), ingest.records_done, ingest.updated_at];
    session.execute(sql, values).await.map(drop)
}

fn record(row: &Row) -> Result<IngestRecord> {
    Ok(IngestRecord {
        stream: row.text("stream")?.into(),
        fingerprint: row.text("fingerprint")?,
        records_done: row.integer("records_done")?,
        updated_at: row.integer("updated_at")?,
    })
}
