//! Reads a range of one partition, or the first record of an open transaction, with a short-lived consumer that joins
//! no group.

use std::time::{Duration, Instant};

use rdkafka::TopicPartitionList;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use uuid::Uuid;

use super::client::{Quiet, failed};
use super::cluster::{Cluster, UncommittedReader};
use super::record::record_of;
use super::settings::{self, KafkaSettings};
use crate::topic::outside;
use crate::{Fetched, OpenTransaction, TopicPartition};
use types::tiles::Clock;
use types::vector::Offset;
use types::{Error, Result};

/// A read that gets nothing for this long fails.
const STALL: Duration = Duration::from_secs(30);

pub(super) fn read(
    settings: &KafkaSettings,
    clock: &Clock,
    cluster: &Cluster,
    source: &TopicPartition,
    from: Offset,
    max_records: usize,
) -> Result<Fetched> {
    let partitions = cluster.expect_partitions(&source.topic)?;
    if source.partition < 0 || source.partition as u32 >= partitions {
        return Err(cluster.no_topic(&source.topic).with("partition", source.partition));
    }
    let fetched_at = clock();
    let bounds = cluster.bounds_of(source)?;
    if from < bounds.begin || from > bounds.end {
        return Err(outside(source, from, bounds.begin, bounds.end));
    }
    let mut fetched = Fetched { source: source.clone(), records: Vec::new(), position: from, at_end: from == bounds.end, fetched_at };
    if fetched.at_end {
        return Ok(fetched);
    }
    let group = format!("basestream-read-{}", Uuid::new_v4());
    let consumer = BaseConsumer::from_config_and_context(&settings.consumer(&group, "basestream-read"), Quiet::default());
    let consumer: BaseConsumer<Quiet> = consumer.map_err(settings::refusal)?;
    fill(&consumer, &mut fetched, (bounds.end, max_records)).map_err(|error| {
        failed("reading the log", error, &settings.addresses, &consumer.context().reasons).with("partition", source).with("offset", from)
    })?;
    if fetched.position == from {
        return Err(Error::unavailable("the log delivered nothing")
            .with("partition", source)
            .with("offset", from)
            .with("brokers", &settings.addresses));
    }
    fetched.at_end |= fetched.position >= bounds.end;
    Ok(fetched)
}

/// Returns the transaction that holds back what follows it in a partition, if there is one: with its first record the
/// part ends that is committed, or aborted.
pub(super) fn open_transaction(
    settings: &KafkaSettings,
    cluster: &Cluster,
    uncommitted: &UncommittedReader,
    source: &TopicPartition,
) -> Result<Option<OpenTransaction>> {
    // In this order: what is appended in between is not taken for one.
    let end = uncommitted.end(source)?;
    let offset = cluster.bounds_of(source)?.end;
    if offset >= end {
        return Ok(None);
    }
    let group = format!("basestream-read-{}", Uuid::new_v4());
    let mut config = settings.consumer(&group, "basestream-read");
    config.set("isolation.level", "read_uncommitted");
    let consumer: BaseConsumer<Quiet> = BaseConsumer::from_config_and_context(&config, Quiet::default()).map_err(settings::refusal)?;
    let mut fetched = Fetched { source: source.clone(), records: Vec::new(), position: offset, at_end: false, fetched_at: 0 };
    fill(&consumer, &mut fetched, (end, 1)).map_err(|error| {
        failed("reading the log", error, &settings.addresses, &consumer.context().reasons).with("partition", source).with("offset", offset)
    })?;
    let first = fetched.records.first();
    let held_back = end.0 - offset.0;
    Ok(first.map(|first| OpenTransaction { partition: source.partition, offset, held_back, since: first.timestamp }))
}

/// Stops at `end` (where the partition ended when the read began), after `max_records`, or after [`STALL`] without a
/// record. In a topic to which others write, the event that says that the partition is at its end may never come.
fn fill(consumer: &BaseConsumer<Quiet>, fetched: &mut Fetched, (end, max_records): (Offset, usize)) -> std::result::Result<(), KafkaError> {
    let source = fetched.source.clone();
    let mut start = TopicPartitionList::new();
    start.add_partition_offset(&source.topic, source.partition, rdkafka::Offset::Offset(fetched.position.0))?;
    consumer.assign(&start)?;
    let mut last = Instant::now();
    while fetched.position < end && fetched.records.len() < max_records && last.elapsed() < STALL {
        match consumer.poll(Duration::from_millis(100)) {
            // Markers of transactions are passed without a record.
            None => {
                fetched.position = position_of(consumer, &source).unwrap_or(fetched.position).max(fetched.position);
                continue;
            }
            Some(Ok(message)) => {
                let record = record_of(&message);
                fetched.position = record.offset.next();
                fetched.records.push(record);
            }
            Some(Err(KafkaError::PartitionEOF(_))) => {
                fetched.at_end = true;
                fetched.position = position_of(consumer, &source).unwrap_or(fetched.position).max(fetched.position);
                break;
            }
            Some(Err(error)) if error.rdkafka_error_code().is_none_or(super::consumer::is_passing) => {
                tracing::debug!(%error, partition = %source, "kafka read error, trying again");
                continue;
            }
            Some(Err(error)) => return Err(error),
        }
        last = Instant::now();
    }
    Ok(())
}

fn position_of(consumer: &BaseConsumer<Quiet>, source: &TopicPartition) -> Option<Offset> {
    let positions = consumer.position().ok()?;
    match positions.find_partition(&source.topic, source.partition)?.offset() {
        rdkafka::Offset::Offset(offset) => Some(Offset(offset)),
        _ => None,
    }
}
