//! Table `replay`: which dead letters were appended to the log again.

use super::session::{Row, Session, values};
use crate::ReplayedDeadLetters;
use types::Result;
use types::vector::{Offset, PartitionId};

pub(super) async fn of_stream(session: &mut Session, stream: &str) -> Result<Vec<ReplayedDeadLetters>> {
    let sql = "SELECT stream, partition, start_offset, end_offset, replayed_at FROM replay
        WHERE stream = $1 ORDER BY partition, start_offset";
    session.rows(sql, values![stream]).await?.iter().map(record).collect()
}

/// Stores a range. If a known range begins at the same offset, the longer of the two is kept.
pub(super) async fn put(session: &mut Session, replay: &ReplayedDeadLetters) -> Result<()> {
    let sql = "INSERT INTO replay (stream, partition, start_offset, end_offset, replayed_at) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (stream, partition, start_offset) DO UPDATE SET replayed_at = excluded.replayed_at,
            end_offset = CASE WHEN replay.end_offset > excluded.end_offset THEN replay.end_offset ELSE excluded.end_offset END";
    let partition = &replay.partition;
    let values = values![&*partition.stream, partition.partition, replay.start.0, replay.end.0, replay.replayed_at];
    session.execute(sql, values).await.map(drop)
}

fn record(row: &Row) -> Result<ReplayedDeadLetters> {
    Ok(ReplayedDeadLetters {
        partition: PartitionId::new(row.text("stream")?, row.number("partition")?),
        start: Offset(row.integer("start_offset")?),
        end: Offset(row.integer("end_offset")?),
        replayed_at: row.integer("replayed_at")?,
    })
}
