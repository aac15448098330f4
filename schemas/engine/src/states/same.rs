//! Compares state rows that were merged in different orders.
//!
//! | state | equal if |
//! |---|---|
//! | numbers, texts, times, truth values, events of sequences | exactly equal |
//! | floats | equal up to rounding: their sums depend on the order of addition |
//! | collected values (DISTINCT, `median`, ..) | the same values as often, in any order |
//! | values with an order, sketches, user-defined functions | equal, or their values are |
//! | `approx_percentile_cont`, `approx_median` | equal, or their values are about equal |
//! | `top_k` past its capacity | always: its estimates depend on the order of merging |

use std::ops::Range;

use arrow::array::{Array, ArrayRef, AsArray, GenericListArray, OffsetSizeTrait, RecordBatch};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use arrow_row::{Row, RowConverter, Rows, SortField};
use datafusion::logical_expr::EmitTo;

use super::merge::accumulator;
use crate::functions::limited::keeps_events;
use crate::functions::{TOP_K, top_k_is_exact};
use crate::plan::{StateExpr, StateIndex, ViewPlan};
use types::sql_types::one_zero;
use types::{Error, Result};

/// Functions over a t-digest, which return slightly different values if merged in another order.
const DIGESTS: [&str; 3] = ["approx_percentile_cont", "approx_percentile_cont_with_weight", "approx_median"];
/// Functions whose states of the same events are equal field by field.
const PLAIN: [&str; 20] = [
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "bool_and",
    "bool_or",
    "bit_and",
    "bit_or",
    "bit_xor",
    "median",
    "percentile_cont",
    "array_agg",
    "string_agg",
    "sequence_match",
    "sequence_count",
    "window_funnel",
    "retention",
    "session_count",
    "longest_gap",
];
/// Of these, sums whose rounding is relative to the sum. Other functions of floats keep products too.
const SUMS: [&str; 4] = ["sum", "avg", "min", "max"];
const FLOAT_RELATIVE: f64 = 1e-9;
const FLOAT_ABSOLUTE: f64 = 1e-9;
/// The rounding of sums of products, which may cancel out, to the square of the greatest number in their state.
const PRODUCT_RELATIVE: f64 = 1e-13;
const DIGEST_RELATIVE: f64 = 0.02;

/// A differing state of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Differing {
    pub row: usize,
    pub state: StateIndex,
}

/// Returns which states differ between two sets of rows with the same keys, levels and tiles in the same order.
/// `is_compared` selects among the plan's states.
pub fn differing(plan: &ViewPlan, a: &RecordBatch, b: &RecordBatch, is_compared: impl Fn(StateIndex) -> bool) -> Result<Vec<Differing>> {
    let mut found = Vec::new();
    for state in (0..plan.states.len()).map(StateIndex).filter(|state| is_compared(*state)) {
        let fields = |batch: &RecordBatch| batch.columns()[plan.state_columns(state)].to_vec();
        let compared = ComparedState { state: plan.state(state), a: fields(a), b: fields(b) };
        found.extend(compared.differing()?.into_iter().map(|row| Differing { row, state }));
    }
    found.sort_by_key(|differing| (differing.row, differing.state));
    Ok(found)
}

/// The fields of one state, of all rows of both sides.
struct ComparedState<'s> {
    state: &'s StateExpr,
    a: Vec<ArrayRef>,
    b: Vec<ArrayRef>,
}

impl ComparedState<'_> {
    fn differing(&self) -> Result<Vec<usize>> {
        let mut rows = Vec::new();
        for row in self.unlike_rows()? {
            if !self.is_same(row)? {
                rows.push(row);
            }
        }
        Ok(rows)
    }

    /// The rows that may differ. Fields are compared as a whole first, because one row alone takes many times as long.
    fn unlike_rows(&self) -> Result<Vec<usize>> {
        let mut alike = vec![true; self.a.first().map_or(0, |field| field.len())];
        for (a, b) in self.a.iter().zip(&self.b) {
            if a.to_data() != b.to_data() {
                alike.iter_mut().zip(self.alike(a, b)?).for_each(|(all, field)| *all &= field);
            }
        }
        Ok(alike.iter().enumerate().filter(|(_, alike)| !**alike).map(|(row, _)| row).collect())
    }

    /// Whether a field has the same bytes on both sides, for each row; collected values in any order.
    fn alike(&self, a: &ArrayRef, b: &ArrayRef) -> Result<Vec<bool>> {
        if !self.is_ordered() {
            if let Some((a, b)) = a.as_list_opt::<i32>().zip(b.as_list_opt::<i32>()) {
                return alike_lists(a, b);
            }
            if let Some((a, b)) = a.as_list_opt::<i64>().zip(b.as_list_opt::<i64>()) {
                return alike_lists(a, b);
            }
        }
        Ok(match encoded(a, b)? {
            Some((a, b)) => a.iter().zip(&b).map(|(a, b)| a == b).collect(),
            None => vec![false; a.len()],
        })
    }

    fn is_same(&self, row: usize) -> Result<bool> {
        let slack = self.slack(row);
        let mut same = true;
        for (a, b) in self.a.iter().zip(&self.b) {
            same = same && self.is_same_field((a, b), row, slack)?;
        }
        if same || !self.is_compared_by_value() {
            return Ok(same);
        }
        if self.state.function == TOP_K && !(self.is_exact(&self.a, row)? && self.is_exact(&self.b, row)?) {
            return Ok(true);
        }
        let relative = if DIGESTS.contains(&self.state.function.as_str()) { DIGEST_RELATIVE } else { FLOAT_RELATIVE };
        Ok(is_same_value((&self.value(&self.a, row)?, &self.value(&self.b, row)?), 0, relative))
    }

    fn is_same_field(&self, (a, b): (&ArrayRef, &ArrayRef), row: usize, slack: f64) -> Result<bool> {
        if let Some((a, b)) = float(a, row).zip(float(b, row)) {
            return Ok(is_close(a, b, FLOAT_RELATIVE, slack));
        }
        if is_exactly((a, b), row) {
            return Ok(true);
        }
        match list(a, row).zip(list(b, row)) {
            Some((a, b)) if !self.is_ordered() => has_same_values(&a, &b),
            _ => Ok(false),
        }
    }

    /// How far floats may be apart, in addition to the relative tolerance.
    fn slack(&self, row: usize) -> f64 {
        if SUMS.contains(&self.state.function.as_str()) {
            return FLOAT_ABSOLUTE;
        }
        let floats = self.a.iter().chain(&self.b).filter_map(|field| float(field, row)).filter(|float| float.is_finite());
        let most = floats.fold(0.0, |most: f64, float| most.max(float.abs()));
        FLOAT_ABSOLUTE + PRODUCT_RELATIVE * most * most
    }

    fn is_ordered(&self) -> bool {
        !self.state.aggregate.order_bys().is_empty()
    }

    /// Whether states that differ field by field may have the same value, and merge to the same values.
    fn is_compared_by_value(&self) -> bool {
        (self.is_ordered() && !keeps_events(&self.state.function)) || !PLAIN.contains(&self.state.function.as_str())
    }

    fn is_exact(&self, fields: &[ArrayRef], row: usize) -> Result<bool> {
        let state = fields.first().and_then(|field| field.as_binary_opt::<i32>());
        let state = state.ok_or_else(|| Error::corrupt(format!("the state of {} is not binary", self.state.sql)))?;
        Ok(state.is_null(row) || top_k_is_exact(state.value(row))?)
    }

    /// The value of the state alone.
    fn value(&self, fields: &[ArrayRef], row: usize) -> Result<ArrayRef> {
        let fields: Vec<ArrayRef> = fields.iter().map(|field| field.slice(row, 1)).collect();
        let mut merged = accumulator(self.state)?;
        merged.merge_batch(&fields, &[0], 1)?;
        Ok(merged.evaluate(EmitTo::All)?)
    }
}

/// Whether two lists have the same items in any order, for each row.
fn alike_lists<O: OffsetSizeTrait>(a: &GenericListArray<O>, b: &GenericListArray<O>) -> Result<Vec<bool>> {
    let Some((encoded_a, encoded_b)) = encoded(&items_in_use(a), &items_in_use(b))? else { return Ok(vec![false; a.len()]) };
    let is_alike = |row: usize| {
        if a.is_null(row) || b.is_null(row) {
            return a.is_null(row) == b.is_null(row);
        }
        let (of_a, of_b) = (item_range(a, row), item_range(b, row));
        if of_a.len() != of_b.len() {
            return false;
        }
        let (a, b) = (of_a.map(|item| encoded_a.row(item)), of_b.map(|item| encoded_b.row(item)));
        if a.clone().eq(b.clone()) {
            return true;
        }
        let (mut a, mut b): (Vec<Row<'_>>, Vec<Row<'_>>) = (a.collect(), b.collect());
        a.sort_unstable();
        b.sort_unstable();
        a == b
    };
    Ok((0..a.len()).map(is_alike).collect())
}

/// The items of all lists. A slice of an array of lists has those of the whole.
fn items_in_use<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> ArrayRef {
    let offsets = lists.value_offsets();
    let (first, last) = (offsets[0].as_usize(), offsets[lists.len()].as_usize());
    lists.values().slice(first, last - first)
}

/// Where the items of a list are among those in use.
fn item_range<O: OffsetSizeTrait>(lists: &GenericListArray<O>, row: usize) -> Range<usize> {
    let offsets = lists.value_offsets();
    let place = |row: usize| offsets[row].as_usize() - offsets[0].as_usize();
    place(row)..place(row + 1)
}

/// Both in a form in which values are equal if their bytes are. `None` for types without one.
fn encoded(a: &ArrayRef, b: &ArrayRef) -> Result<Option<(Rows, Rows)>> {
    let fields = vec![SortField::new(a.data_type().clone())];
    if a.data_type() != b.data_type() || !RowConverter::supports_fields(&fields) {
        return Ok(None);
    }
    let converter = RowConverter::new(fields)?;
    Ok(Some((converter.convert_columns(std::slice::from_ref(a))?, converter.convert_columns(std::slice::from_ref(b))?)))
}

fn is_close(a: f64, b: f64, relative: f64, slack: f64) -> bool {
    if a == b || (a.is_nan() && b.is_nan()) {
        return true;
    }
    a.is_finite() && b.is_finite() && (a - b).abs() <= relative * a.abs().max(b.abs()) + slack
}

fn is_exactly((a, b): (&ArrayRef, &ArrayRef), row: usize) -> bool {
    a.slice(row, 1).to_data() == b.slice(row, 1).to_data()
}

/// Compares two values, lists and structs by their parts.
fn is_same_value((a, b): (&ArrayRef, &ArrayRef), row: usize, relative: f64) -> bool {
    if a.is_null(row) || b.is_null(row) {
        return a.is_null(row) == b.is_null(row);
    }
    if let Some((a, b)) = float(a, row).zip(float(b, row)) {
        return is_close(a, b, relative, FLOAT_ABSOLUTE);
    }
    if let Some((a, b)) = list(a, row).zip(list(b, row)) {
        return a.len() == b.len() && (0..a.len()).all(|item| is_same_value((&a, &b), item, relative));
    }
    if let (Some(a), Some(b)) = (a.as_struct_opt(), b.as_struct_opt()) {
        return a.columns().iter().zip(b.columns()).all(|pair| is_same_value(pair, row, relative));
    }
    if is_exactly((a, b), row) {
        return true;
    }
    // A percentile of whole numbers is rounded.
    let number = |array: &ArrayRef| float(&arrow::compute::cast(&array.slice(row, 1), &DataType::Float64).ok()?, 0);
    relative > FLOAT_RELATIVE && number(a).zip(number(b)).is_some_and(|(a, b)| is_close(a, b, relative, 0.0) || (a - b).abs() <= 1.0)
}

/// Whether two lists have the same values, each as often.
fn has_same_values(a: &ArrayRef, b: &ArrayRef) -> Result<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    let converter = RowConverter::new(vec![SortField::new(a.data_type().clone())])?;
    let sorted = |values: &ArrayRef| -> Result<Vec<Vec<u8>>> {
        let values = if values.data_type().is_floating() { one_zero(values) } else { values.clone() };
        let mut rows: Vec<Vec<u8>> = converter.convert_columns(&[values])?.iter().map(|row| row.as_ref().to_vec()).collect();
        rows.sort();
        Ok(rows)
    };
    Ok(sorted(a)? == sorted(b)?)
}

/// `None` for NULL, and for other types.
fn float(array: &ArrayRef, row: usize) -> Option<f64> {
    match array.data_type() {
        _ if array.is_null(row) => None,
        DataType::Float64 => Some(array.as_primitive::<Float64Type>().value(row)),
        DataType::Float32 => Some(f64::from(array.as_primitive::<Float32Type>().value(row))),
        _ => None,
    }
}

/// `None` for NULL, and for other types.
fn list(array: &ArrayRef, row: usize) -> Option<ArrayRef> {
    if array.is_null(row) {
        return None;
    }
    array.as_list_opt::<i32>().map(|list| list.value(row)).or_else(|| array.as_list_opt::<i64>().map(|list| list.value(row)))
}

#[cfg(test)]
mod tests;
