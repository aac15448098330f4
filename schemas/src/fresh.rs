//! Fresh layers: states that are counted before they are checkpointed, shared by a speed worker and a serving node of one process.
//!
//! A layer is immutable and covers, in each of its partitions, the offsets `[start, end)`. Layers never straddle a checkpoint. A
//! reader that stands on a committed vector takes the chain of layers that begins there, each where the one before ended: what a
//! worker that died or lost its partitions left behind is not counted beside what its successor makes of the same records.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use crate::error::Result;
use crate::plan::ViewPlan;
use crate::states::{KeyCodec, StateRows, merge::merge_all};
use crate::tiles::Micros;
use crate::vector::{PartitionId, Vector};

/// A view and its version.
pub type ViewVersion = (Arc<str>, u32);

/// What one or more micro-batches of a worker added.
#[derive(Debug, Clone)]
pub struct FreshLayer {
    /// Per partition that it covers.
    pub start: Vector,
    pub end: Vector,
    /// Sorted and merged state rows, an entry (perhaps without rows) for each view version that was kept and reads one of the
    /// layer's streams. Of a view without an entry nothing is known; see [`FreshLayer::covers`].
    pub states: BTreeMap<ViewVersion, Arc<StateRows>>,
    /// The greatest event time of its accepted events, per stream.
    pub max_event_time: BTreeMap<Arc<str>, Micros>,
}

/// The shared list. Cheap to clone; readers and writers hold its lock for the time of copying a few pointers.
#[derive(Debug, Clone, Default)]
pub struct Fresh(Arc<RwLock<State>>);

/// The layers that follow a vector without a gap or an overlap.
#[derive(Debug, Clone, Default)]
pub struct Chain {
    pub layers: Vec<Arc<FreshLayer>>,
    /// Where the layers end: the vector itself in partitions without one.
    pub end: Vector,
    /// Until when partitions are complete, counting these layers.
    pub complete_to: BTreeMap<PartitionId, Micros>,
}

impl Chain {
    /// Adds a layer that begins, in all of its partitions, where the chain ends.
    fn take(&mut self, layer: &Arc<FreshLayer>) -> bool {
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

#[derive(Debug, Default)]
struct State {
    layers: Vec<Arc<FreshLayer>>,
    /// Per partition, every record the log took before this time is in the archive or in a layer.
    complete_to: BTreeMap<PartitionId, Micros>,
}

impl State {
    fn complete(&mut self, complete_to: impl IntoIterator<Item = (PartitionId, Micros)>) {
        for (partition, time) in complete_to {
            let known = self.complete_to.entry(partition).or_insert(time);
            *known = time.max(*known);
        }
    }
}

impl Fresh {
    /// Adds a layer; readers see it at once.
    pub fn publish(&self, layer: FreshLayer, complete_to: impl IntoIterator<Item = (PartitionId, Micros)>) {
        let mut state = self.write();
        state.layers.push(Arc::new(layer));
        state.complete(complete_to);
    }

    /// Says until when partitions are complete, without a layer.
    pub fn complete(&self, complete_to: impl IntoIterator<Item = (PartitionId, Micros)>) {
        self.write().complete(complete_to);
    }

    /// Replaces the layers that lie within `merged`, in all of their partitions, by it.
    pub fn compact(&self, merged: FreshLayer) {
        let mut state = self.write();
        let inside = |layer: &FreshLayer| {
            let starts_inside = layer.start.iter().all(|(p, start)| has(&merged.start, p) && start >= merged.start.get(p));
            starts_inside && layer.end.iter().all(|(p, end)| end <= merged.end.get(p))
        };
        state.layers.retain(|layer| !inside(layer));
        state.layers.push(Arc::new(merged));
    }

    /// Takes back what is not (wholly) committed of these partitions: they belong to somebody else now.
    pub fn withdraw(&self, committed: &Vector, partitions: &[PartitionId]) {
        let mut state = self.write();
        state.layers.retain(|layer| !layer.end.iter().any(|(p, end)| partitions.contains(p) && end > committed.get(p)));
        for partition in partitions {
            state.complete_to.remove(partition);
        }
    }

    /// Forgets the layers that every reader's vector has passed.
    pub fn release(&self, passed: &Vector) {
        self.write().layers.retain(|layer| !layer.end.iter().all(|(p, end)| end <= passed.get(p)));
    }

    /// What a reader standing on `vector` adds to it.
    pub fn after(&self, vector: &Vector) -> Chain {
        let state = self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut chain = Chain { layers: Vec::new(), end: vector.clone(), complete_to: BTreeMap::new() };
        let mut left: Vec<&Arc<FreshLayer>> = state.layers.iter().collect();
        let mut before = left.len() + 1;
        while left.len() < before {
            before = left.len();
            left.retain(|layer| !chain.take(layer));
        }
        let is_whole = |p: &PartitionId| left.iter().all(|layer| layer.end.get(p) <= chain.end.get(p));
        chain.complete_to = state.complete_to.iter().filter(|(p, _)| is_whole(p)).map(|(p, time)| (p.clone(), *time)).collect();
        chain
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, State> {
        self.0.write().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn has(vector: &Vector, partition: &PartitionId) -> bool {
    vector.iter().any(|(known, _)| known == partition)
}

impl FreshLayer {
    /// One layer of several of the same unit of work, in order. `plans` gives the plan and codec of each view version.
    pub fn merge(layers: &[Arc<FreshLayer>], plans: &BTreeMap<ViewVersion, (Arc<ViewPlan>, Arc<KeyCodec>)>) -> Result<FreshLayer> {
        let (mut start, mut end, mut max_event_time) = (Vector::new(), Vector::new(), BTreeMap::new());
        let mut sets: BTreeMap<ViewVersion, Vec<&StateRows>> = BTreeMap::new();
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
            for (view, rows) in &layer.states {
                sets.entry(view.clone()).or_default().push(rows);
            }
        }
        let mut merged = FreshLayer { start, end, states: BTreeMap::new(), max_event_time };
        for (view, rows) in sets {
            let Some((plan, codec)) = plans.get(&view).filter(|(plan, _)| layers.iter().all(|layer| layer.covers(&view, plan))) else {
                continue;
            };
            match merge_all(plan, codec, &rows) {
                Ok(rows) => drop(merged.states.insert(view, Arc::new(rows))),
                Err(error) => {
                    tracing::warn!(view = %view.0, version = view.1, %error, "fresh states do not merge; the view goes without them")
                }
            }
        }
        Ok(merged)
    }

    /// False when the layer holds events of the view's streams that are not in the view's states: the view was not known yet when
    /// the layer was made, or its expressions failed on one of the events.
    pub fn covers(&self, view: &ViewVersion, plan: &ViewPlan) -> bool {
        let reads = |p: &PartitionId| plan.streams.iter().any(|stream| stream.name == p.stream);
        self.states.contains_key(view) || !self.start.iter().any(|(p, _)| reads(p))
    }

    pub fn memory_bytes(&self) -> usize {
        self.states.values().map(|rows| rows.memory_bytes()).sum()
    }
}

#[cfg(test)]
mod tests;
