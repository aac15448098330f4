//! Fresh layers: states that are not checkpointed yet, shared by a speed worker and a serving node in one process.
//!
//! A layer is immutable and covers the offsets `[start, end)` in each of its partitions. Layers never straddle a
//! checkpoint. A reader at a committed vector takes the chain of layers that begins there, each where its predecessor
//! ended. What a worker left behind that died or lost its partitions is therefore not counted in addition to its
//! successor's layers of the same records.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use tracing::warn;

use crate::plan::ViewPlan;
use crate::states::merge::merge_all;
use crate::states::{KeyCodec, StateRows};
use types::Result;
use types::failures::Failures;
use types::outage::{Attempts, Outage};
use types::tiles::Micros;
use types::vector::{PartitionId, Vector};

/// A view and its version.
pub type ViewVersion = (Arc<str>, u32);

/// What one or more micro-batches of a worker added.
///
/// `S` is the type of a view version's states: state rows, or a simulation's substitute.
#[derive(Debug)]
pub struct FreshLayer<S = StateRows> {
    /// The offset at which the layer begins, for each partition that it covers.
    pub start: Vector,
    pub end: Vector,
    /// Sorted and merged state rows. There is an entry, possibly without rows, for each view version that was kept and
    /// reads one of the layer's streams. Without an entry nothing is known about a view; see [`FreshLayer::covers`].
    pub states: BTreeMap<ViewVersion, Arc<S>>,
    /// The events that are missing in the states, because the view fails on them. Most views have none.
    pub failures: BTreeMap<ViewVersion, Arc<Failures>>,
    /// The greatest event time of the accepted events, per stream.
    pub max_event_time: BTreeMap<Arc<str>, Micros>,
}

/// The list of layers, shared between its handles. Cheap to clone; readers and writers hold its lock only to copy a few
/// pointers.
#[derive(Debug)]
pub struct Fresh<S = StateRows> {
    state: Arc<RwLock<State<S>>>,
    /// The owner of the layers that this handle publishes, merges and withdraws.
    owner: u64,
    /// Whether the process's workers commit what they publish.
    commits: Attempts,
}

impl<S> Clone for Fresh<S> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), owner: self.owner, commits: self.commits.clone() }
    }
}

impl<S> Default for Fresh<S> {
    fn default() -> Self {
        let state = State { layers: Vec::new(), owners: 0, complete_to: BTreeMap::new() };
        Self { state: Arc::new(RwLock::new(state)), owner: 0, commits: Attempts::new("the speed layer cannot commit") }
    }
}

impl<S> Clone for FreshLayer<S> {
    fn clone(&self) -> Self {
        let Self { start, end, states, failures, max_event_time } = self;
        Self {
            start: start.clone(),
            end: end.clone(),
            states: states.clone(),
            failures: failures.clone(),
            max_event_time: max_event_time.clone(),
        }
    }
}

/// The layers that follow a vector without a gap or an overlap.
#[derive(Debug)]
pub struct Chain<S = StateRows> {
    pub layers: Vec<Arc<FreshLayer<S>>>,
    /// Where the layers end. In partitions without a layer, the vector itself.
    pub end: Vector,
    /// The time up to which each partition is complete, including these layers.
    pub complete_to: BTreeMap<PartitionId, Micros>,
}

impl<S> Chain<S> {
    /// A chain without layers, at `vector`.
    pub fn at(vector: Vector) -> Self {
        Self { layers: Vec::new(), end: vector, complete_to: BTreeMap::new() }
    }

    /// Adds a layer if it begins where the chain ends in all of its partitions. Returns whether it did.
    fn take(&mut self, layer: &Arc<FreshLayer<S>>) -> bool {
        let follows = layer.start.iter().all(|(p, start)| start == self.end.get(p));
        if follows {
            for (partition, end) in layer.end.iter() {
                self.end.set(partition.clone(), end);
            }
            self.layers.push(layer.clone());
        }
        follows
    }
}

#[derive(Debug)]
struct State<S> {
    /// The layers with their owners.
    layers: Vec<(u64, Arc<FreshLayer<S>>)>,
    /// The last owner number that was assigned.
    owners: u64,
    /// Per partition: every record that the log received before this time is in the archive or in a layer.
    complete_to: BTreeMap<PartitionId, Micros>,
}

impl<S> State<S> {
    fn complete(&mut self, complete_to: impl IntoIterator<Item = (PartitionId, Micros)>) {
        for (partition, time) in complete_to {
            let known = self.complete_to.entry(partition).or_insert(time);
            *known = time.max(*known);
        }
    }
}

impl<S> Fresh<S> {
    /// Returns a handle for another worker of the process. A worker that lost a partition withdraws only what it
    /// published itself, and not what its successor published for the same records in the meantime.
    pub fn for_worker(&self) -> Self {
        let mut state = self.write();
        state.owners += 1;
        Self { state: self.state.clone(), owner: state.owners, commits: self.commits.clone() }
    }

    /// Takes note of whether a worker could commit.
    pub fn note<T>(&self, outcome: &Result<T>) {
        self.commits.note(outcome);
    }

    /// Returns why the process's workers cannot commit, if they cannot.
    pub fn outage(&self) -> Option<Outage> {
        self.commits.outage()
    }

    /// Adds a layer. Readers see it at once.
    pub fn publish(&self, layer: FreshLayer<S>, complete_to: impl IntoIterator<Item = (PartitionId, Micros)>) {
        let mut state = self.write();
        state.layers.push((self.owner, Arc::new(layer)));
        state.complete(complete_to);
    }

    /// Advances the times up to which partitions are complete, without adding a layer.
    pub fn complete(&self, complete_to: impl IntoIterator<Item = (PartitionId, Micros)>) {
        self.write().complete(complete_to);
    }

    /// Replaces the worker's layers that lie within `merged`, in all of their partitions, by `merged`.
    pub fn compact(&self, merged: FreshLayer<S>) {
        // Freed after the lock, here and below: readers do not wait for that.
        let _replaced: Vec<_>;
        let mut state = self.write();
        let inside = |layer: &FreshLayer<S>| {
            let starts_inside = layer.start.iter().all(|(p, start)| has(&merged.start, p) && start >= merged.start.get(p));
            starts_inside && layer.end.iter().all(|(p, end)| end <= merged.end.get(p))
        };
        _replaced = state.layers.extract_if(.., |(owner, layer)| *owner == self.owner && inside(layer)).collect();
        state.layers.push((self.owner, Arc::new(merged)));
    }

    /// Withdraws the worker's layers of these partitions that are not completely committed: the partitions have another
    /// owner now.
    pub fn withdraw(&self, committed: &Vector, partitions: &[PartitionId]) {
        self.drop_uncommitted(committed, partitions, |owner| owner == self.owner);
    }

    /// Withdraws such layers of all workers, including those that a dead worker left behind.
    pub fn withdraw_leftovers(&self, committed: &Vector, partitions: &[PartitionId]) {
        self.drop_uncommitted(committed, partitions, |_| true);
    }

    fn drop_uncommitted(&self, committed: &Vector, partitions: &[PartitionId], of: impl Fn(u64) -> bool) {
        let _dropped: Vec<_>;
        let mut state = self.write();
        let is_left = |layer: &FreshLayer<S>| layer.end.iter().any(|(p, end)| partitions.contains(p) && end > committed.get(p));
        _dropped = state.layers.extract_if(.., |(owner, layer)| of(*owner) && is_left(layer)).collect();
        for partition in partitions {
            state.complete_to.remove(partition);
        }
    }

    /// Drops the layers that every reader's vector has passed.
    pub fn release(&self, passed: &Vector) {
        let is_passed = |layer: &FreshLayer<S>| layer.end.iter().all(|(p, end)| end <= passed.get(p));
        let _passed: Vec<_> = self.write().layers.extract_if(.., |(_, layer)| is_passed(layer)).collect();
    }

    /// Returns the chain of layers that follows `vector`.
    pub fn after(&self, vector: &Vector) -> Chain<S> {
        let state = self.state.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut chain = Chain::at(vector.clone());
        let mut left: Vec<&Arc<FreshLayer<S>>> = state.layers.iter().map(|(_, layer)| layer).collect();
        let mut before = left.len() + 1;
        while left.len() < before {
            before = left.len();
            left.retain(|layer| !chain.take(layer));
        }
        let is_whole = |p: &PartitionId| left.iter().all(|layer| layer.end.get(p) <= chain.end.get(p));
        chain.complete_to = state.complete_to.iter().filter(|(p, _)| is_whole(p)).map(|(p, time)| (p.clone(), *time)).collect();
        chain
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, State<S>> {
        self.state.write().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn has(vector: &Vector, partition: &PartitionId) -> bool {
    vector.iter().any(|(known, _)| known == partition)
}

impl FreshLayer {
    /// Merges several layers of the same epoch, in order, into one. `plans` holds the plan and codec of each
    /// view version.
    pub fn merge(layers: &[Arc<FreshLayer>], plans: &BTreeMap<ViewVersion, (Arc<ViewPlan>, Arc<KeyCodec>)>) -> Result<FreshLayer> {
        Ok(Self::merge_by(layers, |view, rows| {
            let (plan, codec) =
                plans.get(view).filter(|(plan, _)| layers.iter().all(|layer| layer.covers(view, |stream| plan.reads(stream))))?;
            let merged = merge_all(plan, codec, rows);
            merged
                .inspect_err(|error| warn!(view = %view.0, version = view.1, %error, "fresh states could not be merged; leaving this view out of the layer"))
                .ok()
        }))
    }

    pub fn memory_bytes(&self) -> usize {
        let failures: usize = self.failures.values().map(|failures| failures.memory_bytes()).sum();
        failures + self.states.values().map(|rows| rows.memory_bytes()).sum::<usize>()
    }
}

impl<S> FreshLayer<S> {
    /// Merges several layers of the same unit of work, in order, into one. A view version for which `merge` returns
    /// `None` gets no entry.
    pub fn merge_by(layers: &[Arc<Self>], mut merge: impl FnMut(&ViewVersion, &[&S]) -> Option<S>) -> Self {
        let (mut start, mut end, mut max_event_time) = (Vector::new(), Vector::new(), BTreeMap::new());
        let mut sets: BTreeMap<ViewVersion, Vec<&S>> = BTreeMap::new();
        let mut failures: BTreeMap<ViewVersion, Arc<Failures>> = BTreeMap::new();
        for layer in layers {
            for (partition, offset) in layer.start.iter() {
                let earlier = if has(&start, partition) { start.get(partition).min(offset) } else { offset };
                start.set(partition.clone(), earlier);
            }
            for (partition, offset) in layer.end.iter() {
                end.set(partition.clone(), end.get(partition).max(offset));
            }
            for (stream, time) in &layer.max_event_time {
                let known = max_event_time.entry(stream.clone()).or_insert(*time);
                *known = (*time).max(*known);
            }
            for (view, of_layer) in &layer.failures {
                Arc::make_mut(failures.entry(view.clone()).or_default()).extend(of_layer);
            }
            for (view, states) in &layer.states {
                sets.entry(view.clone()).or_default().push(states);
            }
        }
        let merged = sets.into_iter().filter_map(|(view, states)| Some((view.clone(), Arc::new(merge(&view, &states)?))));
        Self { states: merged.collect(), failures, start, end, max_event_time }
    }

    /// False if the layer holds events of the view's streams that are missing in the view's states: the view was not
    /// known when the layer was built, or it is refused because of one of the events.
    pub fn covers(&self, view: &ViewVersion, reads: impl Fn(&str) -> bool) -> bool {
        self.states.contains_key(view) || !self.start.iter().any(|(partition, _)| reads(&partition.stream))
    }
}

#[cfg(test)]
mod tests;
