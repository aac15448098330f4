//! Dead letters: lists, exports and replays records that could not become events.
//!
//! ```text
//! dead-letter files -> list                                    what there is, and why
//!                   -> export -> corrections -> replay --file  the corrected values
//!                   -> replay                                  the original bytes (the stream's definition changed)
//! ```
//!
//! A replay appends new records to the log; from there they are decided like all others. The old record stays a dead
//! letter: the ledger accounts for its offset as one. The catalog records what was replayed, so a repeated replay sends
//! nothing twice.
//!
//! The events on which a view fails are listed and exported in the same way ([`list_view`]). They are no dead letters:
//! they are archived, and only that view leaves them out.

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use types::tiles::Micros;
use types::vector::Offset;

use crate::reason;

mod again;
mod export;
mod line;
mod list;
mod newest;
mod ranges;
mod read;
mod reasons;
mod recent;
mod replay;
mod view_errors;

pub use export::{ExportSummary, export};
pub use list::{DeadLetterListing, ListedLetter, ReasonCount, list};
pub(crate) use newest::NewestDeadLetters;
pub use reasons::FrequentReason;
pub use recent::{RecentDeadLetters, recent};
pub use replay::{RefusedLetter, ReplayOptions, ReplaySummary, replay};
pub use view_errors::{ViewError, ViewErrors, events_read, export_view, list_view};

/// The header of a replayed record: `topic/partition/offset` of the original record.
pub(crate) const REPLAYED_FROM: &str = "basestream-replayed-from";

/// Names these commands in the leases that keep the files that they read.
const PINNED_BY: &str = "dead-letters";

/// A record that could not become an event, with all of its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    pub stream: Arc<str>,
    /// The stream's topic.
    pub source: Arc<str>,
    pub partition: i32,
    pub offset: Offset,
    /// The log's timestamp of the record.
    pub timestamp: Option<Micros>,
    pub reason: String,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<(String, Bytes)>,
}

/// Selects the dead letters that match every given condition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    pub partition: Option<i32>,
    pub offset: Option<Offset>,
    /// A substring of the reason, or of the reason as it is counted.
    pub reason: Option<String>,
    /// The log received the record at this time or later.
    pub since: Option<Micros>,
}

/// A dead-letter file that cannot be read. The others are still read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DamagedFile {
    pub file: String,
    /// How many dead letters it holds.
    pub rows: i64,
    pub error: String,
}

impl Selection {
    /// Whether a dead letter matches all conditions.
    pub fn fits(&self, letter: &DeadLetter) -> bool {
        let has_reason = |wanted: &String| {
            let wanted = wanted.to_lowercase();
            letter.reason.to_lowercase().contains(&wanted) || reason::class(&letter.reason).to_lowercase().contains(&wanted)
        };
        self.partition.is_none_or(|partition| partition == letter.partition)
            && self.offset.is_none_or(|offset| offset == letter.offset)
            && self.since.is_none_or(|since| letter.timestamp.is_some_and(|at| at >= since))
            && self.reason.as_ref().is_none_or(has_reason)
    }
}

#[cfg(test)]
mod tests;
