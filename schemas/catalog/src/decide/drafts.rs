//! Decides which draft the next recomputation of a view version goes on with, and so which objects are kept for it.

use std::time::Duration;

use types::Strategy;
use types::tiles::Micros;

use super::publish::recompute_lease;
use crate::{CatalogState, DRAFT_FORMAT, RunDraft, RunRecord, RunStatus};

/// How long after its run's end a draft may be taken up: well before the collector gives up on its files.
pub(super) const TAKEN_UP_WITHIN: Duration = Duration::from_secs(23 * 60 * 60);

/// Returns what the last recomputation of a view version had saved when it was killed or failed, for one that begins at
/// `now`. `None` if it had saved nothing, published a snapshot, or ended too long ago.
pub fn draft_to_resume<'s>(state: &'s CatalogState, view: &str, version: u32, now: Micros) -> Option<&'s RunDraft> {
    let last = last_recomputation(state, view, version)?;
    let is_recent = last.ended_at.is_none_or(|at| at > now.saturating_sub(TAKEN_UP_WITHIN.as_micros() as Micros));
    last.draft.as_ref().filter(|draft| draft.format == DRAFT_FORMAT && is_unfinished(last) && is_recent)
}

/// Whether another run recomputes a view version beside its other runs at `now`, and so still needs what it has saved.
pub fn is_being_recomputed(state: &CatalogState, view: &str, version: u32, now: Micros) -> bool {
    let is_at_it = |run: &RunRecord| &*run.view == view && run.version == version && run.beside && run.status == RunStatus::Running;
    let name = recompute_lease(view, version);
    state.leases.iter().any(|lease| lease.name == name && lease.expires_at > now) && state.runs.iter().any(is_at_it)
}

/// Whether a view version has a draft that a recomputation is at work on, or may go on with. Meanwhile the slices of
/// its runs are no [`orphans`](crate::orphans).
pub fn has_draft(state: &CatalogState, view: &str, version: u32) -> bool {
    let is_kept = |run: &RunRecord| run.draft.is_some() && run.ended_at.is_none_or(|at| at >= state.orphaned_before);
    last_recomputation(state, view, version).is_some_and(|run| is_unfinished(run) && is_kept(run))
}

/// Returns the newest run of a view version that recomputes from the archive, or did.
pub fn last_recomputation<'s>(state: &'s CatalogState, view: &str, version: u32) -> Option<&'s RunRecord> {
    // Newest first. A run that has not decided yet how it makes its snapshot has saved nothing.
    let mut of_version = state.runs.iter().filter(|run| &*run.view == view && run.version == version);
    of_version.find(|run| run.strategy == Some(Strategy::Full))
}

fn is_unfinished(run: &RunRecord) -> bool {
    matches!(run.status, RunStatus::Running | RunStatus::Failed)
}
