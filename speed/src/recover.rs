//! Restores a partition that is taken over: its position, and the ids of its last `dedup_within`, reread from the
//! archive.

use std::collections::BTreeSet;

use arrow::array::AsArray;
use arrow::datatypes::{Int32Type, TimestampMicrosecondType};
use catalog::{Add, Advance, ArchiveBounds, CatalogState, CheckpointRange, Commit, GapRecord, PartitionRecord, archive_files};
use definitions::StreamDefinition;
use engine::events::canonical_text;
use event_log::PartitionBounds;
use futures::TryStreamExt;
use storage::{ObjectStorage, read_archive};
use types::columns::{PARTITION, TIMESTAMP};
use types::files::FileRecord;
use types::tiles::Micros;
use types::vector::{Offset, PartitionId};
use types::{Error, Result};
use uuid::Uuid;

use crate::decide::Decider;

/// Decides where to start a partition for which the log has these bounds. `Err`: continuing would silently lose
/// records.
///
/// With `accept_gap`, a log that expired past the committed offset is continued after the gap. So is a different log
/// whose offsets are all at or after the committed one. A log that has other records at archived offsets is never
/// continued: rows are chosen by partition and offset.
pub fn start_of(
    known: Option<&PartitionRecord>,
    id: &PartitionId,
    identity: &str,
    bounds: &PartitionBounds,
    accept_gap: bool,
) -> Result<Start> {
    let gap = |start: Offset, reason: String| Start::AfterGap { start, end: bounds.begin, reason };
    let Some(known) = known else {
        let reason = "the log no longer had its beginning when the stream was first read".into();
        return Ok(if bounds.begin > Offset::ZERO { gap(Offset::ZERO, reason) } else { Start::At(Offset::ZERO) });
    };
    let committed = known.next_offset;
    let refuse = |message: &str, help: String| {
        Err(Error::input(message)
            .with("partition", id)
            .with("committed", committed)
            .with("the log has", format!("{}..{}", bounds.begin, bounds.end))
            .with("help", help))
    };
    let lost = format!("offsets {committed}..{} of {id} as lost", bounds.begin);
    if !known.log_identity.is_empty() && known.log_identity != identity {
        let message = "the log is not the one that the catalog knows (the topic was recreated): expected the log that \
            the committed offsets belong to";
        return match (bounds.begin >= committed, accept_gap) {
            (true, true) => Ok(gap(committed, format!("the log {} was replaced by {identity}", known.log_identity))),
            (true, false) => {
                refuse(message, format!("point log.url at the right log; or `--accept-gap` continues with this one and records {lost}"))
            }
            (false, _) => refuse(message, OTHER_RECORDS.into()),
        };
    }
    if committed > bounds.end {
        return refuse("the log is shorter than the catalog expects: records that were counted are missing", OTHER_RECORDS.into());
    }
    if committed < bounds.begin {
        return match accept_gap {
            true => Ok(gap(committed, "the log expired before its records were read".into())),
            false => refuse(
                "the log expired past the committed offset: records were deleted before they were read",
                format!("`--accept-gap` continues and records {lost}"),
            ),
        };
    }
    Ok(Start::At(committed))
}

/// Why `--accept-gap` does not continue with a log that begins anew below the committed offset.
pub(crate) const OTHER_RECORDS: &str = "restore the log, or point log.url at the right one; or define the stream \
    under a new name on this topic. `--accept-gap` \
    does not help: other records of this log would have the offsets of archived records";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    At(Offset),
    /// After offsets that the log does not have; they are recorded as a gap.
    AfterGap {
        start: Offset,
        end: Offset,
        reason: String,
    },
}

/// Returns the commit that moves a partition over a gap. The partition's clock does not move, as nothing was read.
pub(crate) fn gap_commit(
    id: Uuid,
    known: Option<&PartitionRecord>,
    partition: &PartitionId,
    (start, end): (Offset, Offset),
    reason: String,
    identity: &str,
    now: Micros,
) -> Commit {
    let gap = GapRecord { partition: partition.clone(), start, end, reason, accepted_at: now };
    let advance = Advance {
        partition: partition.clone(),
        start,
        end,
        log_identity: identity.to_owned(),
        clock: known.and_then(|known| known.clock),
        max_event_time: known.and_then(|known| known.max_event_time),
        complete_to: known.and_then(|known| known.complete_to),
    };
    Commit { id, add: vec![Add::Gap(gap)], advance: vec![advance], ..Commit::default() }
}

/// Returns the archive files that can hold events of a partition whose records are of `oldest` or later.
pub fn files_since<'s>(state: &'s CatalogState, id: &PartitionId, oldest: Micros) -> Vec<&'s FileRecord> {
    let is_recent = |range: &CheckpointRange| range.partition == *id && range.clock.is_some_and(|clock| clock >= oldest);
    let recent: BTreeSet<Uuid> =
        state.checkpoints.iter().filter(|checkpoint| checkpoint.ranges.iter().any(is_recent)).map(|checkpoint| checkpoint.id).collect();
    let mut files = archive_files(state, std::slice::from_ref(&id.stream), ArchiveBounds::default());
    files.retain(|file| file.checkpoint.is_some_and(|id| recent.contains(&id)));
    // Checkpoint order is roughly time order: ids of one time stay together, and expire together.
    files.sort_by_key(|file| file.checkpoint);
    files
}

/// Passes the ids that were accepted within `dedup_within` of the partition's clock to its decider, as they are read.
pub(crate) async fn reread_ids(
    storage: &ObjectStorage,
    state: &CatalogState,
    stream: &StreamDefinition,
    id: &PartitionId,
    decider: &mut Decider,
) -> Result<()> {
    let (Some(column), Some(within), Some(clock)) = (&stream.id, stream.dedup_within, decider.clock()) else { return Ok(()) };
    let oldest = clock.saturating_sub(i64::try_from(within.as_micros()).unwrap_or(i64::MAX));
    for file in files_since(state, id, oldest) {
        let columns = [column.clone(), PARTITION.to_owned(), TIMESTAMP.to_owned()];
        let mut batches = read_archive(storage, file, Some(&columns)).await?;
        while let Some(batch) = batches.try_next().await? {
            let lacks = |name: &str| Error::corrupt("an archive file lacks a column").with("file", &file.path).with("column", name);
            let ids = batch.column_by_name(column).ok_or_else(|| lacks(column))?;
            let partitions =
                batch.column_by_name(PARTITION).and_then(|c| c.as_primitive_opt::<Int32Type>()).ok_or_else(|| lacks(PARTITION))?;
            let times = batch
                .column_by_name(TIMESTAMP)
                .and_then(|c| c.as_primitive_opt::<TimestampMicrosecondType>())
                .ok_or_else(|| lacks(TIMESTAMP))?;
            for row in 0..batch.num_rows() {
                if partitions.value(row) == id.partition
                    && times.value(row) >= oldest
                    && let Some(text) = canonical_text(ids, row)
                {
                    decider.remember(&text, times.value(row))?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
