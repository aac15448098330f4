//! Merges states over ranges. For few keys one accumulator serves all ranges, because a lookup merges little but would
//! create many accumulators.

use std::ops::Range;

use arrow::array::{Array, ArrayRef, UInt32Array, new_empty_array, new_null_array};
use arrow::compute::{cast, concat, interleave, take};
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};

use crate::functions::GroupedStates;
use crate::plan::{AskedUses, StateExpr, StateIndex, Use, ViewPlan};
use crate::states::merge::accumulator;
use crate::states::pieces::{NO_GROUP, Pieces, RangeSelection};
use crate::states::values::MergedColumn;
use types::tiles::RowTime;
use types::{Error, Result};

/// One accumulator takes several ranges together, up to this many groups: for one key there is little to merge, and
/// creating an accumulator costs more. With many keys each range is merged separately, so that only the rows of one
/// range are held.
pub(super) const GROUPS_AT_ONCE: usize = 4_096;

/// The number of rows that are copied together for an accumulator.
pub(super) const ROWS_AT_ONCE: usize = 16_384;

/// Returns a state merged over one range, still as a state: its fields, with one row for each key that has rows in the
/// range, and the row of each key.
pub(crate) fn merged_states(
    plan: &ViewPlan,
    pieces: &Pieces<'_>,
    time: impl Into<RowTime>,
    usage: Use,
    keys: usize,
) -> Result<(Vec<ArrayRef>, Vec<Option<u32>>)> {
    let selection = RangeSelection::for_ranges(plan, &[usage.range], pieces, keys, time)?;
    let row_of_key = selection.groups_of(0).iter().map(|group| Some(*group).filter(|group| *group != NO_GROUP)).collect();
    if selection.group_count == 0 {
        let fields = plan.state(usage.state).fields.iter();
        return Ok((fields.map(|field| new_empty_array(field.data_type())).collect(), row_of_key));
    }
    let merged = Merged::of_selection(plan, usage.state, &selection, pieces);
    Ok((merged.states()?, row_of_key))
}

/// Returns a column of values, one per key, for each use in `asked`. A key without rows has the aggregate's value over
/// no rows.
pub(crate) fn merge(
    plan: &ViewPlan,
    pieces: &Pieces<'_>,
    keys: usize,
    time: impl Into<RowTime>,
    asked: &AskedUses,
) -> Result<Vec<MergedColumn>> {
    let time = time.into();
    let mut values: Vec<Option<MergedColumn>> = vec![None; asked.uses.len()];
    for part in asked.parts((GROUPS_AT_ONCE / keys.max(1)).max(1)).iter() {
        let selection = RangeSelection::for_ranges(plan, &part.ranges, pieces, keys, time)?;
        for of_state in &part.states {
            let of_ranges = values_of(plan, of_state.state, &selection, pieces, part.ranges.len(), keys)?;
            for place in &of_state.places {
                values[place.usage] = Some(of_ranges[place.range].clone());
            }
        }
    }
    values.into_iter().map(|value| value.ok_or_else(|| Error::internal("a value was not merged"))).collect()
}

/// Returns the value of one state in a selection of one range and one key.
pub(super) fn value_of_key(plan: &ViewPlan, state: StateIndex, selection: &RangeSelection, pieces: &Pieces<'_>) -> Result<MergedColumn> {
    values_of(plan, state, selection, pieces, 1, 1)?.pop().ok_or_else(|| Error::internal("a value was not merged"))
}

/// Returns one state's values in each range of a selection.
fn values_of(
    plan: &ViewPlan,
    state: StateIndex,
    selection: &RangeSelection,
    pieces: &Pieces<'_>,
    ranges: usize,
    keys: usize,
) -> Result<Vec<MergedColumn>> {
    let (expr, nothing) = (plan.state(state), &plan.state(state).nothing);
    if selection.group_count == 0 {
        return Ok(vec![MergedColumn::new(expr, of_nothing(nothing, keys)?)?; ranges]);
    }
    let merged = MergedColumn::new(expr, Merged::of_selection(plan, state, selection, pieces).values()?)?;
    let nothing = MergedColumn::new(expr, nothing.clone())?.values;
    let mut with_nothing = None;
    let of_range = |place| -> Result<MergedColumn> {
        let groups = selection.groups_of(place);
        let values = of_groups(&merged.values, &nothing, groups, &mut with_nothing)?;
        let flaws = merged.flaws.as_ref().map(|flaws| of_groups(flaws, &new_null_array(&DataType::Int8, 1), groups, &mut None));
        Ok(MergedColumn { values, flaws: flaws.transpose()? })
    };
    (0..ranges).map(of_range).collect()
}

/// Returns the values of these groups, one per key. A key without a group gets the value over no rows.
pub(super) fn of_groups(merged: &ArrayRef, nothing: &ArrayRef, groups: &[u32], with_nothing: &mut Option<ArrayRef>) -> Result<ArrayRef> {
    let first = groups.first().copied().unwrap_or(NO_GROUP);
    if groups.iter().all(|group| *group == NO_GROUP) {
        return of_nothing(nothing, groups.len());
    }
    if first != NO_GROUP && groups.iter().zip(first..).all(|(group, expected)| *group == expected) {
        let is_all = groups.len() == merged.len();
        return Ok(if is_all { merged.clone() } else { merged.slice(first as usize, groups.len()) });
    }
    let values = match with_nothing {
        Some(values) => values,
        None => with_nothing.insert(concat(&[merged.as_ref(), cast(nothing, merged.data_type())?.as_ref()])?),
    };
    let last = merged.len() as u32;
    let rows = groups.iter().map(|group| if *group == NO_GROUP { last } else { *group }).collect::<Vec<u32>>();
    Ok(take(values, &UInt32Array::from(rows), None)?)
}

pub(super) fn of_nothing(nothing: &ArrayRef, keys: usize) -> Result<ArrayRef> {
    if keys == nothing.len() {
        return Ok(nothing.clone());
    }
    Ok(take(nothing, &UInt32Array::from_value(0, keys), None)?)
}

/// Rows of one state that are merged by group.
pub(super) struct Merged<'a> {
    pub(super) state: &'a StateExpr,
    /// For each field of the state, the arrays that the rows are in.
    pub(super) fields: Vec<Vec<&'a dyn Array>>,
    /// Each row as an index of an array, and a row of it.
    pub(super) rows: &'a [(usize, usize)],
    /// The group of each row. Groups are numbered in the order of their first row.
    pub(super) groups: &'a [usize],
}

impl<'a> Merged<'a> {
    fn of_selection(plan: &'a ViewPlan, state: StateIndex, selection: &'a RangeSelection, pieces: &'a Pieces<'_>) -> Merged<'a> {
        let fields = fields_of(plan, state, pieces);
        Merged { state: plan.state(state), fields, rows: &selection.rows, groups: &selection.groups }
    }

    /// The value of each group.
    pub(super) fn values(&self) -> Result<ArrayRef> {
        if let Some(direct) = &self.state.direct
            && let Some(values) = direct.values(&self.grouped())?
        {
            return Ok(values);
        }
        match self.is_merged_one_by_one() {
            true => self.one_by_one(),
            false => Ok(self.accumulator()?.evaluate(EmitTo::All)?),
        }
    }

    /// The same, still as a state: its fields.
    pub(super) fn states(&self) -> Result<Vec<ArrayRef>> {
        if let Some(direct) = self.state.direct.as_ref().filter(|direct| direct.values_are_states())
            && let Some(values) = direct.values(&self.grouped())?
        {
            return Ok(vec![values]);
        }
        Ok(self.accumulator()?.state(EmitTo::All)?)
    }

    fn grouped(&self) -> GroupedStates<'_> {
        let group_count = self.groups.iter().max().map_or(0, |last| last + 1);
        GroupedStates { fields: &self.fields, rows: self.rows, groups: self.groups, group_count }
    }

    /// An accumulator that has merged the rows.
    fn accumulator(&self) -> Result<Box<dyn GroupsAccumulator>> {
        let mut accumulator = accumulator(self.state)?;
        // The total must not include groups without rows yet: accumulators assume that every group up to the total has
        // been seen.
        let mut seen = 0;
        for (rows, groups) in self.rows.chunks(ROWS_AT_ONCE).zip(self.groups.chunks(ROWS_AT_ONCE)) {
            seen = groups.iter().fold(seen, |seen, group| seen.max(group + 1));
            accumulator.merge_batch(&self.fields_of(rows)?, groups, seen)?;
        }
        Ok(accumulator)
    }

    /// Whether groups are merged one by one: the aggregate has no accumulator for groups, and each group's rows are
    /// adjacent. DataFusion's adapter would collect them once more.
    fn is_merged_one_by_one(&self) -> bool {
        !self.state.has_groups && self.rows.len() <= ROWS_AT_ONCE && self.groups.is_sorted()
    }

    fn one_by_one(&self) -> Result<ArrayRef> {
        let fields = self.fields_of(self.rows)?;
        let mut values = Vec::new();
        let mut from = 0;
        for group in self.groups.chunk_by(|one, next| one == next) {
            let of_group: Vec<ArrayRef> = fields.iter().map(|field| field.slice(from, group.len())).collect();
            let mut accumulator = self.state.aggregate.create_accumulator()?;
            accumulator.merge_batch(&of_group)?;
            values.push(accumulator.evaluate()?);
            from += group.len();
        }
        Ok(ScalarValue::iter_to_array(values)?)
    }

    fn fields_of(&self, rows: &[(usize, usize)]) -> Result<Vec<ArrayRef>> {
        let together = consecutive(rows);
        let field = |arrays: &Vec<&dyn Array>| -> Result<ArrayRef> {
            match &together {
                Some((batch, range)) if self.are_copied(arrays[*batch]) => Ok(arrays[*batch].slice(range.start, range.len())),
                _ => Ok(interleave(arrays, rows)?),
            }
        };
        self.fields.iter().map(field).collect()
    }

    /// Whether accumulators copy the values that they keep. One that keeps a list as it was passed (`first_value`)
    /// would keep the memory of the whole layer alive.
    fn are_copied(&self, values: &dyn Array) -> bool {
        !values.data_type().is_nested() || self.state.aggregate.is_distinct()
    }
}

/// The array that these rows are in, and their range, if they follow one another: then they need not be copied. Most
/// keys have few rows, which are in one layer and follow one another.
fn consecutive(rows: &[(usize, usize)]) -> Option<(usize, Range<usize>)> {
    let (batch, from) = *rows.first()?;
    let is_next = |(place, row): (usize, &(usize, usize))| *row == (batch, from + place);
    rows.iter().enumerate().all(is_next).then(|| (batch, from..from + rows.len()))
}

/// For each field of a state, its arrays in the batches of these pieces.
pub(super) fn fields_of<'a>(plan: &ViewPlan, state: StateIndex, pieces: &'a Pieces<'_>) -> Vec<Vec<&'a dyn Array>> {
    let columns = plan.state_columns(state);
    columns.map(|column| pieces.batches.iter().map(|batch| batch.column(column).as_ref()).collect()).collect()
}

#[cfg(test)]
mod tests;
