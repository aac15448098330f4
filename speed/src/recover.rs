//! Taking over a partition: where it stands, and the ids of its last `dedup_within`, reread from the archive.

use std::collections::BTreeSet;

use arrow::array::AsArray;
use arrow::datatypes::{Int32Type, TimestampMicrosecondType};
use futures::TryStreamExt;
use schemas::catalog::{Add, Advance, Catalog, CatalogState, CheckpointRange, Commit, FileKind, FileRecord, GapRecord, PartitionRecord};
use schemas::definitions::StreamDefinition;
use schemas::events::{PARTITION, TIMESTAMP, canonical_text};
use schemas::log::PartitionBounds;
use schemas::storage::{ObjectStorage, read_archive};
use schemas::tiles::Micros;
use schemas::vector::{Offset, PartitionId};
use schemas::{Error, Result};
use uuid::Uuid;

use crate::decide::Decider;

/// Where to start a partition that the log bounds like this. `Err`: going on would lose records in silence.
pub fn start_of(known: Option<&PartitionRecord>, id: &PartitionId, identity: &str, bounds: &PartitionBounds) -> Result<Start> {
    let Some(known) = known else {
        return Ok(if bounds.begin > Offset::ZERO { Start::AfterGap(bounds.begin) } else { Start::At(Offset::ZERO) });
    };
    let refuse = |message: &str| {
        Err(Error::input(message)
            .with("partition", id)
            .with("committed", known.next_offset)
            .with("the log has", format!("{}..{}", bounds.begin, bounds.end)))
    };
    if !known.log_identity.is_empty() && known.log_identity != identity {
        return refuse(
            "the log is another one than the catalog's (the topic was made anew): expected the log that the committed offsets belong to",
        );
    }
    if known.next_offset > bounds.end {
        return refuse("the log is shorter than the catalog: records that were counted are gone from it");
    }
    if known.next_offset < bounds.begin {
        return refuse("the log expired past the committed offset: records were never read and are gone");
    }
    Ok(Start::At(known.next_offset))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    At(Offset),
    /// A partition read for the first time whose log no longer has its beginning: recorded as a gap.
    AfterGap(Offset),
}

/// Records that a partition was first read from `begin` on.
pub(crate) async fn record_gap(catalog: &Catalog, id: &PartitionId, begin: Offset, identity: &str, now: Micros) -> Result<()> {
    catalog.commit_with_retry(gap_commit(Uuid::now_v7(), id, begin, identity, now)).await.map(drop)
}

/// The commit that moves a partition which was never read to `begin`, and says so.
pub fn gap_commit(id: Uuid, partition: &PartitionId, begin: Offset, identity: &str, now: Micros) -> Commit {
    let gap = GapRecord {
        partition: partition.clone(),
        start: Offset::ZERO,
        end: begin,
        reason: "the log no longer had its beginning when the stream was first read".into(),
        accepted_at: now,
    };
    let advance = Advance {
        partition: partition.clone(),
        start: Offset::ZERO,
        end: begin,
        log_identity: identity.to_owned(),
        clock: None,
        max_event_time: None,
        complete_to: None,
    };
    Commit { id, add: vec![Add::Gap(gap)], advance: vec![advance], ..Commit::default() }
}

/// The archive files that can hold events of a partition whose records are of `oldest` or later.
pub fn files_since<'s>(state: &'s CatalogState, id: &PartitionId, oldest: Micros) -> Vec<&'s FileRecord> {
    let is_recent = |range: &CheckpointRange| range.partition == *id && range.clock.is_some_and(|clock| clock >= oldest);
    let recent: BTreeSet<Uuid> =
        state.checkpoints.iter().filter(|checkpoint| checkpoint.ranges.iter().any(is_recent)).map(|checkpoint| checkpoint.id).collect();
    let of_stream = |file: &&FileRecord| {
        file.kind == FileKind::Archive
            && file.subject.as_ref() == Some(&id.stream)
            && file.checkpoint.is_some_and(|id| recent.contains(&id))
    };
    // By checkpoint is by time, about: ids of one time stay together, and leave together.
    let mut files: Vec<&FileRecord> = state.files.iter().filter(of_stream).collect();
    files.sort_by_key(|file| file.checkpoint);
    files
}

/// Hands the ids that were accepted within `dedup_within` of the partition's clock to its decider, as they are read.
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
