//! Decides how many bytes of records go into a micro-batch, so that its events and states stay within their part of the
//! worker's memory. The memory that records will take is not known before the views have read them: one view may keep a
//! few bytes of each, a hundred views some kilobytes. So it is estimated from earlier micro-batches.

/// A micro-batch takes about 1/`PARTS` of a worker's memory.
const PARTS: usize = 32;
/// The assumed number of bytes for a byte of records, before any micro-batch was measured.
const UNKNOWN: usize = 64;
/// A micro-batch with less than 1/`SAYING` of the records that it may have is not used for the estimate: most of its
/// memory is spare capacity of arrays.
const SAYING: usize = 4;

#[derive(Debug, Default)]
pub(super) struct BatchRoom {
    /// The memory for the events and states of a micro-batch.
    bytes: usize,
    /// How many bytes a byte of records takes with its events and states.
    per_byte: usize,
}

impl BatchRoom {
    pub(super) fn new(memory_bytes: usize) -> Self {
        Self { bytes: memory_bytes / PARTS, per_byte: UNKNOWN }
    }

    /// A micro-batch is full once it has this many bytes of records.
    pub(super) fn record_bytes(&self) -> usize {
        (self.bytes / self.per_byte.max(1)).max(1)
    }

    /// Updates the estimate with a micro-batch: the bytes of its records, and those of its events and states.
    pub(super) fn note(&mut self, record_bytes: usize, taken_bytes: usize) {
        if record_bytes >= self.record_bytes().div_ceil(SAYING) {
            // After a micro-batch of duplicates the next one may have none.
            self.per_byte = taken_bytes.div_ceil(record_bytes).max(self.per_byte / 2);
        }
    }
}

#[cfg(test)]
mod tests;
