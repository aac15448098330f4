//! What a node knows while its log does not answer.

use async_trait::async_trait;
use event_log::{Consumer, Fetched, Log, NewRecord, PartitionBounds, Subscription, TopicPartition};
use types::vector::Offset;
use types::{Error, Result};

/// A log that does not answer, but may know how many partitions a topic has.
#[derive(Debug, Default)]
pub(crate) struct SilentLog {
    pub(crate) partition_count: Option<u32>,
}

fn silence<T>() -> Result<T> {
    Err(Error::unavailable("the log does not answer"))
}

#[async_trait]
impl Log for SilentLog {
    async fn partition_count(&self, _: &str) -> Result<Option<u32>> {
        self.partition_count.map_or_else(silence, |count| Ok(Some(count)))
    }

    async fn create_topic(&self, _: &str, _: u32) -> Result<u32> {
        silence()
    }

    async fn bounds(&self, _: &str) -> Result<Vec<PartitionBounds>> {
        silence()
    }

    async fn identity(&self, _: &str) -> Result<String> {
        silence()
    }

    async fn append(&self, _: &str, _: Vec<NewRecord>) -> Result<Vec<(i32, Offset)>> {
        silence()
    }

    async fn read(&self, _: &TopicPartition, _: Offset, _: usize) -> Result<Fetched> {
        silence()
    }

    async fn subscribe(&self, _: Subscription) -> Result<Consumer> {
        silence()
    }
}
