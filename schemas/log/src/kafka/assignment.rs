//! The partitions that a consumer holds, with their undelivered records. Plain values: no client, no channel.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::{Fetched, TopicPartition};
use types::record::Record;
use types::vector::Offset;

/// How often to repeat that a partition is at its end.
const AT_END_EVERY: Duration = Duration::from_millis(500);
/// How long an open transaction may hold a partition back before it is reported. By default Kafka aborts it then.
const HELD_BACK_LONG: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Assignment {
    partitions: BTreeMap<TopicPartition, Partition>,
    max_records: usize,
    max_wait: Duration,
}

#[derive(Debug)]
struct Partition {
    /// At least the offset after the last record; the client may be further.
    position: Offset,
    pending: Vec<Record>,
    pending_since: Option<Instant>,
    at_end: bool,
    /// At the end: when to report it (again).
    report_end_at: Option<Instant>,
    held_back: Option<HeldBack>,
    /// When the brokers were last asked what follows the position, they did not answer.
    is_unanswered: bool,
}

/// What follows the position is not delivered before an open transaction ends.
#[derive(Debug)]
struct HeldBack {
    since: Instant,
    was_reported: bool,
}

impl Assignment {
    pub(super) fn new(max_records: usize, max_wait: Duration) -> Assignment {
        Assignment { partitions: BTreeMap::new(), max_records: max_records.max(1), max_wait }
    }

    /// Holds a partition from `position` on, with nothing pending.
    pub(super) fn start(&mut self, source: TopicPartition, position: Offset) {
        let fresh = Partition {
            position,
            pending: Vec::new(),
            pending_since: None,
            at_end: false,
            report_end_at: None,
            held_back: None,
            is_unanswered: false,
        };
        self.partitions.insert(source, fresh);
    }

    pub(super) fn forget(&mut self, sources: &[TopicPartition]) {
        self.partitions.retain(|source, _| !sources.contains(source));
    }

    pub(super) fn sources(&self) -> Vec<TopicPartition> {
        self.partitions.keys().cloned().collect()
    }

    pub(super) fn position(&self, source: &TopicPartition) -> Option<Offset> {
        self.partitions.get(source).map(|partition| partition.position)
    }

    /// Adds a record; returns when its partition's records are due. A record of a partition that is not held is
    /// dropped.
    pub(super) fn push(&mut self, source: &TopicPartition, record: Record, now: Instant) -> Option<Instant> {
        let partition = self.partitions.get_mut(source)?;
        partition.position = record.offset.next();
        partition.at_end = false;
        partition.report_end_at = None;
        partition.held_back = None;
        partition.pending.push(record);
        let since = *partition.pending_since.get_or_insert(now);
        if partition.pending.len() >= self.max_records { Some(now) } else { Some(since + self.max_wait) }
    }

    /// Notes that the client is at the partition's end, which is due at once.
    pub(super) fn reach_end(&mut self, source: &TopicPartition, now: Instant) {
        if let Some(partition) = self.partitions.get_mut(source) {
            partition.at_end = true;
            partition.report_end_at = Some(now);
        }
    }

    /// Returns the partitions whose records, or whose end, are due now. Those for which the brokers do not answer come
    /// last, so that the others do not wait for them.
    pub(super) fn due(&self, now: Instant) -> Vec<TopicPartition> {
        let is_due = |partition: &Partition| self.due_at(partition).is_some_and(|at| at <= now);
        let mut due: Vec<(&TopicPartition, &Partition)> = self.partitions.iter().filter(|(_, partition)| is_due(partition)).collect();
        due.sort_by_key(|(_, partition)| partition.is_unanswered);
        due.into_iter().map(|(source, _)| source.clone()).collect()
    }

    /// Returns when something will be due if nothing else arrives.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.partitions.values().filter_map(|partition| self.due_at(partition)).min()
    }

    /// Takes what is pending, with the client's position if it is known. The caller sets when it was fetched.
    pub(super) fn take(&mut self, source: &TopicPartition, position: Option<Offset>, now: Instant) -> Option<Fetched> {
        let partition = self.partitions.get_mut(source)?;
        partition.position = partition.position.max(position.unwrap_or_default());
        partition.pending_since = None;
        partition.report_end_at = partition.at_end.then_some(now + AT_END_EVERY);
        let records = std::mem::take(&mut partition.pending);
        Some(Fetched { source: source.clone(), records, position: partition.position, at_end: partition.at_end, fetched_at: 0 })
    }

    /// Notes whether the brokers answered what follows a partition's position.
    pub(super) fn note_answer(&mut self, source: &TopicPartition, is_answered: bool) {
        if let Some(partition) = self.partitions.get_mut(source) {
            partition.is_unanswered = !is_answered;
        }
    }

    /// Notes whether an open transaction holds back what follows a partition's position. True once it has lasted for
    /// [`HELD_BACK_LONG`], and then not again.
    pub(super) fn note_held_back(&mut self, source: &TopicPartition, is_held_back: bool, now: Instant) -> bool {
        let Some(partition) = self.partitions.get_mut(source) else { return false };
        if !is_held_back {
            partition.held_back = None;
            return false;
        }
        let held_back = partition.held_back.get_or_insert(HeldBack { since: now, was_reported: false });
        let is_long = now.saturating_duration_since(held_back.since) >= HELD_BACK_LONG;
        is_long && !std::mem::replace(&mut held_back.was_reported, true)
    }

    fn due_at(&self, partition: &Partition) -> Option<Instant> {
        let is_full = partition.pending.len() >= self.max_records;
        let filled = partition.pending_since.map(|since| if is_full { since } else { since + self.max_wait });
        [filled, partition.report_end_at].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests;
