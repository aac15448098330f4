//! Fresh layers: states that are not checkpointed yet, shared by speed workers and a serving node.
//!
//! A layer is immutable and covers the offsets `[start, end)` in each of its partitions. Layers never straddle a
//! checkpoint. A reader at a committed vector takes the chain of layers that begins there, each where its predecessor
//! ended. What a worker left behind that died or lost its partitions is therefore not counted in addition to its
//! successor's layers of the same records.
//!
//! ```text
//! worker --change--> Fresh --after(vector)--> read view            in one process
//!                      |
//!                 subscribe --> another process: Mirror --change--> its Fresh --after(vector)--> its read views
//! ```
//!
//! Workers only ever change the list by a [`LayerChange`]. A [`Mirror`] makes the same changes to the list of another
//! process, so a reader does not know whose layers it reads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::plan::ViewPlan;
use crate::states::merge::{merge_in_parts, merge_sets};
use crate::states::{KeyCodec, StateRows};
use types::Result;
use types::failures::Failures;
use types::outage::{Attempts, Outage};
use types::tiles::Micros;
use types::vector::{PartitionId, Vector};

mod mirror;
mod observers;
mod state;
mod subscription;

pub use mirror::{ChangeOutcome, Mirror};
pub use observers::LayerObserver;
pub use state::{Claim, Complete, LayerChange, Snapshot};
pub use subscription::{LayerSubscription, SubscriptionChange};

use observers::Observers;
use state::LayerList;
use subscription::Subscribers;

/// A version of a view. As JSON `["velocity", 2]`: nodes and workers of different releases send it to one another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "(Arc<str>, u32)", into = "(Arc<str>, u32)")]
pub struct ViewVersion {
    /// The view's name.
    pub name: Arc<str>,
    pub version: u32,
}

impl ViewVersion {
    /// Names a version of a view.
    pub fn new(name: impl Into<Arc<str>>, version: u32) -> Self {
        Self { name: name.into(), version }
    }
}

impl From<(Arc<str>, u32)> for ViewVersion {
    fn from((name, version): (Arc<str>, u32)) -> Self {
        Self { name, version }
    }
}

impl From<ViewVersion> for (Arc<str>, u32) {
    fn from(view: ViewVersion) -> Self {
        (view.name, view.version)
    }
}

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
    shared: Arc<RwLock<Shared<S>>>,
    /// The owner of the layers that this handle publishes, merges and withdraws.
    owner: u64,
    /// Whether the process's workers commit what they publish.
    commits: Attempts,
}

#[derive(Debug)]
struct Shared<S> {
    state: LayerList<S>,
    /// The chain that was taken last, and the vector that it follows, until something changes. Most queries come
    /// between two changes.
    last_chain: Mutex<Option<(Vector, Chain<S>)>>,
    subscribers: Subscribers<S>,
    observers: Observers<S>,
    /// Whether a node of this process reads the layers. It then releases what its vector has passed.
    is_read: bool,
    /// The formats of the states that each worker keeps, and of others that are in layers.
    stamps: BTreeMap<u64, BTreeMap<ViewVersion, Arc<str>>>,
}

impl<S> Clone for Fresh<S> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), owner: self.owner, commits: self.commits.clone() }
    }
}

impl<S> Default for Fresh<S> {
    fn default() -> Self {
        let shared = Shared {
            state: LayerList::default(),
            last_chain: Mutex::default(),
            subscribers: Subscribers::default(),
            observers: Observers::default(),
            is_read: true,
            stamps: BTreeMap::new(),
        };
        Self { shared: Arc::new(RwLock::new(shared)), owner: 0, commits: Attempts::new("the speed layer cannot commit") }
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
    pub complete_to: Arc<BTreeMap<PartitionId, Micros>>,
}

impl<S> Clone for Chain<S> {
    fn clone(&self) -> Self {
        Self { layers: self.layers.clone(), end: self.end.clone(), complete_to: self.complete_to.clone() }
    }
}

impl<S> Chain<S> {
    /// A chain without layers, at `vector`.
    pub fn at(vector: Vector) -> Self {
        Self { layers: Vec::new(), end: vector, complete_to: Arc::default() }
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

impl<S> Fresh<S> {
    /// For a process that has no node, or none yet: what is committed is released by the workers.
    pub fn unread() -> Self {
        let fresh = Self::default();
        fresh.write().is_read = false;
        fresh
    }

    /// Says whether a node of this process reads the layers from now on. Say so before it is opened, and after it was
    /// closed.
    pub fn set_read(&self, is_read: bool) {
        self.write().is_read = is_read;
    }

    /// Returns a handle for another worker of the process. A worker that lost a partition withdraws only what it
    /// published itself, and not what its successor published for the same records in the meantime.
    pub fn for_worker(&self) -> Self {
        let owner = self.write().state.next_owner();
        Self { shared: self.shared.clone(), owner, commits: self.commits.clone() }
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
    pub fn publish(&self, layer: FreshLayer<S>, complete_to: impl IntoIterator<Item = Complete>) {
        self.change(LayerChange::Published { layer: Arc::new(layer), complete_to: complete_to.into_iter().collect() });
    }

    /// Advances the times up to which partitions are complete, without adding a layer.
    pub fn complete(&self, complete_to: impl IntoIterator<Item = Complete>) {
        self.change(LayerChange::Completed(complete_to.into_iter().collect()));
    }

    /// Replaces the worker's layers that lie within `merged`, in all of their partitions, by `merged`.
    pub fn compact(&self, merged: FreshLayer<S>) {
        self.change(LayerChange::Compacted(Arc::new(merged)));
    }

    /// Withdraws the worker's layers of these partitions that are not completely committed: the partitions have another
    /// owner now.
    pub fn withdraw(&self, committed: &Vector, partitions: &[PartitionId]) {
        self.change(LayerChange::Withdrawn { committed: committed.clone(), partitions: partitions.to_vec() });
    }

    /// The worker owns these partitions from now on, and continues at the committed vector: withdraws the layers of all
    /// workers that reach past it, including those that a dead worker left behind. `epoch` is greater than that of
    /// every earlier owner; 0 where no other process reads the layers.
    pub fn take_over(&self, epoch: i64, committed: &Vector, partitions: &[PartitionId]) {
        let claim = |partition: &PartitionId| Claim { partition: partition.clone(), epoch, from: committed.get(partition) };
        self.change(LayerChange::TakenOver(partitions.iter().map(claim).collect()));
    }

    /// The worker does not own these partitions any more: its process claims them neither towards new subscribers nor
    /// when it [claims its partitions again](Fresh::claim_again).
    pub fn give_up(&self, partitions: &[PartitionId]) {
        self.write().state.give_up(self.owner, |partition| partitions.contains(partition));
    }

    /// The worker owns no partition any more.
    pub fn give_up_all(&self) {
        self.write().state.give_up(self.owner, |_| true);
    }

    /// Drops the layers that every reader's vector has passed.
    pub fn release(&self, passed: &Vector) {
        let _passed = self.write().state.release(passed);
    }

    /// A worker committed its partitions up to here. Without a node in this process nobody needs those layers any more.
    pub fn committed(&self, ends: &Vector) {
        let _passed: Vec<_>;
        let mut shared = self.write();
        if !shared.is_read {
            _passed = shared.state.release(ends);
        }
    }

    /// Returns the chain of layers that follows `vector`.
    pub fn after(&self, vector: &Vector) -> Chain<S> {
        let shared = self.read();
        let mut last = shared.last_chain.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, chain)) = last.as_ref().filter(|(before, _)| before == vector) {
            return chain.clone();
        }
        let chain = shared.state.after(vector);
        *last = Some((vector.clone(), chain.clone()));
        chain
    }

    /// Whether a subscriber has seen a greater epoch of a partition that a worker of this process owns than its own.
    pub fn is_behind(&self, seen: &[(PartitionId, i64)]) -> bool {
        self.read().state.is_behind(seen)
    }

    /// The workers of this process own their partitions at this epoch from now on: a subscriber had seen a greater one
    /// than theirs. Subscribers begin again, from a snapshot.
    pub fn claim_again(&self, epoch: i64) {
        let mut shared = self.write();
        shared.state.raise_claims(epoch);
        shared.subscribers = Subscribers::default();
    }

    /// Says of which format the states are that the worker keeps from now on. Formats of states that it kept before are
    /// forgotten once they are in no layer.
    pub fn keep(&self, views: impl IntoIterator<Item = (ViewVersion, Arc<str>)>) {
        let mut shared = self.write();
        let Shared { state, stamps, .. } = &mut *shared;
        let own = stamps.entry(self.owner).or_default();
        own.retain(|view, _| state.has_states(view));
        own.extend(views);
    }

    /// The format of a view version's states.
    pub fn stamp(&self, view: &ViewVersion) -> Option<Arc<str>> {
        self.read().stamps.values().find_map(|kept| kept.get(view)).cloned()
    }

    /// The epoch of each partition's last owner.
    pub fn epochs(&self) -> BTreeMap<PartitionId, i64> {
        self.read().state.epochs()
    }

    /// What the workers of this process have published and not released, and what they change from then on. A
    /// subscriber that does not keep up is cut off: its changes end.
    pub fn subscribe(&self) -> LayerSubscription<S> {
        let mut shared = self.write();
        let snapshot = shared.state.snapshot();
        LayerSubscription { snapshot, changes: shared.subscribers.add() }
    }

    /// Calls `observer` with each layer that is published from now on, also by mirrored workers, for as long as it
    /// lives.
    pub fn observe(&self, observer: &Arc<LayerObserver<S>>) {
        self.write().observers.add(observer);
    }

    /// How many layers there are.
    pub fn layers(&self) -> usize {
        self.read().state.layers.len()
    }

    fn change(&self, change: LayerChange<S>) {
        // Freed after the lock: readers do not wait for that.
        let _dropped: Vec<_>;
        let mut shared = self.write();
        _dropped = shared.state.apply(self.owner, &change);
        shared.subscribers.send(self.owner, &change);
        let LayerChange::Published { layer, .. } = &change else { return };
        let observers = shared.observers.living();
        drop(shared);
        observers.iter().for_each(|observer| observer(layer));
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Shared<S>> {
        self.shared.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Shared<S>> {
        let mut shared = self.shared.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        // The list still has its layers: nothing large is freed here.
        shared.last_chain = Mutex::default();
        shared
    }
}

/// What is merged of a view's states; `None` if one of the layers lacks them.
fn merged_states<M>(layers: &[Arc<FreshLayer>], view: &ViewVersion, plan: &ViewPlan, merged: impl FnOnce() -> Result<M>) -> Option<M> {
    if !layers.iter().all(|layer| layer.covers(view, |stream| plan.reads(stream))) {
        return None;
    }
    merged()
        .inspect_err(
            |error| warn!(view = %view.name, version = view.version, %error, "fresh states could not be merged; leaving this view out of the layer"),
        )
        .ok()
}

impl FreshLayer {
    /// Merges several layers of the same epoch, in order, into one. `plans` holds the plan and codec of each
    /// view version.
    pub fn merge(layers: &[Arc<FreshLayer>], plans: &BTreeMap<ViewVersion, (Arc<ViewPlan>, Arc<KeyCodec>)>) -> Result<FreshLayer> {
        Ok(Self::merge_by(layers, |view, rows| {
            let (plan, codec) = plans.get(view)?;
            merged_states(layers, view, plan, || merge_sets(plan, codec, rows))
        }))
    }

    /// Merges what several layers of the same epoch have of one view, into rows that follow one another. It copies
    /// about `bytes_at_once` while it does. `None` where [`FreshLayer::merge`] leaves it out.
    pub fn merge_view(
        layers: &[Arc<FreshLayer>],
        view: &ViewVersion,
        plan: &ViewPlan,
        codec: &KeyCodec,
        bytes_at_once: usize,
    ) -> Option<(Vec<StateRows>, Failures)> {
        let rows: Vec<&StateRows> = layers.iter().filter_map(|layer| layer.states.get(view)).map(|rows| &**rows).collect();
        let states = merged_states(layers, view, plan, || merge_in_parts(plan, codec, &rows, bytes_at_once))?;
        let mut failures = Failures::default();
        layers.iter().filter_map(|layer| layer.failures.get(view)).for_each(|of_layer| failures.extend(of_layer));
        Some((states, failures))
    }

    /// The memory of its states and failures, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let failures: usize = self.failures.values().map(|failures| failures.memory_bytes()).sum();
        failures + self.states.values().map(|rows| rows.memory_bytes()).sum::<usize>()
    }
}

impl<S> FreshLayer<S> {
    /// Whether it lies within another layer, in all of its partitions.
    fn is_inside(&self, other: &Self) -> bool {
        self.is_between(&other.start, &other.end)
    }

    fn is_between(&self, start: &Vector, end: &Vector) -> bool {
        let starts_inside = self.start.iter().all(|(p, at)| start.has(p) && at >= start.get(p));
        starts_inside && self.end.iter().all(|(p, at)| at <= end.get(p))
    }

    /// Merges several layers of the same unit of work, in order, into one. A view version for which `merge` returns
    /// `None` gets no entry.
    pub fn merge_by(layers: &[Arc<Self>], mut merge: impl FnMut(&ViewVersion, &[&S]) -> Option<S>) -> Self {
        let (mut start, mut end, mut max_event_time) = (Vector::new(), Vector::new(), BTreeMap::new());
        let mut sets: BTreeMap<ViewVersion, Vec<&S>> = BTreeMap::new();
        let mut failures: BTreeMap<ViewVersion, Arc<Failures>> = BTreeMap::new();
        for layer in layers {
            for (partition, offset) in layer.start.iter() {
                let earlier = if start.has(partition) { start.get(partition).min(offset) } else { offset };
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
