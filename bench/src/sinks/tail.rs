//! Follows the topic of the records as it grows; on Kafka only what is committed can be read.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use event_log::{Log, TopicPartition};
use event_sinks::source_of;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::{ClientConfig, TopicPartitionList};
use serde::Deserialize;
use types::vector::Offset;
use types::{Error, Result};
use uuid::Uuid;

use crate::payments::{PARTITIONS, Topic};

const AT_ONCE: usize = 20_000;

/// Where a record names the partition and the offset of its event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// In a header, as basestream writes it.
    Header,
    /// In two columns, which Flink fills from what Kafka says of the event.
    Columns,
}

/// A record that can be read.
pub(super) struct Arrived {
    pub(super) partition: i32,
    /// The partition and the offset of its event.
    pub(super) event: (i32, i64),
    pub(super) at: Instant,
}

pub(super) struct Tail {
    pub(super) origin: Origin,
    reads: Reads,
}

enum Reads {
    Embedded {
        log: Arc<dyn Log>,
        topic: Arc<str>,
        next: Vec<Offset>,
    },
    /// One consumer for all reads: those of the log begin with a new one each, which takes longer than a record.
    Kafka(Box<BaseConsumer>),
}

#[derive(Deserialize)]
struct OriginColumns {
    source_partition: i32,
    source_offset: i64,
}

impl Tail {
    /// From the beginning of the topic.
    pub(super) async fn begin(records: &Topic, origin: Origin) -> Result<Tail> {
        let reads = match records.brokers() {
            Some(brokers) => Reads::Kafka(Box::new(consumer(brokers, &records.name).map_err(failed)?)),
            None => Reads::Embedded {
                log: records.open().await?,
                topic: records.name.as_str().into(),
                next: vec![Offset::ZERO; PARTITIONS as usize],
            },
        };
        Ok(Tail { origin, reads })
    }

    /// What can be read at the moment, up to some number of records.
    pub(super) async fn read(&mut self) -> Result<Vec<Arrived>> {
        let (origin, mut arrived) = (self.origin, Vec::new());
        match &mut self.reads {
            Reads::Embedded { log, topic, next } => {
                for (partition, next) in next.iter_mut().enumerate() {
                    let partition = partition as i32;
                    let fetched = log.read(&TopicPartition { topic: topic.clone(), partition }, *next, AT_ONCE).await?;
                    let at = Instant::now();
                    for record in &fetched.records {
                        let event = event_of(origin, &record.headers, record.value.as_deref())?;
                        arrived.push(Arrived { partition, event, at });
                    }
                    *next = fetched.position;
                }
            }
            Reads::Kafka(consumer) => {
                while arrived.len() < AT_ONCE {
                    let Some(polled) = consumer.poll(Duration::ZERO) else { break };
                    let message = polled.map_err(failed)?;
                    let event = event_of(origin, &headers_of(&message), message.payload())?;
                    arrived.push(Arrived { partition: message.partition(), event, at: Instant::now() });
                }
            }
        }
        Ok(arrived)
    }
}

fn consumer(brokers: &str, topic: &str) -> std::result::Result<BaseConsumer, KafkaError> {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", brokers)
        .set("group.id", format!("bench-{}", Uuid::now_v7().simple()))
        .set("enable.auto.commit", "false")
        .set("isolation.level", "read_committed")
        .set("fetch.wait.max.ms", "10")
        .set("fetch.queue.backoff.ms", "20");
    let consumer: BaseConsumer = config.create()?;
    let mut all = TopicPartitionList::new();
    for partition in 0..PARTITIONS as i32 {
        all.add_partition_offset(topic, partition, rdkafka::Offset::Beginning)?;
    }
    consumer.assign(&all)?;
    Ok(consumer)
}

fn headers_of(message: &BorrowedMessage<'_>) -> Vec<(String, Bytes)> {
    let Some(headers) = message.headers() else { return Vec::new() };
    headers.iter().map(|header| (header.key.to_owned(), header.value.map(Bytes::copy_from_slice).unwrap_or_default())).collect()
}

fn event_of(origin: Origin, headers: &[(String, Bytes)], value: Option<&[u8]>) -> Result<(i32, i64)> {
    let event = match origin {
        Origin::Header => source_of(headers).map(|(source, offset)| (source.partition, offset.0)),
        Origin::Columns => {
            let columns: Option<OriginColumns> = serde_json::from_slice(value.unwrap_or_default()).ok();
            columns.map(|columns| (columns.source_partition, columns.source_offset))
        }
    };
    event.ok_or_else(|| Error::internal("a record does not say which event it is of"))
}

fn failed(error: KafkaError) -> Error {
    Error::unavailable("the records cannot be read").with("error", error)
}
