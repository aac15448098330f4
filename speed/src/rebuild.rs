//! Decides the records of a checkpoint again, as the worker that committed it did, to rebuild a lost archive or
//! dead-letter file.
//!
//! The outcome of a record depends only on its partition's records up to it. So the records in the checkpoint's exact
//! ranges of the log, with the partition's values and the accepted ids before them, produce the same events again. If
//! any of these has changed, the counts differ and the result is refused.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use catalog::{CatalogState, CheckpointRange, CheckpointRecord};
use definitions::StreamDefinition;
use engine::events::{Decoder, EventBatchBuilder};
use event_log::{Fetched, Log, TopicPartition};
use storage::ObjectStorage;
use types::tiles::Micros;
use types::vector::{Offset, PartitionId};
use types::{Error, Result};

use crate::dead_letters::DeadLetters;
use crate::decide::{Decider, Decision, IdSpace};
use crate::partition_state::PartitionState;
use crate::recover::reread_ids;

/// Few records are read at a time, because each may be large.
const READ_RECORDS: usize = 1_024;
pub(crate) const BATCH_ROWS: usize = 32_768;
/// A batch also ends at about this size in memory.
pub(crate) const BATCH_BYTES: usize = 16 << 20;

/// Some of the outcomes of the records in a checkpoint's ranges of one stream, partition by partition in log order.
#[derive(Debug)]
pub enum Redecided {
    /// Accepted events.
    Events(RecordBatch),
    DeadLetters(RecordBatch),
}

/// Receives the outcomes batch by batch: those of a compacted checkpoint may be larger than memory.
#[async_trait]
pub trait TakeRedecided: Send {
    async fn take(&mut self, some: Redecided) -> Result<()>;
}

/// The inputs for deciding records again.
pub struct Redecide<'a> {
    pub storage: &'a ObjectStorage,
    pub log: &'a dyn Log,
    pub state: &'a CatalogState,
    /// The setting when the checkpoint was written.
    pub max_future: Duration,
    pub ids: &'a IdSpace,
}

/// A partition's values before an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ValuesBefore {
    pub(crate) clock: Option<Micros>,
    pub(crate) max_event_time: Option<Micros>,
}

impl Redecide<'_> {
    /// Reads the ranges that a checkpoint has of a stream, decides their records by `definition`, hands the outcomes to
    /// `to` and compares the counts with the recorded ones. The outcomes passed to `to` are valid only if this returns
    /// `Ok`.
    ///
    /// Errors: `NotFound` when the log no longer has a range, `Corrupt` when an archive file before it cannot be read
    /// or when the counts differ; they name partition and range.
    pub async fn stream(
        &self,
        definition: &Arc<StreamDefinition>,
        checkpoint: &CheckpointRecord,
        to: &mut dyn TakeRedecided,
    ) -> Result<()> {
        let decoder = Decoder::new(definition.clone())?;
        let mut ranges: Vec<&CheckpointRange> =
            checkpoint.ranges.iter().filter(|range| range.partition.stream == definition.name).collect();
        ranges.sort_by_key(|range| range.partition.partition);
        for range in ranges {
            let about = |error: Error| error.with("range", format_args!("{} {}..{}", range.partition, range.start, range.end));
            self.range(&decoder, range, to).await.map_err(about)?;
        }
        Ok(())
    }

    async fn range(&self, decoder: &Decoder, range: &CheckpointRange, to: &mut dyn TakeRedecided) -> Result<()> {
        let definition = decoder.definition();
        let before = values_before(self.state, &range.partition, range.start)?;
        let decider = Decider::new(before.clock, before.max_event_time, self.max_future, definition.dedup_within, self.ids);
        let earlier = checkpoints_before(self.state, &range.partition, range.start);
        let mut begun = [(range.partition.clone(), decider)];
        reread_ids(self.storage, &earlier, definition, &mut begun).await?;
        let [(id, decider)] = begun;
        let source = TopicPartition { topic: definition.topic.clone(), partition: range.partition.partition };
        let (mut open, mut dead_letters) = (EventBatchBuilder::new(definition), DeadLetters::default());
        let mut partition = PartitionState::new(id, String::new(), decider, range.start);
        while partition.position < range.end {
            let fetched = self.read(&source, partition.position, range.end).await?;
            partition.take(decoder, &fetched, |record, decision| {
                match decision {
                    Decision::Accept(event) => open.append(event, source.partition, record)?,
                    Decision::Duplicate => {}
                    Decision::DeadLetter(reason) => dead_letters.append(&source, record, reason),
                }
                Ok(())
            })?;
            let is_last = partition.position >= range.end;
            if open.len() >= BATCH_ROWS || open.bytes() >= BATCH_BYTES || (is_last && !open.is_empty()) {
                to.take(Redecided::Events(open.finish()?)).await?;
            }
            if dead_letters.bytes() >= BATCH_BYTES || (is_last && dead_letters.bytes() > 0) {
                to.take(Redecided::DeadLetters(dead_letters.finish()?)).await?;
            }
        }
        check_counts(range, &partition.range())
    }

    /// Reads records from `position` up to `end`.
    pub(crate) async fn read(&self, source: &TopicPartition, position: Offset, end: Offset) -> Result<Fetched> {
        let mut fetched = self.log.read(source, position, READ_RECORDS).await?;
        if fetched.position <= position {
            return Err(Error::not_found("the log ends within the range").with("offset", position));
        }
        fetched.records.retain(|record| record.offset < end);
        fetched.position = fetched.position.min(end);
        Ok(fetched)
    }
}

/// Returns the values of a partition at `start`, from the checkpoint that ends there (or before a gap that ends there).
pub(crate) fn values_before(state: &CatalogState, partition: &PartitionId, start: Offset) -> Result<ValuesBefore> {
    let ranges = state.checkpoints.iter().flat_map(|checkpoint| &checkpoint.ranges);
    let previous = ranges.filter(|range| range.partition == *partition && range.end <= start).max_by_key(|range| range.end);
    let end = previous.map_or(Offset::ZERO, |range| range.end);
    let is_gap = state.gaps.iter().any(|gap| gap.partition == *partition && gap.start <= end && start <= gap.end);
    if end != start && !is_gap {
        return Err(Error::not_found(
            "the catalog no longer holds the checkpoint before the range, without which its records cannot be decided",
        )
        .with("partition", partition)
        .with("offset", start));
    }
    Ok(previous.map(|range| ValuesBefore { clock: range.clock, max_event_time: range.max_event_time }).unwrap_or_default())
}

/// Returns the state as it was for this partition when its position was `start`.
pub(crate) fn checkpoints_before(state: &CatalogState, partition: &PartitionId, start: Offset) -> CatalogState {
    let is_before =
        |checkpoint: &&CheckpointRecord| checkpoint.ranges.iter().any(|range| range.partition == *partition && range.end <= start);
    CatalogState {
        checkpoints: state.checkpoints.iter().filter(is_before).cloned().collect(),
        files: state.files.clone(),
        ..CatalogState::default()
    }
}

pub(crate) fn check_counts(recorded: &CheckpointRange, found: &CheckpointRange) -> Result<()> {
    let counts = |range: &CheckpointRange| [range.archived, range.duplicate, range.dead_lettered, range.absent];
    let values = |range: &CheckpointRange| (range.clock, range.max_event_time);
    if counts(recorded) == counts(found) && values(recorded) == values(found) {
        return Ok(());
    }
    let shown = |range: &CheckpointRange| {
        let [archived, duplicate, dead, absent] = counts(range);
        format!(
            "{archived} archived, {duplicate} duplicate, {dead} dead-lettered, {absent} absent, clock {:?}, greatest event time {:?}",
            range.clock, range.max_event_time
        )
    };
    Err(Error::corrupt("the log's records do not reproduce what was committed: the log, the definition or speed.max_future has changed")
        .with("found", shown(found))
        .with("expected", shown(recorded)))
}

#[cfg(test)]
mod tests;
