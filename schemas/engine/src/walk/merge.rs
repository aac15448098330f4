//! Merging pairs into values: what each column counts, of which pairs.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int8Array, Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow::compute::cast;

use crate::plan::links::{AggregateInput, Both, ConditionIndex, LinkAggregate, PairRangeIndex, Side};
use crate::plan::{StateIndex, UseIndex};
use crate::walk::Walk;
use crate::walk::degree::Threshold;
use crate::walk::edges::EdgeSet;
use crate::walk::ids::{EndIds, Numbers, apart, end_columns};
use crate::walk::live::{ConditionInRange, LiveEdges};
use crate::walk::meet::{Meeting, Pair};
use types::tiles::Micros;
use types::{Error, Result};

mod value;

use value::ValueMerge;

/// The flaws of uses.
pub(super) type Flaws = Vec<(UseIndex, Int8Array)>;

pub(super) struct Merging<'a> {
    walk: Walk<'a>,
    rows: usize,
    /// Per range that is needed, whether each key has a pair in it.
    exists: HashMap<PairRangeIndex, Vec<bool>>,
    values: Vec<ValueMerge>,
    numbers: Numbers,
    near: LiveEdges,
    near_ends: EndIds,
    copies: HashMap<ConditionInRange, Vec<u64>>,
}

/// What all pairs make, with a row for each key.
pub(super) struct MergedPairs {
    /// The value batch.
    pub(super) values: RecordBatch,
    /// The flaws of its uses.
    pub(super) flaws: Flaws,
    /// Which keys have a row.
    pub(super) found: Vec<bool>,
}

/// The columns of one far state, and the row in them of each far edge.
type FarStates = (Vec<ArrayRef>, Vec<Option<u32>>);

/// What pairs need of the far edges that are read.
struct FarEdges {
    live: LiveEdges,
    ends: EndIds,
    /// Far states by state and range, with the row of each far edge.
    states: HashMap<(StateIndex, PairRangeIndex), FarStates>,
}

impl<'a> Merging<'a> {
    /// Keys of which a sample is followed (`thresholds`, one for each key) have their values estimated.
    pub(super) fn new(walk: &Walk<'a>, near: &EdgeSet<'_>, wanted: &[usize], thresholds: &[Threshold]) -> Result<Merging<'a>> {
        let (links, rows) = (walk.links, thresholds.len());
        let need = walk.plan.need(wanted);
        let exists = need.ranges.iter().map(|range| (range.in_links(), vec![false; rows])).collect();
        let values = need.uses.iter().map(|usage| ValueMerge::new(walk, *usage, thresholds)).collect::<Result<Vec<_>>>()?;
        let mut numbers = Numbers::default();
        let near_ends = EndIds::number(walk, &mut numbers, near, end_columns(links, aggregates(&values), Side::Near))?;
        let (near_live, copies) = (LiveEdges::default(), HashMap::new());
        let mut merging = Merging { walk: *walk, rows, exists, values, numbers, near: near_live, near_ends, copies };
        merging.near = merging.live(near, Side::Near)?;
        for value in &merging.values {
            let place = (value.aggregate.near, value.range);
            if let AggregateInput::States { idempotent: false, .. } = value.aggregate.input {
                merging.copies.insert(place, near.counts(walk, place.0, links.range(place.1))?);
            }
        }
        Ok(merging)
    }

    /// Whether edges are live at all, and under each value's condition.
    fn live(&self, edges: &EdgeSet<'_>, side: Side) -> Result<LiveEdges> {
        let bare = self.exists.keys().map(|range| (ConditionIndex::NONE, *range));
        let of_values = self.values.iter().map(|value| (value.aggregate.condition(side), value.range));
        LiveEdges::at_places(&self.walk, edges, bare.chain(of_values))
    }

    fn read_far(&mut self, far: &EdgeSet<'_>) -> Result<FarEdges> {
        let (live, links) = (self.live(far, Side::Far)?, self.walk.links);
        let ends = EndIds::number(&self.walk, &mut self.numbers, far, end_columns(links, aggregates(&self.values), Side::Far))?;
        let mut states = HashMap::new();
        for value in &self.values {
            if let AggregateInput::States { state, .. } = value.aggregate.input
                && !states.contains_key(&(state, value.range))
            {
                states.insert((state, value.range), far.states(&self.walk, state, links.range(value.range))?);
            }
        }
        Ok(FarEdges { live, ends, states })
    }

    /// Takes the pairs of a meeting: of each key all in a row.
    pub(super) fn take(&mut self, meeting: &Meeting<'_>) -> Result<()> {
        let (links, held) = (self.walk.links, self.read_far(meeting.far)?);
        let ends = Both { near: &self.near_ends, far: &held.ends };
        let apart_in_where = apart(links, &links.apart, ends)?;
        for (range, exists) in &mut self.exists {
            let place = (ConditionIndex::NONE, *range);
            let live = Both { near: self.near.at(place)?, far: held.live.at(place)? };
            meeting.pairs(live, &apart_in_where, |pair| exists[pair.group as usize] = true);
        }
        for value in &mut self.values {
            let aggregate = value.aggregate.clone();
            let (near, far) = (self.near.at((aggregate.near, value.range))?, held.live.at((aggregate.far, value.range))?);
            let live = Both { near, far };
            let mut differing = apart_in_where.clone();
            differing.extend(apart(links, &aggregate.apart, ends)?);
            let pairs = |take: &mut dyn FnMut(Pair)| meeting.pairs(live, &differing, take);
            match &aggregate.input {
                AggregateInput::Ends { argument, .. } => {
                    let ids = ends.side(argument.side).get(argument.column)?;
                    let edges = if argument.side == Side::Near { meeting.near } else { meeting.far };
                    value.take_ends(argument.side, ids, self.numbers.len(), &|| edges.key(&self.walk, argument.column), &pairs)?;
                }
                AggregateInput::States { state, idempotent } => {
                    let (fields, row_of) = &held.states[&(*state, value.range)];
                    let copies = if *idempotent { None } else { self.copies.get(&(aggregate.near, value.range)) };
                    let times = |pair: &Pair| {
                        let count = copies.map_or(1, |copies| copies[pair.near as usize]);
                        row_of[pair.far as usize].map(|row| (row, count))
                    };
                    value.take_states(fields, &times, &pairs)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn finish(mut self, groups: &[ArrayRef], times: &[Micros]) -> Result<MergedPairs> {
        let links = self.walk.links;
        let mut columns: Vec<ArrayRef> = groups.to_vec();
        columns.push(Arc::new(TimestampMicrosecondArray::from(times.to_vec()).with_timezone("UTC")));
        for range in 0..links.ranges.len() {
            let exists = self.exists.get(&PairRangeIndex(range));
            let events = exists.map(|exists| exists.iter().map(|exists| i64::from(*exists)).collect::<Int64Array>());
            columns.push(Arc::new(events.unwrap_or_else(|| Int64Array::from_value(0, self.rows))));
        }
        let mut flaws = Vec::new();
        for usage in (0..links.uses.len()).map(UseIndex) {
            let data_type = links.value_schema.field(columns.len()).data_type();
            columns.push(match self.values.iter_mut().find(|value| value.usage == usage) {
                Some(value) => {
                    let (values, of_values) = value.finish()?;
                    flaws.extend(of_values.map(|of_values| (usage, of_values)));
                    cast(&values, data_type)?
                }
                None => arrow::array::new_null_array(data_type, self.rows),
            });
        }
        let found = self.exists.remove(&links.existence).ok_or_else(|| Error::internal("a walk lost which keys have a row"))?;
        Ok(MergedPairs { values: RecordBatch::try_new(links.value_schema.clone(), columns)?, flaws, found })
    }
}

fn aggregates(values: &[ValueMerge]) -> impl Iterator<Item = &LinkAggregate> + Clone {
    values.iter().map(|value| &value.aggregate)
}
