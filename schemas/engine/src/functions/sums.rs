//! `sum(x)` of whole numbers and decimals that never wraps around. DataFusion's adds in the type of the result, where
//! nine quintillion and one are minus nine quintillion.
//!
//! The sum is kept in a wider type, in which it is exact in every order: a sum that leaves the range of its type and
//! comes back is right, and one that ends outside is an error, however events were batched.
//!
//! | x | state | result |
//! | --- | --- | --- |
//! | BIGINT, a length of time | `Decimal128(38, 0)` | x's type |
//! | DECIMAL up to 19 digits | DataFusion's: 128 bits hold ten quintillion of them | DataFusion's |
//! | DECIMAL of 20 to 38 digits, scale s | `Decimal256(76, s)` | DataFusion's |
//! | a quotient or product of decimals | `Decimal256(76, s)` and `Int64`, its carries | DataFusion's |
//! | DOUBLE and others | DataFusion's | DataFusion's |

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, new_null_array};
use arrow::datatypes::{DataType, Field, FieldRef, i256};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, Expr, GroupsAccumulator, ReversedUDAF, Signature};
use types::Error;
use types::sql_types::sql_name;

use super::judged::{Flaw, judged, judged_as, judged_type};
use super::sliding::{DoublesInWindow, SlidingWindow};
use wide::{Carried, Wide, nulls_of};

pub(crate) mod wide;

/// What is answered for a sum that its type does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum OnPast {
    /// The query fails.
    Fail,
    /// NULL.
    Null,
    /// Sums come with flaws.
    Judge,
    /// Whether it is one, instead of the sum.
    Ask,
}

/// `sum(x)`, as queries call it: past its type it fails.
pub(crate) fn sum() -> AggregateUDF {
    Sum::function("sum", OnPast::Fail)
}

/// `sum(x)` that is NULL past its type, and a function that says where it is: for `verify`.
pub fn sums_to_verify(name_of_question: &'static str) -> [AggregateUDF; 2] {
    [Sum::function("sum", OnPast::Null), Sum::function(name_of_question, OnPast::Ask)]
}

/// In a view a sum comes with its flaw. Returns `None` for other calls, and for sums that cannot be past their type.
pub(crate) fn judged_sum(call: &Expr, state: &[FieldRef]) -> Option<Expr> {
    let Expr::AggregateFunction(AggregateFunction { func, params }) = call else { return None };
    let is_exact = match state.first().map(|field| field.data_type()) {
        Some(DataType::List(item)) => is_exact(item.data_type()),
        Some(other) => is_exact(other),
        None => false,
    };
    (is_exact && func.inner().is::<Sum>()).then(|| {
        let func = Arc::new(Sum::function("sum", OnPast::Judge));
        Expr::AggregateFunction(AggregateFunction { func, params: params.clone() })
    })
}

/// Whether it is the `sum(x)` of this file.
pub(super) fn is_sum(function: &AggregateUDF) -> bool {
    function.inner().is::<Sum>()
}

/// Sums with their flaws, as the accumulators of a [`judged_sum`] return them in this type. `None`: nothing was summed
/// up.
pub(super) fn judged_sums<W: Wide>(sums: &[Option<W>], data_type: &DataType) -> Result<ArrayRef> {
    let DataType::Struct(fields) = data_type else { return exec_err!("found {data_type}, expected sums with flaws") };
    let (values, is_past) = W::narrowed(sums, fields[0].data_type())?;
    judged_as(fields.clone(), &values, &is_past, Flaw::SumTooLarge)
}

/// The types of a state in the format before, which DataFusion's own functions kept.
pub(crate) fn types_before(function: &str, fields: &[FieldRef], sum_type: &DataType) -> Option<Vec<DataType>> {
    let types: Vec<DataType> = fields.iter().map(|field| field.data_type().clone()).collect();
    match (function, types.as_slice()) {
        ("sum", [DataType::Decimal128(38, 0)] | [DataType::Decimal256(..), ..]) => Some(vec![sum_type.clone()]),
        // Up to 38 digits, as far as states are kept of decimals of no more.
        ("avg", [DataType::UInt64, DataType::Decimal256(_, scale)]) => Some(vec![DataType::UInt64, DataType::Decimal128(38, *scale)]),
        ("avg", [DataType::UInt64, sum @ DataType::Decimal256(..), DataType::Int64]) => Some(vec![DataType::UInt64, sum.clone()]),
        _ => None,
    }
}

/// DataFusion's sum of a decimal with p digits has p + 10 digits. A sum of at most 29 digits is kept in 128 bits: it
/// takes more than ten quintillion values to overflow them.
const NEVER_PAST_128_BITS: u8 = 29;

/// Whether a sum of this type is kept wider than its type, and can be past it.
fn is_exact(data_type: &DataType) -> bool {
    if let DataType::Decimal128(digits, _) = data_type {
        return *digits > NEVER_PAST_128_BITS;
    }
    data_type.is_decimal() || matches!(data_type, DataType::Int64 | DataType::UInt64 | DataType::Duration(_))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sum {
    name: &'static str,
    inner: Arc<AggregateUDF>,
    on_past: OnPast,
}

impl Sum {
    fn function(name: &'static str, on_past: OnPast) -> AggregateUDF {
        AggregateUDF::from(Sum { name, inner: sum_udaf(), on_past })
    }

    /// The type of the sum itself.
    fn sum_type(&self, inputs: &[FieldRef]) -> Result<DataType> {
        self.inner.return_type(&inputs.iter().map(|input| input.data_type().clone()).collect::<Vec<_>>())
    }

    fn inner_args<'a>(&self, args: AccumulatorArgs<'a>) -> Result<AccumulatorArgs<'a>> {
        let return_field = Arc::new(Field::new(args.name, self.sum_type(args.expr_fields)?, true));
        Ok(AccumulatorArgs { return_field, ..args })
    }

    fn finish(&self, args: &AccumulatorArgs<'_>) -> Result<Finish> {
        Ok(Finish { sum_type: self.sum_type(args.expr_fields)?, on_past: self.on_past })
    }

    fn groups(&self, args: &AccumulatorArgs<'_>) -> Result<Box<dyn SumsOfGroups>> {
        let finish = self.finish(args)?;
        Ok(match args.expr_fields[0].data_type() {
            DataType::Decimal256(..) => Box::new(Sums::<Carried>::new(finish)),
            decimal if decimal.is_decimal() => Box::new(Sums::<i256>::new(finish)),
            _ => Box::new(Sums::<i128>::new(finish)),
        })
    }
}

impl AggregateUDFImpl for Sum {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let sum = self.inner.return_type(arguments)?;
        Ok(match self.on_past {
            OnPast::Fail | OnPast::Null => sum,
            OnPast::Judge => judged_type(&sum),
            OnPast::Ask => DataType::Boolean,
        })
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let data_type = self.sum_type(args.input_fields)?;
        let is_answered = self.on_past == OnPast::Ask && !is_exact(&data_type);
        if !is_answered && (args.is_distinct || !is_exact(&data_type)) {
            let return_field = Arc::new(Field::new(args.name, data_type, true));
            return self.inner.state_fields(StateFieldsArgs { return_field, ..args });
        }
        Ok(wide::state_fields(args.name, args.input_fields[0].data_type()))
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let finish = self.finish(&args)?;
        if args.is_distinct && is_exact(&finish.sum_type) {
            return Ok(Box::new(DistinctSum { inner: self.inner.accumulator(self.inner_args(args)?)?, finish }));
        }
        match is_exact(&finish.sum_type) || self.on_past == OnPast::Ask {
            true => Ok(Box::new(OneSum(self.groups(&args)?))),
            false => self.inner.accumulator(self.inner_args(args)?),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match (args.is_distinct, self.sum_type(args.expr_fields)?) {
            (false, DataType::Float64) => Ok(Box::new(SlidingWindow::new(DoublesInWindow::Sum))),
            (false, sum_type) if is_exact(&sum_type) => self.accumulator(args),
            _ => self.inner.create_sliding_accumulator(self.inner_args(args)?),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        match is_exact(&self.sum_type(args.expr_fields)?) || self.on_past == OnPast::Ask {
            true => Ok(self.groups(&args)?.boxed()),
            false => self.inner.create_groups_accumulator(self.inner_args(args)?),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }
}

/// How sums become values.
#[derive(Debug, Clone)]
pub(super) struct Finish {
    sum_type: DataType,
    on_past: OnPast,
}

impl Finish {
    fn values<W: Wide>(&self, sums: &[Option<W>]) -> Result<ArrayRef> {
        let (values, is_past) = if is_exact(&self.sum_type) {
            W::narrowed(sums, &self.sum_type)?
        } else {
            (new_null_array(&self.sum_type, sums.len()), BooleanArray::from(vec![false; sums.len()]))
        };
        match self.on_past {
            OnPast::Fail if is_past.true_count() > 0 => Err(Error::input(format!(
                "a sum is past the range of {}: expected a sum of values cast to a DECIMAL of more digits, or to DOUBLE",
                sql_name(&self.sum_type)
            ))
            .into()),
            OnPast::Fail | OnPast::Null => Ok(values),
            OnPast::Judge => judged(&values, &is_past, Flaw::SumTooLarge),
            OnPast::Ask => Ok(Arc::new(is_past)),
        }
    }
}

/// The sums of many groups.
#[derive(Debug)]
pub(super) struct Sums<W> {
    sums: Vec<W>,
    /// How many values each is the sum of.
    counts: Vec<u64>,
    finish: Finish,
}

impl<W: Wide> Sums<W> {
    fn new(finish: Finish) -> Self {
        Self { sums: Vec::new(), counts: Vec::new(), finish }
    }

    /// Adds these rows, each with its group.
    fn add(&mut self, values: &[W], is_valid: impl Fn(usize) -> bool, groups: &[usize], groups_in_all: usize) {
        self.sums.resize(groups_in_all, W::default());
        self.counts.resize(groups_in_all, 0);
        for (row, (group, value)) in groups.iter().zip(values).enumerate() {
            if is_valid(row) {
                self.sums[*group] = self.sums[*group].plus(*value);
                self.counts[*group] += 1;
            }
        }
    }

    fn take(&mut self, emit_to: EmitTo) -> Vec<Option<W>> {
        let (sums, counts) = (emit_to.take_needed(&mut self.sums), emit_to.take_needed(&mut self.counts));
        sums.into_iter().zip(counts).map(|(sum, count)| (count > 0).then_some(sum)).collect()
    }
}

impl<W: Wide> GroupsAccumulator for Sums<W> {
    fn update_batch(&mut self, values: &[ArrayRef], groups: &[usize], only: Option<&BooleanArray>, total_groups: usize) -> Result<()> {
        let nulls = values[0].logical_nulls();
        let is_valid = |row: usize| {
            nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) && only.is_none_or(|only| only.is_valid(row) && only.value(row))
        };
        self.add(&W::of_values(&values[0])?, is_valid, groups, total_groups);
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total_groups: usize) -> Result<()> {
        self.add(&W::of_state(states)?, |row| states[0].is_valid(row), groups, total_groups);
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = self.take(emit_to);
        self.finish.values(&sums)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (sums, counts) = (emit_to.take_needed(&mut self.sums), emit_to.take_needed(&mut self.counts));
        W::state(sums, nulls_of(&counts), &self.finish.sum_type)
    }

    fn convert_to_state(&self, values: &[ArrayRef], only: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let mut each = Sums::<W>::new(self.finish.clone());
        let groups: Vec<usize> = (0..values[0].len()).collect();
        each.update_batch(values, &groups, only, groups.len())?;
        each.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.sums.capacity() * size_of::<W>() + self.counts.capacity() * size_of::<u64>()
    }
}

/// [`Sums`] of any width.
trait SumsOfGroups: GroupsAccumulator + fmt::Debug + Sync {
    /// The value and the state of the only group, which stays.
    fn value_of_one(&self) -> Result<ArrayRef>;
    fn state_of_one(&self) -> Result<Vec<ArrayRef>>;
    fn add_to_one(&mut self, values: &ArrayRef) -> Result<()>;
    fn retract(&mut self, values: &ArrayRef) -> Result<()>;
    fn boxed(self: Box<Self>) -> Box<dyn GroupsAccumulator>;
}

impl<W: Wide> SumsOfGroups for Sums<W> {
    fn value_of_one(&self) -> Result<ArrayRef> {
        self.finish.values(&[self.one()])
    }

    fn state_of_one(&self) -> Result<Vec<ArrayRef>> {
        let one = self.one();
        W::state(vec![one.unwrap_or_default()], nulls_of(&[u64::from(one.is_some())]), &self.finish.sum_type)
    }

    fn add_to_one(&mut self, values: &ArrayRef) -> Result<()> {
        self.sums.resize(1, W::default());
        self.counts.resize(1, 0);
        if let Some(total) = W::total(values)? {
            self.sums[0] = self.sums[0].plus(total);
            self.counts[0] += (values.len() - values.null_count()) as u64;
        }
        Ok(())
    }

    fn retract(&mut self, values: &ArrayRef) -> Result<()> {
        let nulls = values.logical_nulls();
        for (row, value) in W::of_values(values)?.into_iter().enumerate() {
            if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                self.sums[0] = self.sums[0].minus(value);
                self.counts[0] -= 1;
            }
        }
        Ok(())
    }

    fn boxed(self: Box<Self>) -> Box<dyn GroupsAccumulator> {
        self
    }
}

impl<W: Wide> Sums<W> {
    fn one(&self) -> Option<W> {
        self.sums.first().copied().filter(|_| self.counts[0] > 0)
    }
}

/// The sum of one group.
#[derive(Debug)]
struct OneSum(Box<dyn SumsOfGroups>);

impl Accumulator for OneSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.add_to_one(&values[0])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states, &vec![0; states[0].len()], 1)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::try_from_array(&self.0.value_of_one()?, 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.state_of_one()?.iter().map(|field| ScalarValue::try_from_array(field, 0)).collect()
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.retract(&values[0])
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}

/// `sum(DISTINCT x)`: DataFusion's set of values, summed up here.
#[derive(Debug)]
struct DistinctSum {
    inner: Box<dyn Accumulator>,
    finish: Finish,
}

impl Accumulator for DistinctSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let state = self.inner.state()?;
        let Some(ScalarValue::List(list)) = state.first() else { return exec_err!("the state of sum(DISTINCT ..) is not a list") };
        let values = list.values();
        let value = match values.data_type() {
            DataType::Decimal256(..) => self.finish.values(&[Carried::total(values)?])?,
            decimal if decimal.is_decimal() => self.finish.values(&[<i256 as Wide>::total(values)?])?,
            _ => self.finish.values(&[<i128 as Wide>::total(values)?])?,
        };
        ScalarValue::try_from_array(&value, 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}

#[cfg(test)]
mod tests;
