//! The layers of one view version after its snapshot: a run per checkpoint, merged as they age, never across a cut.

use std::sync::{Arc, Mutex, PoisonError};

use catalog::{CatalogState, CheckpointRecord};
use committed::registry::LiveView;
use committed::segment::{Segment, SegmentSession, SegmentSource, segment_rows};
use futures::{StreamExt, TryStreamExt};
use storage::ObjectStorage;
use types::failures::Failures;
use types::vector::Vector;
use types::{Error, Result};

use engine::states::{SortedRun, StateRows, merge_all};

mod plan;

pub use plan::{Checkpoints, LayerPlan, layer_plan, next_merge};

/// States of some checkpoints, sorted.
#[derive(Debug, Clone)]
pub struct LayerRun {
    pub checkpoints: Checkpoints,
    pub run: Arc<SortedRun>,
    /// The events that are not in the states, because the view fails on them.
    pub failures: Arc<Failures>,
}

/// Where layers are read from, and what was found damaged on the way.
pub struct LayerSource<'a> {
    pub storage: &'a ObjectStorage,
    pub session: &'a SegmentSession,
    pub damaged: &'a Mutex<Vec<Error>>,
}

/// Brings the layers of a view version to a catalog state: keeps what still holds, loads what is new, merges what has aged.
pub async fn refresh(
    known: &[LayerRun],
    source: &LayerSource<'_>,
    view: &LiveView,
    state: &CatalogState,
    cut: &Vector,
) -> Result<Vec<LayerRun>> {
    let held: Vec<&Checkpoints> = known.iter().map(|layer| &layer.checkpoints).collect();
    let plan = layer_plan(&held, state, &streams_of(view), cut)?;
    let mut layers: Vec<LayerRun> = plan.keep.into_iter().map(|at| known[at].clone()).collect();
    // Collected first: a closure in the stream would make this future one that cannot be spawned.
    let loads: Vec<_> = plan.load.into_iter().map(|checkpoint| load(source, view, state, checkpoint)).collect();
    let loaded: Vec<LayerRun> = futures::stream::iter(loads).buffer_unordered(4).try_collect().await?;
    layers.extend(loaded);
    compact(view, layers, state)
}

/// The streams that a view's checkpoints may be of.
pub fn streams_of(view: &LiveView) -> Vec<Arc<str>> {
    view.plan.streams.iter().map(|stream| stream.name.clone()).collect()
}

async fn load(from: &LayerSource<'_>, view: &LiveView, state: &CatalogState, checkpoint: &CheckpointRecord) -> Result<LayerRun> {
    let Segment { rows, failures, source, damaged } = segment_rows(from.storage, from.session, view, state, checkpoint).await?;
    from.damaged.lock().unwrap_or_else(PoisonError::into_inner).extend(damaged);
    if source == SegmentSource::Archive {
        metrics::counter!("basestream_serving_segments_rebuilt_total", "view" => view.name.to_string()).increment(1);
    }
    let failures = Arc::new(failures);
    Ok(LayerRun { checkpoints: Checkpoints::from([checkpoint.id]), run: Arc::new(SortedRun::in_memory(rows)), failures })
}

fn compact(view: &LiveView, mut layers: Vec<LayerRun>, state: &CatalogState) -> Result<Vec<LayerRun>> {
    loop {
        let held: Vec<&Checkpoints> = layers.iter().map(|layer| &layer.checkpoints).collect();
        let Some(aged) = next_merge(&held, state) else { return Ok(layers) };
        // From the last: the places before stay what they are.
        let aged: Vec<LayerRun> = aged.into_iter().rev().map(|at| layers.swap_remove(at)).collect();
        let sets: Vec<&StateRows> = aged.iter().flat_map(|layer| layer.run.chunks()).collect();
        let mut failures = Failures::default();
        aged.iter().for_each(|layer| failures.extend(&layer.failures));
        layers.push(LayerRun {
            failures: Arc::new(failures),
            checkpoints: aged.iter().flat_map(|layer| layer.checkpoints.iter().copied()).collect(),
            run: Arc::new(SortedRun::in_memory(merge_all(&view.plan, &view.codec, &sets)?)),
        });
    }
}
