//! Merging pairs into values: end points as the plain SELECT's aggregates take them, far states once for each near event.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::plan::ColumnKind;
use crate::plan::links::{LinkAggregate, Over, Side};
use crate::states::merge::groups_accumulator;
use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray, UInt32Array};
use arrow::compute::{cast, concat, take};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;

use crate::walk::degree::Threshold;
use crate::walk::edges::EdgeSet;
use crate::walk::estimate::Estimate;
use crate::walk::pairs::Pair;
use crate::walk::{Walk, ends_of};

/// A condition (index) in a range (index).
type Place = (usize, usize);

pub(super) struct Merging<'a> {
    walk: Walk<'a>,
    rows: usize,
    /// Per range that is needed, whether each key has a pair in it.
    exists: HashMap<usize, Vec<bool>>,
    values: Vec<Value>,
    near: HashMap<Place, Vec<bool>>,
    copies: HashMap<Place, Vec<u64>>,
    far: HashMap<Place, Vec<bool>>,
    /// Far states by state and range, with the row of each far edge.
    states: HashMap<Place, (Vec<ArrayRef>, Vec<Option<u32>>)>,
}

/// One value of every key, under way.
struct Value {
    /// The index among the view's uses.
    usage: usize,
    range: usize,
    aggregate: LinkAggregate,
    /// What the accumulator is of.
    function: Arc<AggregateFunctionExpr>,
    accumulator: Box<dyn GroupsAccumulator>,
    /// Groups are numbered as they are met: accumulators take a group they were told of for one they have seen.
    group_of: Vec<Option<u32>>,
    groups: usize,
    estimate: Option<Estimate>,
}

impl<'a> Merging<'a> {
    pub(super) fn new(walk: &Walk<'a>, near: &EdgeSet<'_>, wanted: &[usize], rows: usize) -> Result<Merging<'a>> {
        let links = walk.links;
        let (mut ranges, mut uses) = (vec![links.existence], Vec::new());
        for column in wanted {
            if let ColumnKind::Value(value) = &walk.view.plan.columns[*column].kind {
                ranges.extend_from_slice(&value.ranges);
                uses.extend_from_slice(&value.uses);
            }
        }
        uses.sort_unstable();
        uses.dedup();
        let exists: HashMap<usize, Vec<bool>> = ranges.into_iter().map(|range| (range, vec![false; rows])).collect();
        let values = uses.into_iter().map(|usage| {
            let aggregate = links.aggregates[links.uses[usage].state].clone();
            let function = function(walk, &aggregate);
            let accumulator = groups_accumulator(&function)?;
            let range = links.uses[usage].range;
            Ok(Value { usage, range, aggregate, function, accumulator, group_of: vec![None; rows], groups: 0, estimate: None })
        });
        let values = values.collect::<Result<Vec<_>>>()?;
        let mut merging = Merging {
            walk: *walk,
            rows,
            near: HashMap::new(),
            copies: HashMap::new(),
            far: HashMap::new(),
            states: HashMap::new(),
            exists,
            values,
        };
        merging.hold_near(near)?;
        Ok(merging)
    }

    /// Keys of which a sample is followed have their values estimated.
    pub(super) fn estimate(&mut self, thresholds: &[Threshold]) {
        if thresholds.iter().any(Threshold::is_sampled) {
            for value in &mut self.values {
                value.estimate = Some(Estimate::new(&self.walk.links.layout, &value.aggregate, thresholds));
            }
        }
    }

    fn hold_near(&mut self, near: &EdgeSet<'_>) -> Result<()> {
        for (condition, range) in self.places(|aggregate| aggregate.near) {
            let over = &self.walk.links.ranges[range];
            self.near.insert((condition, range), near.live(&self.walk, condition, over)?);
        }
        for value in &self.values {
            let place = (value.aggregate.near, value.range);
            if let Over::States { idempotent: false, .. } = value.aggregate.over {
                self.copies.insert(place, near.counts(&self.walk, place.0, &self.walk.links.ranges[place.1])?);
            }
        }
        Ok(())
    }

    /// Holds what the next pairs ask of their far edges.
    pub(super) fn hold_far(&mut self, far: &EdgeSet<'_>) -> Result<()> {
        self.far.clear();
        self.states.clear();
        for (condition, range) in self.places(|aggregate| aggregate.far) {
            let over = &self.walk.links.ranges[range];
            self.far.insert((condition, range), far.live(&self.walk, condition, over)?);
        }
        for value in &self.values {
            if let Over::States { state, .. } = value.aggregate.over
                && !self.states.contains_key(&(state, value.range))
            {
                let states = far.states(&self.walk, state, &self.walk.links.ranges[value.range])?;
                self.states.insert((state, value.range), states);
            }
        }
        Ok(())
    }

    /// What has to be known of a side's edges: whether they are live at all, and under each value's condition.
    fn places(&self, condition: impl Fn(&LinkAggregate) -> usize) -> Vec<Place> {
        let bare = self.exists.keys().map(|range| (0, *range));
        let mut places: Vec<Place> = bare.chain(self.values.iter().map(|value| (condition(&value.aggregate), value.range))).collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// Takes pairs whose end points differ where WHERE says so.
    pub(super) fn take(&mut self, near: &EdgeSet<'_>, far: &EdgeSet<'_>, pairs: &[Pair]) -> Result<()> {
        for (range, exists) in &mut self.exists {
            let (near, far) = (&self.near[&(0, *range)], &self.far[&(0, *range)]);
            for pair in pairs.iter().filter(|pair| near[pair.near as usize] && far[pair.far as usize]) {
                exists[pair.group as usize] = true;
            }
        }
        for value in &mut self.values {
            let near_live = &self.near[&(value.aggregate.near, value.range)];
            let far_live = &self.far[&(value.aggregate.far, value.range)];
            let mut meet: Vec<Pair> =
                pairs.iter().copied().filter(|pair| near_live[pair.near as usize] && far_live[pair.far as usize]).collect();
            for at in &value.aggregate.apart {
                let (near, far) = ends_of(&self.walk.links.ends[*at], near, far)?;
                meet.retain(|pair| near.differs(pair.near as usize, &far, pair.far as usize));
            }
            match &value.aggregate.over {
                Over::Ends { argument, .. } => {
                    let (side, column) = (argument.side, argument.column);
                    value.take_ends(if side == Side::Near { &near.keys[column] } else { &far.keys[column] }, side, &meet)?;
                }
                Over::States { state, idempotent } => {
                    let (fields, row_of) = &self.states[&(*state, value.range)];
                    let copies = if *idempotent { None } else { self.copies.get(&(value.aggregate.near, value.range)) };
                    let copied = meet.iter().filter_map(|pair| {
                        let count = copies.map_or(1, |copies| copies[pair.near as usize]);
                        Some((row_of[pair.far as usize]?, pair.group, count))
                    });
                    let copied: Vec<(u32, u32, u64)> = copied.collect();
                    value.take_states(fields, &copied)?;
                }
            }
        }
        Ok(())
    }

    /// The value batch, and which keys have a row.
    pub(super) fn finish(mut self, groups: &[ArrayRef]) -> Result<(RecordBatch, Vec<bool>)> {
        let links = self.walk.links;
        let mut columns: Vec<ArrayRef> = groups.to_vec();
        columns.push(Arc::new(TimestampMicrosecondArray::from_value(self.walk.t, self.rows).with_timezone("UTC")));
        for range in 0..links.ranges.len() {
            let exists = self.exists.get(&range);
            let events = exists.map(|exists| exists.iter().map(|exists| i64::from(*exists)).collect::<Int64Array>());
            columns.push(Arc::new(events.unwrap_or_else(|| Int64Array::from_value(0, self.rows))));
        }
        for usage in 0..links.uses.len() {
            let data_type = links.value_schema.field(columns.len()).data_type();
            columns.push(match self.values.iter_mut().find(|value| value.usage == usage) {
                Some(value) => cast(&value.finish(self.rows)?, data_type)?,
                None => arrow::array::new_null_array(data_type, self.rows),
            });
        }
        let found = self.exists.remove(&links.existence).ok_or_else(|| Error::internal("a walk lost which keys have a row"))?;
        Ok((RecordBatch::try_new(links.value_schema.clone(), columns)?, found))
    }
}

/// The aggregate whose values an accumulator gives.
fn function(walk: &Walk<'_>, aggregate: &LinkAggregate) -> Arc<AggregateFunctionExpr> {
    match &aggregate.over {
        Over::Ends { aggregate, .. } => aggregate.clone(),
        Over::States { state, .. } => walk.view.plan.states[*state].aggregate.clone(),
    }
}

impl Value {
    fn group(&mut self, key: u32) -> usize {
        let next = self.groups as u32;
        let group = *self.group_of[key as usize].get_or_insert(next);
        self.groups += usize::from(group == next);
        group as usize
    }

    fn take_ends(&mut self, values: &ArrayRef, side: Side, pairs: &[Pair]) -> Result<()> {
        if pairs.is_empty() {
            return Ok(());
        }
        let groups: Vec<usize> = pairs.iter().map(|pair| self.group(pair.group)).collect();
        let edge = |pair: &Pair| if side == Side::Near { pair.near } else { pair.far };
        let chosen = take(values, &UInt32Array::from_iter_values(pairs.iter().map(edge)), None)?;
        self.accumulator.update_batch(std::slice::from_ref(&chosen), &groups, None, self.groups)?;
        if let Some(estimate) = &mut self.estimate {
            estimate.meet(&chosen, pairs)?;
        }
        Ok(())
    }

    /// Merges rows of `fields`, each for a key and so many times: copies are made by doubling.
    fn take_states(&mut self, fields: &[ArrayRef], rows: &[(u32, u32, u64)]) -> Result<()> {
        let rows: Vec<(u32, usize, u64)> = rows.iter().filter(|row| row.2 > 0).map(|row| (row.0, self.group(row.1), row.2)).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let chosen = |rows: &mut dyn Iterator<Item = u32>, of: &[ArrayRef]| -> Result<Vec<ArrayRef>> {
            let rows = UInt32Array::from_iter_values(rows);
            of.iter().map(|field| Ok(take(field, &rows, None)?)).collect()
        };
        let mut states = chosen(&mut rows.iter().map(|row| row.0), fields)?;
        let mut left: Vec<(usize, u64)> = rows.iter().map(|row| (row.1, row.2)).collect();
        loop {
            let odd: Vec<u32> = (0..left.len() as u32).filter(|row| left[*row as usize].1 % 2 == 1).collect();
            if !odd.is_empty() {
                let groups: Vec<usize> = odd.iter().map(|row| left[*row as usize].0).collect();
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

    /// A value per key: the aggregate's value of no rows where a key has none.
    fn finish(&mut self, keys: usize) -> Result<ArrayRef> {
        let nothing = self.function.create_accumulator()?.evaluate()?.to_array()?;
        let groups = self.groups as u32;
        let values = match groups {
            0 => nothing,
            _ => {
                let merged = self.accumulator.evaluate(EmitTo::All)?;
                concat(&[merged.as_ref(), cast(&nothing, merged.data_type())?.as_ref()])?
            }
        };
        let of_key = UInt32Array::from_iter_values((0..keys).map(|key| self.group_of[key].unwrap_or(groups)));
        let values = take(&values, &of_key, None)?;
        match &self.estimate {
            Some(estimate) => estimate.scale(&values),
            None => Ok(values),
        }
    }
}
