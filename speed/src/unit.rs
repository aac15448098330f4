//! A worker's uncommitted work: one unit. It is committed whole or dropped whole. While one is committed, sealed, the next one grows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use catalog::CheckpointRecord;
use engine::events::{Decoder, EventBatchBuilder};
use engine::fresh::{Fresh, FreshLayer};
use event_log::{Fetched, TopicPartition};
use types::record::MarkRecord;
use types::tiles::Micros;
use types::vector::{PartitionId, Vector};
use types::{Result, failpoint};
use uuid::Uuid;

use crate::claim::{Claim, checkpoint_of};
use crate::dead_letters::DeadLetters;
use crate::decide::Decision;
use crate::views::Views;

mod tiers;

use tiers::merged_from;

/// A partition a worker holds, with what it accepted since the last micro-batch.
pub(crate) struct Held {
    pub(crate) claim: Claim,
    definition_version: u32,
    decoder: Arc<Decoder>,
    open: EventBatchBuilder,
}

impl Held {
    pub(crate) fn new(claim: Claim, decoder: Arc<Decoder>, definition_version: u32) -> Self {
        let open = EventBatchBuilder::new(decoder.definition());
        Self { claim, definition_version, decoder, open }
    }
}

/// A unit of which a checkpoint is made: nothing is added to it any more.
pub(crate) struct Sealed {
    pub(crate) record: CheckpointRecord,
    /// The logs that its partitions belong to.
    pub(crate) identities: BTreeMap<PartitionId, String>,
    pub(crate) marks: Vec<MarkRecord>,
    /// Per stream its definition's version and its events: the partitions one after the other, each in log order.
    pub(crate) archive: BTreeMap<Arc<str>, (u32, Vec<RecordBatch>)>,
    pub(crate) dead_letters: Vec<(Arc<str>, RecordBatch)>,
    pub(crate) layers: Vec<Arc<FreshLayer>>,
}

#[derive(Default)]
pub(crate) struct Unit {
    pub(crate) held: BTreeMap<TopicPartition, Held>,
    /// Accepted events of closed micro-batches, per partition in offset order.
    events: BTreeMap<PartitionId, Vec<RecordBatch>>,
    dead_letters: BTreeMap<Arc<str>, DeadLetters>,
    layers: Vec<Arc<FreshLayer>>,
    bytes: usize,
    open_rows: usize,
    /// When the open micro-batch got its first record.
    pub(crate) open_since: Option<Instant>,
    pub(crate) began: Option<Instant>,
}

impl Unit {
    /// Decides the records of one fetch and adds what is accepted to the open micro-batch.
    pub(crate) fn take(&mut self, fetched: &Fetched, now: Instant) -> Result<()> {
        let Some(held) = self.held.get_mut(&fetched.source) else { return Ok(()) };
        let Held { claim, decoder, open, .. } = held;
        let partition = claim.id.partition;
        let dead_letters = self.dead_letters.entry(claim.id.stream.clone()).or_default();
        let before = open.bytes() + dead_letters.bytes();
        let moved = claim.take(decoder, fetched, |record, decision| {
            match decision {
                Decision::Accept(event) => open.append(event, partition, record)?,
                Decision::Duplicate => {}
                Decision::DeadLetter(reason) => dead_letters.append(&fetched.source, record, reason),
            }
            Ok(())
        })?;
        self.bytes += open.bytes() + dead_letters.bytes() - before;
        self.open_rows += fetched.records.len();
        if moved {
            self.open_since.get_or_insert(now);
            self.began.get_or_insert(now);
        }
        Ok(())
    }

    /// Closes the open micro-batch: its states become a fresh layer that readers see at once.
    pub(crate) async fn close_micro_batch(&mut self, views: &mut Views, fresh: Option<&Fresh>) -> Result<()> {
        if self.open_since.take().is_none() {
            self.tell_complete(fresh);
            return Ok(());
        }
        let mut events: BTreeMap<Arc<str>, Vec<RecordBatch>> = BTreeMap::new();
        let (mut start, mut end) = (Vector::new(), Vector::new());
        let mut max_event_time = BTreeMap::new();
        for Held { claim, open, .. } in self.held.values_mut() {
            let Some((from, to)) = claim.close() else { continue };
            start.set(claim.id.clone(), from);
            end.set(claim.id.clone(), to);
            if let Some(time) = claim.max_event_time() {
                let known = max_event_time.entry(claim.id.stream.clone()).or_insert(time);
                *known = time.max(*known);
            }
            let of_stream = events.entry(claim.id.stream.clone()).or_default();
            if !open.is_empty() {
                let batch = open.finish()?;
                of_stream.push(batch.clone());
                self.events.entry(claim.id.clone()).or_default().push(batch);
            }
        }
        self.open_rows = 0;
        let states = views.states(&events).await;
        let layer = FreshLayer { start, end, states, max_event_time };
        self.layers.push(Arc::new(layer.clone()));
        if let Some(fresh) = fresh {
            fresh.publish(layer, self.completeness());
        }
        failpoint::hit("speed.micro_batch_closed")?;
        self.merge_layers(views, fresh)
    }

    /// Merges layers of like size, as an LSM tree does: a unit has few of them however many micro-batches it saw.
    fn merge_layers(&mut self, views: &Views, fresh: Option<&Fresh>) -> Result<()> {
        loop {
            let sizes: Vec<usize> = self.layers.iter().map(|layer| rows(layer)).collect();
            let from = merged_from(&sizes);
            if from == sizes.len() {
                return Ok(());
            }
            let merged = FreshLayer::merge(&self.layers[from..], &views.plans())?;
            self.layers.truncate(from);
            self.layers.push(Arc::new(merged.clone()));
            if let Some(fresh) = fresh {
                fresh.compact(merged);
            }
        }
    }

    fn tell_complete(&self, fresh: Option<&Fresh>) {
        if let Some(fresh) = fresh {
            fresh.complete(self.completeness());
        }
    }

    fn completeness(&self) -> Vec<(PartitionId, Micros)> {
        self.claims().filter_map(|claim| Some((claim.id.clone(), claim.complete_to()?))).collect()
    }

    pub(crate) fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.held.values().map(|held| &held.claim)
    }

    pub(crate) fn open_rows(&self) -> usize {
        self.open_rows
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.layers.iter().map(|layer| layer.memory_bytes()).sum::<usize>()
    }

    /// Takes what there is for a checkpoint; the next unit begins where it ends. `None`: no partition moved since the last one.
    pub(crate) fn seal(&mut self, id: Uuid, worker: &str, now: Micros) -> Result<Option<Sealed>> {
        if !self.has_work() {
            return Ok(None);
        }
        let (record, identities) = checkpoint_of(self.claims(), id, worker, now);
        let marks = self.claims().filter(|claim| claim.has_work()).filter_map(|claim| claim.mark().cloned()).collect();
        let mut archive: BTreeMap<Arc<str>, (u32, Vec<RecordBatch>)> = BTreeMap::new();
        for held in self.held.values() {
            if let Some(batches) = self.events.remove(&held.claim.id) {
                let (version, all) = archive.entry(held.claim.id.stream.clone()).or_default();
                *version = held.definition_version;
                all.extend(batches);
            }
        }
        let letters = self.dead_letters.iter_mut().filter(|(_, letters)| letters.bytes() > 0);
        let dead_letters = letters.map(|(stream, letters)| Ok((stream.clone(), letters.finish()?))).collect::<Result<_>>()?;
        let sealed = Sealed { record, identities, marks, archive, dead_letters, layers: std::mem::take(&mut self.layers) };
        self.held.values_mut().for_each(|held| held.claim.hand_over());
        self.clear();
        Ok(Some(sealed))
    }

    /// True when a partition moved since the last unit was sealed.
    fn has_work(&self) -> bool {
        self.claims().any(Claim::has_work)
    }

    /// Drops all uncommitted work and all partitions.
    pub(crate) fn drop_all(&mut self) {
        self.held.clear();
        self.clear();
        self.open_since = None;
    }

    fn clear(&mut self) {
        self.events.clear();
        self.dead_letters.clear();
        self.layers.clear();
        self.bytes = 0;
        self.open_rows = 0;
        self.began = None;
    }
}

fn rows(layer: &FreshLayer) -> usize {
    layer.states.values().map(|rows| rows.len()).sum::<usize>() + 1
}
