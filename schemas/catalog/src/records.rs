//! The catalog's records.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use types::Strategy;
use types::files::made_at;
use types::tiles::Micros;
use types::uuid_text;
use types::vector::{Offset, PartitionId, Vector};
use uuid::Uuid;

mod alert;
mod parameter;
mod pause;
mod token;

pub use alert::{
    AlertProgress, AlertRunner, AlertTransition, AlertVersion, CommittedTransition, OpenAlert, OpenAlertCount, OpenAlertName, OpenKey,
    TransitionPlace, TransitionsAfter,
};
pub use parameter::ParameterRecord;
pub use pause::{PauseRecord, SinkClaim, SinkRange, SinkSwitch};
pub use token::{Role, ScramKeys, TokenLimits, TokenRecord};

/// A number that grows by one with every commit and totally orders the catalog states.
pub type Revision = i64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DefinitionKind {
    Stream,
    View,
    Sink,
    Alert,
    Parameter,
}

impl DefinitionKind {
    pub const ALL: [DefinitionKind; 5] =
        [DefinitionKind::Stream, DefinitionKind::View, DefinitionKind::Sink, DefinitionKind::Alert, DefinitionKind::Parameter];

    /// The word for it, in the catalog and in messages.
    pub fn word(self) -> &'static str {
        match self {
            DefinitionKind::Stream => "stream",
            DefinitionKind::View => "view",
            DefinitionKind::Sink => "sink",
            DefinitionKind::Alert => "alert",
            DefinitionKind::Parameter => "parameter",
        }
    }

    /// `a sink`, `an alert`.
    pub fn with_article(self) -> String {
        let article = if self == DefinitionKind::Alert { "an" } else { "a" };
        format!("{article} {}", self.word())
    }
}

/// One version of a definition. A view's new version is `Building` next to the old one until its first snapshot is
/// published. The old one is then `Kept` for a while, so that a rollback returns to it at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefinitionRecord {
    pub kind: DefinitionKind,
    pub name: Arc<str>,
    pub version: u32,
    /// The definition's text, as the user wrote it.
    pub sql: String,
    pub status: DefinitionStatus,
    pub created_at: Micros,
    /// When it came to have this status; `created_at` where an older release recorded it.
    #[serde(default)]
    pub since: Micros,
    /// When a kept version is retired.
    #[serde(default)]
    pub kept_until: Option<Micros>,
    /// True for a version from which a user returned to an earlier one: unchanged files do not serve it again.
    #[serde(default)]
    pub rolled_back: bool,
}

/// A live version of a definition, and its status: with other ones, sinks and alerts may be planned otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LiveVersion {
    pub kind: DefinitionKind,
    pub name: Arc<str>,
    pub version: u32,
    pub status: DefinitionStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DefinitionStatus {
    /// Updated by the speed layer, not yet served.
    Building,
    /// The version being served.
    Active,
    /// Replaced a short while ago: updated by the speed layer and by runs as before, not served.
    Kept,
    /// Replaced or dropped; kept for history.
    Retired,
    /// A stream's version whose archived events were decoded again by a later one: no checkpoint may be decoded by it
    /// any more.
    Redecoded,
}

impl DefinitionStatus {
    /// True for a version whose states are updated: it is served, being built or kept.
    pub fn is_live(self) -> bool {
        matches!(self, DefinitionStatus::Building | DefinitionStatus::Active | DefinitionStatus::Kept)
    }
}

/// A partition's committed position. It moves by compare-and-advance only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionRecord {
    pub id: PartitionId,
    pub next_offset: Offset,
    /// The identity of the log that this position belongs to.
    pub log_identity: String,
    /// The partition's clock: the greatest record timestamp before `next_offset`.
    pub clock: Option<Micros>,
    /// The greatest event time of all accepted events before `next_offset`.
    pub max_event_time: Option<Micros>,
    /// Every record that the log received before this time is before `next_offset`.
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
    /// Offsets without a record.
    pub absent: i64,
    /// The partition's values after this checkpoint.
    pub clock: Option<Micros>,
    pub max_event_time: Option<Micros>,
    pub complete_to: Option<Micros>,
}

/// One worker's commit: ranges of its partitions, and the files that hold them.
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

/// The snapshot from which a view version is served.
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
    pub error: Option<String>,
}

/// A recomputation from the archive, compared with the states that incremental runs had kept up to the same cut.
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

/// A named right that expires: a view's run, an alert's runner, a compaction, a replay of dead letters, or a pin of a
/// serving node, a command or a takeover. The embedded log keeps the leases of its partitions in a table of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRecord {
    pub name: String,
    pub owner: String,
    /// A fencing token: grows with every change of owner.
    pub epoch: i64,
    pub expires_at: Micros,
    /// The oldest vector that the holder's work depends on.
    pub pin: Option<Vector>,
}

/// A lease that is acquired: the commit gives it its epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewLease {
    pub name: String,
    pub owner: String,
    pub expires_at: Micros,
    pub pin: Option<Vector>,
}

impl NewLease {
    pub fn with_epoch(self, epoch: i64) -> LeaseRecord {
        let NewLease { name, owner, expires_at, pin } = self;
        LeaseRecord { name, owner, epoch, expires_at, pin }
    }
}

/// A process whose workers offer their fresh layers to nodes of other processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRecord {
    /// Unique: another start of the process has another name.
    pub name: String,
    /// Where nodes reach it: `http://host:port`, or `https://` where connections are encrypted.
    pub address: String,
    /// Grows with every partition that one of its workers takes over; greater than that of every earlier takeover, of
    /// any process.
    pub epoch: i64,
    pub expires_at: Micros,
}

/// A registration that begins a takeover: the commit gives it its epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewWorker {
    pub name: String,
    pub address: String,
    pub expires_at: Micros,
}

impl NewWorker {
    pub fn with_epoch(self, epoch: i64) -> WorkerRecord {
        let NewWorker { name, address, expires_at } = self;
        WorkerRecord { name, address, epoch, expires_at }
    }
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

/// A file that was found missing or damaged. Removed when the file is marked for deletion or found intact.
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
    /// Identifies the file's content, not its path.
    pub fingerprint: String,
    /// The number of its records (lines, rows) that are in the log.
    pub records_done: i64,
    pub updated_at: Micros,
}

/// Dead letters that were appended to the log again, as new records. All dead letters in the range were replayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayedDeadLetters {
    pub partition: PartitionId,
    pub start: Offset,
    pub end: Offset,
    pub replayed_at: Micros,
}

impl DefinitionRecord {
    /// Returns the same version with another status from `now` on; it is not kept.
    pub fn with_status(&self, status: DefinitionStatus, now: Micros) -> DefinitionRecord {
        let rolled_back = self.rolled_back && !matches!(status, DefinitionStatus::Active | DefinitionStatus::Building);
        DefinitionRecord { status, since: now, kept_until: None, rolled_back, ..self.clone() }
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
            error: None,
        }
    }
}

impl CheckpointRange {
    /// A range in which every offset became an event. No time is known.
    pub fn of_events(partition: PartitionId, start: i64, end: i64) -> Self {
        Self {
            partition,
            start: Offset(start),
            end: Offset(end),
            archived: end - start,
            duplicate: 0,
            dead_lettered: 0,
            absent: 0,
            clock: None,
            max_event_time: None,
            complete_to: None,
        }
    }

    /// The offsets that its counts account for.
    pub fn counted(&self) -> i64 {
        let counts = [self.archived, self.duplicate, self.dead_lettered, self.absent];
        counts.into_iter().fold(0, i64::saturating_add)
    }

    /// True if it obeys the ledger's law: `end - start = archived + duplicate + dead_lettered + absent`.
    pub fn is_balanced(&self) -> bool {
        self.end.0.saturating_sub(self.start.0) == self.counted()
    }
}

impl CheckpointRecord {
    /// One that is to be committed.
    pub fn new(id: Uuid, worker: &str, committed_at: Micros, ranges: Vec<CheckpointRange>) -> Self {
        Self { id, worker: worker.to_owned(), committed_at, revision: 0, ranges }
    }

    /// Returns when its records were all decided, before its files were written and committed; of a compacted one, the
    /// time of its last commit.
    pub fn sealed_at(&self) -> Micros {
        made_at(self.id).map_or(self.committed_at, |at| at.min(self.committed_at))
    }

    /// True if it took the place of others. Its worker and time are those of the last of them, whichever partitions
    /// that one had: a worker's checkpoint has its id before it is committed, a compacted one after.
    pub fn is_compacted(&self) -> bool {
        made_at(self.id).is_some_and(|at| at > self.committed_at)
    }

    /// True if all of this checkpoint is before `vector`.
    pub fn is_within(&self, vector: &Vector) -> bool {
        self.ranges.iter().all(|range| range.end <= vector.get(&range.partition))
    }

    /// True if all that this checkpoint has of these streams is before `vector`.
    pub fn is_within_of(&self, streams: &[Arc<str>], vector: &Vector) -> bool {
        self.ranges_of(streams).all(|range| range.end <= vector.get(&range.partition))
    }

    /// Its ranges of these streams.
    pub fn ranges_of<'a>(&'a self, streams: &'a [Arc<str>]) -> impl Iterator<Item = &'a CheckpointRange> {
        self.ranges.iter().filter(|range| streams.contains(&range.partition.stream))
    }
}
