//! Reads checkpoints' records from the log again and decides them as the workers did that committed them: the events
//! that a view's states are computed from when it is replayed.
//!
//! Unlike the rebuild of a file (`rebuild`), a replay reads the log once: a partition's clock and ids are carried over
//! from one checkpoint to the next. The counts of each range are compared with the committed ones, so that a replay
//! never counts other events than the checkpoints do.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use catalog::{CatalogState, CheckpointRange, CheckpointRecord, DefinitionKind, archive_file_of};
use definitions::{StreamDefinition, parse};
use engine::events::{Decoder, EventBatchBuilder, OnMisfit, RedecodedEvents, Redecoder};
use event_log::{Log, TopicPartition};
use storage::{ArchiveVersions, ObjectStorage, archive_facts};
use types::vector::PartitionId;
use types::{Error, Result};

use crate::decide::{Decider, Decision, IdSpace};
use crate::partition_state::PartitionState;
use crate::rebuild::{BATCH_BYTES, BATCH_ROWS, Redecide, check_counts, checkpoints_before, values_before};
use crate::recover::reread_ids;

/// One pass over the log.
pub struct Replay<'a> {
    context: Redecide<'a>,
    /// The state of each partition after the last checkpoint, and the version that decided its records.
    carried: BTreeMap<PartitionId, (u32, PartitionState)>,
    open: Option<Open>,
}

/// The ranges that a checkpoint has of a stream, as far as they are not read yet.
struct Open {
    decided_by: u32,
    decoder: Decoder,
    /// Decodes the events again by the version in which the archive has them, if that is another one.
    redecoder: Option<Redecoder>,
    events: EventBatchBuilder,
    ranges: VecDeque<CheckpointRange>,
}

impl<'a> Replay<'a> {
    /// Creates a pass over the log. `ids`: the memory and files for the ids of records.
    pub fn new(storage: &'a ObjectStorage, log: &'a dyn Log, state: &'a CatalogState, max_future: Duration, ids: &'a IdSpace) -> Self {
        let context = Redecide { storage, log, state, max_future, ids };
        Self { context, carried: BTreeMap::new(), open: None }
    }

    /// Begins with the records that a checkpoint has of a stream. If the checkpoint's archive has no event of the
    /// stream, none counts: none was accepted, or all were given up or expired.
    pub async fn begin(&mut self, stream: &str, checkpoint: &CheckpointRecord) -> Result<()> {
        self.open = None;
        let Some(versions) = self.versions(stream, checkpoint).await? else { return Ok(()) };
        let decided = self.definition(stream, versions.decided_by)?;
        let redecoder = match versions.decoded_by == versions.decided_by {
            true => None,
            false => Some(Redecoder::new(&decided, &self.definition(stream, versions.decoded_by)?, OnMisfit::Null)),
        };
        // Only what is decoded again needs the raw records.
        let definition = Arc::new(StreamDefinition { keep_raw: decided.keep_raw && redecoder.is_some(), ..decided });
        let mut ranges: Vec<_> = checkpoint.ranges.iter().filter(|range| &*range.partition.stream == stream).cloned().collect();
        ranges.sort_by_key(|range| range.partition.partition);
        self.open = Some(Open {
            decided_by: versions.decided_by,
            events: EventBatchBuilder::new(&definition),
            decoder: Decoder::new(definition)?,
            redecoder,
            ranges: ranges.into(),
        });
        Ok(())
    }

    /// Returns the next accepted events, with the columns of the version in which the archive has them; `None` after
    /// the last.
    ///
    /// Errors: `NotFound` when the log no longer has the records, `Corrupt` when they are not what was committed; they
    /// name partition and range.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(mut open) = self.open.take() else { return Ok(None) };
        while let Some(range) = open.ranges.front().cloned() {
            let about = |error: Error| error.with("range", format_args!("{} {}..{}", range.partition, range.start, range.end));
            if self.read_some(&mut open, &range).await.map_err(about)? {
                open.ranges.pop_front();
            }
            if open.events.len() >= BATCH_ROWS || open.events.bytes() >= BATCH_BYTES {
                let batch = open.batch()?;
                self.open = Some(open);
                return Ok(Some(batch));
            }
        }
        if open.events.is_empty() { Ok(None) } else { open.batch().map(Some) }
    }

    /// Reads and decides records of a range; true once it is at the range's end.
    async fn read_some(&mut self, open: &mut Open, range: &CheckpointRange) -> Result<bool> {
        let definition = open.decoder.definition().clone();
        let source = TopicPartition { topic: definition.topic.clone(), partition: range.partition.partition };
        let mut partition = match self.carried.remove(&range.partition) {
            Some((version, partition)) if version == open.decided_by && partition.start == range.start => partition,
            _ => self.taken_over(&definition, range).await?,
        };
        if partition.position < range.end {
            let fetched = self.context.read(&source, partition.position, range.end).await?;
            let events = &mut open.events;
            partition.take(&open.decoder, &fetched, |record, decision| match decision {
                Decision::Accept(event) => events.append(event, source.partition, record),
                Decision::Duplicate | Decision::DeadLetter(_) => Ok(()),
            })?;
        }
        let is_read = partition.position >= range.end;
        if is_read {
            check_counts(range, &partition.range())?;
            partition.begin_next_epoch();
        }
        self.carried.insert(range.partition.clone(), (open.decided_by, partition));
        Ok(is_read)
    }

    /// Returns the state of a partition at the start of the range.
    async fn taken_over(&self, definition: &StreamDefinition, range: &CheckpointRange) -> Result<PartitionState> {
        let Redecide { storage, state, max_future, ids, .. } = self.context;
        let before = values_before(state, &range.partition, range.start)?;
        let decider = Decider::new(before.clock, before.max_event_time, max_future, definition.dedup_within, ids);
        let earlier = checkpoints_before(state, &range.partition, range.start);
        let mut begun = [(range.partition.clone(), decider)];
        reread_ids(storage, &earlier, definition, &mut begun).await?;
        let [(id, decider)] = begun;
        Ok(PartitionState::new(id, String::new(), decider, range.start))
    }

    /// Which versions of a stream decided a checkpoint's records, and decoded them as its archive has them; `None` if
    /// that has no events of the stream.
    async fn versions(&self, stream: &str, checkpoint: &CheckpointRecord) -> Result<Option<ArchiveVersions>> {
        let state = self.context.state;
        let Some(file) = archive_file_of(state, checkpoint.id, stream) else { return Ok(None) };
        let mut known = state.definitions.versions(DefinitionKind::Stream, stream);
        match (known.next(), known.next()) {
            (Some(only), None) => Ok(Some(ArchiveVersions { decoded_by: only.version, decided_by: only.version })),
            _ => Ok(Some(archive_facts(self.context.storage, file).await?.versions)),
        }
    }

    fn definition(&self, stream: &str, version: u32) -> Result<StreamDefinition> {
        let record = self.context.state.definitions.get(DefinitionKind::Stream, stream, version);
        let unknown = || Error::corrupt("the catalog lacks the version of a stream that an archive file names").with("stream", stream);
        parse::parse_stream(&record.ok_or_else(unknown)?.sql)
    }
}

impl Open {
    fn batch(&mut self) -> Result<RecordBatch> {
        let events = self.events.finish()?;
        let Some(redecoder) = &self.redecoder else { return Ok(events) };
        match redecoder.redecode(&events)? {
            RedecodedEvents::Events(decoded) => Ok(decoded),
            RedecodedEvents::AsBefore => Ok(events),
            RedecodedEvents::Misfits(misfits) => {
                let reason = misfits.first().map(|misfit| misfit.reason.clone()).unwrap_or_default();
                Err(Error::corrupt("a record of the log does not fit the version that decoded the archive").with("found", reason))
            }
        }
    }
}
