//! The one trait that both engines have.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use types::outage::Outage;
use types::tiles::Micros;
use types::vector::Offset;
use types::{Error, Result};

use crate::consumer::{Consumer, Fetched, ReaderGroup, Subscription};
use crate::record::{LogOutput, NewRecord};
use crate::topic::{LogSize, OpenTransaction, PartitionBounds, TopicPartition};

/// A durable, partitioned log.
#[async_trait]
pub trait Log: Send + Sync + fmt::Debug {
    /// Creates the topic with `partitions` partitions unless it exists; returns how many it has.
    async fn create_topic(&self, topic: &str, partitions: u32) -> Result<u32>;

    /// Returns the bounds of each partition, in order; empty if there is no such topic.
    async fn bounds(&self, topic: &str) -> Result<Vec<PartitionBounds>>;

    /// Returns how many offsets were given out in all partitions of the topic together, those of transactions that are
    /// open too: it never decreases while the log loses nothing.
    async fn offsets_given(&self, topic: &str) -> Result<i64> {
        Ok(self.bounds(topic).await?.iter().map(|bounds| bounds.end.0).sum())
    }

    /// Returns how many partitions the topic has, numbered from 0; `None` if there is no such topic.
    async fn partition_count(&self, topic: &str) -> Result<Option<u32>> {
        let bounds = self.bounds(topic).await?;
        Ok(u32::try_from(bounds.len()).ok().filter(|count| *count > 0))
    }

    /// Returns the transactions that hold back what follows them in these partitions; none for a log that has no
    /// transactions.
    async fn open_transactions(&self, _topic: &str, _partitions: &[i32]) -> Result<Vec<OpenTransaction>> {
        Ok(Vec::new())
    }

    /// Returns a text that changes when the topic is recreated (the catalog refuses a log with another identity).
    async fn identity(&self, topic: &str) -> Result<String>;

    /// Returns a text that changes when the topic is recreated, also where its identity stays the same. It is compared
    /// while the topic is read, and not stored. Empty where the identity is enough.
    async fn topic_id(&self, _topic: &str) -> Result<String> {
        Ok(String::new())
    }

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

    /// Makes the caller the owner of an output. The owner before it, of this process or of another one, can no longer
    /// append to it.
    async fn take_over_output(&self, output: &LogOutput) -> Result<TakenOutput> {
        Err(Error::internal("this log takes no records of sinks").with("sink", &output.sink))
    }

    /// Reads up to `max_records` records of one partition, starting at `from`, without a group: for verification and
    /// replay.
    async fn read(&self, source: &TopicPartition, from: Offset, max_records: usize) -> Result<Fetched>;

    /// Whether the log deletes single records of a topic, once a later one has their key.
    async fn is_compacted(&self, _topic: &str) -> Result<bool> {
        Ok(false)
    }

    /// Whether records stay until [`Log::trim`] deletes them.
    fn is_trimmed(&self) -> bool {
        false
    }

    /// Deletes records of one partition that are before `before` and were appended before `appended_before`, a few at a
    /// time, and gives their room back; returns how many. It deletes nothing of a topic that another group has read
    /// ([`Log::reader_groups`]), and may leave some that could go. 0 for a log that deletes by settings of its own
    /// (Kafka).
    async fn trim(&self, _: &TopicPartition, _group: &str, _before: Offset, _appended_before: Micros) -> Result<u64> {
        Ok(0)
    }

    /// Returns how many records [`Log::trim`] would delete. Finds their end without reading them.
    async fn trimmable(&self, _: &TopicPartition, _group: &str, _before: Offset, _appended_before: Micros) -> Result<u64> {
        Ok(0)
    }

    /// Returns the groups whose reading [`Log::trim`] respects; none for a log that is never trimmed.
    async fn reader_groups(&self) -> Result<Vec<ReaderGroup>> {
        Ok(Vec::new())
    }

    /// Forgets a group that never reads again: it holds [`Log::trim`] back no longer. Should it read again after all,
    /// it is known again, and refuses to continue if records that it had not read are gone.
    ///
    /// Errors: `NotFound` if it has read nothing; `Conflict` while one of its workers is alive.
    async fn forget_group(&self, group: &str) -> Result<()> {
        Err(Error::not_found("no such consumer group has read the log").with("group", group))
    }

    /// Returns the size of all topics together; zero for a log that is never trimmed.
    async fn size(&self) -> Result<LogSize> {
        Ok(LogSize::default())
    }

    /// Joins a group and starts delivering.
    async fn subscribe(&self, subscription: Subscription) -> Result<Consumer>;

    /// Returns what this process cannot do with the log at the moment.
    fn outages(&self) -> Vec<Outage> {
        Vec::new()
    }
}

/// An output that was taken over.
#[derive(Debug, Clone)]
pub struct TakenOutput {
    pub appender: Arc<dyn OutputAppender>,
    /// The events before it are settled ([`OutputAppender::append`]); `None` if none is yet.
    pub next: Option<Offset>,
}

/// The right to append to an output, until somebody takes it over again. What it holds is freed when it is dropped.
#[async_trait]
pub trait OutputAppender: Send + Sync + fmt::Debug {
    /// Appends records, each with the offset of its event, and notes that every event before `next` is settled: those
    /// without a record get none, also not from a later owner. It does all of this or nothing, durably. Offsets ascend
    /// and are before `next`; there may be no records. Those of events that were settled before are left out: an
    /// event's record is in the topic once, however often this is called. If all was settled before, the log need not
    /// be asked, and the output may have been taken over again.
    ///
    /// Errors: `Conflict` if the output was taken over again. After any error, take it over again.
    async fn append(&self, topic: &str, records: Vec<(Offset, NewRecord)>, next: Offset) -> Result<()>;
}

/// Checks that the events of records are settled with them: the record of another one would be appended again by the
/// next owner.
pub(crate) fn check_before(next: Offset, records: &[(Offset, NewRecord)]) -> Result<()> {
    match records.last() {
        Some((offset, _)) if *offset >= next => {
            Err(Error::internal("the event of a record is not settled with it").with("offset", offset).with("settled up to", next))
        }
        _ => Ok(()),
    }
}
