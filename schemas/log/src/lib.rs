//! The event log: a durable, partitioned sequence of records per topic. Two engines behind one trait: [`embedded`]
//! (SQLite) and [`kafka`].
//!
//! A consumer delivers a totally ordered stream of [`LogEvent`]s. Ownership changes come in the same order as records,
//! so a worker that handles events in order has handled everything before a revoke when it sees the revoke. Start
//! offsets come from the worker (the catalog), never from the log's own groups.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use types::record::Record;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use types::outage::Outage;
use types::tiles::Micros;
use types::vector::Offset;
use types::{Error, Result};

pub mod embedded;
pub mod kafka;
mod mark;
mod opening;

pub use mark::{check_mark, mark_of};
pub use opening::open;

/// A record that a producer passes to the log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewRecord {
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<(String, Bytes)>,
    /// The partition is chosen by this if the key is null (the event's id), or at random if both are absent.
    pub partition_by: Option<Bytes>,
}

/// The longest JSON that a sink or an alert puts out as a record's value. By default Kafka refuses records of more than
/// about a megabyte.
pub const MAX_OUTPUT_BYTES: usize = 900 << 10;

/// The records that a sink makes of the events of one partition. Each event gives at most one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Output {
    /// The consumer group whose workers make them.
    pub group: String,
    pub sink: Arc<str>,
    pub source: TopicPartition,
    /// The identity of the source's topic: offsets of another topic of that name mean other records.
    pub identity: String,
}

/// A topic and one of its partitions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    pub topic: Arc<str>,
    pub partition: i32,
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.partition)
    }
}

/// Records of one partition in offset order, and the consumer's position after them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    pub source: TopicPartition,
    pub records: Vec<Record>,
    /// The next offset to read. May be past the last record (control records, compaction).
    pub position: Offset,
    /// True if the position was at the partition's end when this was fetched.
    pub at_end: bool,
    /// When the fetch began, by this machine's clock. At the end, every record before this time has been delivered.
    pub fetched_at: Micros,
}

/// What a consumer reports to its worker, in order.
#[derive(Debug)]
pub enum LogEvent {
    /// These partitions are ours from now on. Reply with the offset at which to start each.
    Assigned {
        partitions: Vec<TopicPartition>,
        start: oneshot::Sender<Result<Vec<(TopicPartition, Offset)>>>,
    },
    /// We must release these. Commit first, then reply; the consumer holds the partitions until then.
    Revoked {
        partitions: Vec<TopicPartition>,
        done: oneshot::Sender<()>,
    },
    /// These already went to another worker: drop all uncommitted work, then reply with the catalog's offsets of the
    /// partitions that are kept. The consumer continues from there.
    Lost {
        partitions: Vec<TopicPartition>,
        kept: oneshot::Sender<Result<Vec<(TopicPartition, Offset)>>>,
    },
    Fetched(Fetched),
    /// The consumer ended with an error (start offset expired, log shortened, broker permanently gone).
    Failed(types::Error),
}

/// A partition's bounds in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionBounds {
    pub partition: i32,
    /// The first offset that is still there.
    pub begin: Offset,
    /// The offset that the next record will get (for a transactional log: the end of what is committed).
    pub end: Offset,
}

/// A consumer: a stream of events, and a way to end it. Dropping it ends it too.
pub struct Consumer {
    pub events: mpsc::Receiver<LogEvent>,
    pub stop: tokio_util::sync::CancellationToken,
}

/// Which worker consumes which topics.
#[derive(Debug, Clone)]
pub struct Subscription {
    /// The consumer group: workers of one group share the partitions.
    pub group: String,
    /// This worker's name, unique in the group.
    pub worker: String,
    pub topics: Vec<Arc<str>>,
    /// How many `Fetched` may wait in the queue.
    pub queue: usize,
    /// The maximum number of records in one `Fetched`.
    pub max_records: usize,
    /// How long a fetch may wait to fill before it is delivered.
    pub max_wait: Duration,
}

/// A durable, partitioned log.
#[async_trait]
pub trait Log: Send + Sync + fmt::Debug {
    /// Creates the topic with `partitions` partitions unless it exists; returns how many it has.
    async fn create_topic(&self, topic: &str, partitions: u32) -> Result<u32>;

    /// Returns the bounds of each partition, in order; empty if there is no such topic.
    async fn bounds(&self, topic: &str) -> Result<Vec<PartitionBounds>>;

    /// Returns a text that changes when the topic is recreated (the catalog refuses a log with another identity).
    async fn identity(&self, topic: &str) -> Result<String>;

    /// Appends durably: when this returns, the records survive a power loss (embedded) or are acknowledged by all
    /// in-sync replicas (Kafka). Returns each record's partition and offset, in the order given.
    async fn append(&self, topic: &str, records: Vec<NewRecord>) -> Result<Vec<(i32, Offset)>>;

    /// Like [`Log::append`], with an outcome for each record: a log that fails may have taken some of them.
    async fn append_each(&self, topic: &str, records: Vec<NewRecord>) -> Vec<Result<(i32, Offset)>> {
        let count = records.len();
        match self.append(topic, records).await {
            Ok(places) => places.into_iter().map(Ok).collect(),
            Err(error) => (0..count).map(|_| Err(error.copied())).collect(),
        }
    }

    /// Makes this process the owner of an output. The previous owner can no longer append to it. Returns the offset
    /// after the last event whose record was appended; `None` if there is none yet.
    async fn take_output(&self, output: &Output) -> Result<Option<Offset>> {
        Err(no_outputs(output))
    }

    /// Appends the records of an output: all of them or none, durably, each with the offset of its event. Offsets
    /// ascend. What was appended before is left out: an event's record is in the topic once, however often this is
    /// called.
    ///
    /// Errors: `Conflict` if another process took the output over. After any error, take it over again.
    async fn append_output(&self, _topic: &str, output: &Output, _records: Vec<(Offset, NewRecord)>) -> Result<()> {
        Err(no_outputs(output))
    }

    /// Frees what it holds for the outputs of a partition that another process has now.
    fn let_go_outputs(&self, _source: &TopicPartition) {}

    /// Reads up to `max_records` records of one partition, starting at `from`, without a group: for verification and
    /// replay.
    async fn read(&self, source: &TopicPartition, from: Offset, max_records: usize) -> Result<Fetched>;

    /// Whether records stay until [`Log::trim`] deletes them.
    fn is_trimmed(&self) -> bool {
        false
    }

    /// Deletes records of one partition that are before `before` and were appended before `appended_before`, a few at a
    /// time, and gives their room back; returns how many. It deletes nothing of a topic that another group has read,
    /// and may leave some that could go. 0 for a log that deletes by settings of its own (Kafka).
    async fn trim(&self, _: &TopicPartition, _group: &str, _before: Offset, _appended_before: Micros) -> Result<u64> {
        Ok(0)
    }

    /// Joins a group and starts delivering.
    async fn subscribe(&self, subscription: Subscription) -> Result<Consumer>;

    /// Returns what this process cannot do with the log at the moment.
    fn outages(&self) -> Vec<Outage> {
        Vec::new()
    }
}

fn no_outputs(output: &Output) -> Error {
    Error::internal("this log takes no records of sinks").with("sink", &output.sink)
}

/// Returns the error for a start offset that is not in the log (any more).
pub(crate) fn outside(source: &TopicPartition, offset: Offset, begin: Offset, end: Offset) -> Error {
    let what = if offset < begin { "the offset expired from the log" } else { "the log ends before the offset" };
    Error::not_found(what)
        .with("topic", &source.topic)
        .with("partition", source.partition)
        .with("offset", offset)
        .with("the log has", format!("{begin}..{end}"))
}

/// Pairs each partition with its offset in a worker's reply.
pub(crate) fn offsets_for(partitions: &[TopicPartition], reply: Vec<(TopicPartition, Offset)>) -> Result<Vec<(TopicPartition, Offset)>> {
    let by_source: BTreeMap<TopicPartition, Offset> = reply.into_iter().collect();
    let offset_of = |source: &TopicPartition| match by_source.get(source) {
        Some(offset) => Ok((source.clone(), *offset)),
        None => Err(Error::internal("the worker named no start offset").with("partition", source)),
    };
    partitions.iter().map(offset_of).collect()
}

/// Spreads one random number over the records of an append.
pub(crate) fn random_of(seed: u64, index: usize) -> u64 {
    (seed ^ index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
}

/// Returns the partition of a record: by `key`, by `partition_by` if the key is null, else by `random`.
pub(crate) fn partition_for(record: &NewRecord, partitions: u32, random: u64) -> i32 {
    let hash = match record.key.as_ref().or(record.partition_by.as_ref()) {
        Some(bytes) => xxhash_rust::xxh3::xxh3_64(bytes),
        None => random,
    };
    (hash % u64::from(partitions.max(1))) as i32
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
