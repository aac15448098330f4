//! The interface of all readers: a sequence of JSON records, each with its place in the file.

use bytes::Bytes;
use types::Result;

/// One record of an input.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct InputRecord {
    /// The line (JSON lines, CSV) or row (Parquet) where it begins, counted from 1.
    pub(super) number: u64,
    /// The record's value: a JSON object, if it is valid.
    pub(super) value: Bytes,
    /// Why it cannot be a record of the stream, if the reader already knows.
    pub(super) error: Option<String>,
    /// The last line, without its line end: it may still be being written.
    pub(super) unterminated: bool,
}

/// A reader of one input.
pub(super) trait Records: Send {
    /// Returns the next record; `None` at the end. An error ends the reading: the input itself cannot be read.
    fn next(&mut self) -> Result<Option<InputRecord>>;

    /// Skips the next `count` records; returns how many there were.
    fn skip(&mut self, count: u64) -> Result<u64> {
        for skipped in 0..count {
            if self.next()?.is_none() {
                return Ok(skipped);
            }
        }
        Ok(count)
    }

    /// Returns the bytes of the input read so far.
    fn bytes_done(&self) -> u64;

    /// After an error in the records themselves: returns how many bytes precede the first wrong record. A corrected
    /// file begins with the same bytes.
    fn sound_bytes(&self) -> Option<u64> {
        None
    }

    /// Returns true if the next record may not be available yet, so what was read should not wait for it.
    fn may_wait(&self) -> bool {
        false
    }
}
