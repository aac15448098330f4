//! Table `gap`: offsets that a person accepted as lost.

use super::session::{Row, Session, values};
use crate::GapRecord;
use types::Result;
use types::vector::{Offset, PartitionId};

pub(super) async fn all(session: &mut Session) -> Result<Vec<GapRecord>> {
    let sql = "SELECT stream, partition, start_offset, end_offset, reason, accepted_at FROM gap ORDER BY stream, partition, start_offset";
    session.rows(sql, values![]).await?.iter().map(record).collect()
}

pub(super) async fn put(session: &mut Session, gap: &GapRecord) -> Result<()> {
    let sql = "INSERT INTO gap (stream, partition, start_offset, end_offset, reason, accepted_at) VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (stream, partition, start_offset) DO UPDATE SET end_offset = excluded.end_offset, reason = excluded.reason,
            accepted_at = excluded.accepted_at";
    let partition = &gap.partition;
    let values = values![&*partition.stream, partition.partition, gap.start.0, gap.end.0, gap.reason.as_str(), gap.accepted_at];
    session.execute(sql, values).await.map(drop)
}

fn record(row: &Row) -> Result<GapRecord> {
    Ok(GapRecord {
        partition: PartitionId::new(row.text("stream")?, row.number("partition")?),
        start: Offset(row.integer("start_offset")?),
        end: Offset(row.integer("end_offset")?),
        reason: row.text("reason")?,
        accepted_at: row.integer("accepted_at")?,
    })
}
