//! Restores partitions that are taken over: the position of each, and the ids of its last `dedup_within`, reread from
//! the archive.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, TimestampMicrosecondType};
use catalog::{Add, Advance, ArchiveBounds, CatalogState, CheckpointRange, Commit, GapRecord, PartitionRecord, archive_files};
use definitions::StreamDefinition;
use engine::events::canonical_text;
use event_log::PartitionBounds;
use futures::TryStreamExt;
use storage::{ObjectStorage, read_archive_since, read_archives_since};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use types::columns::{PARTITION, TIMESTAMP};
use types::files::FileRecord;
use types::tiles::{Micros, micros};
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

/// The offset at which a worker starts to read a partition.
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
pub(crate) fn gap_commit(id: Uuid, known: Option<&PartitionRecord>, gap: GapRecord, identity: &str) -> Commit {
    let advance = Advance {
        partition: gap.partition.clone(),
        start: gap.start,
        end: gap.end,
        log_identity: identity.to_owned(),
        clock: known.and_then(|known| known.clock),
        max_event_time: known.and_then(|known| known.max_event_time),
        complete_to: known.and_then(|known| known.complete_to),
    };
    Commit { id, add: vec![Add::Gap(gap)], advance: vec![advance], ..Commit::default() }
}

/// Returns the archive files of a stream that can hold events of these partitions whose records are of the given time
/// or later.
pub fn files_since<'s>(state: &'s CatalogState, stream: &Arc<str>, oldest: &BTreeMap<PartitionId, Micros>) -> Vec<&'s FileRecord> {
    let is_recent = |range: &CheckpointRange| oldest.get(&range.partition).is_some_and(|oldest| range.clock >= Some(*oldest));
    let recent: BTreeSet<Uuid> =
        state.checkpoints.iter().filter(|checkpoint| checkpoint.ranges.iter().any(is_recent)).map(|checkpoint| checkpoint.id).collect();
    let mut files = archive_files(state, std::slice::from_ref(stream), ArchiveBounds::default());
    files.retain(|file| file.checkpoint.is_some_and(|id| recent.contains(&id)));
    // Checkpoint order is roughly time order: ids of one time stay together, and expire together.
    files.sort_by_key(|file| file.checkpoint);
    files
}

/// Groups of files that are read at once: the next ones are decoded while the ids of one are remembered.
const GROUPS_AT_ONCE: usize = 4;
/// The most small files that are read together: reading one takes less time than handing it from thread to thread.
const FILES_TOGETHER: usize = 32;
/// The most bytes and rows that such files have together. A larger file is read alone, in parts.
const BYTES_TOGETHER: i64 = 1 << 20;
const ROWS_TOGETHER: i64 = 16_384;
/// Parts of a file that are decoded and wait.
const PARTS_AHEAD: usize = 2;

/// Passes the ids that were accepted within `dedup_within` of each partition's clock to its decider, as they are read.
/// All partitions are of this stream. A file is read once, however many of them have events in it.
pub(crate) async fn reread_ids(
    storage: &ObjectStorage,
    state: &CatalogState,
    stream: &StreamDefinition,
    deciders: &mut [(PartitionId, Decider)],
) -> Result<()> {
    let (Some(column), Some(within)) = (&stream.id, stream.dedup_within) else { return Ok(()) };
    let since = |(id, decider): &(PartitionId, Decider)| Some((id.clone(), decider.clock()?.saturating_sub(micros(within))));
    let oldest: BTreeMap<PartitionId, Micros> = deciders.iter().filter_map(since).collect();
    let mut remembering = Remembering { column, partitions: BTreeMap::new() };
    for (id, decider) in deciders {
        if let Some(oldest) = oldest.get(&*id) {
            remembering.partitions.insert(id.partition, (decider, *oldest));
        }
    }
    let columns = [column.clone(), PARTITION.to_owned(), TIMESTAMP.to_owned()];
    // Without a clock in any partition there is no file to read.
    let first = oldest.values().copied().min().unwrap_or(Micros::MAX);
    let mut groups = in_groups(files_since(state, &stream.name, &oldest)).into_iter();
    let mut reading = VecDeque::new();
    loop {
        while reading.len() < GROUPS_AT_ONCE
            && let Some(group) = groups.next()
        {
            reading.push_back(ReadAhead::begin(storage, group, &columns, first));
        }
        let Some(mut group) = reading.pop_front() else { return Ok(()) };
        while let Some(part) = group.next().await? {
            for (path, batch) in &part {
                remembering.rows(batch, path)?;
            }
        }
    }
}

/// Divides files into those that are read together, in their order.
fn in_groups(files: Vec<&FileRecord>) -> Vec<Vec<FileRecord>> {
    let mut groups: Vec<Vec<FileRecord>> = Vec::new();
    for file in files {
        match groups.last_mut() {
            Some(group) if group.len() < FILES_TOGETHER && are_small(group.iter().chain([file])) => group.push(file.clone()),
            _ => groups.push(vec![file.clone()]),
        }
    }
    groups
}

/// Whether files, all together, are small enough to be read whole.
fn are_small<'f>(files: impl Iterator<Item = &'f FileRecord>) -> bool {
    let (bytes, rows) = files.fold((0, 0), |(bytes, rows), file| (bytes + file.bytes, rows + file.rows));
    bytes <= BYTES_TOGETHER && rows <= ROWS_TOGETHER
}

/// The deciders to which the ids of archived rows are passed.
struct Remembering<'d> {
    /// The column of the ids.
    column: &'d str,
    /// The partitions by number, each with the time since which it remembers ids.
    partitions: BTreeMap<i32, (&'d mut Decider, Micros)>,
}

impl Remembering<'_> {
    fn rows(&mut self, batch: &RecordBatch, path: &str) -> Result<()> {
        let lacks = |name: &str| Error::corrupt("an archive file lacks a column").with("file", path).with("column", name);
        let ids = batch.column_by_name(self.column).ok_or_else(|| lacks(self.column))?;
        let (partitions, times) = (batch.column_by_name(PARTITION), batch.column_by_name(TIMESTAMP));
        let partitions = partitions.and_then(|column| column.as_primitive_opt::<Int32Type>()).ok_or_else(|| lacks(PARTITION))?;
        let times = times.and_then(|column| column.as_primitive_opt::<TimestampMicrosecondType>()).ok_or_else(|| lacks(TIMESTAMP))?;
        for row in 0..batch.num_rows() {
            let Some((decider, oldest)) = self.partitions.get_mut(&partitions.value(row)) else { continue };
            if times.value(row) >= *oldest
                && let Some(text) = canonical_text(ids, row)
            {
                decider.remember(&text, times.value(row))?;
            }
        }
        Ok(())
    }
}

/// Batches of rows, each with the path of its file.
type RereadRows = Vec<(Arc<str>, RecordBatch)>;

/// Archive files that a separate task reads a few parts ahead, skipping parts that are entirely from before a time.
struct ReadAhead {
    parts: mpsc::Receiver<RereadRows>,
    reading: AbortOnDropHandle<Result<()>>,
}

impl ReadAhead {
    fn begin(storage: &ObjectStorage, files: Vec<FileRecord>, columns: &[String], first: Micros) -> ReadAhead {
        let (send, parts) = mpsc::channel(PARTS_AHEAD);
        let (storage, columns) = (storage.clone(), columns.to_vec());
        let reading = tokio::spawn(async move {
            match files.as_slice() {
                [large] if !are_small(files.iter()) => send_parts(&storage, large, &columns, first, &send).await,
                small => {
                    let rows = read_archives_since(&storage, small, &columns, first).await?;
                    let paths = small.iter().map(|file| Arc::<str>::from(file.path.as_str()));
                    let part = paths.zip(rows).flat_map(|(path, rows)| rows.into_iter().map(move |batch| (path.clone(), batch)));
                    // Without a receiver they are not wanted.
                    let _ = send.send(part.collect()).await;
                    Ok(())
                }
            }
        });
        ReadAhead { parts, reading: AbortOnDropHandle::new(reading) }
    }

    /// Returns the next rows; `None` after the last ones. Fails if the files were not read to their end.
    async fn next(&mut self) -> Result<Option<RereadRows>> {
        match self.parts.recv().await {
            Some(part) => Ok(Some(part)),
            None => (&mut self.reading).await?.map(|()| None),
        }
    }
}

async fn send_parts(
    storage: &ObjectStorage,
    file: &FileRecord,
    columns: &[String],
    first: Micros,
    parts: &mpsc::Sender<RereadRows>,
) -> Result<()> {
    let path: Arc<str> = file.path.as_str().into();
    let mut rows = read_archive_since(storage, file, columns, first).await?;
    while let Some(batch) = rows.try_next().await? {
        // Without a receiver the rest is not wanted.
        if parts.send(vec![(path.clone(), batch)]).await.is_err() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
