//! Which edges are live: under each condition, in each range that is asked.

use std::collections::HashMap;
use std::collections::hash_map::Entry::Vacant;

use crate::plan::links::{ConditionIndex, PairRangeIndex};
use crate::walk::Walk;
use crate::walk::edges::EdgeSet;
use types::{Error, Result};

/// A condition in a range.
pub(super) type ConditionInRange = (ConditionIndex, PairRangeIndex);

/// Whether each edge of a set is live, by place.
#[derive(Default)]
pub(super) struct LiveEdges(HashMap<ConditionInRange, Vec<bool>>);

impl LiveEdges {
    /// However often a place is asked, it is looked at once.
    pub(super) fn at_places(walk: &Walk<'_>, edges: &EdgeSet<'_>, places: impl Iterator<Item = ConditionInRange>) -> Result<LiveEdges> {
        let mut live = HashMap::new();
        for place in places {
            if let Vacant(vacant) = live.entry(place) {
                let (condition, range) = place;
                vacant.insert(edges.live(walk, condition, walk.links.range(range))?);
            }
        }
        Ok(LiveEdges(live))
    }

    pub(super) fn at(&self, place: ConditionInRange) -> Result<&[bool]> {
        let live = self.0.get(&place).map(Vec::as_slice);
        live.ok_or_else(|| Error::internal("a walk asks for live edges that it did not look at"))
    }
}
