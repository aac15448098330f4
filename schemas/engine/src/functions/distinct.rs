//! `count(DISTINCT x)` for many groups: the same states as DataFusion's, kept in one set for all groups instead of one
//! per group.
//!
//! DataFusion has grouped accumulators only for integers. For other types it keeps a hash set and a boxed accumulator
//! per group: some hundred bytes for a value that occurs once. Most of our groups, a tile of a key, hold one or two
//! values.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, LargeBinaryArray, ListArray};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{cast, filter};
use arrow::datatypes::{DataType, Field, FieldRef};
use arrow_row::{RowConverter, SortField};
use datafusion::common::{HashSet, Result, ScalarValue, exec_err};
use datafusion::functions_aggregate::count::Count;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, Expr, GroupsAccumulator, ReversedUDAF, Signature};
use datafusion::physical_expr_common::binary_map::{ArrowBytesMap, OutputType};

use types::Error;
use types::sql_types::one_zero;

use super::MOST_AT_ONCE;

mod set;

pub(crate) use set::{DistinctSet, DistinctSize};

/// Gives a call of `count(DISTINCT x)` a grouped accumulator if DataFusion's function has none. Other calls are
/// returned unchanged.
pub(super) fn grouped(call: Expr) -> Expr {
    match call {
        Expr::AggregateFunction(AggregateFunction { func, params })
            if func.name() == "count" && params.distinct && params.args.len() == 1 =>
        {
            let func = Arc::new(AggregateUDF::from(GroupedCount { inner: func }));
            Expr::AggregateFunction(AggregateFunction { func, params })
        }
        other => other,
    }
}

/// Whether it is what [`grouped`] makes of DataFusion's `count`.
pub(super) fn is_distinct_count(function: &AggregateUDF) -> bool {
    function.inner().downcast_ref::<GroupedCount>().is_some_and(|grouped| grouped.inner.inner().is::<Count>())
}

/// DataFusion's function, except for its grouped accumulators.
#[derive(Debug, PartialEq, Eq, Hash)]
struct GroupedCount {
    inner: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for GroupedCount {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn is_nullable(&self) -> bool {
        self.inner.is_nullable()
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.inner.accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        is_ours(args.expr_fields[0].data_type()) || self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        match args.expr_fields[0].data_type() {
            data_type if is_ours(data_type) => Ok(Box::new(DistinctCounts::new(data_type.clone())?)),
            _ => self.inner.create_groups_accumulator(args),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.inner.default_value(data_type)
    }
}

/// Whether values of this type are counted here. Integers have accumulators of their own, the values of a dictionary
/// would lose their keys, and untyped NULLs are not recorded.
fn is_ours(data_type: &DataType) -> bool {
    let other = !data_type.is_integer() && !matches!(data_type, DataType::Dictionary(_, _) | DataType::Null);
    other && RowConverter::supports_fields(&[SortField::new(data_type.clone())])
}

/// Each value gets a number when it first occurs. What was seen is a set of pairs of a group and a value's number.
struct DistinctCounts {
    value_type: DataType,
    converter: RowConverter,
    /// Values in row format, with the number of each. Made for the first value: it begins with 16 KiB, and many
    /// accumulators get no value.
    numbers: Option<ArrowBytesMap<i64, u32>>,
    seen: HashSet<(u32, u32)>,
    /// The number of different values of each group.
    counts: Vec<i64>,
    /// The bytes that all pairs take when they are emitted, where each has its value.
    bytes: usize,
    /// Replaces `seen` while groups are emitted in several steps.
    unemitted: Option<UnemittedValues>,
    most_at_once: usize,
}

/// The values of the groups that are not emitted yet, group by group.
struct UnemittedValues {
    encoded: ArrayRef,
    numbers: Vec<u32>,
    from: usize,
}

impl DistinctCounts {
    fn new(value_type: DataType) -> Result<Self> {
        let converter = RowConverter::new(vec![SortField::new(value_type.clone())])?;
        Ok(Self {
            value_type,
            converter,
            numbers: None,
            seen: HashSet::default(),
            counts: Vec::new(),
            bytes: 0,
            unemitted: None,
            most_at_once: MOST_AT_ONCE,
        })
    }

    /// Adds non-NULL values with their groups.
    fn insert(&mut self, values: &ArrayRef, groups: impl Iterator<Item = usize>) -> Result<()> {
        self.go_on()?;
        let encoded = self.converter.convert_columns(&[one_zero(values)])?.try_into_binary()?;
        self.insert_encoded(&cast(&encoded, &DataType::LargeBinary)?, groups)
    }

    fn insert_encoded(&mut self, values: &ArrayRef, mut groups: impl Iterator<Item = usize>) -> Result<()> {
        let Self { numbers, seen, counts, bytes, .. } = self;
        let numbers = numbers.get_or_insert_with(no_numbers);
        let lengths = values.as_binary::<i64>().value_offsets().windows(2);
        let mut lengths = lengths.map(|value| (value[1] - value[0]) as usize);
        let (mut next, mut fits) = (numbers.len(), true);
        let number = |_: Option<&[u8]>| {
            next += 1;
            (next - 1) as u32
        };
        numbers.insert_if_new(values, number, |number| {
            let (Some(group), Some(length)) = (groups.next(), lengths.next()) else { return };
            fits &= u32::try_from(group).is_ok();
            if seen.insert((group as u32, number)) {
                counts[group] += 1;
                *bytes += length;
            }
        });
        match fits && u32::try_from(numbers.len()).is_ok() {
            true => Ok(()),
            false => Err(Error::limit(format!("count(DISTINCT ..) has more than {} values or groups at once", u32::MAX)).into()),
        }
    }

    /// Moves the values that are not emitted back to `seen`.
    fn go_on(&mut self) -> Result<()> {
        let Some(UnemittedValues { encoded, numbers, from }) = self.unemitted.take() else { return Ok(()) };
        let values = encoded.as_binary::<i64>();
        let left: ArrayRef =
            Arc::new(LargeBinaryArray::from_iter_values(numbers[from..].iter().map(|number| values.value(*number as usize))));
        let counts = self.counts.clone();
        let of_value = counts.iter().enumerate().flat_map(|(group, count)| std::iter::repeat_n(group, *count as usize));
        self.counts.iter_mut().for_each(|count| *count = 0);
        self.bytes = 0;
        self.insert_encoded(&left, of_value)
    }

    /// Converts what was seen to the order of the groups.
    fn by_group(&mut self) -> UnemittedValues {
        let mut next: Vec<usize> = Vec::with_capacity(self.counts.len());
        let mut total = 0;
        for count in &self.counts {
            next.push(total);
            total += *count as usize;
        }
        let mut numbers = vec![0; total];
        for (group, number) in std::mem::take(&mut self.seen) {
            let place = &mut next[group as usize];
            numbers[*place] = number;
            *place += 1;
        }
        let encoded = self.numbers.take().unwrap_or_else(no_numbers).into_state();
        UnemittedValues { encoded, numbers, from: 0 }
    }

    /// Returns the values of the first groups, group by group, and the end of each group. The rest stays in
    /// `unemitted`.
    fn take(&mut self, groups: usize) -> Result<(ArrayRef, OffsetBuffer<i32>)> {
        let UnemittedValues { encoded, numbers, from } = match self.unemitted.take() {
            Some(values) => values,
            None => self.by_group(),
        };
        let taken: Vec<i64> = self.counts.drain(..groups).collect();
        let to = from + taken.iter().sum::<i64>() as usize;
        let values = encoded.as_binary::<i64>();
        let rows = || numbers[from..to].iter().map(|number| values.value(*number as usize));
        let bytes: usize = rows().map(<[u8]>::len).sum();
        if i32::try_from(bytes.max(to - from)).is_err() {
            let values = to - from;
            let message =
                format!("count(DISTINCT ..) has {values} values of {bytes} bytes to return at once: expected at most {}", i32::MAX);
            return Err(Error::limit(message).into());
        }
        let parser = self.converter.parser();
        let list = self.converter.convert_rows(rows().map(|row| parser.parse(row)))?.swap_remove(0);
        self.bytes -= bytes.min(self.bytes);
        if !self.counts.is_empty() {
            self.unemitted = Some(UnemittedValues { encoded, numbers, from: to });
        }
        Ok((list, OffsetBuffer::from_lengths(taken.iter().map(|count| *count as usize))))
    }

    fn lists(&self, values: ArrayRef, offsets: OffsetBuffer<i32>) -> Result<Vec<ArrayRef>> {
        let item = Arc::new(Field::new_list_field(self.value_type.clone(), true));
        Ok(vec![Arc::new(ListArray::try_new(item, offsets, values, None)?)])
    }
}

impl GroupsAccumulator for DistinctCounts {
    fn update_batch(&mut self, values: &[ArrayRef], groups: &[usize], only: Option<&BooleanArray>, total_groups: usize) -> Result<()> {
        self.counts.resize(total_groups, 0);
        let counted = counted(&values[0], only);
        let chosen = groups.iter().zip(counted.iter()).filter(|(_, counts)| *counts == Some(true)).map(|(group, _)| *group);
        match counted.true_count() == values[0].len() {
            true => self.insert(&values[0], groups.iter().copied()),
            false => self.insert(&filter(&values[0], &counted)?, chosen),
        }
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total_groups: usize) -> Result<()> {
        self.counts.resize(total_groups, 0);
        let Some(lists) = states[0].as_list_opt::<i32>() else { return exec_err!("the state of count(DISTINCT ..) is not a list") };
        let (first, last) = (lists.value_offsets()[0] as usize, lists.value_offsets()[lists.len()] as usize);
        let values = lists.values().slice(first, last - first);
        let lengths = lists.value_offsets().windows(2).map(|of_row| (of_row[1] - of_row[0]) as usize);
        let of_value = groups.iter().zip(lengths).flat_map(|(group, length)| std::iter::repeat_n(*group, length));
        match values.null_count() {
            0 if lists.null_count() == 0 => self.insert(&values, of_value),
            // Our states have no such lists. Values under a NULL list do not count.
            _ => {
                let under: Vec<bool> =
                    (0..lists.len()).flat_map(|row| std::iter::repeat_n(lists.is_valid(row), lists.value_length(row) as usize)).collect();
                let kept: BooleanArray = under.into_iter().enumerate().map(|(at, valid)| Some(valid && values.is_valid(at))).collect();
                let of_kept = of_value.zip(kept.values().iter()).filter(|(_, kept)| *kept).map(|(group, _)| group);
                let of_kept: Vec<usize> = of_kept.collect();
                self.insert(&filter(&values, &kept)?, of_kept.into_iter())
            }
        }
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let groups = groups_of(emit_to, self.counts.len());
        let counts: Int64Array = self.counts[..groups].to_vec().into();
        match emit_to {
            EmitTo::All => *self = Self::new(self.value_type.clone())?,
            EmitTo::First(_) => drop(self.take(groups)?),
        }
        Ok(Arc::new(counts))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (values, offsets) = self.take(groups_of(emit_to, self.counts.len()))?;
        self.lists(values, offsets)
    }

    fn convert_to_state(&self, values: &[ArrayRef], only: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let counted = counted(&values[0], only);
        let offsets = OffsetBuffer::from_lengths(counted.iter().map(|counts| usize::from(counts == Some(true))));
        self.lists(filter(&values[0], &counted)?, offsets)
    }

    /// Reports more than any limit once the values seen approach what Arrow's lists hold: when memory is refused,
    /// operators emit everything at once.
    fn size(&self) -> usize {
        if self.unemitted.is_none() && self.bytes.max(self.seen.len()) > self.most_at_once {
            return usize::MAX / 64;
        }
        let seen = self.seen.capacity() * (size_of::<(u32, u32)>() + 1);
        let waiting =
            self.unemitted.as_ref().map_or(0, |values| values.encoded.get_array_memory_size() + values.numbers.len() * size_of::<u32>());
        let numbers = self.numbers.as_ref().map_or(0, ArrowBytesMap::size);
        size_of_val(self) + numbers + seen + self.counts.capacity() * size_of::<i64>() + self.bytes + waiting
    }
}

fn no_numbers() -> ArrowBytesMap<i64, u32> {
    ArrowBytesMap::new(OutputType::Binary)
}

fn groups_of(emit_to: EmitTo, all: usize) -> usize {
    match emit_to {
        EmitTo::All => all,
        EmitTo::First(groups) => groups,
    }
}

/// Returns which values count: those that are not NULL and pass the aggregate's FILTER.
fn counted(values: &ArrayRef, only: Option<&BooleanArray>) -> BooleanArray {
    let passes = |row: usize| only.is_none_or(|only| only.is_valid(row) && only.value(row));
    (0..values.len()).map(|row| Some(values.is_valid(row) && passes(row))).collect()
}

#[cfg(test)]
mod tests;
