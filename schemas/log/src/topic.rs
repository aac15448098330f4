//! Topics, their partitions, and the offsets that these still have.

use std::fmt;
use std::sync::Arc;

use types::Error;
use types::tiles::Micros;
use types::vector::Offset;

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

/// A partition's bounds in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionBounds {
    pub partition: i32,
    /// The first offset that is still there.
    pub begin: Offset,
    /// The offset that the next record will get (for a transactional log: the end of what is committed).
    pub end: Offset,
}

/// A transaction that was neither committed nor aborted. What follows it in its partition is not delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenTransaction {
    pub partition: i32,
    /// Of its first record.
    pub offset: Offset,
    /// How many offsets are held back, its own ones too.
    pub held_back: i64,
    /// The log's timestamp of its first record.
    pub since: Micros,
}

/// The size of all topics of a log together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogSize {
    pub records: u64,
    /// What they take where they are stored, with everything that is kept beside them.
    pub bytes: u64,
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
