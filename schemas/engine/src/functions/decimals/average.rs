//! `avg(x)` of decimals with the digits of a quotient. The states are those of DataFusion's own function, a sum and a
//! count or a set of values; only what they evaluate to has more digits.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, Decimal256Array, UInt64Array};
use arrow::datatypes::{DataType, Decimal256Type, Field, FieldRef, UInt64Type, i256};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, Signature};

use super::{DecimalOperator, QUOTIENT, operand, operand_scale};

/// DataFusion's `avg`, except that the average of decimals is a [`QUOTIENT`].
pub(crate) fn avg() -> AggregateUDF {
    AggregateUDF::from(Average { inner: avg_udaf() })
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
        let is_decimal = operand_scale(args.expr_fields[0].data_type()).is_some();
        let inner = self.inner.accumulator(self.inner_args(args)?)?;
        Ok(if is_decimal { Box::new(DecimalAverage { inner }) } else { inner })
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.inner_args(args).is_ok_and(|args| self.inner.groups_accumulator_supported(args))
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        let is_decimal = operand_scale(args.expr_fields[0].data_type()).is_some();
        let inner = self.inner.create_groups_accumulator(self.inner_args(args)?)?;
        Ok(if is_decimal { Box::new(DecimalAverages { inner }) } else { inner })
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }
}

#[derive(Debug)]
struct DecimalAverage {
    inner: Box<dyn Accumulator>,
}

impl Accumulator for DecimalAverage {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let average = match self.inner.state()?.as_slice() {
            [count, sum] => averages(&count.to_array()?, &sum.to_array()?)?,
            [ScalarValue::List(distinct)] => average_of(&distinct.value(0))?,
            other => return exec_err!("avg has a state of {} values: expected a sum and a count, or a list", other.len()),
        };
        ScalarValue::try_from_array(&average, 0)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}

struct DecimalAverages {
    inner: Box<dyn GroupsAccumulator>,
}

impl fmt::Debug for DecimalAverages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DecimalAverages")
    }
}

impl GroupsAccumulator for DecimalAverages {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.inner.update_batch(values, group_indices, opt_filter, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        match self.inner.state(emit_to)?.as_slice() {
            [counts, sums] => Ok(Arc::new(averages(counts, sums)?)),
            other => exec_err!("avg has a state of {} columns: expected counts and sums", other.len()),
        }
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.inner.state(emit_to)
    }

    fn merge_batch(&mut self, values: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> Result<()> {
        self.inner.merge_batch(values, group_indices, total_num_groups)
    }

    fn convert_to_state(&self, values: &[ArrayRef], opt_filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.inner.convert_to_state(values, opt_filter)
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
