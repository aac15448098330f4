//! Estimates what it costs to remember the ids of a window, for planning.

use super::space::{FILTER_EIGHTHS, TABLE_EIGHTHS};

/// Hundredths of a byte per id in a table: 25 bytes a bucket, of which seven of eight are used, plus a quarter of the
/// window because tables expire whole.
const TABLE_CENTIBYTES: u64 = 3_600;
/// The same per id in a run: its filter and fence, plus an eighth of the window because runs expire whole.
const FILTER_CENTIBYTES: u64 = 137;
/// The same per id in a file: 24 bytes and its share of a checksum, plus an eighth because runs expire whole and an
/// eighth while runs are merged.
const DISK_CENTIBYTES: u64 = 3_000;

/// An estimate of what a worker needs for the ids of one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DedupCost {
    /// At most the configured memory.
    pub memory_bytes: u64,
    /// 0 if all ids fit in memory.
    pub disk_bytes: u64,
    /// The least memory with which fresh ids are recognised without reading files; with less, the oldest ids are looked
    /// up on disk.
    pub full_speed_memory_bytes: u64,
}

impl DedupCost {
    /// Returns the cost of `ids` ids in the window, with this much memory for all partitions.
    pub fn estimate(ids: u64, memory_bytes: u64) -> Self {
        let bytes = |centibytes: u64| ids.saturating_mul(centibytes) / 100;
        let in_tables = bytes(TABLE_CENTIBYTES);
        let (table_limit, filter_limit) = (memory_bytes / 8 * TABLE_EIGHTHS as u64, memory_bytes / 8 * FILTER_EIGHTHS as u64);
        let filters = bytes(FILTER_CENTIBYTES);
        let full_speed_memory_bytes = (in_tables / TABLE_EIGHTHS as u64).min(filters / FILTER_EIGHTHS as u64).saturating_mul(8);
        if in_tables <= table_limit {
            return Self { memory_bytes: in_tables, disk_bytes: 0, full_speed_memory_bytes };
        }
        // Tables, filters, and the last eighth for background work on them.
        let memory = table_limit + filters.min(filter_limit) + memory_bytes / 8;
        let memory_bytes = if filters >= filter_limit { memory_bytes } else { memory };
        Self { memory_bytes, disk_bytes: bytes(DISK_CENTIBYTES), full_speed_memory_bytes }
    }

    /// True if fresh ids are recognised without reading files, with this much memory.
    pub fn is_full_speed(&self, memory_bytes: u64) -> bool {
        memory_bytes >= self.full_speed_memory_bytes
    }
}
