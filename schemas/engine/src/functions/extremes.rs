//! `min(x)` and `max(x)` of floating point numbers in one order, in which a NaN comes after all others, as in
//! PostgreSQL. In DataFusion's a NaN takes the place of every value, and every value that of a NaN, so the result
//! depends on the order of events; and an infinity alone becomes the greatest finite number.
//!
//! Those of other types are DataFusion's, and so are all states.

use std::cmp::Ordering;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, PrimitiveArray, PrimitiveBuilder};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{ArrowPrimitiveType, DataType, FieldRef, Float32Type, Float64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::min_max::{Max, Min, max_udaf, min_udaf};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF, SetMonotonicity, Signature,
    StatisticsArgs,
};

use super::sliding::{SlidingWindow, WindowAggregate};

/// Which extreme a function is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ExtremeEnd {
    Least,
    Greatest,
}

impl ExtremeEnd {
    /// The nearer one of both, and `known` where they are equal.
    pub(super) fn nearer<N: PartialOrd>(self, known: N, value: N) -> N {
        let is_nearer = match self {
            ExtremeEnd::Least => is_before(&value, &known),
            ExtremeEnd::Greatest => is_before(&known, &value),
        };
        if is_nearer { value } else { known }
    }
}

/// What cannot be compared with a number is a NaN.
fn is_before<N: PartialOrd>(a: &N, b: &N) -> bool {
    match a.partial_cmp(b) {
        Some(order) => order == Ordering::Less,
        None => a.partial_cmp(a).is_some(),
    }
}

pub(super) fn least() -> AggregateUDF {
    AggregateUDF::from(Extreme { inner: min_udaf(), end: ExtremeEnd::Least })
}

pub(super) fn greatest() -> AggregateUDF {
    AggregateUDF::from(Extreme { inner: max_udaf(), end: ExtremeEnd::Greatest })
}

/// The extreme that a function is, one of this file or of DataFusion. `None` for other functions.
pub(super) fn extreme_end(function: &AggregateUDF) -> Option<ExtremeEnd> {
    let implementation = function.inner();
    match implementation.downcast_ref::<Extreme>() {
        Some(extreme) => Some(extreme.end),
        None if implementation.is::<Min>() => Some(ExtremeEnd::Least),
        None if implementation.is::<Max>() => Some(ExtremeEnd::Greatest),
        None => None,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Extreme {
    inner: Arc<AggregateUDF>,
    end: ExtremeEnd,
}

impl AggregateUDFImpl for Extreme {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arguments)
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match args.return_field.data_type() {
            DataType::Float32 => Ok(Box::new(ExtremeOfOne::<Float32Type> { end: self.end, value: None })),
            DataType::Float64 => Ok(Box::new(ExtremeOfOne::<Float64Type> { end: self.end, value: None })),
            _ => self.inner.accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match args.return_field.data_type() {
            DataType::Float32 => Ok(Box::new(SlidingWindow::new(ExtremeInWindow::<Float32Type>::new(self.end)))),
            DataType::Float64 => Ok(Box::new(SlidingWindow::new(ExtremeInWindow::<Float64Type>::new(self.end)))),
            _ => self.inner.create_sliding_accumulator(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        match args.return_field.data_type() {
            DataType::Float32 => Ok(Box::new(ExtremesOfGroups::<Float32Type>::new(self.end))),
            DataType::Float64 => Ok(Box::new(ExtremesOfGroups::<Float64Type>::new(self.end))),
            _ => self.inner.create_groups_accumulator(args),
        }
    }

    fn is_descending(&self) -> Option<bool> {
        self.inner.is_descending()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    /// The statistics of a file leave NaNs out.
    fn value_from_stats(&self, statistics: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        match statistics.return_type {
            DataType::Float32 | DataType::Float64 => None,
            _ => self.inner.value_from_stats(statistics),
        }
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner.inner().set_monotonicity(data_type)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// The extremes of many groups.
struct ExtremesOfGroups<T: ArrowPrimitiveType> {
    end: ExtremeEnd,
    values: Vec<T::Native>,
    has_value: Vec<bool>,
}

impl<T: ArrowPrimitiveType> ExtremesOfGroups<T> {
    fn new(end: ExtremeEnd) -> Self {
        Self { end, values: Vec::new(), has_value: Vec::new() }
    }

    /// Adds the rows that count, each with its group.
    fn add(&mut self, values: &ArrayRef, groups: &[usize], only: Option<&BooleanArray>, total_groups: usize) {
        self.values.resize(total_groups, T::default_value());
        self.has_value.resize(total_groups, false);
        let values = values.as_primitive::<T>();
        for (row, &group) in groups.iter().enumerate() {
            if values.is_null(row) || only.is_some_and(|only| only.is_null(row) || !only.value(row)) {
                continue;
            }
            let value = values.value(row);
            self.values[group] = if self.has_value[group] { self.end.nearer(self.values[group], value) } else { value };
            self.has_value[group] = true;
        }
    }

    fn take(&mut self, emit_to: EmitTo) -> ArrayRef {
        let (values, has_value) = (emit_to.take_needed(&mut self.values), emit_to.take_needed(&mut self.has_value));
        let nulls = has_value.contains(&false).then(|| NullBuffer::from(has_value));
        Arc::new(PrimitiveArray::<T>::new(values.into(), nulls))
    }
}

impl<T: ArrowPrimitiveType> GroupsAccumulator for ExtremesOfGroups<T> {
    fn update_batch(&mut self, values: &[ArrayRef], groups: &[usize], only: Option<&BooleanArray>, total_groups: usize) -> Result<()> {
        self.add(&values[0], groups, only, total_groups);
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total_groups: usize) -> Result<()> {
        self.add(&states[0], groups, None, total_groups);
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        Ok(self.take(emit_to))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.take(emit_to)])
    }

    fn convert_to_state(&self, values: &[ArrayRef], only: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let mut each = Self::new(self.end);
        let groups: Vec<usize> = (0..values[0].len()).collect();
        each.add(&values[0], &groups, only, groups.len());
        each.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<T::Native>() + self.has_value.capacity()
    }
}

/// The extreme of one group.
#[derive(Debug)]
struct ExtremeOfOne<T: ArrowPrimitiveType> {
    end: ExtremeEnd,
    value: Option<T::Native>,
}

impl<T: ArrowPrimitiveType + Debug> Accumulator for ExtremeOfOne<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in values[0].as_primitive::<T>().iter().flatten() {
            self.value = Some(self.value.map_or(value, |known| self.end.nearer(known, value)));
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut one = PrimitiveBuilder::<T>::with_capacity(1);
        one.append_option(self.value);
        ScalarValue::try_from_array(&one.finish(), 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// The extreme of the rows of a window.
#[derive(Debug)]
struct ExtremeInWindow<T: ArrowPrimitiveType> {
    end: ExtremeEnd,
    numbers: PhantomData<T::Native>,
}

impl<T: ArrowPrimitiveType> ExtremeInWindow<T> {
    fn new(end: ExtremeEnd) -> Self {
        Self { end, numbers: PhantomData }
    }
}

impl<T: ArrowPrimitiveType + Debug> WindowAggregate for ExtremeInWindow<T> {
    type Total = Option<T::Native>;

    fn rows(&self, values: &[ArrayRef]) -> Vec<Self::Total> {
        values[0].as_primitive::<T>().iter().collect()
    }

    fn join(&self, earlier: Self::Total, later: Self::Total) -> Self::Total {
        match (earlier, later) {
            (Some(known), Some(value)) => Some(self.end.nearer(known, value)),
            (known, value) => known.or(value),
        }
    }

    fn value(&self, total: Self::Total) -> Result<ScalarValue> {
        ExtremeOfOne::<T> { end: self.end, value: total }.evaluate()
    }
}

#[cfg(test)]
mod tests;
