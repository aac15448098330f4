//! Passes on what workers made of events to the requests of the same process that wait for it, and knows which
//! partitions the workers have.
//!
//! A client that got no answer sends the event again, which then is a duplicate. So the outcomes of the last events
//! that were appended on request are kept by their ids (`recent`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use engine::parameters::UsedParameters;
use event_log::{NewRecord, TopicPartition};
use serving::EventOutcome;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use types::tiles::Micros;
use types::vector::Offset;

use crate::record::is_failed;

mod recent;

use recent::RecentOutcomes;
pub(crate) use recent::{RecentOutcome, RecordRequest};

/// Micro-batches that are kept for a slow receiver: some ten seconds of one worker.
const KEPT: usize = 256;

/// By topic. Those without receivers go when another topic gets one.
type Senders = HashMap<Arc<str>, broadcast::Sender<Arc<DecidedBatch>>>;

/// Shared between the workers of a process and its HTTP. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcomes {
    senders: Arc<Mutex<Senders>>,
    recent: Arc<Mutex<RecentOutcomes>>,
    /// Makes the fingerprints of events, the same in all clones.
    hashes: RandomState,
    assigned: Arc<Mutex<BTreeMap<TopicPartition, u64>>>,
    next_owner: Arc<AtomicU64>,
}

impl Outcomes {
    /// Returns a receiver of what is decided about events of a topic, and put out, from now on.
    pub(crate) fn listen(&self, topic: &str) -> broadcast::Receiver<Arc<DecidedBatch>> {
        let mut senders = self.senders();
        senders.retain(|known, sender| **known == *topic || sender.receiver_count() > 0);
        senders.entry(topic.into()).or_insert_with(|| broadcast::Sender::new(KEPT)).subscribe()
    }

    /// Whether anyone listens to the topic, or may send an event of the partition again. Otherwise decisions are not
    /// kept. A client listens before its event is appended, and does not know the partition yet.
    pub(crate) fn has_listeners(&self, source: &TopicPartition) -> bool {
        let is_heard = self.senders().get(&source.topic).is_some_and(|sender| sender.receiver_count() > 0);
        is_heard || self.recent().is_waiting(source)
    }

    pub(crate) fn publish(&self, decided: DecidedBatch) {
        let decided = Arc::new(decided);
        // There may be no receiver left. It is sent before it is noted: a request that begins to wait in between finds
        // it among what was sent.
        if let Some(sender) = self.senders().get(&decided.source.topic) {
            let _ = sender.send(decided.clone());
        }
        self.note(&decided);
    }

    /// Identifies an event by its bytes within this process: a hash of 64 bits with secret keys. Two events may have
    /// the same one by chance (1 in 2^64), but a client cannot search for such events, because it does not know the
    /// keys.
    pub(crate) fn fingerprint(&self, event: &[u8]) -> u64 {
        self.hashes.hash_one(event)
    }

    /// Keeps the outcome of an appended event under its id. `sent` has listened since before the append.
    pub(crate) fn keep(&self, asked: RecordRequest, offset: Offset, mut sent: broadcast::Receiver<Arc<DecidedBatch>>) {
        self.recent().wait(asked, offset, Instant::now());
        loop {
            match sent.try_recv() {
                Ok(decided) => self.note(&decided),
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    /// The outcome of the event that a duplicate in `decided` repeats, if it is still known here.
    pub(crate) fn first(&self, asked: &RecordRequest, decided: &DecidedBatch, offset: Offset) -> Option<RecentOutcome> {
        // The first event may be in the same batch, and not noted yet.
        self.note_events(decided);
        self.recent().first(asked, decided, offset)
    }

    fn note(&self, decided: &DecidedBatch) {
        self.recent().note(decided, Instant::now());
    }

    /// The same, of the events of the batch alone: earlier ones may be in batches that come later.
    pub(crate) fn note_events(&self, decided: &DecidedBatch) {
        self.recent().note_events(decided, Instant::now());
    }

    fn senders(&self) -> MutexGuard<'_, Senders> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recent(&self) -> MutexGuard<'_, RecentOutcomes> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The partitions of a topic that workers of this process have.
    pub(crate) fn assigned(&self, topic: &str) -> BTreeSet<i32> {
        let assigned = self.assigned.lock().unwrap_or_else(PoisonError::into_inner);
        assigned.keys().filter(|source| &*source.topic == topic).map(|source| source.partition).collect()
    }

    /// Returns the set of one worker's partitions, still empty.
    pub(crate) fn for_worker(&self) -> AssignedPartitions {
        AssignedPartitions { owner: self.next_owner.fetch_add(1, Ordering::Relaxed), outcomes: self.clone() }
    }
}

/// The partitions of one worker. They are given up when it is dropped.
#[derive(Debug)]
pub(crate) struct AssignedPartitions {
    owner: u64,
    outcomes: Outcomes,
}

impl AssignedPartitions {
    pub(crate) fn add(&self, partitions: &[TopicPartition]) {
        self.lock().extend(partitions.iter().map(|partition| (partition.clone(), self.owner)));
    }

    /// Removes partitions. One that another worker of the process has taken over stays with that worker.
    pub(crate) fn remove(&self, partitions: &[TopicPartition]) {
        self.lock().retain(|partition, owner| *owner != self.owner || !partitions.contains(partition));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<TopicPartition, u64>> {
        self.outcomes.assigned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AssignedPartitions {
    fn drop(&mut self) {
        self.lock().retain(|_, owner| *owner != self.owner);
    }
}

/// What was decided about one partition's records in a micro-batch, and put out.
#[derive(Debug)]
pub(crate) struct DecidedBatch {
    pub(crate) source: TopicPartition,
    /// The identity of the log that its offsets belong to.
    pub(crate) identity: String,
    pub(crate) start: Offset,
    pub(crate) end: Offset,
    /// Ascending.
    pub(crate) accepted: Vec<i64>,
    /// The timestamp of each accepted record.
    pub(crate) timestamps: Vec<Micros>,
    /// As [`speed::Accepted::ids_since`].
    pub(crate) ids_since: Option<Micros>,
    pub(crate) dead_letters: Vec<Offset>,
    pub(crate) sinks: Vec<SinkRecords>,
}

/// The records of one sink.
#[derive(Debug)]
pub(crate) struct SinkRecords {
    pub(crate) sink: Arc<str>,
    pub(crate) by: Provenance,
    /// Events before this offset were settled earlier.
    pub(crate) from: Option<Offset>,
    pub(crate) records: Vec<(Offset, NewRecord)>,
}

/// Which version of a sink made records, with which versions of the values of parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Provenance {
    pub(crate) version: u32,
    pub(crate) parameters: UsedParameters,
}

impl DecidedBatch {
    fn has(&self, source: &TopicPartition, offset: Offset) -> bool {
        *source == self.source && (self.start..self.end).contains(&offset)
    }

    /// The outcome of an event, and what made it. `None` if the event is not in this batch.
    pub(crate) fn outcome(&self, sink: &str, source: &TopicPartition, offset: Offset) -> Option<(Option<Provenance>, EventOutcome)> {
        if !self.has(source, offset) {
            return None;
        }
        // The sink may still put out a record of the event.
        let Some(of_sink) = self.sinks.iter().find(|put_out| &*put_out.sink == sink) else { return Some((None, EventOutcome::Unknown)) };
        let was_settled = of_sink.from.is_some_and(|from| offset < from);
        if self.dead_letters.contains(&offset) {
            // An earlier worker may have taken it for an event, by another version of the stream, and put a record out.
            return Some((None, if was_settled { EventOutcome::Unknown } else { EventOutcome::DeadLetter }));
        }
        if self.accepted.binary_search(&offset.0).is_err() {
            return Some((None, EventOutcome::Duplicate));
        }
        if was_settled {
            return Some((None, EventOutcome::Unknown));
        }
        let found = of_sink.records.binary_search_by_key(&offset, |(of, _)| *of);
        let outcome = found.map_or(EventOutcome::Filtered, |at| outcome_of(of_sink.records[at].1.value.clone().unwrap_or_default()));
        Some((Some(of_sink.by.clone()), outcome))
    }
}

/// Waits for the batch that has an event. `None` if no worker is left.
pub(crate) async fn batch_with(
    decisions: &mut broadcast::Receiver<Arc<DecidedBatch>>,
    source: &TopicPartition,
    offset: Offset,
) -> Option<Arc<DecidedBatch>> {
    loop {
        match decisions.recv().await {
            Ok(batch) if batch.has(source, offset) => return Some(batch),
            // The decision may have been among those that were dropped.
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return None,
        }
    }
}

/// A record as an outcome.
pub(crate) fn outcome_of(value: Bytes) -> EventOutcome {
    if is_failed(&value) { EventOutcome::Failed(value) } else { EventOutcome::Scored(value) }
}

#[cfg(test)]
mod tests;
