//! Aggregates that collect values (`count(DISTINCT x)`, `array_agg`, `median` ..) up to a limit. A state that is larger
//! is replaced by a mark: neither memory nor files grow with it.
//!
//! ```text
//! state: the aggregate's own lists, then one BOOLEAN; true: the state was past the limit, and its lists are empty
//!        (of aggregates of sequences a Binary, which is NULL)
//! value: a struct of the aggregate's own value and a flaw
//! ```
//!
//! A mark stays a mark whatever it is merged with. A state's size only grows as it is merged ([`state_bytes`]). So a
//! value is past the limit exactly if its merged state would be, however events were batched, merged and rolled up.
//!
//! [`state_bytes`]: super::state_bytes

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, BooleanBufferBuilder, ListArray};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{filter, nullif};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, Expr, GroupsAccumulator, ReversedUDAF, Signature};

use super::judged::{Flaw, is_judged, judged, judged_again, judged_type};
pub(crate) use super::sequences::keeps_events;
use super::sequences::keeps_times;
use super::state_bytes::row_bytes;

/// Aggregates that keep every value, also without DISTINCT.
const KEEP_EVERY_VALUE: [&str; 4] = ["array_agg", "string_agg", "median", "percentile_cont"];
/// Aggregates whose states have lists of a bounded number of values.
const BOUNDED: [&str; 7] = ["min", "max", "first_value", "last_value", "nth_value", "last_n", "top_k"];
/// Names the field of the mark.
const MARK: &str = "past";

/// Whether an aggregate with these state fields collects values without bound.
pub(crate) fn collects(function: &str, distinct: bool, fields: &[FieldRef]) -> bool {
    if let [state] = fields
        && keeps_events(function)
        && *state.data_type() == DataType::Binary
    {
        return true;
    }
    let all_lists = fields.iter().all(|field| matches!(field.data_type(), DataType::List(_)));
    all_lists && (KEEP_EVERY_VALUE.contains(&function) || (distinct && !BOUNDED.contains(&function)))
}

/// Whether a field of a state row is such a mark.
pub(crate) fn is_limit_mark(field: &Field) -> bool {
    *field.data_type() == DataType::Boolean && field.name().ends_with(&format_state_name("", MARK))
}

/// Limits the states of an aggregate that [`collects`] values.
pub(crate) fn limited(call: Expr, limit_bytes: u64) -> Expr {
    match call {
        Expr::AggregateFunction(AggregateFunction { func, params }) => {
            let func = Arc::new(AggregateUDF::from(Limited { inner: func, limit_bytes }));
            Expr::AggregateFunction(AggregateFunction { func, params })
        }
        other => other,
    }
}

/// What [`limited`] limits, and to which size.
pub(super) fn limited_function(function: &AggregateUDF) -> Option<(&AggregateUDF, u64)> {
    function.inner().downcast_ref::<Limited>().map(|limited| (&*limited.inner, limited.limit_bytes))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Limited {
    inner: Arc<AggregateUDF>,
    limit_bytes: u64,
}

impl Limited {
    /// The field of the aggregate's own value.
    fn inner_field(&self, inputs: &[FieldRef]) -> Result<FieldRef> {
        self.inner.return_field(inputs)
    }

    /// Whether the same value counts once.
    fn is_set(&self, args: &AccumulatorArgs<'_>) -> bool {
        args.is_distinct || keeps_times(self.inner.name())
    }

    fn inner_args<'a>(&self, args: &AccumulatorArgs<'a>) -> Result<AccumulatorArgs<'a>> {
        Ok(AccumulatorArgs { return_field: self.inner_field(args.expr_fields)?, ..args.clone() })
    }
}

impl AggregateUDFImpl for Limited {
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
        Ok(with_flaw_type(&self.inner.return_type(arguments)?))
    }

    fn return_field(&self, inputs: &[FieldRef]) -> Result<FieldRef> {
        let inner = self.inner_field(inputs)?;
        Ok(Arc::new(Field::new(inner.name(), with_flaw_type(inner.data_type()), true)))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let mark = Arc::new(Field::new(format_state_name(args.name, MARK), DataType::Boolean, true));
        let mut fields = self.inner.state_fields(StateFieldsArgs { return_field: self.inner_field(args.input_fields)?, ..args })?;
        fields.push(mark);
        Ok(fields)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let args = self.inner_args(&args)?;
        let again = if self.is_set(&args) { Some(self.inner.accumulator(args.clone())?) } else { None };
        let inner = self.inner.accumulator(args)?;
        Ok(Box::new(LimitedState { inner, again, limit_bytes: self.limit_bytes, bytes: 0, is_past: false, has_events: false }))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.inner_args(&args).is_ok_and(|args| self.inner.groups_accumulator_supported(args))
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        let args = self.inner_args(&args)?;
        Ok(Box::new(LimitedStates {
            is_set: self.is_set(&args),
            again: self.inner.create_groups_accumulator(args.clone())?,
            inner: self.inner.create_groups_accumulator(args)?,
            limit_bytes: self.limit_bytes,
            bytes: Vec::new(),
            is_past: Vec::new(),
            has_events: false,
        }))
    }

    fn with_beneficial_ordering(self: Arc<Self>, beneficial: bool) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        let ordered = AggregateUDF::clone(&self.inner).with_beneficial_ordering(beneficial)?;
        Ok(ordered.map(|inner| Arc::new(Limited { inner: Arc::new(inner), limit_bytes: self.limit_bytes }) as Arc<dyn AggregateUDFImpl>))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.inner.reverse_udf() {
            ReversedUDAF::Identical => ReversedUDAF::Identical,
            _ => ReversedUDAF::NotSupported,
        }
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.inner.supports_null_handling_clause()
    }

    fn supports_within_group_clause(&self) -> bool {
        self.inner.supports_within_group_clause()
    }
}

/// The states of many groups.
struct LimitedStates {
    inner: Box<dyn GroupsAccumulator>,
    /// Evaluates what had to be taken out of `inner` to be measured.
    again: Box<dyn GroupsAccumulator>,
    limit_bytes: u64,
    /// What was merged into each group. Its state is as large, or smaller if it is a set.
    bytes: Vec<u64>,
    is_past: Vec<bool>,
    is_set: bool,
    /// Events were taken in, whose bytes were not counted.
    has_events: bool,
}

impl LimitedStates {
    /// The aggregate's own state of the first groups, without the lists of those past the limit; and which are.
    fn take_states(&mut self, emit_to: EmitTo) -> Result<(Vec<ArrayRef>, BooleanArray)> {
        let fields = self.inner.state(emit_to)?;
        let sizes = row_bytes(&fields);
        self.bytes.drain(..sizes.len());
        let is_past = self.is_past.drain(..sizes.len()).zip(&sizes).map(|(is_past, bytes)| Some(is_past || *bytes > self.limit_bytes));
        let is_past: BooleanArray = is_past.collect();
        let fields = fields.iter().map(|field| emptied(field, &is_past)).collect::<Result<_>>()?;
        Ok((fields, is_past))
    }

    /// Whether a group may or may not be past the limit: its state has to be measured.
    fn must_measure(&self) -> bool {
        self.has_events
            || (self.is_set && self.bytes.iter().zip(&self.is_past).any(|(bytes, is_past)| !is_past && *bytes > self.limit_bytes))
    }
}

impl GroupsAccumulator for LimitedStates {
    fn update_batch(&mut self, values: &[ArrayRef], groups: &[usize], only: Option<&BooleanArray>, total_groups: usize) -> Result<()> {
        self.bytes.resize(total_groups, 0);
        self.is_past.resize(total_groups, false);
        self.has_events = true;
        self.inner.update_batch(values, groups, only, total_groups)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total_groups: usize) -> Result<()> {
        let Some((mark, fields)) = states.split_last() else { return exec_err!("a limited state has no fields") };
        let before = self.is_past.len();
        self.bytes.resize(total_groups, 0);
        self.is_past.resize(total_groups, false);
        let marks = mark.as_boolean();
        let mut taken: Vec<bool> = Vec::with_capacity(groups.len());
        for ((row, group), bytes) in groups.iter().enumerate().zip(row_bytes(fields)) {
            // A group must have been seen by the accumulator, which numbers them.
            taken.push(*group >= before || !self.is_past[*group]);
            self.bytes[*group] += bytes;
            let larger = if self.is_set { bytes } else { self.bytes[*group] };
            self.is_past[*group] |= (marks.is_valid(row) && marks.value(row)) || larger > self.limit_bytes;
        }
        if taken.iter().all(|taken| *taken) {
            return self.inner.merge_batch(fields, groups, total_groups);
        }
        let only = BooleanArray::from(taken);
        let fields = fields.iter().map(|field| Ok(filter(field, &only)?)).collect::<Result<Vec<_>>>()?;
        let groups: Vec<usize> = groups.iter().zip(only.values()).filter(|(_, taken)| *taken).map(|(group, _)| *group).collect();
        self.inner.merge_batch(&fields, &groups, total_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (values, is_past) = match self.must_measure() {
            true => {
                let (fields, is_past) = self.take_states(emit_to)?;
                let groups: Vec<usize> = (0..is_past.len()).collect();
                self.again.merge_batch(&fields, &groups, groups.len())?;
                (self.again.evaluate(EmitTo::All)?, is_past)
            }
            false => {
                let values = self.inner.evaluate(emit_to)?;
                self.bytes.drain(..values.len());
                (values.clone(), self.is_past.drain(..values.len()).map(Some).collect())
            }
        };
        with_flaw(&values, &is_past)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (mut fields, is_past) = self.take_states(emit_to)?;
        fields.push(Arc::new(is_past));
        Ok(fields)
    }

    fn convert_to_state(&self, values: &[ArrayRef], only: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let mut fields = self.inner.convert_to_state(values, only)?;
        let is_past: BooleanArray = row_bytes(&fields).iter().map(|bytes| Some(*bytes > self.limit_bytes)).collect();
        for field in &mut fields {
            *field = emptied(field, &is_past)?;
        }
        fields.push(Arc::new(is_past));
        Ok(fields)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size() + self.bytes.capacity() * size_of::<u64>() + self.is_past.capacity()
    }
}

impl fmt::Debug for LimitedStates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LimitedStates({} groups)", self.is_past.len())
    }
}

/// The state of one group.
#[derive(Debug)]
struct LimitedState {
    inner: Box<dyn Accumulator>,
    /// For sets: evaluates what had to be taken out of `inner` to be measured.
    again: Option<Box<dyn Accumulator>>,
    limit_bytes: u64,
    /// What was merged. The state is as large, or smaller if it is a set.
    bytes: u64,
    is_past: bool,
    has_events: bool,
}

impl LimitedState {
    /// The aggregate's own state, without its lists if it is past the limit.
    fn take_state(&mut self) -> Result<Vec<ArrayRef>> {
        let fields = self.inner.state()?.iter().map(ScalarValue::to_array).collect::<Result<Vec<_>>>()?;
        self.is_past |= row_bytes(&fields).iter().any(|bytes| *bytes > self.limit_bytes);
        let is_past = BooleanArray::from(vec![self.is_past]);
        fields.iter().map(|field| emptied(field, &is_past)).collect()
    }
}

impl Accumulator for LimitedState {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.has_events = true;
        self.inner.update_batch(values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let Some((mark, fields)) = states.split_last() else { return exec_err!("a limited state has no fields") };
        self.is_past |= mark.as_boolean().iter().any(|mark| mark == Some(true));
        for bytes in row_bytes(fields) {
            self.bytes += bytes;
            let larger = if self.again.is_some() { bytes } else { self.bytes };
            self.is_past |= larger > self.limit_bytes;
        }
        if self.is_past { Ok(()) } else { self.inner.merge_batch(fields) }
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let is_certain = self.is_past || (!self.has_events && self.bytes <= self.limit_bytes);
        let value = match self.again.take() {
            _ if is_certain => self.inner.evaluate()?,
            Some(mut again) => {
                again.merge_batch(&self.take_state()?)?;
                again.evaluate()?
            }
            None => return exec_err!("a limited state is evaluated that was not merged"),
        };
        ScalarValue::try_from_array(&with_flaw(&value.to_array()?, &BooleanArray::from(vec![self.is_past]))?, 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let fields = self.take_state()?;
        let fields = fields.iter().map(|field| ScalarValue::try_from_array(field, 0));
        fields.chain([Ok(ScalarValue::Boolean(Some(self.is_past)))]).collect()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size() + self.again.as_ref().map_or(0, |again| again.size())
    }
}

/// The type of the values of an aggregate, which may have flaws of its own.
fn with_flaw_type(inner: &DataType) -> DataType {
    if is_judged(inner) { inner.clone() } else { judged_type(inner) }
}

fn with_flaw(values: &ArrayRef, is_past: &BooleanArray) -> Result<ArrayRef> {
    match is_judged(values.data_type()) {
        true => judged_again(values, is_past, Flaw::StateTooLarge),
        false => judged(values, is_past, Flaw::StateTooLarge),
    }
}

/// Returns a field with empty lists where the state is past the limit.
fn emptied(field: &ArrayRef, is_past: &BooleanArray) -> Result<ArrayRef> {
    if is_past.true_count() == 0 {
        return Ok(field.clone());
    }
    if *field.data_type() == DataType::Binary {
        return Ok(nullif(field, is_past)?);
    }
    let Some(lists) = field.as_list_opt::<i32>() else { return Ok(field.clone()) };
    let offsets = lists.value_offsets();
    // Of a slice of a layer the lists hold few of the layer's values.
    let (first, end) = (offsets[0] as usize, offsets[lists.len()] as usize);
    let values = lists.values().slice(first, end - first);
    let mut lengths = Vec::with_capacity(lists.len());
    let mut kept = BooleanBufferBuilder::new(values.len());
    for row in 0..lists.len() {
        let (length, is_kept) = ((offsets[row + 1] - offsets[row]) as usize, !is_past.value(row) && lists.is_valid(row));
        lengths.push(if is_kept { length } else { 0 });
        kept.append_n(length, is_kept);
    }
    let values = filter(&values, &BooleanArray::new(kept.finish(), None))?;
    let DataType::List(item) = lists.data_type() else { return exec_err!("a list is a {}", lists.data_type()) };
    Ok(Arc::new(ListArray::try_new(item.clone(), OffsetBuffer::from_lengths(lengths), values, lists.nulls().cloned())?))
}

#[cfg(test)]
mod tests;
