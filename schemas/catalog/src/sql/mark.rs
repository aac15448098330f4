//! Table `mark`: the last record before each partition's position, which identifies its log.

use std::collections::BTreeMap;

use super::session::{Row, Session, values};
use types::Result;
use types::record::MarkRecord;
use types::vector::{Offset, PartitionId};

pub(super) async fn all(session: &mut Session) -> Result<BTreeMap<PartitionId, MarkRecord>> {
    let rows = session.rows("SELECT stream, partition, record_offset, record_timestamp, checksum FROM mark", values![]).await?;
    rows.iter().map(|row| record(row).map(|mark| (mark.partition.clone(), mark))).collect()
}

pub(super) async fn put(session: &mut Session, mark: &MarkRecord) -> Result<()> {
    let sql = "INSERT INTO mark (stream, partition, record_offset, record_timestamp, checksum) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (stream, partition) DO UPDATE SET record_offset = excluded.record_offset,
            record_timestamp = excluded.record_timestamp, checksum = excluded.checksum";
    let values = values![&*mark.partition.stream, mark.partition.partition, mark.offset.0, mark.timestamp, mark.checksum];
    session.execute(sql, values).await.map(drop)
}

fn record(row: &Row) -> Result<MarkRecord> {
    Ok(MarkRecord {
        partition: PartitionId::new(row.text("stream")?, row.number("partition")?),
        offset: Offset(row.integer("record_offset")?),
        timestamp: row.integer("record_timestamp")?,
        checksum: row.number("checksum")?,
    })
}
