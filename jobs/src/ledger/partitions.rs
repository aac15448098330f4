//! The ledger of partitions: compares the rows of archive and dead-letter files with the checkpoints' ranges.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, Int64Type};
use catalog::{CatalogState, CheckpointRange, CheckpointRecord, GapRecord};
use futures::TryStreamExt;
use serde::{Deserialize, Serialize};
use storage::{ObjectStorage, read_archive, read_dead_letters};
use types::columns::{OFFSET, PARTITION};
use types::files::{FileKind, FileRecord};
use types::tiles::Micros;
use types::vector::{Offset, PartitionId, Vector};
use types::{Error, Result};

use crate::output::{count_of, is_or_are};

/// One checkpoint's range in one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionLine {
    pub stream: Arc<str>,
    pub partition: i32,
    /// The checkpoint's id.
    pub checkpoint: String,
    pub committed_at: Micros,
    pub start: Offset,
    pub end: Offset,
    /// Rows of archive files with an offset in the range.
    pub archived: i64,
    /// Rows of dead-letter files with an offset in the range.
    pub dead_lettered: i64,
    /// As recorded by the checkpoint: these leave no row.
    pub duplicate: i64,
    pub absent: i64,
    /// What the checkpoint recorded, to compare with the counted rows.
    pub recorded_archived: i64,
    pub recorded_dead_lettered: i64,
    /// Rows that are recorded but gone, and that were accepted as lost.
    #[serde(default)]
    pub lost: i64,
    /// Why they are lost.
    #[serde(default)]
    pub gap: Option<String>,
    /// Why the line does not balance; `None` if it does.
    pub mismatch: Option<String>,
}

/// Returns a line for each partition of each checkpoint that is not entirely before `since`, ordered by partition and
/// offset.
pub async fn partitions(storage: &ObjectStorage, state: &CatalogState, since: &Vector) -> Result<Vec<PartitionLine>> {
    let checkpoints = || state.checkpoints.iter().filter(|checkpoint| !checkpoint.is_within(since));
    let mut counts = Counts::new(checkpoints());
    for file in state.files.iter().filter(|file| !file.marked_for_deletion && is_asked_for(file, state, since)) {
        match file.kind {
            FileKind::Archive => counts.archive(storage, file).await?,
            FileKind::DeadLetters => counts.dead_letters(storage, file).await?,
            _ => {}
        }
    }
    let mut lines: Vec<PartitionLine> =
        checkpoints().flat_map(|checkpoint| checkpoint.ranges.iter().map(|range| counts.line(checkpoint, range, &state.gaps))).collect();
    lines.sort_by(|a, b| (&a.stream, a.partition, a.start).cmp(&(&b.stream, b.partition, b.start)));
    note_breaks(&mut lines, state);
    counts.note_strays(&mut lines);
    Ok(lines)
}

/// Returns whether a file is read. Files of checkpoints entirely before `since` are not; a file with an unknown
/// checkpoint is.
fn is_asked_for(file: &FileRecord, state: &CatalogState, since: &Vector) -> bool {
    let checkpoint = file.checkpoint.and_then(|id| state.checkpoints.get(id));
    checkpoint.is_none_or(|checkpoint| !checkpoint.is_within(since))
}

/// Notes where ranges do not follow one another without gap or overlap, up to the committed vector. Gaps that were
/// accepted are allowed.
fn note_breaks(lines: &mut [PartitionLine], state: &CatalogState) {
    for index in 0..lines.len() {
        let id = PartitionId::new(lines[index].stream.clone(), lines[index].partition);
        let next = lines.get(index + 1).filter(|next| next.stream == id.stream && next.partition == id.partition);
        let follows = next.map_or_else(|| state.vector().get(&id), |next| next.start);
        let end = lines[index].end;
        let is_accepted = state.gaps.iter().any(|gap| gap.partition == id && gap.start <= end && follows <= gap.end);
        if follows != end && !is_accepted {
            lines[index].note(format!("the range ends at {end}, and what follows begins at {follows}"));
        }
    }
}

/// What was counted of a range.
#[derive(Clone, Copy)]
struct CountedRange {
    end: Offset,
    archived: i64,
    dead_lettered: i64,
}

/// Row counts by range.
struct Counts {
    /// By partition and the range's start.
    ranges: BTreeMap<PartitionId, BTreeMap<Offset, CountedRange>>,
    /// Offsets of rows outside every range.
    strays: BTreeMap<PartitionId, Vec<Offset>>,
}

impl Counts {
    fn new<'a>(checkpoints: impl Iterator<Item = &'a CheckpointRecord>) -> Self {
        let mut ranges: BTreeMap<PartitionId, BTreeMap<Offset, CountedRange>> = BTreeMap::new();
        for range in checkpoints.flat_map(|checkpoint| &checkpoint.ranges).filter(|range| range.start < range.end) {
            let counted = CountedRange { end: range.end, archived: 0, dead_lettered: 0 };
            ranges.entry(range.partition.clone()).or_default().insert(range.start, counted);
        }
        Self { ranges, strays: BTreeMap::new() }
    }

    async fn archive(&mut self, storage: &ObjectStorage, file: &FileRecord) -> Result<()> {
        let columns = [PARTITION.to_owned(), OFFSET.to_owned()];
        let mut batches = read_archive(storage, file, Some(&columns)).await?;
        while let Some(batch) = batches.try_next().await? {
            self.count(file, &batch, [PARTITION, OFFSET], |counted| counted.archived += 1)?;
        }
        Ok(())
    }

    async fn dead_letters(&mut self, storage: &ObjectStorage, file: &FileRecord) -> Result<()> {
        let mut batches = read_dead_letters(storage, file).await?;
        while let Some(batch) = batches.try_next().await? {
            self.count(file, &batch, ["partition", "offset"], |counted| counted.dead_lettered += 1)?;
        }
        Ok(())
    }

    /// Counts a file's rows, by the columns with their partitions and offsets.
    fn count(
        &mut self,
        file: &FileRecord,
        batch: &RecordBatch,
        [partition, offset]: [&str; 2],
        add: impl Fn(&mut CountedRange),
    ) -> Result<()> {
        let wrong = |what: &str| Error::corrupt(format!("a file has no column {what}")).with("file", &file.path);
        let partitions =
            batch.column_by_name(partition).and_then(|column| column.as_primitive_opt::<Int32Type>()).ok_or_else(|| wrong(partition))?;
        let offsets =
            batch.column_by_name(offset).and_then(|column| column.as_primitive_opt::<Int64Type>()).ok_or_else(|| wrong(offset))?;
        let stream = file.subject.clone().ok_or_else(|| Error::corrupt("a file of a stream names none").with("file", &file.path))?;
        let mut id = PartitionId::new(stream, 0);
        for (partition, offset) in partitions.values().iter().zip(offsets.values()) {
            id.partition = *partition;
            let offset = Offset(*offset);
            let range = self.ranges.get_mut(&id).and_then(|ranges| ranges.range_mut(..=offset).next_back());
            match range.filter(|(_, counted)| offset < counted.end) {
                Some((_, counted)) => add(counted),
                None => self.strays.entry(id.clone()).or_default().push(offset),
            }
        }
        Ok(())
    }

    fn line(&self, checkpoint: &CheckpointRecord, range: &CheckpointRange, gaps: &[GapRecord]) -> PartitionLine {
        let counted = self.ranges.get(&range.partition).and_then(|ranges| ranges.get(&range.start));
        let (archived, dead_lettered) = counted.map_or((0, 0), |counted| (counted.archived, counted.dead_lettered));
        let mut line = PartitionLine {
            stream: range.partition.stream.clone(),
            partition: range.partition.partition,
            checkpoint: checkpoint.id.to_string(),
            committed_at: checkpoint.committed_at,
            start: range.start,
            end: range.end,
            archived,
            dead_lettered,
            duplicate: range.duplicate,
            absent: range.absent,
            recorded_archived: range.archived,
            recorded_dead_lettered: range.dead_lettered,
            lost: 0,
            gap: gaps.iter().find(|gap| covers(gap, range)).map(|gap| gap.reason.clone()),
            mismatch: None,
        };
        line.balance();
        line
    }

    /// Notes rows after the first range that are in no range: they were never committed. (The checkpoints of older rows
    /// are no longer kept.)
    fn note_strays(&self, lines: &mut [PartitionLine]) {
        for (id, offsets) in &self.strays {
            let Some(first) = self.ranges.get(id).and_then(|ranges| ranges.first_key_value()).map(|(start, _)| start) else { continue };
            let strays: Vec<&Offset> = offsets.iter().filter(|offset| *offset >= first).collect();
            let Some(lowest) = strays.iter().min() else { continue };
            let before = |line: &&mut PartitionLine| line.stream == id.stream && line.partition == id.partition && line.start <= **lowest;
            if let Some(line) = lines.iter_mut().rfind(before) {
                let (rows, verb) = (count_of(strays.len(), "row"), is_or_are(strays.len()));
                line.note(format!("{rows} from offset {lowest} on {verb} in no checkpoint's range"));
            }
        }
    }
}

/// Returns true if a whole range was accepted as lost.
fn covers(gap: &GapRecord, range: &CheckpointRange) -> bool {
    gap.partition == range.partition && gap.start <= range.start && range.end <= gap.end && range.start < range.end
}

impl PartitionLine {
    pub fn is_balanced(&self) -> bool {
        self.mismatch.is_none()
    }

    fn balance(&mut self) {
        if self.gap.is_some() {
            // A file is lost as a whole: all of its rows in a range, or none.
            self.lost = [(self.archived, self.recorded_archived), (self.dead_lettered, self.recorded_dead_lettered)]
                .into_iter()
                .filter(|(found, _)| *found == 0)
                .map(|(_, recorded)| recorded)
                .sum();
        }
        let offsets = self.end.0 - self.start.0;
        let accounted = self.archived + self.duplicate + self.dead_lettered + self.absent + self.lost;
        if offsets != accounted {
            self.note(format!("{}, but {accounted} archived, duplicate, dead-lettered and absent", count_of(offsets, "offset")));
        }
        let is_lost = |found: i64| self.gap.is_some() && found == 0;
        let (archived_lost, dead_lost) = (is_lost(self.archived), is_lost(self.dead_lettered));
        if self.archived != self.recorded_archived && !archived_lost {
            self.note(format!("{} archived, recorded {}", count_of(self.archived, "row"), self.recorded_archived));
        }
        if self.dead_lettered != self.recorded_dead_lettered && !dead_lost {
            self.note(format!("{} dead-lettered, recorded {}", count_of(self.dead_lettered, "row"), self.recorded_dead_lettered));
        }
    }

    fn note(&mut self, found: String) {
        self.mismatch = Some(match self.mismatch.take() {
            Some(known) => format!("{known}; {found}"),
            None => found,
        });
    }
}

#[cfg(test)]
mod tests;
