//! Fresh layers: states that are counted before they are checkpointed, shared by a speed worker and a serving node of one process.
//!
//! A layer is immutable and covers, in each of its partitions, the offsets `[start, end)`. Layers never straddle a checkpoint, so
//! a reader that stands on a committed vector takes exactly the layers that start at or after it.

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
    /// Sorted and merged state rows; a view without an entry got no event.
    pub states: BTreeMap<ViewVersion, Arc<StateRows>>,
    /// The greatest event time of its accepted events, per stream.
    pub max_event_time: BTreeMap<Arc<str>, Micros>,
}

/// The shared list. Cheap to clone; readers and writers hold its lock for the time of copying a few pointers.
#[derive(Debug, Clone, Default)]
pub struct Fresh(Arc<RwLock<State>>);

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

    /// Replaces the layers of one unit of work (those that start at or after `unit`, in the partitions it names) by their merger.
    pub fn compact(&self, merged: FreshLayer) {
        let mut state = self.write();
        let inside = |layer: &FreshLayer| layer.start.iter().all(|(p, start)| has(&merged.start, p) && start >= merged.start.get(p))
            && layer.end.iter().all(|(p, end)| end <= merged.end.get(p));
        state.layers.retain(|layer| !inside(layer));
        state.layers.push(Arc::new(merged));
    }

    /// Takes back what was not committed of these partitions: they belong to somebody else now.
    pub fn withdraw(&self, committed: &Vector, partitions: &[PartitionId]) {
        let mut state = self.write();
        state.layers.retain(|layer| !layer.start.iter().any(|(p, start)| partitions.contains(p) && start >= committed.get(p)));
        for partition in partitions {
            state.complete_to.remove(partition);
        }
    }

    /// Forgets the layers that every reader's vector has passed.
    pub fn release(&self, passed: &Vector) {
        self.write().layers.retain(|layer| !layer.end.iter().all(|(p, end)| end <= passed.get(p)));
    }

    /// The layers that a reader standing on `vector` adds to it.
    pub fn after(&self, vector: &Vector) -> Vec<Arc<FreshLayer>> {
        let state = self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        state.layers.iter().filter(|layer| layer.start.iter().all(|(p, start)| start >= vector.get(p))).cloned().collect()
    }

    /// Until when a partition is complete, counting its layers.
    pub fn complete_to(&self, partition: &PartitionId) -> Option<Micros> {
        self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner()).complete_to.get(partition).copied()
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
        let mut states = BTreeMap::new();
        for (view, rows) in sets {
            if let Some((plan, codec)) = plans.get(&view) {
                states.insert(view, Arc::new(merge_all(plan, codec, &rows)?));
            }
        }
        Ok(FreshLayer { start, end, states, max_event_time })
    }

    pub fn memory_bytes(&self) -> usize {
        self.states.values().map(|rows| rows.memory_bytes()).sum()
    }
}
