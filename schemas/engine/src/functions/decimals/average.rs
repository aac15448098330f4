//! `avg(x)` of decimals with the digits of a quotient. Its state is a count and a sum that never wraps around (see
//! [`sums`](crate::functions::sums)), or the set of values of DataFusion's own function.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal256Array, UInt64Array};
use arrow::datatypes::{DataType, Decimal256Type, Field, FieldRef, UInt64Type, i256};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, Signature};

use super::operands::{DIGITS, operand, operand_scale};
use super::{DecimalOperator, QUOTIENT};
use crate::functions::sliding::{DoublesInWindow, SlidingWindow};
use crate::functions::sums::wide::{self, Carried, Wide};
use types::Error;

/// DataFusion's `avg`, except that the average of decimals is a [`QUOTIENT`].
pub(crate) fn avg() -> AggregateUDF {
    AggregateUDF::from(Average { inner: avg_udaf() })
}

/// Whether it is the `avg(x)` of this file.
pub(crate) fn is_average(function: &AggregateUDF) -> bool {
    function.inner().is::<Average>()
}

/// The averages of groups, from sums of decimals with this many digits after the point.
pub(crate) fn averages_of_sums(sums: &[i256], counts: &[u64], scale: i8) -> Result<ArrayRef> {
    DecimalAverages::new(scale).values(sums, counts)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Average {
    inner: Arc<AggregateUDF>,
}

impl Average {
    /// Returns the arguments that DataFusion's function expects.
    fn inner_args<'a>(&self, args: AccumulatorArgs<'a>) -> Result<AccumulatorArgs<'a>> {
        let types: Vec<DataType> = args.expr_fields.iter().map(|field| field.data_type().clone()).collect();
        let return_field = Arc::new(Field::new(args.name, self.inner.return_type(&types)?, true));
        Ok(AccumulatorArgs { return_field, ..args })
    }
}

impl AggregateUDFImpl for Average {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [decimal] if operand_scale(decimal).is_some() => Ok(QUOTIENT),
            other => self.inner.return_type(other),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(match (decimal_of(args.expr_fields), args.is_distinct) {
            (Some(_), true) => Box::new(DistinctAverage { inner: self.inner.accumulator(self.inner_args(args)?)? }),
            (Some((DataType::Decimal256(..), scale)), false) => Box::new(DecimalAverages::<Carried>::new(scale)),
            (Some((_, scale)), false) => Box::new(DecimalAverages::<i256>::new(scale)),
            (None, _) => self.inner.accumulator(self.inner_args(args)?)?,
        })
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        if decimal_of(args.input_fields).is_none() || args.is_distinct {
            return self.inner.state_fields(args);
        }
        let mut fields = vec![Arc::new(Field::new(format_state_name(args.name, "count"), DataType::UInt64, true))];
        fields.extend(wide::state_fields(args.name, args.input_fields[0].data_type()));
        Ok(fields)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        let is_decimal = decimal_of(args.expr_fields).is_some();
        (is_decimal && !args.is_distinct) || self.inner_args(args).is_ok_and(|args| self.inner.groups_accumulator_supported(args))
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(match decimal_of(args.expr_fields) {
            Some((DataType::Decimal256(..), scale)) => Box::new(DecimalAverages::<Carried>::new(scale)),
            Some((_, scale)) => Box::new(DecimalAverages::<i256>::new(scale)),
            None => self.inner.create_groups_accumulator(self.inner_args(args)?)?,
        })
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match args.expr_fields.first().map(|field| field.data_type()) {
            Some(DataType::Float64) if !args.is_distinct => Ok(Box::new(SlidingWindow::new(DoublesInWindow::Average))),
            Some(decimal) if operand_scale(decimal).is_some() => self.accumulator(args),
            _ => self.inner.create_sliding_accumulator(self.inner_args(args)?),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }
}

/// Returns the type and the scale of the first input, if it is a decimal.
fn decimal_of(inputs: &[FieldRef]) -> Option<(DataType, i8)> {
    let data_type = inputs.first()?.data_type();
    operand_scale(data_type).map(|scale| (data_type.clone(), scale))
}

/// The averages of many groups.
#[derive(Debug)]
struct DecimalAverages<W> {
    sums: Vec<W>,
    counts: Vec<u64>,
    /// The type in which sums are divided.
    sum_type: DataType,
}

impl<W: Wide> DecimalAverages<W> {
    fn new(scale: i8) -> Self {
        Self { sums: Vec::new(), counts: Vec::new(), sum_type: DataType::Decimal256(DIGITS, scale) }
    }

    fn make_room(&mut self, groups: usize) {
        self.sums.resize(groups, W::default());
        self.counts.resize(groups, 0);
    }

    fn values(&self, sums: &[W], counts: &[u64]) -> Result<ArrayRef> {
        let present: Vec<Option<W>> = sums.iter().zip(counts).map(|(sum, count)| (*count > 0).then_some(*sum)).collect();
        let (sums, is_past) = W::narrowed(&present, &self.sum_type)?;
        if is_past.true_count() > 0 {
            return Err(Error::input("the sum of the values of avg() has more than 76 digits: expected an average of a DOUBLE").into());
        }
        let counts: ArrayRef = Arc::new(UInt64Array::from(counts.to_vec()));
        Ok(Arc::new(averages(&counts, &sums)?))
    }

    fn states(&self, sums: Vec<W>, counts: Vec<u64>) -> Result<Vec<ArrayRef>> {
        let nulls = wide::nulls_of(&counts);
        let mut fields: Vec<ArrayRef> = vec![Arc::new(UInt64Array::from(counts))];
        fields.extend(W::state(sums, nulls, &self.sum_type)?);
        Ok(fields)
    }
}

impl<W: Wide> GroupsAccumulator for DecimalAverages<W> {
    fn update_batch(&mut self, values: &[ArrayRef], groups: &[usize], only: Option<&BooleanArray>, total_groups: usize) -> Result<()> {
        self.make_room(total_groups);
        for (row, (value, group)) in W::of_values(&values[0])?.into_iter().zip(groups).enumerate() {
            if values[0].is_valid(row) && only.is_none_or(|only| only.is_valid(row) && only.value(row)) {
                self.sums[*group] = self.sums[*group].plus(value);
                self.counts[*group] += 1;
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total_groups: usize) -> Result<()> {
        self.make_room(total_groups);
        let Some((counts, sums)) = states.split_first() else { return exec_err!("the state of avg has no fields") };
        let counts = counts.as_primitive::<UInt64Type>();
        for (row, (sum, group)) in W::of_state(sums)?.into_iter().zip(groups).enumerate() {
            if counts.is_valid(row) && counts.value(row) > 0 {
                self.sums[*group] = self.sums[*group].plus(sum);
                self.counts[*group] += counts.value(row);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (sums, counts) = (emit_to.take_needed(&mut self.sums), emit_to.take_needed(&mut self.counts));
        self.values(&sums, &counts)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (sums, counts) = (emit_to.take_needed(&mut self.sums), emit_to.take_needed(&mut self.counts));
        self.states(sums, counts)
    }

    fn convert_to_state(&self, values: &[ArrayRef], only: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let mut each = Self { sums: Vec::new(), counts: Vec::new(), sum_type: self.sum_type.clone() };
        let groups: Vec<usize> = (0..values[0].len()).collect();
        GroupsAccumulator::update_batch(&mut each, values, &groups, only, groups.len())?;
        GroupsAccumulator::state(&mut each, EmitTo::All)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.sums.capacity() * size_of::<W>() + self.counts.capacity() * size_of::<u64>()
    }
}

/// One group alone, which may be asked again and again.
impl<W: Wide> Accumulator for DecimalAverages<W> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        GroupsAccumulator::update_batch(self, values, &vec![0; values[0].len()], None, 1)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        GroupsAccumulator::merge_batch(self, states, &vec![0; states[0].len()], 1)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.make_room(1);
        ScalarValue::try_from_array(&self.values(&self.sums, &self.counts)?, 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.make_room(1);
        self.states(self.sums.clone(), self.counts.clone())?.iter().map(|field| ScalarValue::try_from_array(field, 0)).collect()
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for (row, value) in W::of_values(&values[0])?.into_iter().enumerate() {
            if values[0].is_valid(row) {
                self.sums[0] = self.sums[0].minus(value);
                self.counts[0] -= 1;
            }
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn size(&self) -> usize {
        GroupsAccumulator::size(self)
    }
}

/// `avg(DISTINCT x)`: DataFusion's set of values.
#[derive(Debug)]
struct DistinctAverage {
    inner: Box<dyn Accumulator>,
}

impl Accumulator for DistinctAverage {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        match self.inner.state()?.as_slice() {
            [ScalarValue::List(distinct)] => ScalarValue::try_from_array(&average_of(&distinct.value(0))?, 0),
            other => exec_err!("avg(DISTINCT ..) has a state of {} values: expected a list", other.len()),
        }
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}

/// NULL where nothing was counted.
fn averages(counts: &ArrayRef, sums: &ArrayRef) -> Result<Decimal256Array> {
    let counts: &UInt64Array = counts.as_primitive::<UInt64Type>();
    let divisors: Decimal256Array = counts.unary_opt::<_, Decimal256Type>(|count| (count > 0).then(|| i256::from_i128(count.into())));
    DecimalOperator::Divide.compute(operand(sums)?, (divisors, 0))
}

fn average_of(values: &ArrayRef) -> Result<Decimal256Array> {
    let (values, scale) = operand(values)?;
    let mut sum = i256::ZERO;
    for value in values.iter().flatten() {
        match sum.checked_add(value) {
            Some(more) => sum = more,
            None => return exec_err!("the sum of the values of avg(DISTINCT ..) has more than 76 digits"),
        }
    }
    let count = values.iter().flatten().count() as i128;
    let divisor = (count > 0).then(|| i256::from_i128(count));
    DecimalOperator::Divide.compute((Decimal256Array::from(vec![sum]), scale), (Decimal256Array::from(vec![divisor]), 0))
}

#[cfg(test)]
mod tests;
