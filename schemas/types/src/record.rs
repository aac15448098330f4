//! A record of the log, and the mark that identifies its log.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::tiles::Micros;
use crate::vector::{Offset, PartitionId};

/// A record as the log delivers it. It owns its bytes: they pin no fetch buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub offset: Offset,
    /// The log's timestamp of this record, in microseconds since 1970-01-01 UTC.
    pub timestamp: Micros,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<(String, Bytes)>,
}

impl Record {
    /// About how many bytes of memory it takes.
    pub fn memory_bytes(&self) -> usize {
        let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        let headers: usize = self.headers.iter().map(|header| size_of_val(header) + header.0.len() + header.1.len()).sum();
        size_of_val(self) + length(&self.key) + length(&self.value) + headers
    }
}

/// The last record before a partition's committed position, as the log delivered it. A log with another record at this
/// offset is a different log, whatever its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkRecord {
    pub partition: PartitionId,
    pub offset: Offset,
    pub timestamp: Micros,
    /// CRC-32 of its key, value and headers.
    pub checksum: u32,
}
