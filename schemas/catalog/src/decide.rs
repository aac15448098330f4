//! Decisions over a catalog state: pure functions from the state to the commit or plan to carry out. No clock, no I/O.

mod archive;
mod checkpoint;
mod collect;
mod compact;
mod drafts;
mod old_leases;
mod old_tokens;
mod orphans;
mod publish;
mod reads;
mod redecode;
mod replace;
mod versions;

pub use archive::{ArchiveBounds, archive_file_of, archive_files, checkpoints_after};
pub use checkpoint::{checkpoint_commit, ledger_difference};
pub(crate) use collect::GRACE;
pub use collect::{CollectionPlan, Retention, collectable};
pub use compact::{CompactionRules, compacted, compaction_commit, compactions};
pub use drafts::{draft_to_resume, has_draft, is_being_recomputed, last_recomputation};
pub use old_leases::forget_leases_commit;
pub use old_tokens::forget_tokens_commit;
pub use orphans::{ORPHAN_AGE, may_have_left_files, orphans, orphans_commit};
pub(crate) use publish::cut_conflict;
pub use publish::{
    DEAD_LETTER_REPLAYS, SnapshotFiles, abandoned, dropped_commit, failure_commit, pin_of_replay, pins_of_runs, publish_commit,
    recompute_lease, run_lease, skipped_commit, waiting_lease,
};
pub use reads::StreamsRead;
pub use redecode::{RedecodedFile, RedecodedStream, add_redecoded};
pub use replace::{give_up_commit, replace_commit};
pub use versions::{drop_versions, expired_versions, serve_version, version_before, versions_commit};

#[cfg(test)]
mod tests;
