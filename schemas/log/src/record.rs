//! Records on their way into the log: the partition that each goes to, and the outputs of sinks.

use std::sync::Arc;

use bytes::Bytes;

use crate::topic::TopicPartition;

/// A record that a producer passes to the log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewRecord {
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<(String, Bytes)>,
    /// The partition is chosen by this if the key is null (the event's id), or at random if both are absent.
    pub partition_by: Option<Bytes>,
}

/// The records that a sink makes of the events of one partition. Each event gives at most one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LogOutput {
    /// The consumer group whose workers make them.
    pub group: String,
    pub sink: Arc<str>,
    pub source: TopicPartition,
    /// The identity of the source's topic: offsets of another topic of that name mean other records.
    pub identity: String,
}

/// The longest JSON that a sink or an alert puts out as a record's value. By default Kafka refuses records of more than
/// about a megabyte.
pub const MAX_OUTPUT_BYTES: usize = 900 << 10;

/// Returns the partition of a record: by `key`, by `partition_by` if the key is null, else by `random`.
pub(crate) fn partition_for(record: &NewRecord, partitions: u32, random: u64) -> i32 {
    let hash = match record.key.as_ref().or(record.partition_by.as_ref()) {
        Some(bytes) => xxhash_rust::xxh3::xxh3_64(bytes),
        None => random,
    };
    (hash % u64::from(partitions.max(1))) as i32
}

/// Spreads one random number over the records of an append.
pub(crate) fn random_of(seed: u64, index: usize) -> u64 {
    (seed ^ index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
}
