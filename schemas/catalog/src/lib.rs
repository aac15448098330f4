//! The catalog: the one place that says what is committed. Every write is a [`Catalog::commit`], and every read is one
//! consistent [`CatalogState`].

mod commit;
mod decide;
mod records;
mod sql;
mod state;

pub use commit::{Add, Advance, Commit, Expect, Remove};
pub use decide::{
    ArchiveBounds, CollectionPlan, CompactionRules, DEAD_LETTER_REPLAYS, ORPHAN_AGE, RedecodedFile, RedecodedStream, Retention,
    SnapshotFiles, StreamsRead, abandoned, add_redecoded, archive_file_of, archive_files, checkpoint_commit, checkpoints_after,
    collectable, compacted, compaction_commit, compactions, draft_to_resume, drop_versions, dropped_commit, expired_versions,
    failure_commit, forget_leases_commit, forget_tokens_commit, give_up_commit, has_draft, is_being_recomputed, last_recomputation,
    ledger_difference, may_have_left_files, orphans, orphans_commit, pin_of_replay, pins_of_runs, publish_commit, recompute_lease,
    replace_commit, run_lease, serve_version, skipped_commit, version_before, versions_commit, waiting_lease,
};
pub use records::{
    AlertProgress, AlertRunner, AlertTransition, AlertVersion, CheckpointRange, CheckpointRecord, CommittedTransition, Comparison,
    DRAFT_FORMAT, DamageRecord, DefinitionKind, DefinitionRecord, DefinitionStatus, GapRecord, IngestRecord, LeaseRecord, LiveVersion,
    NewLease, NewWorker, OpenAlert, OpenAlertCount, OpenAlertName, OpenKey, ParameterRecord, PartitionRecord, PauseRecord,
    ReplayedDeadLetters, Revision, Role, RunDraft, RunRecord, RunStatus, ScramKeys, SinkClaim, SinkRange, SinkSwitch, SnapshotRecord,
    StateDifference, TokenLimits, TokenRecord, TransitionPlace, TransitionsAfter, WorkerRecord,
};
pub use sql::{Catalog, FILE_DAMAGED};
pub use state::{CatalogState, Checkpoints, DefinitionVersions, Files};
