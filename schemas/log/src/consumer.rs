//! The interface between a worker and its consumer: what the worker requests, and what the consumer delivers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use types::record::Record;
use types::tiles::Micros;
use types::vector::Offset;
use types::{Error, Result};

use crate::topic::TopicPartition;

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

/// A consumer group that has read topics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReaderGroup {
    pub name: String,
    pub topics: Vec<Arc<str>>,
    /// Whether one of its workers is alive.
    pub is_active: bool,
}

/// A consumer: a stream of events, and a way to end it. Dropping it ends it too.
pub struct Consumer {
    pub events: mpsc::Receiver<LogEvent>,
    pub stop: tokio_util::sync::CancellationToken,
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
    Failed(Error),
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

/// Pairs each partition with its offset in a worker's reply.
pub(crate) fn offsets_for(partitions: &[TopicPartition], reply: Vec<(TopicPartition, Offset)>) -> Result<Vec<(TopicPartition, Offset)>> {
    let by_source: BTreeMap<TopicPartition, Offset> = reply.into_iter().collect();
    let offset_of = |source: &TopicPartition| match by_source.get(source) {
        Some(offset) => Ok((source.clone(), *offset)),
        None => Err(Error::internal("the worker named no start offset").with("partition", source)),
    };
    partitions.iter().map(offset_of).collect()
}
