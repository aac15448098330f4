//! What a list of fresh layers holds, and what each change does to it: without a lock, a clock or a channel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use types::tiles::Micros;
use types::vector::{Offset, PartitionId, Vector};

use super::{Chain, FreshLayer, ViewVersion};

/// What a worker does to its layers.
#[derive(Debug)]
pub enum LayerChange<S> {
    /// It owns these partitions from now on, and continues where they are committed.
    TakenOver(Vec<Claim>),
    Published {
        layer: Arc<FreshLayer<S>>,
        complete_to: Vec<Complete>,
    },
    Completed(Vec<Complete>),
    /// This layer takes the place of those that lie within it.
    Compacted(Arc<FreshLayer<S>>),
    /// What reaches past the committed vector in one of these partitions is not to be read any more.
    Withdrawn {
        committed: Vector,
        partitions: Vec<PartitionId>,
    },
}

/// A worker's ownership of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub partition: PartitionId,
    /// Grows with every change of owner; 0 where it is not known.
    pub epoch: i64,
    /// The committed position at which the worker continued.
    pub from: Offset,
}

/// A fact about the log: every record of the partition that the log received before `time` is before `position`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Complete {
    pub partition: PartitionId,
    pub position: Offset,
    pub time: Micros,
}

/// What the workers of one process have at one moment, each entry with its owner.
#[derive(Debug)]
pub struct Snapshot<S> {
    pub claims: Vec<(u64, Claim)>,
    pub layers: Vec<(u64, Arc<FreshLayer<S>>)>,
    pub complete_to: Vec<Complete>,
}

impl<S> Clone for LayerChange<S> {
    fn clone(&self) -> Self {
        match self {
            LayerChange::TakenOver(claims) => LayerChange::TakenOver(claims.clone()),
            LayerChange::Published { layer, complete_to } => {
                LayerChange::Published { layer: layer.clone(), complete_to: complete_to.clone() }
            }
            LayerChange::Completed(complete_to) => LayerChange::Completed(complete_to.clone()),
            LayerChange::Compacted(merged) => LayerChange::Compacted(merged.clone()),
            LayerChange::Withdrawn { committed, partitions } => {
                LayerChange::Withdrawn { committed: committed.clone(), partitions: partitions.clone() }
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct LayerList<S> {
    /// The layers with their owners.
    pub(super) layers: Vec<(u64, Arc<FreshLayer<S>>)>,
    /// The last owner number that was assigned.
    owners: u64,
    /// Each partition's last owner.
    claims: BTreeMap<PartitionId, (u64, Claim)>,
    /// Partitions that their last owner, a worker of this process, has given up. The next owner may be in a process
    /// that this one does not follow.
    given_up: BTreeSet<PartitionId>,
    complete_to: BTreeMap<PartitionId, Complete>,
}

impl<S> Default for LayerList<S> {
    fn default() -> Self {
        Self { layers: Vec::new(), owners: 0, claims: BTreeMap::new(), given_up: BTreeSet::new(), complete_to: BTreeMap::new() }
    }
}

/// Set in the numbers of owners that are in other processes.
const MIRRORED: u64 = 1 << 63;

pub(super) fn is_mirrored(owner: u64) -> bool {
    owner & MIRRORED != 0
}

/// Layers that are not in the list any more.
pub(super) type DroppedLayers<S> = Vec<(u64, Arc<FreshLayer<S>>)>;

impl<S> LayerList<S> {
    pub(super) fn next_owner(&mut self) -> u64 {
        self.owners += 1;
        self.owners
    }

    pub(super) fn next_mirrored_owner(&mut self) -> u64 {
        self.next_owner() | MIRRORED
    }

    /// Carries a change out; returns the layers that it drops.
    pub(super) fn apply(&mut self, owner: u64, change: &LayerChange<S>) -> DroppedLayers<S> {
        match change {
            LayerChange::TakenOver(claims) => self.take_over(owner, claims),
            LayerChange::Published { layer, complete_to } => {
                self.layers.push((owner, layer.clone()));
                self.complete_by(owner, complete_to);
                Vec::new()
            }
            LayerChange::Completed(complete_to) => {
                self.complete_by(owner, complete_to);
                Vec::new()
            }
            LayerChange::Compacted(merged) => self.compact(owner, merged),
            LayerChange::Withdrawn { committed, partitions } => {
                let is_left = |layer: &FreshLayer<S>| layer.end.iter().any(|(p, end)| partitions.contains(p) && end > committed.get(p));
                let dropped = self.layers.extract_if(.., |(of, layer)| *of == owner && is_left(layer)).collect();
                self.forget_complete(partitions.iter());
                dropped
            }
        }
    }

    fn take_over(&mut self, owner: u64, claims: &[Claim]) -> DroppedLayers<S> {
        let is_left = |layer: &FreshLayer<S>| {
            claims.iter().any(|claim| layer.end.has(&claim.partition) && layer.end.get(&claim.partition) > claim.from)
        };
        let dropped = self.layers.extract_if(.., |(_, layer)| is_left(layer)).collect();
        self.forget_complete(claims.iter().map(|claim| &claim.partition));
        for claim in claims {
            // Without an epoch of its own, an owner follows the one before.
            let known = self.claims.get(&claim.partition).map_or(0, |(_, known)| known.epoch);
            let claim = Claim { epoch: claim.epoch.max(known), ..claim.clone() };
            self.given_up.remove(&claim.partition);
            self.claims.insert(claim.partition.clone(), (owner, claim));
        }
        dropped
    }

    /// An owner does not own these of its partitions any more.
    pub(super) fn give_up(&mut self, owner: u64, is_given_up: impl Fn(&PartitionId) -> bool) {
        let owned = self.claims.iter().filter(|(partition, (of, _))| *of == owner && is_given_up(partition));
        self.given_up.extend(owned.map(|(partition, _)| partition.clone()));
    }

    /// Whether a worker of this process owns the partition.
    fn owns(&self, partition: &PartitionId) -> bool {
        self.claims.get(partition).is_some_and(|(owner, _)| !is_mirrored(*owner)) && !self.given_up.contains(partition)
    }

    fn compact(&mut self, owner: u64, merged: &Arc<FreshLayer<S>>) -> DroppedLayers<S> {
        let dropped = self.layers.extract_if(.., |(of, layer)| *of == owner && layer.is_inside(merged)).collect();
        self.layers.push((owner, merged.clone()));
        dropped
    }

    /// Once a partition is claimed, its owner alone says how far it is complete: one before it may read another topic.
    fn complete_by(&mut self, owner: u64, complete_to: &[Complete]) {
        let claims = &self.claims;
        let is_own = |complete: &&Complete| claims.get(&complete.partition).is_none_or(|(of, _)| *of == owner);
        let own: Vec<Complete> = complete_to.iter().filter(is_own).cloned().collect();
        self.complete(&own);
    }

    /// Of two facts about a partition, the later one is kept.
    pub(super) fn complete(&mut self, complete_to: &[Complete]) {
        for complete in complete_to {
            let known = self.complete_to.entry(complete.partition.clone()).or_insert_with(|| complete.clone());
            if complete.time > known.time {
                *known = complete.clone();
            }
        }
    }

    fn forget_complete<'p>(&mut self, partitions: impl Iterator<Item = &'p PartitionId>) {
        for partition in partitions {
            self.complete_to.remove(partition);
        }
    }

    pub(super) fn release(&mut self, passed: &Vector) -> DroppedLayers<S> {
        let is_passed = |layer: &FreshLayer<S>| layer.end.iter().all(|(p, end)| end <= passed.get(p));
        self.layers.extract_if(.., |(_, layer)| is_passed(layer)).collect()
    }

    /// Whether a layer has states of this version.
    pub(super) fn has_states(&self, view: &ViewVersion) -> bool {
        self.layers.iter().any(|(_, layer)| layer.states.contains_key(view))
    }

    pub(super) fn after(&self, vector: &Vector) -> Chain<S> {
        let mut chain = Chain::at(vector.clone());
        let mut left: Vec<&Arc<FreshLayer<S>>> = self.layers.iter().map(|(_, layer)| layer).collect();
        let mut before = left.len() + 1;
        while left.len() < before {
            before = left.len();
            left.retain(|layer| !chain.take(layer));
        }
        let is_reached = |complete: &&Complete| chain.end.get(&complete.partition) >= complete.position;
        let reached = self.complete_to.values().filter(is_reached);
        chain.complete_to = Arc::new(reached.map(|complete| (complete.partition.clone(), complete.time)).collect());
        chain
    }

    /// What the workers of this process have. What they gave up is committed; layers that reach into it are left out.
    pub(super) fn snapshot(&self) -> Snapshot<S> {
        let is_given_up = |layer: &FreshLayer<S>| layer.end.iter().any(|(partition, _)| self.given_up.contains(partition));
        let is_own = |(owner, layer): &&(u64, Arc<FreshLayer<S>>)| !is_mirrored(*owner) && !is_given_up(layer);
        Snapshot {
            claims: self.claims.values().filter(|(_, claim)| self.owns(&claim.partition)).cloned().collect(),
            layers: self.layers.iter().filter(is_own).cloned().collect(),
            complete_to: self.complete_to.values().cloned().collect(),
        }
    }

    pub(super) fn epochs(&self) -> BTreeMap<PartitionId, i64> {
        self.claims.iter().map(|(partition, (_, claim))| (partition.clone(), claim.epoch)).collect()
    }

    /// Whether a worker of this process owns a partition of which a greater epoch was seen than its own.
    pub(super) fn is_behind(&self, seen: &[(PartitionId, i64)]) -> bool {
        let is_older = |partition: &PartitionId, seen: i64| self.claims.get(partition).is_some_and(|(_, claim)| claim.epoch < seen);
        seen.iter().any(|(partition, seen)| self.owns(partition) && is_older(partition, *seen))
    }

    /// Gives the claims of this process's workers a greater epoch, but for those of partitions that they gave up.
    pub(super) fn raise_claims(&mut self, epoch: i64) {
        for (partition, (owner, claim)) in &mut self.claims {
            if !is_mirrored(*owner) && !self.given_up.contains(partition) {
                claim.epoch = claim.epoch.max(epoch);
            }
        }
    }

    /// Whether a partition was taken over by another owner, at a greater epoch.
    pub(super) fn is_overtaken(&self, owner: u64, claim: &Claim) -> bool {
        self.claims.get(&claim.partition).is_some_and(|(of, known)| *of != owner && known.epoch > claim.epoch)
    }

    /// Whether a layer reaches past what its owner may speak of: into a partition that it never owned, or that another
    /// owner took over before the layer's end.
    pub(super) fn is_overtaken_layer(&self, owner: u64, layer: &FreshLayer<S>) -> bool {
        layer.end.iter().any(|(partition, end)| match self.claims.get(partition) {
            None => true,
            Some((of, claim)) => *of != owner && end > claim.from,
        })
    }

    /// Drops all layers of these owners.
    pub(super) fn drop_owners(&mut self, owners: &BTreeSet<u64>) -> DroppedLayers<S> {
        self.layers.extract_if(.., |(owner, _)| owners.contains(owner)).collect()
    }

    /// Replaces these layers by one, if all of them are still there.
    pub(super) fn replace(&mut self, owner: u64, replaced: &[Arc<FreshLayer<S>>], merged: Arc<FreshLayer<S>>) -> DroppedLayers<S> {
        let is_replaced = |layer: &Arc<FreshLayer<S>>| replaced.iter().any(|other| Arc::ptr_eq(layer, other));
        if self.layers.iter().filter(|(_, layer)| is_replaced(layer)).count() < replaced.len() {
            return Vec::new();
        }
        let dropped = self.layers.extract_if(.., |(_, layer)| is_replaced(layer)).collect();
        self.layers.push((owner, merged));
        dropped
    }
}
