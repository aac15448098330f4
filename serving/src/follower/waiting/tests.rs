use async_trait::async_trait;
use event_log::{Consumer, Fetched, NewRecord, PartitionBounds, Subscription, TopicPartition};

use super::*;

/// A log that answers how many partitions its one topic has, and nothing else.
#[derive(Debug)]
struct CountedTopic(u32);

fn unanswered<T>() -> Result<T> {
    Err(Error::unavailable("this log only counts partitions"))
}

#[async_trait]
impl Log for CountedTopic {
    async fn partition_count(&self, topic: &str) -> Result<Option<u32>> {
        Ok((topic == "payments").then_some(self.0))
    }

    async fn create_topic(&self, _: &str, _: u32) -> Result<u32> {
        unanswered()
    }

    async fn bounds(&self, _: &str) -> Result<Vec<PartitionBounds>> {
        unanswered()
    }

    async fn identity(&self, _: &str) -> Result<String> {
        unanswered()
    }

    async fn append(&self, _: &str, _: Vec<NewRecord>) -> Result<Vec<(i32, Offset)>> {
        unanswered()
    }

    async fn read(&self, _: &TopicPartition, _: Offset, _: usize) -> Result<Fetched> {
        unanswered()
    }

    async fn subscribe(&self, _: Subscription) -> Result<Consumer> {
        unanswered()
    }
}

#[tokio::test]
async fn partition_is_missing_by_its_number_alone() {
    let log = CountedTopic(3);
    for (topic, partition, expected) in
        [("payments", 0, None), ("payments", 2, None), ("payments", 3, Some(3)), ("payments", -1, Some(3)), ("other", 9, None)]
    {
        assert_eq!(count_without(&log, topic, partition).await, expected, "{topic}/{partition}");
    }
}
