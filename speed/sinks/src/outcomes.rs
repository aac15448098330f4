//! What workers made of events, for those in the same process who wait for it, and which partitions they have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use event_log::{NewRecord, TopicPartition};
use serving::Outcome;
use tokio::sync::broadcast;
use types::vector::Offset;

use crate::record::is_failed;

/// Micro-batches that are kept for a slow receiver: some ten seconds of one worker.
const KEPT: usize = 256;

/// Shared between the workers of a process and its HTTP. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Outcomes {
    sender: broadcast::Sender<Arc<Decided>>,
    claims: Arc<Mutex<BTreeMap<TopicPartition, u64>>>,
    next_owner: Arc<AtomicU64>,
}

impl Default for Outcomes {
    fn default() -> Self {
        Self { sender: broadcast::Sender::new(KEPT), claims: Arc::default(), next_owner: Arc::default() }
    }
}

impl Outcomes {
    /// From now on, what is put out is passed on to the receiver.
    pub(crate) fn listen(&self) -> broadcast::Receiver<Arc<Decided>> {
        self.sender.subscribe()
    }

    /// Whether anyone waits. Otherwise nothing is noted.
    pub(crate) fn is_heard(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    pub(crate) fn tell(&self, decided: Decided) {
        // Nobody may be left to hear it.
        let _ = self.sender.send(Arc::new(decided));
    }

    /// The partitions of a topic that workers of this process have.
    pub(crate) fn claimed(&self, topic: &str) -> BTreeSet<i32> {
        let claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        claims.keys().filter(|claimed| &*claimed.topic == topic).map(|claimed| claimed.partition).collect()
    }

    /// For one worker.
    pub(crate) fn claims(&self) -> Claims {
        Claims { owner: self.next_owner.fetch_add(1, Ordering::Relaxed), outcomes: self.clone() }
    }
}

/// The partitions of one worker. They are given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Claims {
    owner: u64,
    outcomes: Outcomes,
}

impl Claims {
    pub(crate) fn add(&self, partitions: &[TopicPartition]) {
        self.lock().extend(partitions.iter().map(|partition| (partition.clone(), self.owner)));
    }

    /// A partition that another worker of the process has by now stays that worker's.
    pub(crate) fn remove(&self, partitions: &[TopicPartition]) {
        self.lock().retain(|partition, owner| *owner != self.owner || !partitions.contains(partition));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<TopicPartition, u64>> {
        self.outcomes.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        self.lock().retain(|_, owner| *owner != self.owner);
    }
}

/// What was decided of one partition's records in a micro-batch, and put out.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) source: TopicPartition,
    pub(crate) start: Offset,
    pub(crate) end: Offset,
    /// Ascending.
    pub(crate) accepted: Vec<i64>,
    pub(crate) dead_letters: Vec<Offset>,
    pub(crate) sinks: Vec<PutOut>,
}

/// The records of one sink.
#[derive(Debug)]
pub(crate) struct PutOut {
    pub(crate) sink: Arc<str>,
    pub(crate) version: u32,
    /// What came before was put out earlier.
    pub(crate) from: Option<Offset>,
    pub(crate) records: Vec<(Offset, NewRecord)>,
}

impl Decided {
    /// What became of an event, with the version of the sink; `None` if it is not among these.
    pub(crate) fn outcome(&self, sink: &str, source: &TopicPartition, offset: Offset) -> Option<(Option<u32>, Outcome)> {
        if *source != self.source || offset < self.start || offset >= self.end {
            return None;
        }
        if self.dead_letters.contains(&offset) {
            return Some((None, Outcome::DeadLetter));
        }
        if self.accepted.binary_search(&offset.0).is_err() {
            return Some((None, Outcome::Duplicate));
        }
        let Some(of_sink) = self.sinks.iter().find(|put_out| &*put_out.sink == sink) else { return Some((None, Outcome::Unknown)) };
        if of_sink.from.is_some_and(|from| offset < from) {
            return Some((None, Outcome::Unknown));
        }
        let found = of_sink.records.binary_search_by_key(&offset, |(of, _)| *of);
        let outcome = found.map_or(Outcome::Filtered, |at| outcome_of(of_sink.records[at].1.value.clone().unwrap_or_default()));
        Some((Some(of_sink.version), outcome))
    }
}

/// A record as an outcome.
pub(crate) fn outcome_of(value: Bytes) -> Outcome {
    if is_failed(&value) { Outcome::Failed(value) } else { Outcome::Scored(value) }
}

#[cfg(test)]
mod tests;
