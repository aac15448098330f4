//! Topic metadata from the brokers: partitions, bounds, the cluster's id. All calls block.

use std::time::{Duration, Instant};

use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::client::{Quiet, failed, kind_of};
use super::settings::{self, KafkaSettings};
use super::topic_id::topic_id;
use crate::{PartitionBounds, TopicPartition};
use types::vector::Offset;
use types::{Error, ErrorKind, Result};

/// How long the brokers may take to respond.
pub(super) const TIMEOUT: Duration = Duration::from_secs(15);
/// The same for what is asked again and again while a topic is read: a stop waits for it.
pub(super) const SHORT_TIMEOUT: Duration = Duration::from_secs(3);

/// A client for metadata. It joins no group.
pub(super) struct Cluster {
    addresses: String,
    client: BaseConsumer<Quiet>,
}

impl Cluster {
    /// Creates the client, without connecting to a broker yet. Errors: `Input` for settings that do not fit together.
    pub(super) fn new(settings: &KafkaSettings) -> Result<Cluster> {
        let client = BaseConsumer::from_config_and_context(&settings.metadata(), Quiet::default()).map_err(settings::refusal)?;
        Ok(Cluster { addresses: settings.addresses.clone(), client })
    }

    /// Returns how many partitions the topic has; `None` if there is no such topic.
    pub(super) fn partitions(&self, topic: &str) -> Result<Option<u32>> {
        if topic.is_empty() {
            return Ok(None);
        }
        let metadata = self.client.fetch_metadata(Some(topic), TIMEOUT).map_err(|error| self.failed("asking for the topic", error))?;
        drain(&self.client);
        let Some(found) = metadata.topics().iter().find(|found| found.name() == topic) else { return Ok(None) };
        match found.error().map(RDKafkaErrorCode::from) {
            None => Ok(Some(found.partitions().len() as u32).filter(|partitions| *partitions > 0)),
            Some(code) if kind_of(code) == ErrorKind::NotFound => Ok(None),
            Some(code) => Err(self.failed("asking for the topic", KafkaError::MetadataFetch(code)).with("topic", topic)),
        }
    }

    pub(super) fn expect_partitions(&self, topic: &str) -> Result<u32> {
        self.partitions(topic)?.ok_or_else(|| self.no_topic(topic))
    }

    /// Returns the bounds of each partition, in order; empty if there is no such topic.
    pub(super) fn bounds(&self, topic: &str) -> Result<Vec<PartitionBounds>> {
        let partitions = self.partitions(topic)?.unwrap_or(0) as i32;
        (0..partitions)
            .map(|partition| bounds_by(&self.client, topic, partition, TIMEOUT).map_err(|e| self.failed("asking for the bounds", e)))
            .collect()
    }

    pub(super) fn bounds_of(&self, source: &TopicPartition) -> Result<PartitionBounds> {
        bounds_by(&self.client, &source.topic, source.partition, TIMEOUT)
            .map_err(|error| self.failed("asking for the bounds", error).with("partition", source))
    }

    /// Returns the cluster's id and the topic's name, which catalogs keep. A topic that was deleted and recreated under
    /// its name is recognised by its offsets and its last committed record, and while it is read by [`Self::topic_id`].
    pub(super) fn identity(&self, topic: &str) -> Result<String> {
        self.expect_partitions(topic)?;
        let unnamed = || Error::unavailable("the cluster did not return its id").with("brokers", &self.addresses);
        let cluster = self.client.client().fetch_cluster_id(TIMEOUT).ok_or_else(unnamed)?;
        Ok(format!("kafka/{cluster}/{topic}"))
    }

    pub(super) fn topic_id(&self, topic: &str) -> Result<String> {
        match topic_id(self.client.client(), topic, SHORT_TIMEOUT) {
            Ok(id) => Ok(id.to_string()),
            Err(error) if error.rdkafka_error_code().is_some_and(|code| kind_of(code) == ErrorKind::NotFound) => Err(self.no_topic(topic)),
            Err(error) => Err(self.failed("asking for the topic's id", error).with("topic", topic)),
        }
    }

    /// Waits until the brokers know a new topic.
    pub(super) fn wait_for(&self, topic: &str) -> Result<u32> {
        let began = Instant::now();
        loop {
            if let Some(partitions) = self.partitions(topic)? {
                return Ok(partitions);
            }
            if began.elapsed() > TIMEOUT {
                return Err(Error::unavailable("a new topic did not appear").with("topic", topic).with("brokers", &self.addresses));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub(super) fn no_topic(&self, topic: &str) -> Error {
        Error::not_found("the log has no such topic").with("topic", topic).with("brokers", &self.addresses)
    }

    fn failed(&self, doing: &str, error: KafkaError) -> Error {
        drain(&self.client);
        failed(doing, error, &self.addresses, &self.client.context().reasons)
    }
}

/// Takes log lines and errors off a client's queue, which is polled nowhere else.
fn drain(client: &BaseConsumer<Quiet>) {
    for _ in 0..1000 {
        if client.poll(Duration::ZERO).is_none() {
            return;
        }
    }
}

/// Sees what is not committed yet too.
pub(super) struct UncommittedReader {
    addresses: String,
    client: BaseConsumer<Quiet>,
}

impl UncommittedReader {
    pub(super) fn new(settings: &KafkaSettings) -> Result<UncommittedReader> {
        let mut config = settings.metadata();
        config.set("isolation.level", "read_uncommitted");
        let client = BaseConsumer::from_config_and_context(&config, Quiet::default()).map_err(settings::refusal)?;
        Ok(UncommittedReader { addresses: settings.addresses.clone(), client })
    }

    /// Returns the offset after everything in a partition.
    pub(super) fn end(&self, source: &TopicPartition) -> Result<Offset> {
        self.end_within(source, TIMEOUT)
    }

    pub(super) fn end_within(&self, source: &TopicPartition, timeout: Duration) -> Result<Offset> {
        let bounds = bounds_by(&self.client, &source.topic, source.partition, timeout);
        drain(&self.client);
        let refused = |error| failed("asking for the bounds", error, &self.addresses, &self.client.context().reasons);
        Ok(bounds.map_err(|error| refused(error).with("partition", source))?.end)
    }
}

/// Returns a partition's bounds by any of our consumers. All use read_committed, so the end is that of what is
/// committed.
pub(super) fn bounds_by<C: ConsumerContext>(
    client: &BaseConsumer<C>,
    topic: &str,
    partition: i32,
    timeout: Duration,
) -> std::result::Result<PartitionBounds, KafkaError> {
    let (begin, end) = client.fetch_watermarks(topic, partition, timeout)?;
    Ok(PartitionBounds { partition, begin: Offset(begin), end: Offset(end) })
}
