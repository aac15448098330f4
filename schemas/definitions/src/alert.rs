//! `CREATE ALERT`: what is put out when a key's row begins to satisfy a condition.

use std::sync::Arc;
use std::time::Duration;

use crate::origin::Origin;

/// One SELECT with a WHERE over the rows of one view. Each time that a key's row begins to satisfy it gives one record.
#[derive(Debug, Clone, PartialEq)]
pub struct AlertDefinition {
    pub name: Arc<str>,
    /// The topic that the records go to. It may be a stream's.
    pub topic: Arc<str>,
    /// While a row satisfies the condition, a record is repeated this often. Absent: never.
    pub repeat: Option<Duration>,
    /// Whether a record says that a row has ceased to satisfy the condition.
    pub resolve: bool,
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
