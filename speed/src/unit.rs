//! A worker's uncommitted work: one unit. It is committed whole or dropped whole.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use schemas::Result;
use schemas::events::{Decoder, EventBatchBuilder};
use schemas::fresh::{Fresh, FreshLayer};
use schemas::log::{Fetched, TopicPartition};
use schemas::tiles::Micros;
use schemas::vector::{Offset, PartitionId, Vector};

use crate::dead_letters::DeadLetters;
use crate::decide::{Decider, Decision};
use crate::views::Views;

/// A partition a worker holds.
pub(crate) struct Held {
    pub(crate) id: PartitionId,
    pub(crate) decoder: Arc<Decoder>,
    pub(crate) definition_version: u32,
    pub(crate) decider: Decider,
    pub(crate) identity: String,
    /// The committed position; the unit began here.
    pub(crate) start: Offset,
    /// The next offset to be read.
    pub(crate) position: Offset,
    pub(crate) complete_to: Option<Micros>,
    pub(crate) counts: Counts,
    /// Accepted events of the micro-batch that is open.
    open: EventBatchBuilder,
    /// Where the open micro-batch began.
    open_from: Offset,
}

/// What became of a partition's records in the unit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) archived: i64,
    pub(crate) duplicate: i64,
    pub(crate) dead_lettered: i64,
}

impl Held {
    pub(crate) fn new(
        id: PartitionId,
        decoder: Arc<Decoder>,
        definition_version: u32,
        decider: Decider,
        identity: String,
        start: Offset,
    ) -> Self {
        let open = EventBatchBuilder::new(decoder.definition());
        Self {
            id,
            decoder,
            definition_version,
            decider,
            identity,
            start,
            position: start,
            complete_to: None,
            counts: Counts::default(),
            open,
            open_from: start,
        }
    }
}

#[derive(Default)]
pub(crate) struct Unit {
    pub(crate) held: BTreeMap<TopicPartition, Held>,
    /// Accepted events of closed micro-batches, per partition in offset order.
    pub(crate) events: BTreeMap<PartitionId, Vec<RecordBatch>>,
    pub(crate) dead_letters: BTreeMap<Arc<str>, DeadLetters>,
    pub(crate) layers: Vec<Arc<FreshLayer>>,
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
        let before = held.open.bytes();
        let dead_letters = self.dead_letters.entry(held.id.stream.clone()).or_default();
        let dead_before = dead_letters.bytes();
        for record in fetched.records.iter().filter(|record| record.offset >= held.position) {
            match held.decider.decide(&held.decoder, record) {
                Decision::Accept(event) => {
                    held.open.append(&event, held.id.partition, record)?;
                    held.counts.archived += 1;
                }
                Decision::Duplicate => held.counts.duplicate += 1,
                Decision::DeadLetter(reason) => {
                    dead_letters.append(&fetched.source, record, &reason);
                    held.counts.dead_lettered += 1;
                }
            }
        }
        self.bytes += (held.open.bytes() - before) + (dead_letters.bytes() - dead_before);
        self.open_rows += fetched.records.len();
        if fetched.position > held.position {
            held.position = fetched.position;
            self.open_since.get_or_insert(now);
            self.began.get_or_insert(now);
        }
        let reached =
            if fetched.at_end { fetched.fetched_at } else { fetched.records.last().map_or(Micros::MIN, |record| record.timestamp) };
        held.complete_to = held.complete_to.max(Some(reached)).filter(|time| *time > Micros::MIN);
        Ok(())
    }

    /// Closes the open micro-batch: its states become a fresh layer that readers see at once.
    pub(crate) async fn close_micro_batch(&mut self, views: &mut Views, fresh: Option<&Fresh>) -> Result<()> {
        if self.open_since.take().is_none() {
            return Ok(self.tell_complete(fresh));
        }
        let mut events: BTreeMap<Arc<str>, Vec<RecordBatch>> = BTreeMap::new();
        let (mut start, mut end) = (Vector::new(), Vector::new());
        let mut max_event_time = BTreeMap::new();
        for held in self.held.values_mut().filter(|held| held.position > held.open_from) {
            start.set(held.id.clone(), held.open_from);
            end.set(held.id.clone(), held.position);
            held.open_from = held.position;
            if let Some(time) = held.decider.max_event_time() {
                let known = max_event_time.entry(held.id.stream.clone()).or_insert(time);
                *known = time.max(*known);
            }
            let of_stream = events.entry(held.id.stream.clone()).or_default();
            if !held.open.is_empty() {
                let batch = held.open.finish()?;
                of_stream.push(batch.clone());
                self.events.entry(held.id.clone()).or_default().push(batch);
            }
        }
        self.open_rows = 0;
        let states = views.states(&events).await;
        let layer = FreshLayer { start, end, states, max_event_time };
        self.layers.push(Arc::new(layer.clone()));
        if let Some(fresh) = fresh {
            fresh.publish(layer, self.completeness());
        }
        self.merge_layers(views, fresh)
    }

    /// Merges layers of like size, as an LSM tree does: a unit has few of them however many micro-batches it saw.
    fn merge_layers(&mut self, views: &Views, fresh: Option<&Fresh>) -> Result<()> {
        while let [.., older, newer] = self.layers.as_slice()
            && rows(newer) * 2 >= rows(older)
        {
            let merged = FreshLayer::merge(&[older.clone(), newer.clone()], &views.plans())?;
            self.layers.truncate(self.layers.len() - 2);
            self.layers.push(Arc::new(merged.clone()));
            if let Some(fresh) = fresh {
                fresh.compact(merged);
            }
        }
        Ok(())
    }

    fn tell_complete(&self, fresh: Option<&Fresh>) {
        if let Some(fresh) = fresh {
            fresh.complete(self.completeness());
        }
    }

    fn completeness(&self) -> Vec<(PartitionId, Micros)> {
        self.held
            .values()
            .filter(|held| held.position == held.open_from)
            .filter_map(|held| Some((held.id.clone(), held.complete_to?)))
            .collect()
    }

    pub(crate) fn open_rows(&self) -> usize {
        self.open_rows
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.layers.iter().map(|layer| layer.memory_bytes()).sum::<usize>()
    }

    /// True when a partition moved since the last commit.
    pub(crate) fn has_work(&self) -> bool {
        self.held.values().any(|held| held.position > held.start)
    }

    /// The unit is committed: the next one begins where it ended.
    pub(crate) fn committed(&mut self) {
        for held in self.held.values_mut() {
            held.start = held.position;
            held.counts = Counts::default();
        }
        self.clear();
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
