//! Decides, from a catalog state alone, which checkpoints are after a cut, which runs of them are kept or loaded, and
//! which runs may be merged.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use catalog::{CatalogState, CheckpointRecord, RunStatus, checkpoints_after};
use types::Result;
use types::vector::Vector;
use uuid::Uuid;

/// This many runs of like size are merged into one.
const FAN_IN: usize = 4;

/// The checkpoints whose states a run of a node's memory holds.
pub type CheckpointIds = BTreeSet<Uuid>;

/// How a view version's runs come to a catalog state.
#[derive(Debug)]
pub struct LayerPlan<'s> {
    /// Of the known runs, those that hold nothing but what is wanted.
    pub keep: Vec<usize>,
    /// The checkpoints that no kept run holds.
    pub load: Vec<&'s CheckpointRecord>,
}

/// Keeps the `known` runs that lie wholly after the cut: a run that straddles it would count again what the snapshot
/// holds.
pub fn layer_plan<'s>(known: &[&CheckpointIds], state: &'s CatalogState, streams: &[Arc<str>], cut: &Vector) -> Result<LayerPlan<'s>> {
    let mut wanted = checkpoints_after(state, streams, cut)?;
    let ids: CheckpointIds = wanted.iter().map(|checkpoint| checkpoint.id).collect();
    let keep: Vec<usize> = (0..known.len()).filter(|at| known[*at].is_subset(&ids)).collect();
    let held: BTreeSet<&Uuid> = keep.iter().flat_map(|at| known[*at]).collect();
    wanted.retain(|checkpoint| !held.contains(&checkpoint.id));
    Ok(LayerPlan { keep, load: wanted })
}

/// Which of the runs to merge next. It never merges runs across a cut that a running batch may publish.
pub fn next_merge(runs: &[&CheckpointIds], state: &CatalogState) -> Option<Vec<usize>> {
    let pinned: Vec<&Vector> =
        state.runs.iter().filter(|run| run.status == RunStatus::Running).filter_map(|run| run.cut.as_ref()).collect();
    let is_within =
        |run: &CheckpointIds, cut: &Vector| run.iter().all(|id| state.checkpoints.get(*id).is_some_and(|known| known.is_within(cut)));
    let class = |run: &CheckpointIds| (pinned.iter().map(|cut| is_within(run, cut)).collect::<Vec<bool>>(), size_class(run));
    let mut alike: HashMap<(Vec<bool>, u32), Vec<usize>> = HashMap::new();
    for (at, run) in runs.iter().enumerate() {
        let same = alike.entry(class(run)).or_default();
        same.push(at);
        if same.len() == FAN_IN {
            return Some(std::mem::take(same));
        }
    }
    None
}

/// Runs within a factor of four of each other's number of checkpoints are alike.
fn size_class(run: &CheckpointIds) -> u32 {
    run.len().max(1).ilog2() / 2
}
