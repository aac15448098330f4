//! What every reader yields: one JSON record after the other, with its place in the file.

use bytes::Bytes;
use types::Result;

/// One record of an input.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct InputRecord {
    /// The line (JSON lines, CSV) or row (Parquet) it begins at, counted from 1.
    pub(super) number: u64,
    /// The record's value: a JSON object, if all is well.
    pub(super) value: Bytes,
    /// Why it cannot be one of the stream, where the reader knows already.
    pub(super) error: Option<String>,
    /// The last line, without its line end: perhaps still being written.
    pub(super) unterminated: bool,
}

/// A reader of one input.
pub(super) trait Records: Send {
    /// The next record; `None` at the end. An error ends the reading: the input itself cannot be read.
    fn next(&mut self) -> Result<Option<InputRecord>>;

    /// Leaves out the next `count` records; answers how many there were.
    fn skip(&mut self, count: u64) -> Result<u64> {
        for skipped in 0..count {
            if self.next()?.is_none() {
                return Ok(skipped);
            }
        }
        Ok(count)
    }

    /// Bytes of the input read so far.
    fn bytes_done(&self) -> u64;

    /// After an error in the records themselves: how many bytes lie before the first that is wrong. A corrected file begins with them.
    fn sound_bytes(&self) -> Option<u64> {
        None
    }

    /// True when the next record may not be there yet, so that what was read should not wait for it.
    fn may_wait(&self) -> bool {
        false
    }
}
