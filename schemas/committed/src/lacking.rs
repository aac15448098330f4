//! Decides which checkpoints lack the states of a view version, and what computing them from the archive would cost:
//! pure functions of a catalog state.

use std::collections::BTreeMap;

use catalog::{CatalogState, CheckpointRecord, DefinitionKind, archive_file_of, checkpoints_after};
use types::Result;
use types::files::{FileKind, FileRecord, ObjectName};
use types::tiles::{CLOCKS_DIFFER, Micros, micros};
use types::vector::Vector;
use uuid::Uuid;

use crate::registry::LiveView;

/// A serving node computes the states of at most this many archived events for itself: about a second of work, for
/// which every other view waits. A version that needs more is built by a run.
pub const MAX_REBUILT_EVENTS: i64 = 500_000;

/// The checkpoints whose states objects were read and turned out to lack the states of a view version, each with those
/// objects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MissingStates(BTreeMap<Uuid, Vec<String>>);

impl MissingStates {
    /// Notes that the present states objects of a checkpoint lack the states.
    pub fn note(&mut self, state: &CatalogState, checkpoint: &CheckpointRecord) {
        self.0.insert(checkpoint.id, states_objects(state, checkpoint).map(|file| file.path.clone()).collect());
    }

    /// True while the checkpoint has no other states objects than those that were read.
    fn holds(&self, state: &CatalogState, checkpoint: &CheckpointRecord) -> bool {
        let now = states_objects(state, checkpoint).map(|file| &file.path);
        self.0.get(&checkpoint.id).is_some_and(|read| read.iter().eq(now))
    }
}

fn states_objects<'s>(state: &'s CatalogState, checkpoint: &CheckpointRecord) -> impl Iterator<Item = &'s FileRecord> + use<'s> {
    state.readable_of(checkpoint.id, FileKind::States)
}

/// Checkpoints by whether they have a view version's states.
#[derive(Debug)]
pub struct SplitCheckpoints<'s> {
    /// They may have them.
    pub stored: Vec<&'s CheckpointRecord>,
    pub lacking: Vec<&'s CheckpointRecord>,
}

/// Divides checkpoints into those that may have a view version's states and those that lack them. Nothing is read: a
/// checkpoint lacks the states of a view that was defined after it, unless its states object was rebuilt since.
pub fn split_lacking<'s>(
    state: &'s CatalogState,
    view: &LiveView,
    known: &MissingStates,
    checkpoints: Vec<&'s CheckpointRecord>,
) -> SplitCheckpoints<'s> {
    let certain = defined_at(state, view).saturating_sub(micros(CLOCKS_DIFFER));
    let is_older = |checkpoint: &CheckpointRecord| {
        checkpoint.sealed_at() < certain && states_objects(state, checkpoint).all(|file| is_first(file, checkpoint))
    };
    let may_have = |checkpoint: &&CheckpointRecord| !is_older(checkpoint) && !known.holds(state, checkpoint);
    let (stored, lacking) = checkpoints.into_iter().partition(may_have);
    SplitCheckpoints { stored, lacking }
}

/// Whether this is the states object that the checkpoint was committed with.
fn is_first(file: &FileRecord, checkpoint: &CheckpointRecord) -> bool {
    file.path == ObjectName::States { checkpoint: checkpoint.id }.to_string()
}

/// Returns the number of events that these checkpoints archived for a view.
pub fn events_of(state: &CatalogState, view: &LiveView, checkpoints: &[&CheckpointRecord]) -> i64 {
    let files = checkpoints.iter().flat_map(|checkpoint| archive_files_read(state, view, checkpoint.id));
    files.map(|file| file.rows).sum()
}

/// Returns the archive files with the events that one checkpoint has for a view, in the order of the view's streams.
pub fn archive_files_read<'s>(state: &'s CatalogState, view: &LiveView, checkpoint: Uuid) -> impl Iterator<Item = &'s FileRecord> {
    view.plan.streams.iter().filter_map(move |stream| archive_file_of(state, checkpoint, &stream.name))
}

/// Returns whether events were archived before the view version was defined that no snapshot of it holds.
pub fn has_history(state: &CatalogState, view: &LiveView) -> bool {
    let defined_at = defined_at(state, view);
    let older: Vec<&CheckpointRecord> = state.checkpoints.iter().filter(|checkpoint| checkpoint.sealed_at() < defined_at).collect();
    state.snapshot(&view.name, view.version).is_none() && events_of(state, view, &older) > 0
}

/// Returns whether a version without a snapshot has more events from before its definition than a node computes for
/// itself.
///
/// Errors: `Corrupt` when a checkpoint lies on both sides of a cut.
pub fn waits_for_run(state: &CatalogState, view: &LiveView) -> Result<bool> {
    if state.snapshot(&view.name, view.version).is_some() {
        return Ok(false);
    }
    let checkpoints = checkpoints_after(state, &view.streams(), &Vector::new())?;
    let lacking = split_lacking(state, view, &MissingStates::default(), checkpoints).lacking;
    Ok(events_of(state, view, &lacking) > MAX_REBUILT_EVENTS)
}

fn defined_at(state: &CatalogState, view: &LiveView) -> Micros {
    state.definitions.get(DefinitionKind::View, &view.name, view.version).map_or(0, |definition| definition.created_at)
}

#[cfg(test)]
mod tests;
