//! The layers of one view version after its snapshot: a run per checkpoint, merged as they age, never across a cut.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::prelude::SessionContext;
use futures::{StreamExt, TryStreamExt};
use schemas::Result;
use schemas::catalog::{CatalogState, CheckpointRecord, RunStatus};
use schemas::registry::LiveView;
use schemas::segment::{SegmentSource, segment_rows};
use schemas::states::merge::merge_all;
use schemas::storage::ObjectStorage;
use schemas::vector::Vector;
use schemas::{Error, states::StateRows};
use uuid::Uuid;

use crate::sorted::SortedRun;

/// This many runs of like size are merged into one.
const FAN_IN: usize = 4;

/// States of some checkpoints, sorted.
#[derive(Debug, Clone)]
pub struct LayerRun {
    pub checkpoints: BTreeSet<Uuid>,
    /// Which of the pinned cuts these checkpoints lie within: runs of different sides are never merged.
    side: Vec<bool>,
    pub run: Arc<SortedRun>,
}

/// The checkpoints that an answer adds to a snapshot with this cut; an error when one lies on both sides of it.
pub fn after_cut<'a>(state: &'a CatalogState, view: &LiveView, cut: &Vector) -> Result<Vec<&'a CheckpointRecord>> {
    let reads = |checkpoint: &&CheckpointRecord| {
        checkpoint.ranges.iter().any(|range| view.plan.streams.iter().any(|stream| *stream.name == *range.partition.stream))
    };
    let mut after = Vec::new();
    for checkpoint in state.checkpoints.iter().filter(reads) {
        if checkpoint.is_within(cut) {
            continue;
        }
        if !checkpoint.is_after(cut) {
            return Err(Error::corrupt("a checkpoint lies on both sides of a cut").with("checkpoint", checkpoint.id).with("cut", cut));
        }
        after.push(checkpoint);
    }
    Ok(after)
}

/// Brings the layers of a view version to a catalog state: keeps what still holds, loads what is new, merges what has aged.
pub async fn refresh(
    known: &[LayerRun],
    storage: &ObjectStorage,
    session: &SessionContext,
    view: &LiveView,
    state: &CatalogState,
    cut: &Vector,
) -> Result<Vec<LayerRun>> {
    let wanted = after_cut(state, view, cut)?;
    let ids: BTreeSet<Uuid> = wanted.iter().map(|checkpoint| checkpoint.id).collect();
    let mut layers: Vec<LayerRun> = known.iter().filter(|layer| layer.checkpoints.is_subset(&ids)).cloned().collect();
    let held: BTreeSet<Uuid> = layers.iter().flat_map(|layer| layer.checkpoints.iter().copied()).collect();
    let pinned = pinned_cuts(state);
    let missing = wanted.into_iter().filter(|checkpoint| !held.contains(&checkpoint.id));
    // Collected first: a closure in the stream would make this future one that cannot be spawned.
    let loads: Vec<_> = missing.map(|checkpoint| load(storage, session, view, state, checkpoint, &pinned)).collect();
    let loaded: Vec<LayerRun> = futures::stream::iter(loads).buffer_unordered(4).try_collect().await?;
    layers.extend(loaded);
    compact(view, layers)
}

async fn load(
    storage: &ObjectStorage,
    session: &SessionContext,
    view: &LiveView,
    state: &CatalogState,
    checkpoint: &CheckpointRecord,
    pinned: &[Vector],
) -> Result<LayerRun> {
    let (rows, source) = segment_rows(storage, session, view, state, checkpoint).await?;
    if source == SegmentSource::Archive {
        metrics::counter!("basestream_serving_segments_rebuilt_total", "view" => view.name.to_string()).increment(1);
    }
    let side = pinned.iter().map(|cut| checkpoint.is_within(cut)).collect();
    Ok(LayerRun { checkpoints: BTreeSet::from([checkpoint.id]), side, run: Arc::new(SortedRun::in_memory(rows)) })
}

/// The cuts of the runs under way: each may become a snapshot's.
fn pinned_cuts(state: &CatalogState) -> Vec<Vector> {
    state.runs.iter().filter(|run| run.status == RunStatus::Running).filter_map(|run| run.cut.clone()).collect()
}

fn compact(view: &LiveView, mut layers: Vec<LayerRun>) -> Result<Vec<LayerRun>> {
    loop {
        layers.sort_by_key(|layer| (layer.side.clone(), size_class(layer)));
        let same = |a: &LayerRun, b: &LayerRun| a.side == b.side && size_class(a) == size_class(b);
        let Some(from) = (0..layers.len().saturating_sub(FAN_IN - 1)).find(|from| same(&layers[*from], &layers[from + FAN_IN - 1])) else {
            return Ok(layers);
        };
        let aged: Vec<LayerRun> = layers.drain(from..from + FAN_IN).collect();
        let sets: Vec<&StateRows> = aged.iter().flat_map(|layer| layer.run.chunks()).collect();
        layers.push(LayerRun {
            checkpoints: aged.iter().flat_map(|layer| layer.checkpoints.iter().copied()).collect(),
            side: aged[0].side.clone(),
            run: Arc::new(SortedRun::in_memory(merge_all(&view.plan, &view.codec, &sets)?)),
        });
    }
}

/// Runs within a factor of four of each other's number of checkpoints are alike.
fn size_class(layer: &LayerRun) -> u32 {
    (layer.checkpoints.len().max(1)).ilog2() / 2
}
