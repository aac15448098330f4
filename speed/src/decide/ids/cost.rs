//! What remembering the ids of a window costs, for a person who plans it.

use super::space::{FILTER_EIGHTHS, TABLE_EIGHTHS};

/// Hundredths of a byte of an id in a table: 25 bytes a bucket, seven of eight used, and a quarter of the window more to leave whole.
const TABLE_CENTIBYTES: u64 = 3_600;
/// Of an id in a run: its filter and fence, and an eighth of the window more to leave whole.
const FILTER_CENTIBYTES: u64 = 137;
/// Of an id in a file: 24 bytes and its part of a checksum, an eighth to leave whole, an eighth while runs are merged.
const DISK_CENTIBYTES: u64 = 3_000;

/// About what a worker takes for the ids of one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DedupCost {
    /// At most the setting.
    pub memory_bytes: u64,
    /// 0 when all ids fit the memory.
    pub disk_bytes: u64,
    /// The least setting with which fresh ids are told apart without reading files; past it the oldest ids are looked up on disk.
    pub full_speed_memory_bytes: u64,
}

impl DedupCost {
    /// Of `ids` in the window, with this much memory for all partitions.
    pub fn of(ids: u64, memory_bytes: u64) -> Self {
        let bytes = |centibytes: u64| ids.saturating_mul(centibytes) / 100;
        let in_tables = bytes(TABLE_CENTIBYTES);
        let (table_limit, filter_limit) = (memory_bytes / 8 * TABLE_EIGHTHS as u64, memory_bytes / 8 * FILTER_EIGHTHS as u64);
        let filters = bytes(FILTER_CENTIBYTES);
        let full_speed_memory_bytes = (in_tables / TABLE_EIGHTHS as u64).min(filters / FILTER_EIGHTHS as u64).saturating_mul(8);
        if in_tables <= table_limit {
            return Self { memory_bytes: in_tables, disk_bytes: 0, full_speed_memory_bytes };
        }
        // Tables, filters, and the last eighth for the work on them.
        let memory = table_limit + filters.min(filter_limit) + memory_bytes / 8;
        let memory_bytes = if filters >= filter_limit { memory_bytes } else { memory };
        Self { memory_bytes, disk_bytes: bytes(DISK_CENTIBYTES), full_speed_memory_bytes }
    }

    /// True when fresh ids are told apart without reading files, with this much memory.
    pub fn is_full_speed(&self, memory_bytes: u64) -> bool {
        memory_bytes >= self.full_speed_memory_bytes
    }
}
