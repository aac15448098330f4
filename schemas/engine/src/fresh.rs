//! Fresh layers: states that are counted before they are checkpointed, shared by a speed worker and a serving node of one process.
//!
//! A layer is immutable and covers, in each of its partitions, the offsets `[start, end)`. Layers never straddle a checkpoint. A
//! reader that stands on a committed vector takes the chain of layers that begins there, each where the one before ended: what a
//! worker that died or lost its partitions left behind is not counted beside what its successor makes of the same records.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use tracing::warn;

use crate::plan::ViewPlan;
use crate::states::merge::merge_all;
use crate::states::{KeyCodec, StateRows};
use types::Result;
use types::tiles::Micros;
use types::vector::{PartitionId, Vector};

/// A view and its version.
pub type ViewVersion = (Arc<str>, u32);

/// What one or more micro-batches of a worker added.
///
/// `S` is what a view version's states are: state rows, or what a simulation puts in their place.
#[derive(Debug)]
pub struct FreshLayer<S = StateRows> {
    /// Per partition that it covers.
    pub start: Vector,
    pub end: Vector,
    /// Sorted and merged state rows, an entry (perhaps without rows) for each view version that was kept and reads one of the
    /// layer's streams. Of a view without an entry nothing is known; see [`FreshLayer::covers`].
    pub states: BTreeMap<ViewVersion, Arc<S>>,
    /// The greatest event time of its accepted events, per stream.
    pub max_event_time: BTreeMap<Arc<str>, Micros>,
}

/// The shared list. Cheap to clone; readers and writers hold its lock for the time of copying a few pointers.
#[derive(Debug)]
pub struct Fresh<S = StateRows> {
    state: Arc<RwLock<State<S>>>,
    /// Whose layers this handle publishes, merges and takes back.
    owner: u64,
}

impl<S> Clone for Fresh<S> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), owner: self.owner }
    }
}

impl<S> Default for Fresh<S> {
    fn default() -> Self {
        Self { state: Arc::new(RwLock::new(State { layers: Vec::new(), owners: 0, complete_to: BTreeMap::new() })), owner: 0 }
    }
}

impl<S> Clone for FreshLayer<S> {
    fn clone(&self) -> Self {
        Self { start: self.start.clone(), end: self.end.clone(), states: self.states.clone(), max_event_time: self.max_event_time.clone() }
    }
}

/// The layers that follow a vector without a gap or an overlap.
#[derive(Debug)]
pub struct Chain<S = StateRows> {
    pub layers: Vec<Arc<FreshLayer<S>>>,
    /// Where the layers end: the vector itself in partitions without one.
    pub end: Vector,
    /// Until when partitions are complete, counting these layers.
    pub complete_to: BTreeMap<PartitionId, Micros>,
}

impl<S> Chain<S> {
    /// A chain without layers, at `vector`.
    pub fn at(vector: Vector) -> Self {
        Self { layers: Vec::new(), end: vector, complete_to: BTreeMap::new() }
    }

    /// Adds a layer that begins, in all of its partitions, where the chain ends.
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
    /// With their owners.
    layers: Vec<(u64, Arc<FreshLayer<S>>)>,
    /// The last owner that was named.
    owners: u64,
    /// Per partition, every record the log took before this time is in the archive or in a layer.
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
    /// A handle for one more worker of the process: a worker that lost a partition takes back what it published itself, and not what its
    /// successor made of the same records meanwhile.
    pub fn for_worker(&self) -> Self {
        let mut state = self.write();
        state.owners += 1;
        Self { state: self.state.clone(), owner: state.owners }
    }

    /// Adds a layer; readers see it at once.
    pub fn publish(&self, layer: FreshLayer<S>, complete_to: impl IntoIterator<Item = (PartitionId, Micros)>) {
        let mut state = self.write();
        state.layers.push((self.owner, Arc::new(layer)));
        state.complete(complete_to);
    }

    /// Says until when partitions are complete, without a layer.
    pub fn complete(&self, complete_to: impl IntoIterator<Item = (PartitionId, Micros)>) {
        self.write().complete(complete_to);
    }

    /// Replaces the worker's layers that lie within `merged`, in all of their partitions, by it.
    pub fn compact(&self, merged: FreshLayer<S>) {
        let mut state = self.write();
        let inside = |layer: &FreshLayer<S>| {
            let starts_inside = layer.start.iter().all(|(p, start)| has(&merged.start, p) && start >= merged.start.get(p));
            starts_inside && layer.end.iter().all(|(p, end)| end <= merged.end.get(p))
        };
        state.layers.retain(|(owner, layer)| *owner != self.owner || !inside(layer));
        state.layers.push((self.owner, Arc::new(merged)));
    }

    /// Takes back what the worker published of these partitions and is not (wholly) committed: they belong to somebody else now.
    pub fn withdraw(&self, committed: &Vector, partitions: &[PartitionId]) {
        self.drop_uncommitted(committed, partitions, |owner| owner == self.owner);
    }

    /// Likewise what anybody published: a worker that died, and left them behind.
    pub fn withdraw_leftovers(&self, committed: &Vector, partitions: &[PartitionId]) {
        self.drop_uncommitted(committed, partitions, |_| true);
    }

    fn drop_uncommitted(&self, committed: &Vector, partitions: &[PartitionId], of: impl Fn(u64) -> bool) {
        let mut state = self.write();
        let is_left = |layer: &FreshLayer<S>| layer.end.iter().any(|(p, end)| partitions.contains(p) && end > committed.get(p));
        state.layers.retain(|(owner, layer)| !of(*owner) || !is_left(layer));
        for partition in partitions {
            state.complete_to.remove(partition);
        }
    }

    /// Forgets the layers that every reader's vector has passed.
    pub fn release(&self, passed: &Vector) {
        self.write().layers.retain(|(_, layer)| !layer.end.iter().all(|(p, end)| end <= passed.get(p)));
    }

    /// What a reader standing on `vector` adds to it.
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
    /// One layer of several of the same unit of work, in order. `plans` gives the plan and codec of each view version.
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
        self.states.values().map(|rows| rows.memory_bytes()).sum()
    }
}

impl<S> FreshLayer<S> {
    /// One layer of several of the same unit of work, in order; a view version of which `merge` makes nothing has no entry.
    pub fn merge_by(layers: &[Arc<Self>], mut merge: impl FnMut(&ViewVersion, &[&S]) -> Option<S>) -> Self {
        let (mut start, mut end, mut max_event_time) = (Vector::new(), Vector::new(), BTreeMap::new());
        let mut sets: BTreeMap<ViewVersion, Vec<&S>> = BTreeMap::new();
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
            for (view, states) in &layer.states {
                sets.entry(view.clone()).or_default().push(states);
            }
        }
        let merged = sets.into_iter().filter_map(|(view, states)| Some((view.clone(), Arc::new(merge(&view, &states)?))));
        Self { states: merged.collect(), start, end, max_event_time }
    }

    /// False when the layer holds events of the view's streams that are not in the view's states: the view was not known yet when
    /// the layer was made, or its expressions failed on one of the events.
    pub fn covers(&self, view: &ViewVersion, reads: impl Fn(&str) -> bool) -> bool {
        self.states.contains_key(view) || !self.start.iter().any(|(partition, _)| reads(&partition.stream))
    }
}

#[cfg(test)]
mod tests;
