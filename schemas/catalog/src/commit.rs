//! A commit, the catalog's only kind of write: what it expects, adds, removes and advances.

use std::sync::Arc;

use types::files::FileRecord;
use types::record::MarkRecord;
use types::tiles::Micros;
use types::vector::{Offset, PartitionId, Vector};
use uuid::Uuid;

use crate::records::*;

/// A condition for a commit. If it does not hold, the commit changes nothing and fails as a conflict.
#[derive(Debug, Clone, PartialEq)]
pub enum Expect {
    /// The partition's committed position is `offset` (an absent partition is at 0).
    NextOffset { partition: PartitionId, offset: Offset },
    /// The partition is absent or belongs to this log.
    LogIdentity { partition: PartitionId, identity: String },
    /// `owner` holds the lease at `epoch` and it has not expired at `now`.
    Lease { name: String, owner: String, epoch: i64, now: Micros },
    /// The lease is free: absent, expired at `now`, or already `owner`'s.
    LeaseFree { name: String, owner: String, now: Micros },
    /// The view version's published snapshot (if any) has a cut that `cut` covers.
    CutNotBehind { view: Arc<str>, version: u32, cut: Vector },
    /// The newest version of the definition is this; `None` means it has none.
    NewestVersion { kind: DefinitionKind, name: Arc<str>, version: Option<u32> },
    /// The live versions of all definitions are these, whatever their order.
    Live(Vec<LiveVersion>),
    /// Each of these parameters is live, and its newest value has this version.
    ParameterVersions(Vec<(Arc<str>, u32)>),
    /// No later version of the stream than this one decides its records: the archive was not decoded again by one, nor
    /// did the stream begin anew.
    NotRedecoded { stream: Arc<str>, version: u32 },
    /// No file of these paths is marked for deletion, and none was made before the time that the collector gave up on.
    NotMarkedForDeletion { paths: Vec<String> },
    /// The run is in progress: it was neither ended, nor closed because its process died.
    Running { run: Uuid },
    /// The catalog names each of these files, and none is marked for deletion or superseded.
    Named { paths: Vec<String> },
    /// The checkpoint is in the catalog.
    HasCheckpoint(Uuid),
    /// No token that may be used has this name: a revoked one may.
    TokenFree { name: String },
    /// A token of this name is there and not revoked.
    TokenInUse { name: String },
    /// The next transition of the alert has this sequence number.
    AlertSequence { alert: Arc<str>, version: u32, next: i64 },
    /// Each of these claims is the last one of its sink and partition.
    SinkClaims(Vec<SinkClaim>),
    /// No sink has a switch in the stream: none has decided an event of it.
    NotSwitched { stream: Arc<str> },
    /// No commit happened since the state of this revision was read.
    Revision(Revision),
}

/// A record to write: inserted, or replacing the record with the same key.
#[derive(Debug, Clone, PartialEq)]
pub enum Add {
    Definition(DefinitionRecord),
    /// A value of a parameter that is live. Its version follows that of the newest value; a conflict otherwise.
    Parameter(ParameterRecord),
    Checkpoint(CheckpointRecord),
    /// This checkpoint takes the place of others, which were committed one after another: it has all their ranges, and
    /// the revision of the last one as its place in the order of commits. Their archive and dead-letter files are
    /// superseded: readers of earlier states read them still. A conflict if one of them is gone, or has another number
    /// of files.
    Compacted {
        checkpoint: CheckpointRecord,
        of: Vec<Uuid>,
        /// How many files are superseded.
        files: usize,
    },
    File(FileRecord),
    /// These files, which the catalog names, belong to this run from now on. A conflict if it names one no more.
    TakeOver {
        run: Uuid,
        paths: Vec<String>,
    },
    Snapshot(SnapshotRecord),
    Run(RunRecord),
    /// Under a new epoch: the commit's revision, which is greater than every earlier epoch, even if the lease was
    /// released in between.
    NewLease(NewLease),
    /// A lease that keeps its epoch.
    Lease(LeaseRecord),
    Gap(GapRecord),
    Ingest(IngestRecord),
    ReplayedDeadLetters(ReplayedDeadLetters),
    /// Ignored if the file is no longer named, or already known as damaged.
    Damage(DamageRecord),
    Mark(MarkRecord),
    Token(TokenRecord),
    /// Under a new epoch: the commit's revision, which is greater than every earlier epoch.
    NewWorker(NewWorker),
    /// A registration that keeps its epoch.
    Worker(WorkerRecord),
    /// Opens, updates or closes the open alert of its key. Its sequence number is the next one. A commit adds
    /// transitions of one version of an alert.
    AlertTransition(Box<AlertTransition>),
    /// What the transitions before it in the commit were made from.
    AlertPosition {
        alert: Arc<str>,
        version: u32,
        position: Vector,
        at: Micros,
    },
    /// The alert's transitions before this sequence number are in its topic. The next one has at least that number.
    AlertPublished {
        alert: Arc<str>,
        version: u32,
        before: i64,
    },
    /// What the process that runs an alert says of it.
    AlertRunner(AlertRunner),
    /// Ignored if it is paused already.
    Pause(PauseRecord),
    /// From now on the one before it does not hold.
    SinkClaim(SinkClaim),
    /// It takes its place after the last one of its partition.
    SinkSwitch(SinkSwitch),
}

/// A record to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remove {
    /// Marks the file for deletion; [`Remove::File`] deletes the row after the file.
    MarkForDeletion(String),
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
    Worker {
        name: String,
    },
    /// The file is intact after all.
    Damage(String),
    /// Up to `most` transitions of an alert that are in its topic and happened before this time.
    AlertTransitions {
        alert: Arc<str>,
        version: u32,
        before: Micros,
        most: u32,
    },
    /// Up to `most` rows of each table about a version of an alert.
    Alert {
        alert: Arc<str>,
        version: u32,
        most: u32,
    },
    /// The sink or alert is not paused any more.
    Pause {
        kind: DefinitionKind,
        name: Arc<str>,
    },
    /// Revokes the token from `at` on. Its record stays for a while, or until another token takes its name.
    Token {
        name: String,
        at: Micros,
    },
    /// The record of a token that ended. One that was made later under its name stays.
    EndedToken {
        name: String,
        created_at: Micros,
    },
}

/// Moves a partition's committed position. The commit expects its start.
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

/// One write, all or nothing. `id` lets a writer whose reply was lost recognise its own commit.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Commit {
    pub id: Uuid,
    pub expect: Vec<Expect>,
    pub add: Vec<Add>,
    pub remove: Vec<Remove>,
    pub advance: Vec<Advance>,
}

impl Commit {
    /// Returns the failpoints before and after this commit; `None` for most kinds of commits.
    pub(crate) fn failpoints(&self) -> Option<(&'static str, &'static str)> {
        let adds = |kind: fn(&Add) -> bool| self.add.iter().any(kind);
        let removes = |kind: fn(&Remove) -> bool| self.remove.iter().any(kind);
        if adds(|add| matches!(add, Add::Checkpoint(_))) {
            Some(("checkpoint.before_commit", "checkpoint.after_commit"))
        } else if adds(|add| matches!(add, Add::Compacted { .. })) {
            Some(("compact.before_commit", "compact.after_commit"))
        } else if adds(|add| matches!(add, Add::Snapshot(_))) {
            Some(("publish.before_commit", "publish.after_commit"))
        } else if removes(|remove| matches!(remove, Remove::MarkForDeletion(_))) {
            Some(("mark_for_deletion.before_commit", "mark_for_deletion.after_commit"))
        } else if removes(|remove| matches!(remove, Remove::File(_))) {
            Some(("delete.before_commit", "delete.after_commit"))
        } else {
            None
        }
    }
}
