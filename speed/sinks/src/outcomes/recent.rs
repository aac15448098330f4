//! The outcomes of the last events that were appended on request, by their ids: a bounded number, in memory.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use event_log::TopicPartition;
use serving::EventOutcome;
use types::tiles::Micros;
use types::vector::Offset;

use super::{DecidedBatch, Provenance};

/// At most this many events are kept, with at most this many bytes of ids and records.
const MOST: usize = 4_096;
const MOST_BYTES: usize = 16 << 20;
/// Longer ids are not kept.
const MAX_ID_BYTES: usize = 1_024;
/// How long an undecided event is waited for. Another process may have its partition by then.
const WAITS: Duration = Duration::from_secs(60);

/// An event for which a sink's record was requested.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct RecordRequest {
    pub(crate) sink: Arc<str>,
    pub(crate) source: TopicPartition,
    pub(crate) id: Arc<str>,
    /// The fingerprint of the whole event ([`Outcomes::fingerprint`]). Another event with the same id is not a repeat,
    /// and its sender must not learn the record.
    ///
    /// [`Outcomes::fingerprint`]: super::Outcomes::fingerprint
    pub(crate) fingerprint: u64,
}

/// What a sink made of an accepted event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecentOutcome {
    pub(crate) offset: Offset,
    pub(crate) by: Provenance,
    pub(crate) outcome: EventOutcome,
    identity: String,
    timestamp: Micros,
}

#[derive(Debug, Default)]
pub(super) struct RecentOutcomes {
    /// Events that are appended and not decided yet, and since when.
    waiting: BTreeMap<(TopicPartition, Offset), (RecordRequest, Instant)>,
    /// Each outcome with its number in `order`.
    known: HashMap<RecordRequest, (u64, RecentOutcome)>,
    /// The oldest first. A number that is not in `known` any more was replaced.
    order: VecDeque<(u64, RecordRequest)>,
    next: u64,
    bytes: usize,
}

impl RecentOutcomes {
    /// Whether an event of the partition is waited for.
    pub(super) fn is_waiting(&self, source: &TopicPartition) -> bool {
        let place = |offset| (source.clone(), Offset(offset));
        self.waiting.range(place(i64::MIN)..=place(i64::MAX)).next().is_some()
    }

    pub(super) fn wait(&mut self, asked: RecordRequest, offset: Offset, now: Instant) {
        if asked.id.len() > MAX_ID_BYTES {
            return;
        }
        if self.waiting.len() >= MOST {
            self.waiting.pop_first();
        }
        self.waiting.insert((asked.source.clone(), offset), (asked, now));
    }

    /// Keeps the outcomes of the events in the batch that are waited for. One that lies before the batch was decided
    /// unseen, and is dropped.
    pub(super) fn note(&mut self, decided: &DecidedBatch, now: Instant) {
        self.note_from(Offset(i64::MIN), decided, now);
    }

    /// The same, with those before the batch still waited for.
    pub(super) fn note_events(&mut self, decided: &DecidedBatch, now: Instant) {
        self.note_from(decided.start, decided, now);
    }

    fn note_from(&mut self, first: Offset, decided: &DecidedBatch, now: Instant) {
        if self.waiting.is_empty() {
            return;
        }
        self.waiting.retain(|_, (_, since)| now.saturating_duration_since(*since) < WAITS);
        let place = |offset| (decided.source.clone(), offset);
        let due = self.waiting.range(place(first)..place(decided.end)).map(|(place, _)| place.clone());
        for place in due.collect::<Vec<_>>() {
            let Some((asked, _)) = self.waiting.remove(&place) else { continue };
            if let Some(outcome) = recent_outcome(decided, &asked.sink, place.1) {
                self.keep(asked, outcome);
            }
        }
    }

    /// The outcome of the event that a duplicate repeats.
    ///
    /// It is known to be that event only if its id was held ever since. Otherwise another event with the same id may
    /// have been accepted in between.
    pub(super) fn first(&self, asked: &RecordRequest, decided: &DecidedBatch, offset: Offset) -> Option<RecentOutcome> {
        let (_, first) = self.known.get(asked)?;
        let is_held = decided.ids_since.is_some_and(|since| first.timestamp >= since);
        let is_it = is_held && first.identity == decided.identity && first.offset < offset;
        is_it.then(|| first.clone())
    }

    fn keep(&mut self, asked: RecordRequest, kept: RecentOutcome) {
        let number = self.next;
        self.next += 1;
        self.bytes += bytes_of(&asked, &kept);
        self.order.push_back((number, asked.clone()));
        if let Some((_, before)) = self.known.insert(asked.clone(), (number, kept)) {
            self.bytes -= bytes_of(&asked, &before);
        }
        while self.order.len() > MOST || self.bytes > MOST_BYTES {
            let Some((number, oldest)) = self.order.pop_front() else { return };
            if self.known.get(&oldest).is_some_and(|(known, _)| *known == number)
                && let Some((_, gone)) = self.known.remove(&oldest)
            {
                self.bytes -= bytes_of(&oldest, &gone);
            }
        }
    }
}

/// `None` for an event that was not accepted, or whose record is not known.
fn recent_outcome(decided: &DecidedBatch, sink: &str, offset: Offset) -> Option<RecentOutcome> {
    let (by, outcome) = decided.outcome(sink, &decided.source, offset)?;
    let at = decided.accepted.binary_search(&offset.0).ok()?;
    Some(RecentOutcome { offset, by: by?, outcome, identity: decided.identity.clone(), timestamp: *decided.timestamps.get(at)? })
}

fn bytes_of(asked: &RecordRequest, kept: &RecentOutcome) -> usize {
    asked.id.len() + kept.outcome.row().map_or(0, Bytes::len)
}

#[cfg(test)]
mod tests;
