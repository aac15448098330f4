//! In which columns a pair counts: those one of whose aggregates takes it, by its conditions, its ranges and its `<>`.

use crate::plan::OutputColumn;
use crate::plan::links::{AggregateInput, Both, ConditionIndex, LinkAggregate, LinkPlan, Side};
use crate::walk::Walk;
use crate::walk::ids::{DistinctEnds, EndIds, Ids, apart};
use crate::walk::live::{ConditionInRange, LiveEdges};
use crate::walk::meet::{Pair, differ};
use types::Result;

/// Aggregates that leave NULL out. Others may take it.
const WITHOUT_NULL: [&str; 2] = ["count", "approx_distinct"];

/// What a view's columns count of a meeting's pairs.
pub(super) struct Counted<'m> {
    columns: &'m [OutputColumn],
    /// In the order of the view's uses.
    of_uses: Vec<OfUse<'m>>,
}

/// What one aggregate takes in one range.
struct OfUse<'m> {
    live: Both<&'m [bool]>,
    apart: Vec<DistinctEnds<'m>>,
    /// The end points that it takes where they are not NULL.
    values: Option<(Side, &'m Ids)>,
}

impl<'m> Counted<'m> {
    /// `live` is where the edges are live, `ends` are their end points.
    pub(super) fn new(walk: &Walk<'m>, live: Both<&'m LiveEdges>, ends: Both<&'m EndIds>) -> Result<Counted<'m>> {
        let links = walk.links;
        let mut of_uses = Vec::with_capacity(links.uses.len());
        for usage in &links.uses {
            let aggregate = links.aggregate(usage.aggregate);
            let (near, far) = (live.near.at((aggregate.near, usage.range))?, live.far.at((aggregate.far, usage.range))?);
            let (apart, values) = (apart(links, &aggregate.apart, ends)?, values(aggregate, ends)?);
            of_uses.push(OfUse { live: Both { near, far }, apart, values });
        }
        Ok(Counted { columns: &walk.plan.columns, of_uses })
    }

    /// Whether a pair counts in this column.
    pub(super) fn counts(&self, column: usize, pair: &Pair) -> bool {
        self.columns[column].uses().iter().any(|usage| self.of_uses[usage.0].takes(pair))
    }

    /// Whether a pair counts in any column.
    pub(super) fn counts_anywhere(&self, pair: &Pair) -> bool {
        (0..self.columns.len()).any(|column| self.counts(column, pair))
    }

    /// The columns in which a pair counts, in the order of the view.
    pub(super) fn columns(&self, pair: &Pair) -> Vec<usize> {
        (0..self.columns.len()).filter(|column| self.counts(*column, pair)).collect()
    }
}

impl OfUse<'_> {
    fn takes(&self, pair: &Pair) -> bool {
        self.live.near[pair.near as usize]
            && self.live.far[pair.far as usize]
            && differ(&self.apart, pair.near, pair.far)
            && self.values.is_none_or(|(side, ids)| !ids.is_null(pair.edge(side) as usize))
    }
}

/// Where a side's edges are looked at: for the row to exist, and for each use.
pub(super) fn places(links: &LinkPlan, side: Side) -> impl Iterator<Item = ConditionInRange> {
    let of_uses = links.uses.iter().map(move |usage| (links.aggregate(usage.aggregate).condition(side), usage.range));
    std::iter::once((ConditionIndex::NONE, links.existence)).chain(of_uses)
}

fn values<'m>(aggregate: &LinkAggregate, ends: Both<&'m EndIds>) -> Result<Option<(Side, &'m Ids)>> {
    match &aggregate.input {
        AggregateInput::Ends { argument, .. } if WITHOUT_NULL.contains(&aggregate.function.as_str()) => {
            Ok(Some((argument.side, ends.side(argument.side).get(argument.column)?)))
        }
        _ => Ok(None),
    }
}
