//! Whether a log is the one whose records are committed.

use catalog::PartitionRecord;
use types::vector::Offset;
use types::{Error, Result};

/// Refuses a log that has other records of a partition than the committed ones, or fewer: the speed layer does not read
/// it, so what is appended to it would not be counted. `identity` is that of the topic, and `end` the partition's end.
///
/// Errors: `Unavailable`, with what is to be done.
pub fn check_log(known: &PartitionRecord, identity: &str, end: Offset) -> Result<()> {
    let PartitionRecord { id, next_offset, log_identity, .. } = known;
    if !log_identity.is_empty() && log_identity != identity {
        return Err(Error::unavailable("the log is not the one that the catalog knows: what is appended to it would not be counted")
            .with("partition", id)
            .with("found", identity)
            .with("expected", log_identity)
            .with("help", "point log.url at the log that was read; `basestream status` says what else helps"));
    }
    if *next_offset > end {
        return Err(Error::unavailable("the log is shorter than the catalog expects: what is appended to it would not be counted")
            .with("partition", id)
            .with("committed", next_offset)
            .with("end", end)
            .with("help", "restore the log; `basestream status` says what else helps"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
