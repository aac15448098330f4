//! Merges small states (counts, sums, averages, least and greatest values, sets of texts or integers) straight from
//! their columns.
//!
//! A value is bit for bit what the aggregate's own accumulator gives for the same rows in the same order. But an
//! accumulator has to be created, and wants its rows copied into columns of their own: for the few rows of a key that
//! costs many times what merging them does.

use std::hash::Hash;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayAccessor, ArrayRef, AsArray, BooleanArray, Decimal256Array, Float64Array, Int64Array, ListArray, PrimitiveArray,
    UInt64Array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    ArrowNativeTypeOp, ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Decimal256Type, FieldRef, Float32Type, Float64Type,
    Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type, i256,
};
use datafusion::common::{Result, exec_err};
use datafusion::functions_aggregate::count::Count;
use datafusion::logical_expr::AggregateUDF;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use hashbrown::HashSet;

use super::decimals::{QUOTIENT, averages_of_sums, is_average, operand_scale};
use super::distinct::is_distinct_count;
use super::extremes::{ExtremeEnd, extreme_end};
use super::judged::{Flaw, is_judged, judged_as};
use super::limited::limited_function;
use super::state_bytes::item_bytes;
use super::sums::wide::Wide;
use super::sums::{is_sum, judged_sums};

/// Room is made at once for this many distinct values. Of more, most may be alike, or not be read because of the limit.
const ROOM_AT_ONCE: usize = 16_384;

/// How the states of an aggregate are merged.
#[derive(Debug, Clone)]
pub(crate) struct DirectMerge {
    operation: DirectOperation,
    merge: MergeFunction,
    value_type: DataType,
    /// The greatest size of a state that collects values.
    limit_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirectOperation {
    Count,
    /// In the type of the sum, in which decimals wrap around.
    Sum,
    /// In a wider type ([`sums`](super::sums)). The values come with flaws.
    JudgedSum,
    /// Of floating point numbers.
    Average,
    DecimalAverage,
    Least,
    Greatest,
    /// `count(DISTINCT x)`. The values come with flaws.
    DistinctCount,
}

/// See [`DirectMerge::values`].
type MergeFunction = fn(&GroupedStates<'_>, &DirectMerge) -> Result<Option<ArrayRef>>;

/// Rows of a state, each with its group. Every group has a row.
#[derive(Debug)]
pub(crate) struct GroupedStates<'a> {
    /// For each field of the state, the arrays that the rows are in.
    pub(crate) fields: &'a [Vec<&'a dyn Array>],
    /// Each row as an index of an array, and a row of it.
    pub(crate) rows: &'a [(usize, usize)],
    /// The group of each row.
    pub(crate) groups: &'a [usize],
    pub(crate) group_count: usize,
}

impl DirectMerge {
    /// `None` for an aggregate that only its accumulators can merge. `fields` are those of its state.
    pub(crate) fn for_aggregate(aggregate: &AggregateFunctionExpr, fields: &[FieldRef]) -> Option<DirectMerge> {
        if !aggregate.groups_accumulator_supported() {
            return None;
        }
        let value_type = aggregate.field().data_type().clone();
        let state: Vec<&DataType> = fields.iter().map(|field| field.data_type()).collect();
        let (operation, limit_bytes) = match (aggregate.is_distinct(), limited_function(aggregate.fun())) {
            (true, Some((function, limit_bytes))) if is_distinct_count(function) => (DirectOperation::DistinctCount, limit_bytes),
            (false, None) => (DirectOperation::for_function(aggregate.fun(), &state, &value_type)?, u64::MAX),
            _ => return None,
        };
        let merge = operation.merge_function(state.first()?)?;
        Some(DirectMerge { operation, merge, value_type, limit_bytes })
    }

    /// The value of each group. `None` if only accumulators can merge these rows.
    pub(crate) fn values(&self, states: &GroupedStates<'_>) -> Result<Option<ArrayRef>> {
        (self.merge)(states, self)
    }

    /// Whether the values are the merged states too.
    pub(crate) fn values_are_states(&self) -> bool {
        matches!(self.operation, DirectOperation::Count | DirectOperation::Sum | DirectOperation::Least | DirectOperation::Greatest)
    }
}

impl DirectOperation {
    fn for_function(function: &AggregateUDF, state: &[&DataType], value: &DataType) -> Option<DirectOperation> {
        let implementation = function.inner();
        match state {
            [DataType::Int64] if implementation.is::<Count>() => Some(DirectOperation::Count),
            [sum] if is_sum(function) && *sum == value => Some(DirectOperation::Sum),
            [_] if is_sum(function) && is_judged(value) => Some(DirectOperation::JudgedSum),
            [DataType::UInt64, DataType::Float64] if is_average(function) => Some(DirectOperation::Average),
            [DataType::UInt64, DataType::Decimal256(..)] if is_average(function) && *value == QUOTIENT => {
                Some(DirectOperation::DecimalAverage)
            }
            [extreme] if *extreme == value => extreme_end(function).map(|end| match end {
                ExtremeEnd::Least => DirectOperation::Least,
                ExtremeEnd::Greatest => DirectOperation::Greatest,
            }),
            _ => None,
        }
    }

    /// `None` for a type that is left to accumulators. `state` is the type of the state's first field.
    fn merge_function(self, state: &DataType) -> Option<MergeFunction> {
        let function: MergeFunction = match (self, state) {
            (DirectOperation::Count, _) => counts,
            (DirectOperation::Sum, DataType::Float64) => sums::<Float64Type>,
            (DirectOperation::Sum, DataType::Decimal128(..)) => sums::<Decimal128Type>,
            (DirectOperation::JudgedSum, DataType::Decimal128(..)) => sums_with_flaws::<Decimal128Type>,
            (DirectOperation::JudgedSum, DataType::Decimal256(..)) => sums_with_flaws::<Decimal256Type>,
            (DirectOperation::Average, _) => averages,
            (DirectOperation::DecimalAverage, _) => decimal_averages,
            (DirectOperation::Least, _) => return least_of(state),
            (DirectOperation::Greatest, _) => return greatest_of(state),
            (DirectOperation::DistinctCount, DataType::List(item)) => match item.data_type() {
                DataType::Utf8 => distinct_texts,
                DataType::Int64 => distinct_integers,
                _ => return None,
            },
            (DirectOperation::Sum | DirectOperation::JudgedSum | DirectOperation::DistinctCount, _) => return None,
        };
        Some(function)
    }
}

impl<'a> GroupedStates<'a> {
    /// The arrays of a field.
    fn field<A: Array + 'static>(&self, place: usize) -> Result<Vec<&'a A>> {
        let arrays = self.fields.get(place).map(Vec::as_slice).unwrap_or_default();
        let typed = |array: &&'a dyn Array| match array.as_any().downcast_ref::<A>() {
            Some(values) => Ok(values),
            None => exec_err!("the field {place} of a state is {}, expected {}", array.data_type(), std::any::type_name::<A>()),
        };
        arrays.iter().map(typed).collect()
    }

    /// Calls `visit` with each value of a field that is not NULL, and its group, in the order of the rows.
    fn for_each_value<T: ArrowPrimitiveType>(&self, place: usize, mut visit: impl FnMut(usize, T::Native)) -> Result<()> {
        let arrays = self.field::<PrimitiveArray<T>>(place)?;
        for ((array, row), group) in self.rows.iter().zip(self.groups) {
            let values = arrays[*array];
            if values.is_valid(*row) {
                visit(*group, values.value(*row));
            }
        }
        Ok(())
    }
}

/// A count of nothing is 0.
fn counts(states: &GroupedStates<'_>, _: &DirectMerge) -> Result<Option<ArrayRef>> {
    let mut counts = vec![0_i64; states.group_count];
    states.for_each_value::<Int64Type>(0, |group, count| counts[group] = counts[group].wrapping_add(count))?;
    Ok(Some(Arc::new(Int64Array::new(counts.into(), None))))
}

fn sums<T: ArrowPrimitiveType>(states: &GroupedStates<'_>, merge: &DirectMerge) -> Result<Option<ArrayRef>> {
    folded::<T>(states, merge, T::default_value(), ArrowNativeTypeOp::add_wrapping)
}

/// The state of a judged sum is in `T`, a wider type than the sum's own.
fn sums_with_flaws<T>(states: &GroupedStates<'_>, merge: &DirectMerge) -> Result<Option<ArrayRef>>
where
    T: ArrowPrimitiveType,
    T::Native: Wide,
{
    let mut sums: Vec<Option<T::Native>> = vec![None; states.group_count];
    states.for_each_value::<T>(0, |group, sum| sums[group] = Some(Wide::plus(sums[group].unwrap_or_default(), sum)))?;
    judged_sums(&sums, &merge.value_type).map(Some)
}

/// The state has the number of values, then their sum.
fn averages(states: &GroupedStates<'_>, _: &DirectMerge) -> Result<Option<ArrayRef>> {
    let (mut counts, mut sums) = (vec![0_u64; states.group_count], vec![0.0_f64; states.group_count]);
    let mut has_value = vec![false; states.group_count];
    states.for_each_value::<UInt64Type>(0, |group, count| {
        counts[group] = counts[group].wrapping_add(count);
        has_value[group] = true;
    })?;
    states.for_each_value::<Float64Type>(1, |group, sum| {
        sums[group] += sum;
        has_value[group] = true;
    })?;
    let averages: Vec<f64> = sums.iter().zip(&counts).map(|(sum, count)| sum / *count as f64).collect();
    Ok(Some(Arc::new(Float64Array::new(averages.into(), nulls(has_value)))))
}

/// The same of decimals, whose sums have 256 bits.
fn decimal_averages(states: &GroupedStates<'_>, _: &DirectMerge) -> Result<Option<ArrayRef>> {
    let (counts, sums) = (states.field::<UInt64Array>(0)?, states.field::<Decimal256Array>(1)?);
    let Some(scale) = sums.first().and_then(|sums| operand_scale(sums.data_type())) else {
        return exec_err!("the state of an average of decimals has no scale");
    };
    let (mut merged_counts, mut merged_sums) = (vec![0_u64; states.group_count], vec![i256::ZERO; states.group_count]);
    for ((array, row), group) in states.rows.iter().zip(states.groups) {
        let counts = counts[*array];
        if counts.is_valid(*row) && counts.value(*row) > 0 {
            merged_sums[*group] = Wide::plus(merged_sums[*group], sums[*array].value(*row));
            merged_counts[*group] += counts.value(*row);
        }
    }
    averages_of_sums(&merged_sums, &merged_counts, scale).map(Some)
}

/// The first and the last number of a type, in the order of [`extremes`](super::extremes).
trait NumberRange {
    const LEAST: Self;
    const GREATEST: Self;
}

macro_rules! number_ranges {
    ($least:ident, $greatest:ident: $($native:ident),+) => {
        $(impl NumberRange for $native {
            const LEAST: Self = $native::$least;
            const GREATEST: Self = $native::$greatest;
        })+
    };
}

number_ranges!(MIN, MAX: i8, i16, i32, i64, u8, u16, u32, u64, i128, i256);
number_ranges!(NEG_INFINITY, NAN: f32, f64);

fn least<T>(states: &GroupedStates<'_>, merge: &DirectMerge) -> Result<Option<ArrayRef>>
where
    T: ArrowPrimitiveType,
    T::Native: NumberRange,
{
    folded::<T>(states, merge, <T::Native as NumberRange>::GREATEST, |least, value| ExtremeEnd::Least.nearer(least, value))
}

fn greatest<T>(states: &GroupedStates<'_>, merge: &DirectMerge) -> Result<Option<ArrayRef>>
where
    T: ArrowPrimitiveType,
    T::Native: NumberRange,
{
    folded::<T>(states, merge, <T::Native as NumberRange>::LEAST, |greatest, value| ExtremeEnd::Greatest.nearer(greatest, value))
}

/// A function of one of the types of which least and greatest values are merged directly; `None` for another type.
macro_rules! function_of_type {
    ($function:ident, $data_type:expr) => {{
        let function: MergeFunction = match $data_type {
            DataType::Int8 => $function::<Int8Type>,
            DataType::Int16 => $function::<Int16Type>,
            DataType::Int32 => $function::<Int32Type>,
            DataType::Int64 => $function::<Int64Type>,
            DataType::UInt8 => $function::<UInt8Type>,
            DataType::UInt16 => $function::<UInt16Type>,
            DataType::UInt32 => $function::<UInt32Type>,
            DataType::UInt64 => $function::<UInt64Type>,
            DataType::Float32 => $function::<Float32Type>,
            DataType::Float64 => $function::<Float64Type>,
            DataType::Decimal128(..) => $function::<Decimal128Type>,
            DataType::Decimal256(..) => $function::<Decimal256Type>,
            DataType::Date32 => $function::<Date32Type>,
            DataType::Timestamp(TimeUnit::Second, _) => $function::<TimestampSecondType>,
            DataType::Timestamp(TimeUnit::Millisecond, _) => $function::<TimestampMillisecondType>,
            DataType::Timestamp(TimeUnit::Microsecond, _) => $function::<TimestampMicrosecondType>,
            DataType::Timestamp(TimeUnit::Nanosecond, _) => $function::<TimestampNanosecondType>,
            _ => return None,
        };
        Some(function)
    }};
}

fn least_of(data_type: &DataType) -> Option<MergeFunction> {
    function_of_type!(least, data_type)
}

fn greatest_of(data_type: &DataType) -> Option<MergeFunction> {
    function_of_type!(greatest, data_type)
}

/// Combines the values of each group, one after the other, beginning with `start`. A group without values is NULL.
fn folded<T: ArrowPrimitiveType>(
    states: &GroupedStates<'_>,
    merge: &DirectMerge,
    start: T::Native,
    combine: impl Fn(T::Native, T::Native) -> T::Native,
) -> Result<Option<ArrayRef>> {
    let mut values = vec![start; states.group_count];
    let mut has_value = vec![false; states.group_count];
    states.for_each_value::<T>(0, |group, value| {
        values[group] = combine(values[group], value);
        has_value[group] = true;
    })?;
    let values = PrimitiveArray::<T>::new(values.into(), nulls(has_value)).with_data_type(merge.value_type.clone());
    Ok(Some(Arc::new(values)))
}

fn nulls(has_value: Vec<bool>) -> Option<NullBuffer> {
    has_value.contains(&false).then(|| NullBuffer::from(has_value))
}

fn distinct_texts(states: &GroupedStates<'_>, merge: &DirectMerge) -> Result<Option<ArrayRef>> {
    distinct_counts(states, merge, |items| items.as_string_opt::<i32>())
}

fn distinct_integers(states: &GroupedStates<'_>, merge: &DirectMerge) -> Result<Option<ArrayRef>> {
    distinct_counts(states, merge, |items| items.as_primitive_opt::<Int64Type>())
}

/// The state is a list of values, then the mark of a state that is past its limit ([`limited`](super::limited)). A
/// group with a mark, or that may be past the limit, is left to accumulators, and so are NULLs, which our states do not
/// have.
fn distinct_counts<'a, A>(
    states: &GroupedStates<'a>,
    merge: &DirectMerge,
    items: impl Fn(&'a ArrayRef) -> Option<A>,
) -> Result<Option<ArrayRef>>
where
    A: ArrayAccessor,
    A::Item: Hash + Eq,
{
    let (lists, marks) = (states.field::<ListArray>(0)?, states.field::<BooleanArray>(1)?);
    let DataType::Struct(judged_fields) = &merge.value_type else { return Ok(None) };
    let Some(items) = lists.iter().map(|lists| items(lists.values())).collect::<Option<Vec<A>>>() else { return Ok(None) };
    let (mut counts, mut bytes) = (vec![0_i64; states.group_count], vec![0_u64; states.group_count]);
    let length = |(array, row): &(usize, usize)| lists[*array].value_length(*row) as usize;
    let room = states.rows.iter().map(length).sum::<usize>().min(ROOM_AT_ONCE);
    let mut seen: HashSet<(usize, A::Item)> = HashSet::with_capacity(room);
    for ((array, row), group) in states.rows.iter().zip(states.groups) {
        let (lists, items, marks) = (lists[*array], &items[*array], marks[*array]);
        let (from, to) = (lists.value_offsets()[*row] as usize, lists.value_offsets()[*row + 1] as usize);
        bytes[*group] += item_bytes(lists.values(), from, to);
        let may_be_past = (marks.is_valid(*row) && marks.value(*row)) || bytes[*group] > merge.limit_bytes;
        if may_be_past || lists.is_null(*row) || (from..to).any(|at| items.is_null(at)) {
            return Ok(None);
        }
        for at in from..to {
            counts[*group] += i64::from(seen.insert((*group, items.value(at))));
        }
    }
    let none_past = BooleanArray::from(vec![false; counts.len()]);
    let counts: ArrayRef = Arc::new(Int64Array::new(counts.into(), None));
    judged_as(judged_fields.clone(), &counts, &none_past, Flaw::StateTooLarge).map(Some)
}

#[cfg(test)]
mod tests;
