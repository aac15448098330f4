//! When rows change though no event comes, and since when the edges that they are made of have been as they are.
//!
//! A row changes where an edge on one of its paths leaves a range or comes into one. All edges of the nodes that a walk
//! reaches are looked at, whether their paths count or not: a time may be too early, never too late.

use arrow::array::{Array, ArrayRef};

use crate::plan::links::{EdgeKind, Side};
use crate::states::Pieces;
use crate::walk::alive::timestamps;
use crate::walk::edges::{NodeRows, batches};
use crate::walk::{FAR_EDGES, LayerRows, NEAR_EDGES, ReachedNode, Walk};
use types::Result;
use types::tiles::{Micros, RowTime, Span, TimeRange};

/// Times of the edges that one key's row is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EdgeTimes {
    /// The first time after the walk's at which one of them leaves a range or comes into one, or an earlier one; `None`
    /// if none does.
    pub changes: Option<Micros>,
    /// The last event by which earlier rows are not known, but for those later than the horizon. An edge that keeps
    /// only when it was last seen does not say whether it was seen before too: of such edges, it is the last event.
    /// Edges that keep tiles say it, to the hop: of these, it is one between the ends of the finest hop and of the
    /// longest.
    pub last_seen: Option<Micros>,
}

impl EdgeTimes {
    fn and(self, other: EdgeTimes) -> EdgeTimes {
        EdgeTimes { changes: self.changes.into_iter().chain(other.changes).min(), last_seen: self.last_seen.max(other.last_seen) }
    }
}

impl<'a> Walk<'a> {
    /// The times of the edges that the rows of these group keys are made of, in the order of the keys. `ranges` are
    /// those that the rows depend on.
    pub fn edge_times(&self, groups: &[ArrayRef], keys: usize, ranges: &[TimeRange], horizon: Micros) -> Result<Vec<EdgeTimes>> {
        let at = self.find_keys(groups, keys)?;
        let mut times = Vec::with_capacity(keys);
        for together in batches(&at, NEAR_EDGES) {
            (self.cancel_check)()?;
            let at = &at[together];
            let reached = self.reach(at, &mut |_, _| {})?;
            let mut of_keys = self.times_of_nodes(Side::Near, at, ranges, horizon)?;
            let mut of_nodes = Vec::with_capacity(reached.nodes.by_number.len());
            for nodes in batches(&reached.nodes.by_number, FAR_EDGES) {
                (self.cancel_check)()?;
                of_nodes.extend(self.times_of_nodes(Side::Far, &reached.nodes.by_number[nodes], ranges, horizon)?);
            }
            for ReachedNode { edge, node } in &reached.nodes.reached {
                let of_key = &mut of_keys[reached.near.node[*edge as usize] as usize];
                *of_key = of_key.and(of_nodes[node.index()]);
            }
            times.append(&mut of_keys);
        }
        Ok(times)
    }

    fn times_of_nodes(&self, side: Side, nodes: &[NodeRows<'a>], ranges: &[TimeRange], horizon: Micros) -> Result<Vec<EdgeTimes>> {
        let changes = match self.links.kind {
            EdgeKind::Full => self.tile_changes(nodes, ranges)?,
            EdgeKind::Liveness => nodes.iter().map(|node| self.seen_changes(side, node, ranges)).collect::<Result<_>>()?,
        };
        let unsure = self.unsure(ranges);
        let times = nodes.iter().zip(changes).map(|(node, changes)| {
            let last_seen = unsure.map(|unsure| self.last_seen(node, &unsure, horizon)).transpose()?.flatten();
            Ok(EdgeTimes { changes, last_seen })
        });
        times.collect()
    }

    /// The times at which an event may count that should not yet; `None` if there are none. A range ends with its own
    /// hop, so that a row could exist by a long one whose events are not in a short one yet.
    fn unsure(&self, ranges: &[TimeRange]) -> Option<Span> {
        if self.links.kind == EdgeKind::Liveness || ranges.contains(&TimeRange::ALL) {
            return Some(Span { from: None, to: None });
        }
        let ends = ranges.iter().filter(|range| range.until.is_none()).filter_map(|range| RowTime::up_to(self.t).span(range).to);
        let (first, last) = (ends.clone().min(), ends.max());
        (first < last).then_some(Span { from: first, to: last })
    }

    fn tile_changes(&self, nodes: &[NodeRows<'a>], ranges: &[TimeRange]) -> Result<Vec<Option<Micros>>> {
        let mut pieces = Pieces::default();
        for (index, node) in nodes.iter().enumerate() {
            for LayerRows { rows, range, rolled_up } in &node.layers {
                pieces.add(rows.batch(), range.clone(), index as u32, *rolled_up);
            }
        }
        pieces.changes(self.plan, ranges, nodes.len(), self.t)
    }

    /// An edge leaves a range once all of its layers have: before that, it is looked at in vain.
    fn seen_changes(&self, side: Side, node: &NodeRows<'a>, ranges: &[TimeRange]) -> Result<Option<Micros>> {
        let (mut first, t): (Option<Micros>, Micros) = (None, self.t);
        let conditions = self.links.conditions.iter().filter(|condition| condition.side.is_none_or(|of| of == side));
        let columns: Vec<usize> = conditions.map(|condition| self.plan.state_offset(condition.state)).collect();
        for LayerRows { rows, range, .. } in &node.layers {
            for column in &columns {
                let seen = timestamps(rows.batch(), *column)?;
                let met = range.clone().filter(|row| seen.is_valid(*row)).map(|row| seen.value(row));
                let changes = met.flat_map(|seen| ranges.iter().filter_map(move |range| range.changes_by(seen, t))).min();
                first = first.into_iter().chain(changes).min();
            }
        }
        Ok(first)
    }

    fn last_seen(&self, node: &NodeRows<'a>, within: &Span, horizon: Micros) -> Result<Option<Micros>> {
        let mut last: Option<Micros> = None;
        for LayerRows { rows, range, .. } in &node.layers {
            let seen = &timestamps(rows.batch(), self.plan.state_offset(self.links.seen))?.values()[range.clone()];
            last = seen.iter().copied().filter(|seen| *seen <= horizon && within.contains(*seen)).max().max(last);
        }
        Ok(last)
    }
}

#[cfg(test)]
mod tests;
