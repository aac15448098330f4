//! Batch runs, and what a recomputation found.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use types::Strategy;
use types::tiles::Micros;
use types::uuid_text;
use types::vector::Vector;
use uuid::Uuid;

/// The state of a batch run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// Requested (HTTP, command) and not yet begun.
    Requested,
    Running,
    Succeeded,
    Failed,
    /// Ended without a snapshot because its version was dropped meanwhile: nothing went wrong.
    Dropped,
    /// Ended without a new snapshot because the published one holds everything up to the cut.
    Skipped,
}

/// One batch run. Its cut is pinned while it is `Running`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    #[serde(with = "uuid_text")]
    pub id: Uuid,
    pub view: Arc<str>,
    pub version: u32,
    pub status: RunStatus,
    /// The scheduled time of this run, if it has one.
    pub scheduled_for: Option<Micros>,
    pub attempt: u32,
    pub started_at: Option<Micros>,
    pub ended_at: Option<Micros>,
    pub cut: Option<Vector>,
    /// How its snapshot was made. `None` before it is made, and for runs of older releases.
    pub strategy: Option<Strategy>,
    pub events_read: i64,
    /// The size of the files that it read.
    #[serde(default)]
    pub bytes_read: i64,
    pub rows_written: i64,
    pub bytes_written: i64,
    /// How many tiers its snapshot has. 0 before it is published, and for runs of older releases.
    #[serde(default)]
    pub tiers: i64,
    /// The most that the run reserved of its memory limit.
    pub peak_memory_bytes: i64,
    /// The most memory that its process held meanwhile, with all else that the process did. 0 where that is not known.
    #[serde(default)]
    pub peak_resident_bytes: i64,
    /// What a recomputation found when it was compared with the snapshot before.
    #[serde(default)]
    pub comparison: Option<Comparison>,
    /// What a recomputation has saved so far.
    #[serde(default)]
    pub draft: Option<RunDraft>,
    /// Whether it recomputes beside incremental runs of its version, under a lease of its own
    /// ([`recompute_lease`](crate::recompute_lease)). False again once it only has to add what they added meanwhile.
    #[serde(default)]
    pub beside: bool,
    pub error: Option<String>,
}

/// The states of a part of the archive, which a recomputation has stored: if it is killed or fails, the next one goes
/// on from there. Its manifest is no snapshot's: nothing reads it but a run of the same view version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunDraft {
    /// The path of its manifest.
    pub path: String,
    pub bytes: i64,
    /// CRC-32 of the manifest.
    pub checksum: u32,
    /// How many archived events it holds.
    pub events: i64,
    /// How many of these an earlier run had read.
    pub resumed: i64,
    /// What its states are; a run does not continue with those of another format.
    #[serde(default)]
    pub format: u32,
}

/// The format of drafts whose states are stored as they were aggregated. Before, they were sorted and rolled up.
pub const DRAFT_FORMAT: u32 = 1;

/// A recomputation from the archive, or a replay, compared with the states that incremental runs had kept up to the
/// same cut.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The state rows that one side or both have.
    pub rows: i64,
    pub differences: i64,
    /// The first few differences.
    pub first: Vec<StateDifference>,
    pub seconds: f64,
    /// The size of the files that were read for it.
    pub bytes_read: i64,
    /// Why it could not be made, or not to its end.
    #[serde(default)]
    pub error: Option<String>,
}

/// A state that a recomputation gives another value than incremental runs did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateDifference {
    pub key: String,
    /// The view's columns that need the state; `*` for a row that only one side has.
    pub column: String,
    /// The state as SQL; `__events` for the number of events.
    pub state: String,
    /// The length of the row's tile, and its start.
    pub level: String,
    pub tile: String,
    /// What incremental runs had kept.
    pub kept: String,
    pub recomputed: String,
}

impl Comparison {
    /// The number of differences; `None` if it says nothing, because it was not made to its end and found none.
    pub fn found(&self) -> Option<i64> {
        (self.error.is_none() || self.differences > 0).then_some(self.differences)
    }
}

impl RunRecord {
    /// Returns a requested run.
    pub fn requested(view: Arc<str>, version: u32) -> RunRecord {
        RunRecord {
            id: Uuid::now_v7(),
            view,
            version,
            status: RunStatus::Requested,
            scheduled_for: None,
            attempt: 1,
            started_at: None,
            ended_at: None,
            cut: None,
            strategy: None,
            events_read: 0,
            rows_written: 0,
            bytes_written: 0,
            peak_memory_bytes: 0,
            bytes_read: 0,
            tiers: 0,
            peak_resident_bytes: 0,
            comparison: None,
            draft: None,
            beside: false,
            error: None,
        }
    }
}
