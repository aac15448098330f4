//! Table `ingest`: how far `ingest` got in each file, so that a repeated run appends nothing twice.

use super::session::{Row, Session, values};
use crate::IngestRecord;
use types::Result;

/// The records of a stream whose fingerprint is `$2`, or begins so and goes on with `-`. They are a range of the
/// primary key in every collation: `-` comes before `z`, or is ignored before letters that do.
pub(super) const BEGINNING: &str = "SELECT stream, fingerprint, records_done, updated_at FROM ingest
    WHERE stream = $1 AND fingerprint >= $2 AND fingerprint < $2 || 'z' AND substr(fingerprint, 1, length($2)) = $2";

/// The records whose fingerprint begins with a whole word of it.
pub(super) async fn beginning(session: &mut Session, stream: &str, prefix: &str) -> Result<Vec<IngestRecord>> {
    session.rows(BEGINNING, values![stream, prefix]).await?.iter().map(record).collect()
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
