//! The catalog's records.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use types::tiles::Micros;
use types::uuid_text;
use types::vector::{Offset, PartitionId, Vector};
use uuid::Uuid;

mod alert;
mod checkpoint;
mod parameter;
mod pause;
mod run;
mod token;

pub use alert::{
    AlertProgress, AlertRunner, AlertTransition, AlertVersion, CommittedTransition, OpenAlert, OpenAlertCount, OpenAlertName, OpenKey,
    TransitionPlace, TransitionsAfter,
};
pub use checkpoint::{CheckpointRange, CheckpointRecord};
pub use parameter::ParameterRecord;
pub use pause::{PauseRecord, SinkClaim, SinkRange, SinkSwitch};
pub use run::{Comparison, DRAFT_FORMAT, RunDraft, RunRecord, RunStatus, StateDifference};
pub use token::{Role, ScramKeys, TokenLimits, TokenRecord};

/// A number that grows by one with every commit and totally orders the catalog states.
pub type Revision = i64;

/// Which CREATE statement defines it.
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

impl DefinitionRecord {
    /// Version 1, active since the time 0.
    pub fn first(kind: DefinitionKind, name: &str, sql: &str) -> DefinitionRecord {
        DefinitionRecord {
            kind,
            name: name.into(),
            version: 1,
            sql: sql.into(),
            status: DefinitionStatus::Active,
            created_at: 0,
            since: 0,
            kept_until: None,
            rolled_back: false,
        }
    }
}

/// A live version of a definition, and its status: with other ones, sinks and alerts may be planned otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LiveVersion {
    pub kind: DefinitionKind,
    pub name: Arc<str>,
    pub version: u32,
    pub status: DefinitionStatus,
}

/// The state of one version of a definition.
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
    /// A stream's version whose archived events were decoded again by a later one, or of which nothing was committed
    /// when a later one began anew: no checkpoint may be decoded by it any more.
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
    /// Returns the lease as it is stored, with its epoch.
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
    /// Returns the registration as it is stored, with its epoch.
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
