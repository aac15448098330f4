//! Recognises a log by the last record that was read from it. A topic that was recreated under its name, or whose end
//! was lost and written again, has another record at that offset (or none).

use crc32fast::Hasher;

use crate::{Log, PartitionBounds, TopicPartition};
use types::record::MarkRecord;
use types::record::Record;
use types::vector::PartitionId;
use types::{Error, ErrorKind, Result};

/// Returns the mark of a record.
pub fn mark_of(partition: &PartitionId, record: &Record) -> MarkRecord {
    MarkRecord { partition: partition.clone(), offset: record.offset, timestamp: record.timestamp, checksum: checksum(record) }
}

/// Refuses a log that has another record at the mark's offset.
///
/// A record that expired, was compacted away or is damaged proves nothing, and is accepted: it is counted, and is not
/// read again. Errors: `Input` with partition and offset; `Unavailable` when the log does not answer.
pub async fn check_mark(log: &dyn Log, source: &TopicPartition, mark: &MarkRecord, bounds: &PartitionBounds) -> Result<()> {
    if mark.offset < bounds.begin || mark.offset >= bounds.end {
        return Ok(());
    }
    let fetched = match log.read(source, mark.offset, 1).await {
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            tracing::warn!(%error, "the last committed record is damaged in the log, which is not recognised by it");
            return Ok(());
        }
        fetched => fetched?,
    };
    let Some(found) = fetched.records.first().filter(|record| record.offset == mark.offset) else { return Ok(()) };
    if found.timestamp == mark.timestamp && checksum(found) == mark.checksum {
        return Ok(());
    }
    let shown = |timestamp, checksum| format!("timestamp {timestamp}, checksum {checksum:08x}");
    Err(Error::input(
        "the record at the last committed offset is not the one that was committed: the topic was recreated, or the \
         end of the log was lost and written again",
    )
    .with("partition", &mark.partition)
    .with("offset", mark.offset)
    .with("found", shown(found.timestamp, checksum(found)))
    .with("expected", shown(mark.timestamp, mark.checksum)))
}

/// Returns the checksum of key, value and headers. Each comes with its length, so that no two records read alike.
fn checksum(record: &Record) -> u32 {
    let mut hasher = Hasher::new();
    let mut part = |bytes: Option<&[u8]>| {
        hasher.update(&bytes.map_or(-1, |bytes| bytes.len() as i64).to_le_bytes());
        hasher.update(bytes.unwrap_or_default());
    };
    part(record.key.as_deref());
    part(record.value.as_deref());
    for (name, value) in &record.headers {
        part(Some(name.as_bytes()));
        part(Some(value));
    }
    hasher.finalize()
}

#[cfg(test)]
mod tests;
