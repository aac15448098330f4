//! A mirror: the layers of another process's workers in this process's list, by the same changes.
//!
//! What a reader sees of a mirrored worker is what a reader beside that worker saw at an earlier moment. Three things
//! are decided here: a worker that another one has overtaken is refused, what a lost worker left is dropped, and a
//! merge of layers is carried out only over exactly the layers that it was made of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use types::vector::Vector;

use super::state::{Claim, DroppedLayers, LayerChange, LayerList, Snapshot};
use super::{Fresh, FreshLayer};
use crate::states::StateRows;

/// The layers of the workers of one other process. They are dropped with it.
#[derive(Debug)]
pub struct Mirror<S = StateRows> {
    fresh: Fresh<S>,
    /// The workers' numbers here, by their numbers there.
    owners: BTreeMap<u64, u64>,
}

/// Whether all of a change was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeOutcome {
    Whole,
    /// Another worker took a partition over at a greater epoch: what this one says of it is not read any more.
    Refused,
}

impl<S> Mirror<S> {
    /// Of nothing yet. `fresh` is what the node of this process reads.
    pub fn new(fresh: &Fresh<S>) -> Self {
        Self { fresh: fresh.clone(), owners: BTreeMap::new() }
    }

    /// Replaces all that is known of these workers with a snapshot, at once.
    pub fn reset(&mut self, snapshot: Snapshot<S>) -> ChangeOutcome {
        let mut claims: BTreeMap<u64, Vec<Claim>> = BTreeMap::new();
        for (owner, claim) in snapshot.claims {
            claims.entry(owner).or_default().push(claim);
        }
        let mut dropped = Vec::new();
        let mut shared = self.fresh.write();
        let state = &mut shared.state;
        dropped.extend(state.drop_owners(&self.owners.values().copied().collect()));
        let mut applied = ChangeOutcome::Whole;
        for (owner, claims) in claims {
            let owner = number(&mut self.owners, state, owner);
            applied = applied.and(take_over(state, owner, claims, &mut dropped));
        }
        for (owner, layer) in snapshot.layers {
            let owner = number(&mut self.owners, state, owner);
            applied = applied.and(publish(state, owner, LayerChange::Published { layer, complete_to: Vec::new() }, &mut dropped));
        }
        state.complete(&snapshot.complete_to);
        drop(shared);
        drop(dropped);
        applied
    }

    /// Carries a change out that one of the workers made.
    pub fn apply(&mut self, owner: u64, change: LayerChange<S>) -> ChangeOutcome {
        let mut dropped = Vec::new();
        let mut shared = self.fresh.write();
        let state = &mut shared.state;
        let owner = number(&mut self.owners, state, owner);
        let published = if let LayerChange::Published { layer, .. } = &change { Some(layer.clone()) } else { None };
        let applied = match change {
            LayerChange::TakenOver(claims) => take_over(state, owner, claims, &mut dropped),
            LayerChange::Published { .. } => publish(state, owner, change, &mut dropped),
            LayerChange::Completed(_) | LayerChange::Compacted(_) | LayerChange::Withdrawn { .. } => {
                dropped = state.apply(owner, &change);
                ChangeOutcome::Whole
            }
        };
        let observers = shared.observers.living();
        drop(shared);
        drop(dropped);
        if let Some(layer) = published.filter(|_| applied == ChangeOutcome::Whole) {
            observers.iter().for_each(|observer| observer(&layer));
        }
        applied
    }

    /// Merges the worker's layers between these vectors, as the worker did. If they are not all here, they stay as they
    /// are: a merge must not hide a gap.
    pub fn compact<E>(
        &mut self,
        owner: u64,
        start: &Vector,
        end: &Vector,
        merge: impl FnOnce(&[Arc<FreshLayer<S>>]) -> Result<FreshLayer<S>, E>,
    ) -> Result<(), E> {
        let Some(owner) = self.owners.get(&owner).copied() else { return Ok(()) };
        let merged_of = |(of, layer): &&(u64, Arc<FreshLayer<S>>)| *of == owner && layer.is_between(start, end);
        let layers: Vec<_> = self.fresh.read().state.layers.iter().filter(merged_of).map(|(_, layer)| layer.clone()).collect();
        if !fills(&layers, start, end) {
            return Ok(());
        }
        let merged = Arc::new(merge(&layers)?);
        let dropped = self.fresh.write().state.replace(owner, &layers, merged);
        drop(dropped);
        Ok(())
    }

    /// The process is not reached any more: its workers' layers go.
    pub fn clear(&mut self) {
        let owners: BTreeSet<u64> = self.owners.values().copied().collect();
        let dropped = self.fresh.write().state.drop_owners(&owners);
        drop(dropped);
    }

    /// The layers of these workers.
    pub fn layers(&self) -> Vec<Arc<FreshLayer<S>>> {
        let is_own = |owner: &u64| self.owners.values().any(|own| own == owner);
        self.fresh.read().state.layers.iter().filter(|(owner, _)| is_own(owner)).map(|(_, layer)| layer.clone()).collect()
    }
}

impl<S> Drop for Mirror<S> {
    fn drop(&mut self) {
        self.clear();
    }
}

impl ChangeOutcome {
    fn and(self, other: ChangeOutcome) -> ChangeOutcome {
        if self == ChangeOutcome::Whole { other } else { self }
    }
}

/// A worker's number here.
fn number<S>(owners: &mut BTreeMap<u64, u64>, state: &mut LayerList<S>, owner: u64) -> u64 {
    *owners.entry(owner).or_insert_with(|| state.next_mirrored_owner())
}

fn take_over<S>(state: &mut LayerList<S>, owner: u64, claims: Vec<Claim>, dropped: &mut DroppedLayers<S>) -> ChangeOutcome {
    let (refused, claims): (Vec<Claim>, Vec<Claim>) = claims.into_iter().partition(|claim| state.is_overtaken(owner, claim));
    dropped.extend(state.apply(owner, &LayerChange::TakenOver(claims)));
    if refused.is_empty() { ChangeOutcome::Whole } else { ChangeOutcome::Refused }
}

fn publish<S>(state: &mut LayerList<S>, owner: u64, change: LayerChange<S>, dropped: &mut DroppedLayers<S>) -> ChangeOutcome {
    if let LayerChange::Published { layer, .. } = &change
        && state.is_overtaken_layer(owner, layer)
    {
        return ChangeOutcome::Refused;
    }
    dropped.extend(state.apply(owner, &change));
    ChangeOutcome::Whole
}

/// Whether these layers, which lie between two vectors, have every offset between them.
fn fills<S>(layers: &[Arc<FreshLayer<S>>], start: &Vector, end: &Vector) -> bool {
    let is_filled = |(partition, end): (&_, types::vector::Offset)| {
        let of_layer = |layer: &Arc<FreshLayer<S>>| layer.end.get(partition).0 - layer.start.get(partition).0;
        layers.iter().map(of_layer).sum::<i64>() == end.0 - start.get(partition).0
    };
    end.iter().all(is_filled)
}

#[cfg(test)]
mod tests;
