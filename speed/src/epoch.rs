//! A worker's uncommitted work, an epoch. It is committed whole or dropped whole. While a sealed epoch is being
//! committed, the next one grows.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use catalog::CheckpointRecord;
use committed::registry::Registry;
use engine::events::{Decoder, EventBatchBuilder};
use engine::fresh::{Complete, Fresh, FreshLayer};
use event_log::{Fetched, TopicPartition};
use tokio::task::JoinHandle;
use types::record::{MarkRecord, Record};
use types::tiles::Micros;
use types::vector::{Offset, PartitionId, Vector};
use types::{Result, failpoint, threads};
use uuid::Uuid;

use crate::dead_letters::DeadLetters;
use crate::decide::Decision;
use crate::partition_state::{PartitionState, checkpoint_record};
use crate::released::{Committed, ReleasedPartition};
use crate::sinks::{Accepted, WorkerSinks};
use crate::views::{Computed, Views};

mod batch_room;
mod tiers;

use batch_room::BatchRoom;
use tiers::merged_from;

/// A micro-batch closes at this many records, however few bytes they have.
const MICRO_BATCH_RECORDS: usize = 32_768;

/// A partition that a worker holds, with what it accepted since the last micro-batch.
pub(crate) struct AssignedPartition {
    pub(crate) state: PartitionState,
    /// Of its topic, when it was taken over.
    topic_id: String,
    definition_version: u32,
    decoder: Arc<Decoder>,
    open: EventBatchBuilder,
    /// The offsets of the open micro-batch that became dead letters.
    refused: Vec<Offset>,
}

impl AssignedPartition {
    pub(crate) fn new(state: PartitionState, topic_id: String, decoder: Arc<Decoder>, definition_version: u32) -> Self {
        let open = EventBatchBuilder::new(decoder.definition());
        Self { state, topic_id, definition_version, decoder, open, refused: Vec::new() }
    }

    /// Gives the partition up; `None` if it moved since the last commit.
    pub(crate) fn release(self) -> Option<(PartitionId, ReleasedPartition)> {
        let Self { state, definition_version, decoder, .. } = self;
        if state.has_work() {
            return None;
        }
        let (id, identity, next_offset) = (state.id.clone(), state.identity.clone(), state.position);
        let at = Committed { identity, next_offset, definition: decoder.definition().clone(), definition_version };
        Some((id, ReleasedPartition { at, decider: state.into_decider() }))
    }
}

/// The decisions about all partitions since the last micro-batch.
#[derive(Default)]
struct MicroBatch {
    start: Vector,
    end: Vector,
    /// The greatest event time so far, per stream.
    max_event_time: BTreeMap<Arc<str>, Micros>,
    /// Accepted events, per stream.
    events: BTreeMap<Arc<str>, Vec<RecordBatch>>,
    /// The memory of the events, without the spare capacity of their columns.
    event_bytes: usize,
    /// The same events in the form for sinks, with the other decisions, per partition.
    accepted: Vec<Accepted>,
}

/// An epoch that becomes a checkpoint: nothing is added to it any more.
pub(crate) struct SealedEpoch {
    pub(crate) record: CheckpointRecord,
    /// The identities of its partitions' logs.
    pub(crate) identities: BTreeMap<PartitionId, String>,
    /// Its topics, each with its id when its partitions were taken over.
    pub(crate) topic_ids: BTreeSet<(Arc<str>, String)>,
    pub(crate) marks: Vec<MarkRecord>,
    /// Its streams, each with the version of the definition that decoded the records.
    pub(crate) versions: BTreeMap<Arc<str>, u32>,
    /// Per stream, its definition's version and its events: partition by partition, each in log order.
    pub(crate) archive: BTreeMap<Arc<str>, (u32, Vec<RecordBatch>)>,
    pub(crate) dead_letters: Vec<(Arc<str>, RecordBatch)>,
    pub(crate) layers: Vec<Arc<FreshLayer>>,
}

#[derive(Default)]
pub(crate) struct Epoch {
    pub(crate) assigned: BTreeMap<TopicPartition, AssignedPartition>,
    /// Accepted events of closed micro-batches, per partition in offset order.
    events: BTreeMap<PartitionId, Vec<RecordBatch>>,
    dead_letters: BTreeMap<Arc<str>, DeadLetters>,
    layers: Vec<Arc<FreshLayer>>,
    /// Some of the layers, while they are merged. The result is discarded once the epoch is sealed.
    merging: Option<Merging>,
    /// Layers of more rows are merged on another thread.
    merged_beside_rows: usize,
    bytes: usize,
    open_rows: usize,
    /// The bytes of the records in the open micro-batch.
    open_bytes: usize,
    room: BatchRoom,
    /// When the open micro-batch got its first record.
    pub(crate) open_since: Option<Instant>,
    pub(crate) began: Option<Instant>,
}

/// Layers that another thread merges: indices of the epoch's layers, to which newer ones are added meanwhile.
struct Merging {
    layers: Range<usize>,
    task: JoinHandle<Result<FreshLayer>>,
}

impl Epoch {
    /// Creates the epoch of a worker that may hold this many bytes.
    pub(crate) fn new(merged_beside_rows: usize, memory_bytes: usize) -> Self {
        Self { merged_beside_rows, room: BatchRoom::new(memory_bytes), ..Self::default() }
    }

    /// Decides the first records of a fetch, as many as have room in the open micro-batch, and adds accepted ones to
    /// it. Returns the others: the micro-batch is full then.
    pub(crate) fn take(&mut self, mut fetched: Fetched, now: Instant) -> Result<Option<Fetched>> {
        if !self.assigned.contains_key(&fetched.source) {
            return Ok(None);
        }
        let rest = split_off(&mut fetched, self.room.record_bytes().saturating_sub(self.open_bytes));
        self.take_all(&fetched, now)?;
        Ok(rest)
    }

    fn take_all(&mut self, fetched: &Fetched, now: Instant) -> Result<()> {
        let Some(assigned) = self.assigned.get_mut(&fetched.source) else { return Ok(()) };
        let AssignedPartition { state, decoder, open, refused, .. } = assigned;
        let number = state.id.partition;
        let dead_letters = self.dead_letters.entry(state.id.stream.clone()).or_default();
        let before = open.bytes() + dead_letters.bytes();
        let moved = state.take(decoder, fetched, |record, decision| {
            match decision {
                Decision::Accept(event) => open.append(event, number, record)?,
                Decision::Duplicate => {}
                Decision::DeadLetter(reason) => {
                    refused.push(record.offset);
                    dead_letters.append(&fetched.source, record, reason);
                }
            }
            Ok(())
        })?;
        self.bytes += open.bytes() + dead_letters.bytes() - before;
        self.open_rows += fetched.records.len();
        self.open_bytes += fetched.records.iter().map(Record::memory_bytes).sum::<usize>();
        if moved {
            self.open_since.get_or_insert(now);
            self.began.get_or_insert(now);
        }
        Ok(())
    }

    /// Closes the open micro-batch: its states become a fresh layer, which readers see at once, and the log begins to
    /// append the records of its events.
    pub(crate) async fn close_micro_batch(
        &mut self,
        views: &mut Views,
        fresh: Option<&Fresh>,
        sinks: Option<(&mut dyn WorkerSinks, &Registry)>,
    ) -> Result<()> {
        if self.open_since.take().is_none() {
            self.publish_completeness(fresh);
            return Ok(());
        }
        let record_bytes = std::mem::take(&mut self.open_bytes);
        let MicroBatch { start, end, max_event_time, events, event_bytes, accepted } = self.close_partitions()?;
        let mut sinks = sinks;
        if let Some((sinks, registry)) = &mut sinks {
            sinks.make_records(registry, accepted).await?;
        }
        let Computed { states, failures } = views.states(&events).await;
        let layer = FreshLayer { start, end, states, failures, max_event_time };
        self.room.note(record_bytes, event_bytes + layer.memory_bytes());
        self.layers.push(Arc::new(layer.clone()));
        if let Some(fresh) = fresh {
            fresh.publish(layer, self.completeness());
        }
        failpoint::hit("speed.micro_batch_closed")?;
        let append = async {
            match sinks {
                Some((sinks, _)) => sinks.begin_append().await,
                None => Ok(()),
            }
        };
        // The log may still write the records before these while layers are merged.
        let (begun, merged) = futures::join!(append, self.merge_layers(views, fresh));
        begun.and(merged)
    }

    /// Closes the open micro-batch of each partition. Accepted events are kept for the archive, too.
    fn close_partitions(&mut self) -> Result<MicroBatch> {
        let mut closed = MicroBatch::default();
        for (source, AssignedPartition { state, open, refused, .. }) in &mut self.assigned {
            let (newest_before, received_before) = (state.newest_before(), state.received_before());
            let Some(Range { start, end }) = state.close() else { continue };
            closed.start.set(state.id.clone(), start);
            closed.end.set(state.id.clone(), end);
            if let Some(time) = state.max_event_time() {
                let known = closed.max_event_time.entry(state.id.stream.clone()).or_insert(time);
                *known = time.max(*known);
            }
            let of_stream = closed.events.entry(state.id.stream.clone()).or_default();
            let counted = open.bytes();
            closed.event_bytes += counted;
            let events = open.finish()?;
            self.bytes = self.bytes.saturating_sub(counted);
            if events.num_rows() > 0 {
                // What it really takes: columns have more room than they need.
                self.bytes += events.get_array_memory_size();
                of_stream.push(events.clone());
                self.events.entry(state.id.clone()).or_default().push(events.clone());
            }
            closed.accepted.push(Accepted {
                partition: state.id.clone(),
                source: source.clone(),
                identity: state.identity.clone(),
                start,
                end,
                dead_letters: std::mem::take(refused),
                newest_before,
                received_before,
                ids_since: state.ids_since(),
                events,
            });
        }
        self.open_rows = 0;
        Ok(closed)
    }

    /// Merges layers of similar size, as an LSM tree does: an epoch has few layers, whatever its number of
    /// micro-batches. Large ones are merged on another thread: events do not wait for it.
    async fn merge_layers(&mut self, views: &Views, fresh: Option<&Fresh>) -> Result<()> {
        if let Some(merging) = self.merging.take_if(|merging| merging.task.is_finished()) {
            self.replace(merging.layers, merging.task.await??, fresh);
        }
        loop {
            let under_way = self.merging.as_ref().map_or(0, |merging| merging.layers.end);
            let sizes: Vec<usize> = self.layers[under_way..].iter().map(|layer| rows(layer)).collect();
            let from = merged_from(&sizes);
            if from == sizes.len() {
                return Ok(());
            }
            let (layers, plans) = (under_way + from..self.layers.len(), views.plans());
            if sizes[from..].iter().sum::<usize>() > self.merged_beside_rows {
                if self.merging.is_none() {
                    let merged = self.layers[layers.clone()].to_vec();
                    let task = threads::CHECKPOINTS.spawn_blocking(move || FreshLayer::merge(&merged, &plans));
                    self.merging = Some(Merging { layers, task });
                }
                return Ok(());
            }
            let merged = FreshLayer::merge(&self.layers[layers.clone()], &plans)?;
            self.replace(layers, merged, fresh);
        }
    }

    fn replace(&mut self, layers: Range<usize>, merged: FreshLayer, fresh: Option<&Fresh>) {
        self.layers.splice(layers, [Arc::new(merged.clone())]);
        if let Some(fresh) = fresh {
            fresh.compact(merged);
        }
    }

    fn publish_completeness(&self, fresh: Option<&Fresh>) {
        if let Some(fresh) = fresh {
            fresh.complete(self.completeness());
        }
    }

    fn completeness(&self) -> Vec<Complete> {
        let complete = |partition: &PartitionState| {
            let time = partition.complete_to()?;
            Some(Complete { partition: partition.id.clone(), position: partition.position, time })
        };
        self.partitions().filter_map(complete).collect()
    }

    pub(crate) fn partitions(&self) -> impl Iterator<Item = &PartitionState> {
        self.assigned.values().map(|assigned| &assigned.state)
    }

    /// Returns how far each partition is decided.
    pub(crate) fn positions(&self) -> Vec<(TopicPartition, Offset)> {
        self.assigned.iter().map(|(source, assigned)| (source.clone(), assigned.state.position)).collect()
    }

    /// Whether the open micro-batch has as many records as it may.
    pub(crate) fn is_micro_batch_full(&self) -> bool {
        self.open_rows >= MICRO_BATCH_RECORDS || self.open_bytes >= self.room.record_bytes()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.layers.iter().map(|layer| layer.memory_bytes()).sum::<usize>()
    }

    /// Takes the uncommitted work for a checkpoint; the next epoch begins where it ends. `None` if no partition moved
    /// since the last one.
    pub(crate) fn seal(&mut self, id: Uuid, worker: &str, now: Micros) -> Result<Option<SealedEpoch>> {
        if !self.has_work() {
            return Ok(None);
        }
        let (record, identities) = checkpoint_record(self.partitions(), id, worker, now);
        let marks = self.partitions().filter(|partition| partition.has_work()).filter_map(|partition| partition.mark().cloned()).collect();
        let moved = || self.assigned.iter().filter(|(_, assigned)| assigned.state.has_work());
        let topic_ids = moved().map(|(source, assigned)| (source.topic.clone(), assigned.topic_id.clone())).collect();
        let versions = moved().map(|(_, assigned)| (assigned.state.id.stream.clone(), assigned.definition_version)).collect();
        let mut archive: BTreeMap<Arc<str>, (u32, Vec<RecordBatch>)> = BTreeMap::new();
        for assigned in self.assigned.values() {
            if let Some(batches) = self.events.remove(&assigned.state.id) {
                let (version, all) = archive.entry(assigned.state.id.stream.clone()).or_default();
                *version = assigned.definition_version;
                all.extend(batches);
            }
        }
        let letters = self.dead_letters.iter_mut().filter(|(_, letters)| letters.bytes() > 0);
        let dead_letters = letters.map(|(stream, letters)| Ok((stream.clone(), letters.finish()?))).collect::<Result<_>>()?;
        let layers = std::mem::take(&mut self.layers);
        let sealed = SealedEpoch { record, identities, topic_ids, marks, versions, archive, dead_letters, layers };
        self.assigned.values_mut().for_each(|assigned| assigned.state.begin_next_epoch());
        self.clear();
        Ok(Some(sealed))
    }

    /// True if a partition moved since the last epoch was sealed.
    fn has_work(&self) -> bool {
        self.partitions().any(PartitionState::has_work)
    }

    /// Drops all uncommitted work and all partitions.
    pub(crate) fn drop_all(&mut self) {
        self.assigned.clear();
        self.clear();
        self.open_since = None;
    }

    fn clear(&mut self) {
        self.events.clear();
        self.dead_letters.clear();
        self.layers.clear();
        self.merging = None;
        self.bytes = 0;
        self.open_rows = 0;
        self.open_bytes = 0;
        self.began = None;
    }
}

/// Keeps the first records of a fetch until they have this many bytes, but at least one. Returns the others.
fn split_off(fetched: &mut Fetched, bytes: usize) -> Option<Fetched> {
    let mut left = 0;
    let has_room = |record: &&Record| {
        let before = left;
        left += record.memory_bytes();
        before < bytes
    };
    let first = fetched.records.iter().take_while(has_room).count().max(1);
    let position = fetched.records.get(first)?.offset;
    Some(Fetched {
        source: fetched.source.clone(),
        records: fetched.records.split_off(first),
        position: std::mem::replace(&mut fetched.position, position),
        at_end: std::mem::replace(&mut fetched.at_end, false),
        fetched_at: fetched.fetched_at,
    })
}

fn rows(layer: &FreshLayer) -> usize {
    layer.states.values().map(|rows| rows.len()).sum::<usize>() + 1
}

#[cfg(test)]
mod tests;
