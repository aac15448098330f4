//! A record of the log, and what is remembered of one to recognise its log by.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::tiles::Micros;
use crate::vector::{Offset, PartitionId};

/// A record as the log delivers it. Its bytes are its own: they pin no fetch buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub offset: Offset,
    /// The log's time for this record, microseconds since 1970-01-01 UTC.
    pub timestamp: Micros,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<(String, Bytes)>,
}

/// The last record before a partition's committed position, as the log gave it. A log that has another record at its offset is
/// another log, whatever its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkRecord {
    pub partition: PartitionId,
    pub offset: Offset,
    pub timestamp: Micros,
    /// CRC-32 of its key, value and headers.
    pub checksum: u32,
}
