//! One value of every key while it is merged: end points as the plain SELECT's aggregate takes them, far states once
//! for each near event.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int8Array, Int64Array, UInt32Array};
use arrow::compute::{cast, concat, take};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;

use crate::functions::Flaw;
use crate::functions::judged::{is_judged, taken_apart};
use crate::plan::UseIndex;
use crate::plan::links::{AggregateInput, LinkAggregate, PairRangeIndex, Side};
use crate::states::merge::groups_accumulator;
use crate::walk::Walk;
use crate::walk::degree::Threshold;
use crate::walk::estimate::Estimate;
use crate::walk::ids::Ids;
use crate::walk::meet::Pair;
use types::Result;

/// Pairs that are held at once.
const PAIRS: usize = 65_536;

pub(super) struct ValueMerge {
    pub(super) usage: UseIndex,
    pub(super) range: PairRangeIndex,
    pub(super) aggregate: LinkAggregate,
    merge: Merge,
    /// Per end point, the key (plus 1) that took it last: pairs come key after key, and each key takes an end point
    /// once.
    taken: Vec<u32>,
    estimate: Option<Estimate>,
}

enum Merge {
    /// `count(DISTINCT ..)`: end points are counted as they are taken.
    Count(Vec<i64>),
    Accumulate(Accumulate),
}

/// Pairs, handed on one after the other.
type Pairs<'p> = dyn Fn(&mut dyn FnMut(Pair)) + 'p;

impl ValueMerge {
    pub(super) fn new(walk: &Walk<'_>, usage: UseIndex, thresholds: &[Threshold]) -> Result<ValueMerge> {
        let links = walk.links;
        let aggregate = links.aggregate(links.uses[usage.0].aggregate).clone();
        let function = match &aggregate.input {
            AggregateInput::Ends { aggregate, .. } => aggregate.clone(),
            AggregateInput::States { state, .. } => walk.plan.state(*state).aggregate.clone(),
        };
        let is_count = matches!(aggregate.input, AggregateInput::Ends { .. }) && aggregate.function == "count";
        let merge = match is_count {
            true => Merge::Count(vec![0; thresholds.len()]),
            false => Merge::Accumulate(Accumulate::new(function, thresholds.len())?),
        };
        let estimate = thresholds.iter().any(Threshold::is_sampled).then(|| Estimate::new(&links.layout, &aggregate, thresholds));
        Ok(ValueMerge { usage, range: links.uses[usage.0].range, aggregate, merge, taken: Vec::new(), estimate })
    }

    /// Takes the end points of pairs on one side: `ids` are their numbers, below `known`; `values` what they stand for.
    pub(super) fn take_ends(
        &mut self,
        side: Side,
        ids: &Ids,
        known: usize,
        values: &dyn Fn() -> Result<ArrayRef>,
        pairs: &Pairs<'_>,
    ) -> Result<()> {
        self.taken.resize(known, 0);
        let (taken, estimate) = (&mut self.taken, &mut self.estimate);
        let mut is_new = |pair: &Pair, edge: u32| {
            let end = ids.get(edge as usize);
            if let Some(estimate) = estimate.as_mut().filter(|_| !ids.is_null(edge as usize)) {
                estimate.note(pair, end);
            }
            std::mem::replace(&mut taken[end as usize], pair.group + 1) != pair.group + 1
        };
        let edge_of = |pair: &Pair| if side == Side::Near { pair.near } else { pair.far };
        match &mut self.merge {
            Merge::Count(counts) => {
                pairs(&mut |pair| {
                    let edge = edge_of(&pair);
                    if is_new(&pair, edge) && !ids.is_null(edge as usize) {
                        counts[pair.group as usize] += 1;
                    }
                });
                Ok(())
            }
            Merge::Accumulate(accumulate) => {
                let values = values()?;
                let mut ends = Batches::new(|ends: &[TakenEnd]| accumulate.update(&values, ends));
                pairs(&mut |pair| {
                    let edge = edge_of(&pair);
                    if is_new(&pair, edge) {
                        ends.push(TakenEnd { edge, key: pair.group });
                    }
                });
                ends.finish()
            }
        }
    }

    /// Merges the far states of pairs, a row of `fields` for each, as often as its count says.
    pub(super) fn take_states(
        &mut self,
        fields: &[ArrayRef],
        times: &dyn Fn(&Pair) -> Option<(u32, u64)>,
        pairs: &Pairs<'_>,
    ) -> Result<()> {
        let Merge::Accumulate(accumulate) = &mut self.merge else { return Ok(()) };
        let mut copies = Batches::new(|rows: &[StateCopies]| accumulate.merge(fields, rows));
        pairs(&mut |pair| {
            if let Some((row, times)) = times(&pair) {
                copies.push(StateCopies { row, key: pair.group, times });
            }
        });
        copies.finish()
    }

    /// A value per key, the aggregate's value of no rows where a key has none; and their flaws, if they have any.
    pub(super) fn finish(&mut self) -> Result<(ArrayRef, Option<Int8Array>)> {
        let values: ArrayRef = match &mut self.merge {
            Merge::Count(counts) => Arc::new(Int64Array::from(std::mem::take(counts))),
            Merge::Accumulate(accumulate) => accumulate.finish()?,
        };
        let (values, flaws) = match is_judged(values.data_type()) {
            true => taken_apart(&values).map(|(values, flaws)| (values, Some(flaws)))?,
            false => (values, None),
        };
        let Some(estimate) = &mut self.estimate else { return Ok((values, flaws)) };
        let estimated = estimate.scale(&values)?;
        let flaws = flaws.map(|flaws| flaws_of_estimates(&flaws, &values, &estimated));
        Ok((estimated, flaws))
    }
}

/// An estimate that its type does not hold is past it, too.
fn flaws_of_estimates(flaws: &Int8Array, values: &ArrayRef, estimated: &ArrayRef) -> Int8Array {
    let is_past = |key: usize| values.is_valid(key) && estimated.is_null(key);
    flaws.iter().enumerate().map(|(key, flaw)| if is_past(key) { Some(Flaw::SumTooLarge as i8) } else { flaw }).collect()
}

/// What pairs give, handed on a bounded number at a time.
struct Batches<T, F> {
    batch: Vec<T>,
    take: F,
    outcome: Result<()>,
}

impl<T, F: FnMut(&[T]) -> Result<()>> Batches<T, F> {
    fn new(take: F) -> Self {
        Self { batch: Vec::new(), take, outcome: Ok(()) }
    }

    fn push(&mut self, one: T) {
        self.batch.push(one);
        if self.batch.len() == PAIRS {
            self.hand_on();
        }
    }

    fn hand_on(&mut self) {
        if self.outcome.is_ok() {
            self.outcome = (self.take)(&self.batch);
        }
        self.batch.clear();
    }

    fn finish(mut self) -> Result<()> {
        if !self.batch.is_empty() {
            self.hand_on();
        }
        self.outcome
    }
}

/// An end point that a key takes, by an edge that has it.
struct TakenEnd {
    edge: u32,
    key: u32,
}

/// A row of states, and how many times it is merged for a key.
struct StateCopies {
    row: u32,
    key: u32,
    times: u64,
}

/// Any aggregate, by its accumulator.
struct Accumulate {
    function: Arc<AggregateFunctionExpr>,
    accumulator: Box<dyn GroupsAccumulator>,
    /// Groups are numbered as they are met: accumulators take every group number they were given for one with rows.
    group_of: Vec<Option<u32>>,
    groups: usize,
}

impl Accumulate {
    fn new(function: Arc<AggregateFunctionExpr>, keys: usize) -> Result<Self> {
        let accumulator = groups_accumulator(&function)?;
        Ok(Self { function, accumulator, group_of: vec![None; keys], groups: 0 })
    }

    fn group(&mut self, key: u32) -> usize {
        let next = self.groups as u32;
        let group = *self.group_of[key as usize].get_or_insert(next);
        self.groups += usize::from(group == next);
        group as usize
    }

    /// Takes values, each by its edge and for its key.
    fn update(&mut self, values: &ArrayRef, ends: &[TakenEnd]) -> Result<()> {
        let groups: Vec<usize> = ends.iter().map(|end| self.group(end.key)).collect();
        let chosen = take(values, &UInt32Array::from_iter_values(ends.iter().map(|end| end.edge)), None)?;
        Ok(self.accumulator.update_batch(std::slice::from_ref(&chosen), &groups, None, self.groups)?)
    }

    /// Merges rows of `fields`, each for a key and as often as its count says. Copies are made by doubling.
    fn merge(&mut self, fields: &[ArrayRef], rows: &[StateCopies]) -> Result<()> {
        let rows: Vec<&StateCopies> = rows.iter().filter(|row| row.times > 0).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let chosen = |rows: &mut dyn Iterator<Item = u32>, of: &[ArrayRef]| -> Result<Vec<ArrayRef>> {
            let rows = UInt32Array::from_iter_values(rows);
            of.iter().map(|field| Ok(take(field, &rows, None)?)).collect()
        };
        let mut states = chosen(&mut rows.iter().map(|row| row.row), fields)?;
        let mut left: Vec<(u32, u64)> = rows.iter().map(|row| (row.key, row.times)).collect();
        loop {
            let odd: Vec<u32> = (0..left.len() as u32).filter(|row| left[*row as usize].1 % 2 == 1).collect();
            if !odd.is_empty() {
                // Numbered no sooner: a group that waits for a later bit would be passed on without a row of its own.
                let groups: Vec<usize> = odd.iter().map(|row| self.group(left[*row as usize].0)).collect();
                self.accumulator.merge_batch(&chosen(&mut odd.into_iter(), &states)?, &groups, self.groups)?;
            }
            let more: Vec<u32> = (0..left.len() as u32).filter(|row| left[*row as usize].1 > 1).collect();
            if more.is_empty() {
                return Ok(());
            }
            left = more.iter().map(|row| (left[*row as usize].0, left[*row as usize].1 / 2)).collect();
            states = self.doubled(&chosen(&mut more.into_iter(), &states)?)?;
        }
    }

    /// Each state merged with itself.
    fn doubled(&self, states: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        let each: Vec<usize> = (0..states[0].len()).collect();
        let mut accumulator = groups_accumulator(&self.function)?;
        for _ in 0..2 {
            accumulator.merge_batch(states, &each, each.len())?;
        }
        Ok(accumulator.state(EmitTo::All)?)
    }

    fn finish(&mut self) -> Result<ArrayRef> {
        let nothing = self.function.create_accumulator()?.evaluate()?.to_array()?;
        let groups = self.groups as u32;
        let values = match groups {
            0 => nothing,
            _ => {
                let merged = self.accumulator.evaluate(EmitTo::All)?;
                concat(&[merged.as_ref(), cast(&nothing, merged.data_type())?.as_ref()])?
            }
        };
        let of_key = UInt32Array::from_iter_values(self.group_of.iter().map(|group| group.unwrap_or(groups)));
        Ok(take(&values, &of_key, None)?)
    }
}
