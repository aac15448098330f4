//! The layers of one view version after its snapshot: a run per checkpoint, merged as they age, never across a cut.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use catalog::{CatalogState, CheckpointRecord};
use committed::lacking::{MissingStates, SplitCheckpoints, events_of, split_lacking};
use committed::registry::LiveView;
use committed::segment::{Segment, SegmentSession, StoredSegment, computed_segment, stored_segment};
use futures::{StreamExt, TryStreamExt};
use storage::ObjectStorage;
use types::failures::Failures;
use types::vector::Vector;
use types::{Error, Result};

use engine::states::{SortedRun, StateRows, merge_sets};

mod plan;

pub use plan::{CheckpointIds, LayerPlan, layer_plan, next_merge};

/// Each takes as much memory again as the runs that it merges.
const MERGES_AT_ONCE: usize = 2;

/// States of some checkpoints, sorted.
#[derive(Debug, Clone)]
pub struct LayerRun {
    pub checkpoints: CheckpointIds,
    pub run: Arc<SortedRun>,
    /// The events that are not in the states, because the view fails on them.
    pub failures: Arc<Failures>,
}

/// Where layers are read from, what was found damaged on the way, and how much may still be computed from the archive.
pub struct LayerSource<'a> {
    pub storage: &'a ObjectStorage,
    pub session: &'a SegmentSession,
    pub damaged: &'a Mutex<Vec<Error>>,
    /// In this refresh, in events.
    pub budget: &'a RebuildBudget,
    /// A view that is answered does not wait for what is computed for others: only `budget.of_view` holds for it.
    pub is_served: bool,
}

/// How many archived events one refresh may compute states of, over all views: the others wait meanwhile.
#[derive(Debug)]
pub struct RebuildBudget {
    /// What one view may take.
    pub of_view: i64,
    left: AtomicI64,
}

impl RebuildBudget {
    /// Creates a budget of this many events, all of which one view may take.
    pub fn new(events: i64) -> Self {
        Self { of_view: events, left: AtomicI64::new(events) }
    }

    /// False, and nothing is taken, if less is left.
    fn take(&self, events: i64) -> bool {
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| (events <= left).then(|| left - events)).is_ok()
    }

    /// Gives back what a view took and could not compute: a view that always fails would keep others from ever being
    /// loaded.
    fn give_back(&self, events: i64) {
        self.left.fetch_add(events, Ordering::Relaxed);
    }
}

/// How far a view version's layers came to a catalog state.
#[derive(Debug)]
pub enum Refreshed {
    Whole(Vec<LayerRun>),
    /// States of some checkpoints would have to be computed from more events than may be.
    Short {
        layers: Vec<LayerRun>,
        lacking: MissingStates,
        events: i64,
    },
}

/// Brings the layers of a view version to a catalog state: keeps what still holds, loads what is new, merges what has
/// aged. What checkpoints lack is computed from the archive, within the budget. `lacking` is what was found out before.
pub async fn refresh(
    known: &[LayerRun],
    mut lacking: MissingStates,
    source: &LayerSource<'_>,
    view: &LiveView,
    state: &CatalogState,
    cut: &Vector,
) -> Result<Refreshed> {
    let held: Vec<&CheckpointIds> = known.iter().map(|layer| &layer.checkpoints).collect();
    let plan = layer_plan(&held, state, &view.streams(), cut)?;
    let mut layers: Vec<LayerRun> = plan.keep.into_iter().map(|at| known[at].clone()).collect();
    let SplitCheckpoints { stored, lacking: mut to_compute } = split_lacking(state, view, &lacking, plan.load);
    let mut events = events_of(state, view, &to_compute);
    if events <= source.budget.of_view {
        // Collected first: a closure in the stream would make this future one that cannot be spawned.
        let loads: Vec<_> = stored.into_iter().map(|checkpoint| load(source, view, state, checkpoint)).collect();
        let mut loading = futures::stream::iter(loads).buffer_unordered(4);
        while let Some((checkpoint, loaded)) = loading.try_next().await? {
            match loaded {
                Some(layer) => layers.push(layer),
                None => {
                    lacking.note(state, checkpoint);
                    to_compute.push(checkpoint);
                    events += events_of(state, view, &[checkpoint]);
                }
            }
            if events > source.budget.of_view {
                break;
            }
        }
    }
    if events > source.budget.of_view || !(source.is_served || source.budget.take(events)) {
        return Ok(Refreshed::Short { layers: compact(view, layers, state).await?, lacking, events });
    }
    match compute_all(source, view, state, &to_compute).await {
        Ok(computed) => layers.extend(computed),
        Err(error) => {
            if !source.is_served {
                source.budget.give_back(events);
            }
            return Err(error);
        }
    }
    Ok(Refreshed::Whole(compact(view, layers, state).await?))
}

async fn compute_all(
    from: &LayerSource<'_>,
    view: &LiveView,
    state: &CatalogState,
    checkpoints: &[&CheckpointRecord],
) -> Result<Vec<LayerRun>> {
    let mut computed = Vec::with_capacity(checkpoints.len());
    for checkpoint in checkpoints {
        computed.push(compute(from, view, state, checkpoint).await?);
    }
    Ok(computed)
}

/// Loads a checkpoint's states from its states object, if they are there.
async fn load<'c>(
    from: &LayerSource<'_>,
    view: &LiveView,
    state: &CatalogState,
    checkpoint: &'c CheckpointRecord,
) -> Result<(&'c CheckpointRecord, Option<LayerRun>)> {
    let (found, damaged) = match stored_segment(from.storage, view, state, checkpoint).await? {
        StoredSegment::Found(segment) => {
            let Segment { rows, failures, damaged, .. } = *segment;
            (Some(layer_of(checkpoint, rows, failures)), damaged)
        }
        StoredSegment::Lacking { damaged } => (None, damaged),
    };
    from.damaged.lock().unwrap_or_else(PoisonError::into_inner).extend(damaged);
    Ok((checkpoint, found))
}

/// Computes a checkpoint's states from the archive.
async fn compute(from: &LayerSource<'_>, view: &LiveView, state: &CatalogState, checkpoint: &CheckpointRecord) -> Result<LayerRun> {
    let Segment { rows, failures, .. } = computed_segment(from.storage, from.session, view, state, checkpoint).await?;
    metrics::counter!("basestream_serving_segments_rebuilt_total", "view" => view.name.to_string()).increment(1);
    Ok(layer_of(checkpoint, rows, failures))
}

fn layer_of(checkpoint: &CheckpointRecord, rows: StateRows, failures: Failures) -> LayerRun {
    let failures = Arc::new(failures);
    LayerRun { checkpoints: CheckpointIds::from([checkpoint.id]), run: Arc::new(SortedRun::in_memory(rows)), failures }
}

/// Merges the runs that have aged.
async fn compact(view: &LiveView, mut layers: Vec<LayerRun>, state: &CatalogState) -> Result<Vec<LayerRun>> {
    loop {
        let aged = take_aged(&mut layers, state);
        if aged.is_empty() {
            return Ok(layers);
        }
        let merges: Vec<_> = aged.into_iter().map(|runs| merged(view, runs)).collect();
        layers.extend(futures::stream::iter(merges).buffered(MERGES_AT_ONCE).try_collect::<Vec<_>>().await?);
    }
}

/// Takes out the runs that are merged next: groups of which each becomes one run.
fn take_aged(layers: &mut Vec<LayerRun>, state: &CatalogState) -> Vec<Vec<LayerRun>> {
    let mut groups = Vec::new();
    loop {
        let held: Vec<&CheckpointIds> = layers.iter().map(|layer| &layer.checkpoints).collect();
        let Some(aged) = next_merge(&held, state) else { return groups };
        // From the last: the places before stay what they are.
        groups.push(aged.into_iter().rev().map(|at| layers.swap_remove(at)).collect());
    }
}

/// On a thread of its own: after a start, the runs of many checkpoints are merged.
async fn merged(view: &LiveView, runs: Vec<LayerRun>) -> Result<LayerRun> {
    let (plan, codec) = (view.plan.clone(), view.codec.clone());
    let merge = move || -> Result<LayerRun> {
        let sets: Vec<&StateRows> = runs.iter().flat_map(|layer| layer.run.chunks()).collect();
        let mut failures = Failures::default();
        runs.iter().for_each(|layer| failures.extend(&layer.failures));
        Ok(LayerRun {
            failures: Arc::new(failures),
            checkpoints: runs.iter().flat_map(|layer| layer.checkpoints.iter().copied()).collect(),
            run: Arc::new(SortedRun::in_memory(merge_sets(&plan, &codec, &sets)?)),
        })
    };
    tokio::task::spawn_blocking(merge).await?
}

#[cfg(test)]
mod tests;
