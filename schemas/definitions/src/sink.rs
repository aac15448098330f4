//! `CREATE SINK`: what is put out for each event of a stream.

use std::sync::Arc;
use std::time::Duration;

use crate::origin::Origin;

/// One SELECT over one event of a stream and the rows of views that belong to it. Each accepted event gives one record.
#[derive(Debug, Clone, PartialEq)]
pub struct SinkDefinition {
    pub name: Arc<str>,
    /// The topic that the records go to. It may be another stream's.
    pub topic: Arc<str>,
    /// The column whose value is the record's key. Absent: the key of the event's record.
    pub key: Option<String>,
    pub features: Features,
    /// How long the embedded log keeps the records. Absent: as long as the records of streams. Kafka's topics have
    /// settings of their own.
    pub retention: Option<Duration>,
    /// The SELECT's text, and where it begins in the file (line and column, counted from 1).
    pub select: String,
    pub select_line: usize,
    pub select_column: usize,
    /// The statement's text.
    pub sql: String,
    pub origin: Origin,
}

/// Whether the rows of views count the event for which they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Features {
    #[default]
    Inclusive,
    Exclusive,
}
