//! The catalog: the one place that says what is committed. Every write is one verb, [`Catalog::commit`]; every read is one
//! consistent [`CatalogState`].

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::tiles::Micros;
use crate::vector::{Offset, PartitionId, Vector};

mod decide;
mod sql;
mod uuid_text;

pub use decide::{
    CollectionPlan, ORPHAN_AGE, abandoned, checkpoint_commit, collectable, failure_commit, give_up_commit, ledger_difference, orphans,
    orphans_commit, publish_commit, publishable, replace_commit, run_lease,
};
pub use sql::Catalog;

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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    Archive,
    DeadLetters,
    States,
    Snapshot,
    Manifest,
}

/// A file of the object storage that the catalog names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    pub path: String,
    pub kind: FileKind,
    #[serde(default, with = "uuid_text::optional")]
    pub checkpoint: Option<Uuid>,
    #[serde(default, with = "uuid_text::optional")]
    pub run: Option<Uuid>,
    /// The stream of an archive or dead-letter file; empty for states, the view of a snapshot's file.
    pub subject: Option<Arc<str>>,
    pub bytes: i64,
    pub rows: i64,
    /// CRC-32 of the whole file.
    pub checksum: u32,
    pub min_event_time: Option<Micros>,
    pub max_event_time: Option<Micros>,
    /// The collector will delete it: no transaction may name it any more.
    #[serde(default)]
    pub doomed: bool,
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

/// A file that somebody found missing or damaged. Gone when the file is doomed, or found whole again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamageRecord {
    pub path: String,
    /// What is wrong with it: found and expected.
    pub error: String,
    pub found_by: String,
    pub found_at: Micros,
}

/// The last record before a partition's committed position, as the log gave it. A log that has another record at its offset is
/// another log, whatever its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkRecord {
    pub partition: PartitionId,
    pub offset: Offset,
    pub timestamp: Micros,
    /// CRC-32 of its key, value and headers.
    pub checksum: u32,
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

/// A fact that must be so for a commit to happen; otherwise the commit changes nothing and fails as a conflict.
#[derive(Debug, Clone, PartialEq)]
pub enum Expect {
    /// The partition's committed position is this (a partition that is absent stands at 0).
    NextOffset { partition: PartitionId, offset: Offset },
    /// The partition is absent or belongs to this log.
    LogIdentity { partition: PartitionId, identity: String },
    /// `owner` holds the lease at `epoch` and it has not expired at `now`.
    Lease { name: String, owner: String, epoch: i64, now: Micros },
    /// The lease is free: absent, expired at `now`, or `owner`'s own.
    LeaseFree { name: String, owner: String, now: Micros },
    /// The view version's published snapshot (if any) has a cut that `cut` covers.
    CutNotBehind { view: Arc<str>, version: u32, cut: Vector },
    /// The newest version of the definition is this; `None` means it has none.
    NewestVersion { kind: DefinitionKind, name: Arc<str>, version: Option<u32> },
    /// No file of these paths is doomed, and none was made before the time that the collector gave up on.
    NotDoomed { paths: Vec<String> },
    /// The run is under way: nobody ended it, nobody closed it for its dead process.
    Running { run: Uuid },
    /// The catalog names each of these files, and none is doomed.
    Named { paths: Vec<String> },
    /// The checkpoint is in the catalog.
    HasCheckpoint(Uuid),
    /// No commit happened since the state of this revision was read.
    Revision(Revision),
}

/// A record to be written: inserted, or replacing the one of the same key.
#[derive(Debug, Clone, PartialEq)]
pub enum Add {
    Definition(DefinitionRecord),
    Checkpoint(CheckpointRecord),
    File(FileRecord),
    Snapshot(SnapshotRecord),
    Run(RunRecord),
    Lease(LeaseRecord),
    Gap(GapRecord),
    Ingest(IngestRecord),
    Replay(ReplayRecord),
    /// Left out when the file is not named any more, or known as damaged already.
    Damage(DamageRecord),
    Mark(MarkRecord),
}

/// A record to be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remove {
    /// Marks it doomed; the row goes with [`Remove::File`] after the file is deleted.
    Doom(String),
    File(String),
    /// Files of checkpoints made before this time and not named yet: no transaction may name them any more.
    OrphansBefore(Micros),
    Checkpoint(Uuid),
    Snapshot {
        view: Arc<str>,
        version: u32,
    },
    Lease {
        name: String,
        owner: String,
    },
    /// The file is whole after all.
    Damage(String),
}

/// Moves a partition's committed position; its start is expected by the same commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advance {
    pub partition: PartitionId,
    pub start: Offset,
    pub end: Offset,
    pub log_identity: String,
    pub clock: Option<Micros>,
    pub max_event_time: Option<Micros>,
    pub complete_to: Option<Micros>,
}

/// One write: all of it or nothing. `id` lets a writer whose reply was lost recognise its own commit.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Commit {
    pub id: Uuid,
    pub expect: Vec<Expect>,
    pub add: Vec<Add>,
    pub remove: Vec<Remove>,
    pub advance: Vec<Advance>,
}

/// Everything that queries, runs and decisions stand on, read in one transaction.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CatalogState {
    pub revision: Revision,
    /// Names this catalog; made once.
    pub identity: String,
    /// Files of checkpoints that were made before this time can be named no more.
    pub orphaned_before: Micros,
    pub definitions: Vec<DefinitionRecord>,
    pub partitions: BTreeMap<PartitionId, PartitionRecord>,
    /// In the order of their commits.
    pub checkpoints: Vec<CheckpointRecord>,
    pub files: Vec<FileRecord>,
    pub snapshots: Vec<SnapshotRecord>,
    /// The running ones, the requested ones and the newest ended ones of each view.
    pub runs: Vec<RunRecord>,
    pub leases: Vec<LeaseRecord>,
    pub gaps: Vec<GapRecord>,
    /// Files that were found damaged and are still named, in the order of their paths.
    pub damages: Vec<DamageRecord>,
    pub marks: BTreeMap<PartitionId, MarkRecord>,
}

impl CatalogState {
    /// The committed vector.
    pub fn vector(&self) -> Vector {
        self.partitions.values().map(|p| (p.id.clone(), p.next_offset)).collect()
    }

    /// The version of a definition that is served (or, before the first, the one being built).
    pub fn active(&self, kind: DefinitionKind, name: &str) -> Option<&DefinitionRecord> {
        let of_name = || self.definitions.iter().filter(|d| d.kind == kind && &*d.name == name);
        of_name()
            .find(|d| d.status == DefinitionStatus::Active)
            .or_else(|| of_name().filter(|d| d.status == DefinitionStatus::Building).max_by_key(|d| d.version))
    }

    /// The definitions that the speed layer keeps up: active ones and those being built.
    pub fn live(&self, kind: DefinitionKind) -> impl Iterator<Item = &DefinitionRecord> {
        self.definitions.iter().filter(move |d| d.kind == kind && d.status != DefinitionStatus::Retired)
    }

    pub fn snapshot(&self, view: &str, version: u32) -> Option<&SnapshotRecord> {
        self.snapshots.iter().find(|s| &*s.view == view && s.version == version)
    }
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
