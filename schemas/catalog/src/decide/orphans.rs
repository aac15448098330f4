//! Finds orphans: files that no commit has named because their writers died, or were overtaken, between writing and
//! committing.
//!
//! The collector first commits [`orphans_commit`]: from then on no transaction may name a checkpoint's file made before
//! that time. A stored file from before that time that is not named afterwards can never be named, so it is deleted.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use uuid::Uuid;

use super::drafts::{TAKEN_UP_WITHIN, has_draft};
use crate::{CatalogState, Commit, Remove, RunRecord, RunStatus};
use types::Strategy;
use types::files::{ObjectName, made_at};
use types::tiles::Micros;

/// How long a file may wait for the commit that names it; no worker works this long on one checkpoint.
pub const ORPHAN_AGE: Duration = Duration::from_secs(24 * 60 * 60);
const _: () = assert!(TAKEN_UP_WITHIN.as_secs() < ORPHAN_AGE.as_secs());

/// Returns the commit that gives up on files made more than [`ORPHAN_AGE`] before `now`; `None` if the state already
/// does.
pub fn orphans_commit(state: &CatalogState, id: Uuid, now: Micros) -> Option<Commit> {
    let before = now.saturating_sub(ORPHAN_AGE.as_micros() as Micros);
    let is_due = before > state.orphaned_before;
    is_due.then(|| Commit { id, remove: vec![Remove::OrphansBefore(before)], ..Commit::default() })
}

/// How long after the end of a run what it left is looked for: a write that was under way may end later.
const WRITES_END_WITHIN: Duration = Duration::from_secs(60);

/// Returns the runs that ended some time ago and may have left files which no transaction can name: those without a
/// snapshot, and recomputations, which may have died before they deleted their slices.
pub fn may_have_left_files(state: &CatalogState, now: Micros) -> impl Iterator<Item = &RunRecord> {
    let ended_before = now.saturating_sub(WRITES_END_WITHIN.as_micros() as Micros);
    let has_ended = move |run: &&RunRecord| run.ended_at.is_some_and(|at| at <= ended_before);
    let may_have = |run: &&RunRecord| match run.status {
        RunStatus::Failed | RunStatus::Dropped => true,
        RunStatus::Succeeded => run.strategy == Some(Strategy::Full),
        RunStatus::Requested | RunStatus::Running | RunStatus::Skipped => false,
    };
    state.runs.iter().filter(may_have).filter(has_ended)
}

/// Returns the listed names that no transaction can name any more. The state must be read after the listing, so that it
/// includes files that were committed in between.
pub fn orphans<'n>(state: &CatalogState, listed: &'n [ObjectName]) -> Vec<&'n ObjectName> {
    let named: HashSet<&str> = state.files.iter().map(|file| file.path.as_str()).collect();
    let runs: HashMap<Uuid, RunStatus> = state.runs.iter().map(|run| (run.id, run.status)).collect();
    let is_given_up = |name: &ObjectName| match name.run() {
        _ if is_kept_for_draft(state, name) => false,
        // A run publishes under its lease, and only while it runs.
        Some(run) => match runs.get(&run) {
            Some(RunStatus::Requested | RunStatus::Running) => false,
            Some(RunStatus::Failed | RunStatus::Dropped | RunStatus::Skipped) => true,
            // Its snapshot has none of its slices, and names what it has of the rest.
            Some(RunStatus::Succeeded) if name.is_of_slice() || name.is_recomputed() => true,
            Some(RunStatus::Succeeded) | None => made_at(run).is_some_and(|made| made < state.orphaned_before),
        },
        None => name.made_at().is_some_and(|made| made < state.orphaned_before),
    };
    listed.iter().filter(|name| !named.contains(name.to_string().as_str()) && is_given_up(name)).collect()
}

fn is_kept_for_draft(state: &CatalogState, name: &ObjectName) -> bool {
    match name {
        ObjectName::SliceBucket { view, version, .. } | ObjectName::Draft { view, version, .. } => has_draft(state, view, *version),
        _ => false,
    }
}
