//! The state of a partition that a worker holds: how far its records are decided, and the counts of each outcome.
//!
//! Nothing here uses a store, a clock or the network, so the worker and the simulation share this code.

use std::collections::BTreeMap;
use std::ops::Range;

use catalog::{Advance, CheckpointRange, CheckpointRecord};
use engine::events::Decoder;
use event_log::{Fetched, mark_of};
use types::Result;
use types::record::MarkRecord;
use types::record::Record;
use types::tiles::Micros;
use types::vector::{Offset, PartitionId};
use uuid::Uuid;

use crate::decide::{Decider, Decision};

/// The uncommitted part of one partition: the records at `[start, position)`.
#[derive(Debug)]
pub struct PartitionState {
    pub id: PartitionId,
    /// The identity of the log that its offsets belong to.
    pub identity: String,
    /// The committed position, where the epoch began.
    pub start: Offset,
    /// The next offset to be read.
    pub position: Offset,
    decider: Decider,
    counts: Counts,
    complete_to: Option<Micros>,
    /// The last record before `position` that was read.
    mark: Option<MarkRecord>,
    /// Where the open micro-batch began.
    open_from: Offset,
    /// The greatest event time of the events accepted before the micro-batch.
    newest_before: Option<Micros>,
    /// The greatest record timestamp of those events.
    received_before: Option<Micros>,
}

/// The outcomes of a partition's records in the epoch.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    archived: i64,
    duplicate: i64,
    dead_lettered: i64,
}

impl PartitionState {
    /// Begins at the committed position `start`, with a decider that knows what was accepted before it.
    pub fn new(id: PartitionId, identity: String, decider: Decider, start: Offset) -> Self {
        let (newest_before, received_before) = (decider.max_event_time(), decider.max_received());
        Self {
            id,
            identity,
            start,
            position: start,
            decider,
            counts: Counts::default(),
            complete_to: None,
            mark: None,
            open_from: start,
            newest_before,
            received_before,
        }
    }

    /// Decides the records of one fetch that were not read before, and passes each decision on. Returns true if the
    /// position moved.
    pub fn take(
        &mut self,
        decoder: &Decoder,
        fetched: &Fetched,
        mut hand_on: impl FnMut(&Record, &Decision<'_>) -> Result<()>,
    ) -> Result<bool> {
        for record in fetched.records.iter().filter(|record| record.offset >= self.position) {
            let decision = self.decider.decide(decoder, record)?;
            hand_on(record, &decision)?;
            match decision {
                Decision::Accept(_) => self.counts.archived += 1,
                Decision::Duplicate => self.counts.duplicate += 1,
                Decision::DeadLetter(_) => self.counts.dead_lettered += 1,
            }
        }
        let reached = if fetched.at_end { Some(fetched.fetched_at) } else { fetched.records.last().map(|record| record.timestamp) };
        self.complete_to = self.complete_to.max(reached);
        let moved = fetched.position > self.position;
        if let Some(last) = fetched.records.last().filter(|record| record.offset >= self.position) {
            self.mark = Some(mark_of(&self.id, last));
        }
        self.position = self.position.max(fetched.position);
        Ok(moved)
    }

    /// Closes the open micro-batch; returns its offsets if it has any.
    pub fn close(&mut self) -> Option<Range<Offset>> {
        let from = std::mem::replace(&mut self.open_from, self.position);
        self.newest_before = self.decider.max_event_time();
        self.received_before = self.decider.max_received();
        (from < self.position).then_some(from..self.position)
    }

    /// Returns the greatest event time of the events accepted before the open micro-batch.
    pub fn newest_before(&self) -> Option<Micros> {
        self.newest_before
    }

    /// Returns the greatest record timestamp of the events accepted before the open micro-batch.
    pub(crate) fn received_before(&self) -> Option<Micros> {
        self.received_before
    }

    /// Returns since when the ids of accepted records are held ([`Decider::ids_since`]).
    pub fn ids_since(&self) -> Option<Micros> {
        self.decider.ids_since()
    }

    /// Returns the time up to which the log is read, as far as readers see it; `None` while a micro-batch is open.
    pub fn complete_to(&self) -> Option<Micros> {
        self.complete_to.filter(|_| self.open_from == self.position)
    }

    pub fn max_event_time(&self) -> Option<Micros> {
        self.decider.max_event_time()
    }

    /// True if it moved since the last commit.
    pub fn has_work(&self) -> bool {
        self.position > self.start
    }

    /// Gives the partition up. Its decider knows what was accepted before `position`.
    pub(crate) fn into_decider(self) -> Decider {
        self.decider
    }

    /// Returns an advance that does not move the position but records how far the partition is complete. `None` if it
    /// moved since the last commit, or was never committed.
    pub(crate) fn idle(&self) -> Option<Advance> {
        let complete_to = self.complete_to.filter(|_| !self.has_work() && self.position > Offset::ZERO)?;
        Some(Advance {
            partition: self.id.clone(),
            start: self.position,
            end: self.position,
            log_identity: self.identity.clone(),
            clock: self.decider.clock(),
            max_event_time: self.decider.max_event_time(),
            complete_to: Some(complete_to),
        })
    }

    /// The uncommitted work belongs to a checkpoint now: the next epoch begins where it ends.
    pub fn begin_next_epoch(&mut self) {
        self.start = self.position;
        self.counts = Counts::default();
    }

    /// Returns the last record before its position, if one was read.
    pub fn mark(&self) -> Option<&MarkRecord> {
        self.mark.as_ref()
    }

    /// Returns the outcomes of the uncommitted records.
    pub(crate) fn range(&self) -> CheckpointRange {
        let counted = self.counts.archived + self.counts.duplicate + self.counts.dead_lettered;
        CheckpointRange {
            partition: self.id.clone(),
            start: self.start,
            end: self.position,
            archived: self.counts.archived,
            duplicate: self.counts.duplicate,
            dead_lettered: self.counts.dead_lettered,
            absent: self.position.0 - self.start.0 - counted,
            clock: self.decider.clock(),
            max_event_time: self.decider.max_event_time(),
            complete_to: self.complete_to,
        }
    }
}

/// Returns the checkpoint of these partitions and the identities of their logs: all partitions that moved, in one
/// record.
pub fn checkpoint_record<'c>(
    partitions: impl IntoIterator<Item = &'c PartitionState>,
    id: Uuid,
    worker: &str,
    now: Micros,
) -> (CheckpointRecord, BTreeMap<PartitionId, String>) {
    let moved: Vec<&PartitionState> = partitions.into_iter().filter(|partition| partition.has_work()).collect();
    let ranges = moved.iter().map(|partition| partition.range()).collect();
    let identities = moved.iter().map(|partition| (partition.id.clone(), partition.identity.clone())).collect();
    (CheckpointRecord::new(id, worker, now, ranges), identities)
}
