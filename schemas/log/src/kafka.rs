//! The log in Apache Kafka, through librdkafka.
//!
//! The catalog holds the offsets and the group commits none, so a start position that the log no longer has is an error
//! and not a silent jump. Reads are `read_committed`; offsets have gaps where a topic has transactions or is compacted.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use uuid::Uuid;

use crate::log::check_before;
use crate::{
    Consumer, Fetched, Log, LogOutput, NewRecord, OpenTransaction, OutputAppender, PartitionBounds, Subscription, TakenOutput,
    TopicPartition,
};
use types::outage::{Attempts, Outage};
use types::tiles::Clock;
use types::vector::Offset;
use types::{Error, Result};

mod assignment;
mod client;
mod cluster;
mod consumer;
mod output;
mod producer;
mod reader;
mod record;
mod settings;
mod topic_id;

use client::{Quiet, lock};
use cluster::{Cluster, UncommittedReader};
pub use output::positions_topic;
use output::{Appended, OutputOwner, Outputs};
use producer::Appender;
use settings::KafkaSettings;

/// How long the producer caches a topic's number of partitions.
const PARTITIONS_KNOWN: Duration = Duration::from_secs(10);

/// In these the brokers keep what they have to remember themselves.
const TOPICS_OF_KAFKA: [&str; 5] =
    ["__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata", "__remote_log_metadata"];

/// The log in one Kafka cluster.
pub struct KafkaLog {
    settings: KafkaSettings,
    clock: Clock,
    topics: Arc<Topics>,
    appender: Appender,
    outputs: Arc<Outputs>,
    appends: Attempts,
}

/// What is asked of the cluster, and the numbers of partitions that are known.
struct Topics {
    cluster: Arc<Cluster>,
    partitions: Mutex<KnownPartitions>,
}

/// The number of partitions of each topic, and when it was asked for.
#[derive(Default)]
struct KnownPartitions(HashMap<String, (u32, Instant)>);

/// The owner of an output.
struct KafkaOutput {
    topics: Arc<Topics>,
    owner: Arc<OutputOwner>,
}

impl KafkaLog {
    /// Checks the addresses (`host:port,host:port`) and the librdkafka properties, and creates the metadata client.
    /// Does not connect to a broker yet. Errors: `Input` for what librdkafka refuses and for properties that our
    /// guarantees depend on.
    pub fn open(addresses: &str, properties: &BTreeMap<String, String>) -> Result<KafkaLog> {
        Self::open_with_clock(addresses, properties, Arc::new(|| chrono::Utc::now().timestamp_micros()))
    }

    fn open_with_clock(addresses: &str, properties: &BTreeMap<String, String>, clock: Clock) -> Result<KafkaLog> {
        let settings = KafkaSettings::new(addresses, properties)?;
        let topics = Arc::new(Topics { cluster: Arc::new(Cluster::new(&settings)?), partitions: Mutex::default() });
        let appender = Appender::new(settings.clone());
        let outputs = Arc::new(Outputs::new(settings.clone(), clock.clone()));
        Ok(KafkaLog { settings, clock, topics, appender, outputs, appends: Attempts::new("the log takes no records") })
    }

    async fn ask<T: Send + 'static>(&self, call: impl FnOnce(&Cluster) -> Result<T> + Send + 'static) -> Result<T> {
        self.topics.ask(call).await
    }

    fn admin(&self) -> Result<AdminClient<Quiet>> {
        AdminClient::from_config_and_context(&self.settings.metadata(), Quiet::default()).map_err(settings::refusal)
    }

    /// Creates a topic with the brokers' default replication. A topic that already exists is no error.
    async fn make_topic(&self, topic: &str, partitions: i32, options: &[(&str, &str)]) -> Result<()> {
        let admin = self.admin()?;
        let fresh = NewTopic::new(topic, partitions, TopicReplication::Fixed(-1));
        let fresh = options.iter().fold(fresh, |fresh, (name, value)| fresh.set(name, value));
        let options = AdminOptions::new().operation_timeout(Some(cluster::TIMEOUT)).request_timeout(Some(cluster::TIMEOUT));
        let failed = |error: KafkaError| {
            let reasons = &admin.inner().context().reasons;
            client::failed("making the topic", error, &self.settings.addresses, reasons).with("topic", topic)
        };
        for made in admin.create_topics([&fresh], &options).await.map_err(failed)? {
            match made {
                Ok(_) => tracing::info!(topic, partitions, "a topic that did not exist was created"),
                Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((_, code)) => return Err(failed(KafkaError::Global(code))),
            }
        }
        Ok(())
    }
}

impl Topics {
    /// Runs a blocking call to the cluster on a thread that may block.
    async fn ask<T: Send + 'static>(&self, call: impl FnOnce(&Cluster) -> Result<T> + Send + 'static) -> Result<T> {
        let cluster = self.cluster.clone();
        tokio::task::spawn_blocking(move || call(&cluster)).await?
    }

    async fn partitions_of(&self, topic: &str) -> Result<u32> {
        if let Some(partitions) = lock(&self.partitions).get(topic, Instant::now()) {
            return Ok(partitions);
        }
        let name = topic.to_owned();
        let partitions = self.ask(move |cluster| cluster.expect_partitions(&name)).await?;
        lock(&self.partitions).insert(topic, partitions, Instant::now());
        Ok(partitions)
    }
}

impl KnownPartitions {
    fn get(&self, topic: &str, now: Instant) -> Option<u32> {
        let (partitions, at) = self.0.get(topic)?;
        (now.duration_since(*at) < PARTITIONS_KNOWN).then_some(*partitions)
    }

    /// Forgets the topics that have to be asked about again, so that those to which nothing is appended do not stay.
    fn insert(&mut self, topic: &str, partitions: u32, now: Instant) {
        self.0.retain(|_, (_, at)| now.duration_since(*at) < PARTITIONS_KNOWN);
        self.0.insert(topic.to_owned(), (partitions, now));
    }
}

#[async_trait]
impl Log for KafkaLog {
    async fn create_topic(&self, topic: &str, partitions: u32) -> Result<u32> {
        if TOPICS_OF_KAFKA.contains(&topic) {
            return Err(Error::input("this topic is Kafka's own: it has no events, and takes none").with("topic", topic));
        }
        let name = topic.to_owned();
        if let Some(partitions) = self.ask(move |cluster| cluster.partitions(&name)).await? {
            return Ok(partitions);
        }
        let wrong = || Error::input("a topic needs a name and at least one partition").with("topic", topic).with("partitions", partitions);
        let wanted = i32::try_from(partitions).ok().filter(|wanted| *wanted > 0 && !topic.is_empty()).ok_or_else(wrong)?;
        self.make_topic(topic, wanted, &[]).await?;
        let name = topic.to_owned();
        self.ask(move |cluster| cluster.wait_for(&name)).await
    }

    async fn bounds(&self, topic: &str) -> Result<Vec<PartitionBounds>> {
        let topic = topic.to_owned();
        self.ask(move |cluster| cluster.bounds(&topic)).await
    }

    /// The bounds are those of what is committed.
    async fn offsets_given(&self, topic: &str) -> Result<i64> {
        let (settings, topic) = (self.settings.clone(), Arc::from(topic));
        self.ask(move |cluster| {
            let partitions = cluster.partitions(&topic)?.unwrap_or_default();
            let reader = UncommittedReader::new(&settings)?;
            let end = |partition| Ok(reader.end(&TopicPartition { topic: Arc::clone(&topic), partition })?.0);
            (0..partitions as i32).map(end).sum()
        })
        .await
    }

    /// By one request, where the bounds take two for each partition.
    async fn partition_count(&self, topic: &str) -> Result<Option<u32>> {
        let topic = topic.to_owned();
        self.ask(move |cluster| cluster.partitions(&topic)).await
    }

    async fn open_transactions(&self, topic: &str, partitions: &[i32]) -> Result<Vec<OpenTransaction>> {
        let (settings, topic, partitions) = (self.settings.clone(), Arc::<str>::from(topic), partitions.to_vec());
        self.ask(move |cluster| {
            let uncommitted = UncommittedReader::new(&settings)?;
            let sources = partitions.into_iter().map(|partition| TopicPartition { topic: topic.clone(), partition });
            let open = sources.map(|source| reader::open_transaction(&settings, cluster, &uncommitted, &source));
            open.filter_map(Result::transpose).collect()
        })
        .await
    }

    /// A topic whose settings this user may not see is taken for one that is not.
    async fn is_compacted(&self, topic: &str) -> Result<bool> {
        let admin = self.admin()?;
        let (asked, options) = (ResourceSpecifier::Topic(topic), AdminOptions::new().request_timeout(Some(cluster::TIMEOUT)));
        let failed = |error: KafkaError| {
            let reasons = &admin.inner().context().reasons;
            client::failed("asking for the settings of the topic", error, &self.settings.addresses, reasons).with("topic", topic)
        };
        let is_compact = |value: &str| value.split(',').any(|policy| policy.trim() == "compact");
        let mut is_compacted = false;
        for found in admin.describe_configs([&asked], &options).await.map_err(failed)? {
            match found {
                Ok(found) => is_compacted |= found.get("cleanup.policy").and_then(|policy| policy.value.as_deref()).is_some_and(is_compact),
                Err(RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::ClusterAuthorizationFailed) => {}
                Err(code) => return Err(failed(KafkaError::Global(code))),
            }
        }
        Ok(is_compacted)
    }

    async fn identity(&self, topic: &str) -> Result<String> {
        let topic = topic.to_owned();
        self.ask(move |cluster| cluster.identity(&topic)).await
    }

    async fn topic_id(&self, topic: &str) -> Result<String> {
        let topic = topic.to_owned();
        self.ask(move |cluster| cluster.topic_id(&topic)).await
    }

    async fn append(&self, topic: &str, records: Vec<NewRecord>) -> Result<Vec<(i32, Offset)>> {
        if records.is_empty() {
            return Ok(Vec::new());
        }
        self.append_each(topic, records).await.into_iter().collect()
    }

    async fn append_each(&self, topic: &str, records: Vec<NewRecord>) -> Vec<Result<(i32, Offset)>> {
        let outcomes = match self.topics.partitions_of(topic).await {
            Ok(partitions) => self.appender.append(topic, partitions, &records, Uuid::new_v4().as_u128() as u64).await,
            Err(error) => records.iter().map(|_| Err(error.copied())).collect(),
        };
        self.appends.note(&outcomes.iter().find_map(|outcome| outcome.as_ref().err()).map_or(Ok(()), |error| Err(error.copied())));
        outcomes
    }

    async fn take_over_output(&self, output: &LogOutput) -> Result<TakenOutput> {
        let positions = positions_topic(&output.group);
        let name = positions.clone();
        if self.ask(move |cluster| cluster.partitions(&name)).await?.is_none() {
            // Its segments are short, so that compaction keeps the topic small: each transaction adds a record.
            let options = [("cleanup.policy", "compact"), ("segment.ms", "60000"), ("min.cleanable.dirty.ratio", "0.1")];
            self.make_topic(&positions, 1, &options).await?;
            self.ask(move |cluster| cluster.wait_for(&positions)).await?;
        }
        let (outputs, taken) = (self.outputs.clone(), output.clone());
        let owner = self.ask(move |cluster| outputs.take_over(cluster, taken)).await?;
        let next = owner.next();
        Ok(TakenOutput { appender: Arc::new(KafkaOutput { topics: self.topics.clone(), owner: Arc::new(owner) }), next })
    }

    async fn read(&self, source: &TopicPartition, from: Offset, max_records: usize) -> Result<Fetched> {
        let (settings, clock) = (self.settings.clone(), self.clock.clone());
        let source = source.clone();
        self.ask(move |cluster| reader::read(&settings, &clock, cluster, &source, from, max_records.max(1))).await
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Consumer> {
        let (settings, clock) = (self.settings.clone(), self.clock.clone());
        self.ask(move |cluster| {
            for topic in &subscription.topics {
                cluster.expect_partitions(topic)?;
            }
            consumer::start(&settings, clock, &subscription)
        })
        .await
    }

    fn outages(&self) -> Vec<Outage> {
        self.appends.outage().into_iter().collect()
    }
}

#[async_trait]
impl OutputAppender for KafkaOutput {
    async fn append(&self, topic: &str, records: Vec<(Offset, NewRecord)>, next: Offset) -> Result<()> {
        check_before(next, &records)?;
        let partitions = self.topics.partitions_of(topic).await?;
        let (owner, topic) = (self.owner.clone(), topic.to_owned());
        self.topics.ask(move |_| owner.append(&Appended { topic: &topic, partitions, records: &records, next })).await
    }
}

impl fmt::Debug for KafkaOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaOutput").field("output", self.owner.output()).finish_non_exhaustive()
    }
}

impl fmt::Debug for KafkaLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaLog").field("brokers", &self.settings.addresses).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
