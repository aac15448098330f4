//! What the catalog holds: its records.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use types::tiles::Micros;
use types::uuid_text;
use types::vector::{Offset, PartitionId, Vector};
use uuid::Uuid;

/// A number that grows by one with every commit: catalog states are totally ordered by it.
pub type Revision = i64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DefinitionKind {
    Stream,
    View,
}

/// One version of a definition. A view's new version is `Building` beside the old until its first snapshot is published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefinitionRecord {
    pub kind: DefinitionKind,
    pub name: Arc<str>,
    pub version: u32,
    /// The text of the definition, as written by its user.
    pub sql: String,
    pub status: DefinitionStatus,
    pub created_at: Micros,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DefinitionStatus {
    /// Kept up by the speed layer, not yet served.
    Building,
    /// The version that is served.
    Active,
    /// Replaced or dropped; kept for history.
    Retired,
}

/// A partition's committed position. Advanced by compare-and-advance alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionRecord {
    pub id: PartitionId,
    pub next_offset: Offset,
    /// The identity of the log this position belongs to.
    pub log_identity: String,
    /// The partition's clock: the greatest record timestamp before `next_offset`.
    pub clock: Option<Micros>,
    /// The greatest event time of all accepted events before `next_offset`.
    pub max_event_time: Option<Micros>,
    /// Every record the log took before this time is before `next_offset`.
    pub complete_to: Option<Micros>,
}

/// What a checkpoint did in one partition: `end - start = archived + duplicate + dead_lettered + absent`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRange {
    pub partition: PartitionId,
    pub start: Offset,
    pub end: Offset,
    pub archived: i64,
    pub duplicate: i64,
    pub dead_lettered: i64,
    /// Offsets that delivered no record.
    pub absent: i64,
    /// The partition's values after this checkpoint.
    pub clock: Option<Micros>,
    pub max_event_time: Option<Micros>,
    pub complete_to: Option<Micros>,
}

/// A commit of one worker: ranges of its partitions, and the files that hold them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRecord {
    #[serde(with = "uuid_text")]
    pub id: Uuid,
    pub worker: String,
    pub committed_at: Micros,
    /// Set by the commit.
    #[serde(default)]
    pub revision: Revision,
    pub ranges: Vec<CheckpointRange>,
}

/// The snapshot that a view version is served from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRecord {
    pub view: Arc<str>,
    pub version: u32,
    #[serde(with = "uuid_text")]
    pub run: Uuid,
    pub cut: Vector,
    /// The path of its manifest.
    pub manifest: String,
    pub published_at: Micros,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// Asked for (HTTP, command) and not yet begun.
    Requested,
    Running,
    Succeeded,
    Failed,
}

/// One batch run. While it is `Running` its cut is pinned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    #[serde(with = "uuid_text")]
    pub id: Uuid,
    pub view: Arc<str>,
    pub version: u32,
    pub status: RunStatus,
    /// The time of the schedule this run answers, when it has one.
    pub scheduled_for: Option<Micros>,
    pub attempt: u32,
    pub started_at: Option<Micros>,
    pub ended_at: Option<Micros>,
    pub cut: Option<Vector>,
    pub events_read: i64,
    pub rows_written: i64,
    pub bytes_written: i64,
    pub peak_memory_bytes: i64,
    pub error: Option<String>,
}

/// A named right that expires: a run of a view, a partition of the embedded log, a serving node's pin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRecord {
    pub name: String,
    pub owner: String,
    /// Grows with every change of owner: a fencing token.
    pub epoch: i64,
    pub expires_at: Micros,
    /// What the holder needs kept: the oldest vector its work stands on.
    pub pin: Option<Vector>,
}

/// Offsets that the log no longer had and that a person accepted as lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GapRecord {
    pub partition: PartitionId,
    pub start: Offset,
    pub end: Offset,
    pub reason: String,
    pub accepted_at: Micros,
}

/// A file that somebody found missing or damaged. Gone when the file is marked for deletion, or found whole again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamageRecord {
    pub path: String,
    /// What is wrong with it: found and expected.
    pub error: String,
    pub found_by: String,
    pub found_at: Micros,
}

/// How far `ingest` got in one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IngestRecord {
    pub stream: Arc<str>,
    /// Names the file's content, not its path.
    pub fingerprint: String,
    /// Records (lines, rows) of it that are in the log.
    pub records_done: i64,
    pub updated_at: Micros,
}

/// Dead letters that were appended to the log again, as new records. The range holds no other dead letter than replayed ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayRecord {
    pub partition: PartitionId,
    pub start: Offset,
    pub end: Offset,
    pub replayed_at: Micros,
}

impl RunRecord {
    /// A run that is asked for.
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
            events_read: 0,
            rows_written: 0,
            bytes_written: 0,
            peak_memory_bytes: 0,
            error: None,
        }
    }
}

impl CheckpointRecord {
    /// True when all of this checkpoint is before `vector`.
    pub fn is_within(&self, vector: &Vector) -> bool {
        self.ranges.iter().all(|range| range.end <= vector.get(&range.partition))
    }

    /// True when all of this checkpoint is at or after `vector`.
    pub fn is_after(&self, vector: &Vector) -> bool {
        self.ranges.iter().all(|range| range.start >= vector.get(&range.partition))
    }
}
