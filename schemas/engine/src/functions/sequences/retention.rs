//! `retention(cond1, ..)`: which conditions hold for some event, of those for which the first holds for one.
//!
//! State: one `Int64`, the conditions that held for an event: bit n - 1 for condition n. NULL for no events.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, BooleanBuilder, Int64Array, ListBuilder};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature};

use super::arguments::{is_condition, names_of, refuse_distinct};
use super::{MAX_CONDITIONS, RETENTION, events};

/// `retention(cond1 [, cond2 ..]) -> BOOLEAN[]`: the first is whether an event holds condition 1; each other is whether
/// an event holds its condition and an event, maybe another, condition 1.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct RetentionFunction {
    pub(super) signature: Signature,
}

impl AggregateUDFImpl for RetentionFunction {
    fn name(&self) -> &str {
        RETENTION
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        if !(1..=MAX_CONDITIONS).contains(&arguments.len()) || !arguments.iter().all(is_condition) {
            return plan_err!("{RETENTION} was called with ({}): expected 1 to {MAX_CONDITIONS} conditions (BOOLEAN)", names_of(arguments));
        }
        Ok(vec![DataType::Boolean; arguments.len()])
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(Arc::new(Field::new_list_field(DataType::Boolean, true))))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(vec![Field::new(format_state_name(args.name, RETENTION), DataType::Int64, true).into()])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(OneGroupMasks(ConditionMasks::new(&args, 1)?)))
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs<'_>) -> bool {
        true
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(ConditionMasks::new(&args, 0)?))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// The conditions that held, of every group.
#[derive(Debug)]
struct ConditionMasks {
    conditions: usize,
    masks: Vec<Option<u32>>,
}

impl ConditionMasks {
    fn new(args: &AccumulatorArgs<'_>, groups: usize) -> Result<Self> {
        refuse_distinct(RETENTION, args)?;
        Ok(Self { conditions: args.exprs.len(), masks: vec![None; groups] })
    }

    fn update(&mut self, columns: &[ArrayRef], counts: impl Fn(usize) -> bool, group: impl Fn(usize) -> usize) -> Result<()> {
        let rows = columns.first().map_or(0, |column| column.len());
        for (row, mask) in events::masks(columns, rows)?.into_iter().enumerate().filter(|(row, _)| counts(*row)) {
            *self.masks[group(row)].get_or_insert_default() |= mask;
        }
        Ok(())
    }

    fn merge(&mut self, states: &[ArrayRef], group: impl Fn(usize) -> usize) -> Result<()> {
        let Some(states) = states.first().and_then(|state| state.as_primitive_opt::<Int64Type>()) else {
            return exec_err!("the state of {RETENTION} is no number");
        };
        for (row, mask) in states.iter().enumerate() {
            match mask.map(u32::try_from) {
                Some(Ok(mask)) => *self.masks[group(row)].get_or_insert_default() |= mask,
                Some(Err(_)) => return exec_err!("the state of {RETENTION} is {mask:?}: it is damaged"),
                None => {}
            }
        }
        Ok(())
    }

    fn values(&self, groups: usize) -> ArrayRef {
        let mut lists = ListBuilder::new(BooleanBuilder::new());
        for mask in self.masks[..groups].iter().map(|mask| mask.unwrap_or_default()) {
            for condition in 0..self.conditions {
                let wanted = 1 | (1 << condition);
                lists.values().append_value(mask & wanted == wanted);
            }
            lists.append(true);
        }
        Arc::new(lists.finish())
    }

    fn states(&self, groups: usize) -> ArrayRef {
        Arc::new(self.masks[..groups].iter().map(|mask| mask.map(i64::from)).collect::<Int64Array>())
    }

    fn groups_of(&self, emit_to: EmitTo) -> usize {
        match emit_to {
            EmitTo::All => self.masks.len(),
            EmitTo::First(groups) => groups,
        }
    }

    fn forget(&mut self, groups: usize) {
        if groups == self.masks.len() {
            self.masks = Vec::new();
        } else {
            self.masks.drain(..groups);
        }
    }

    fn held_bytes(&self) -> usize {
        size_of_val(self) + self.masks.capacity() * size_of::<Option<u32>>() + self.masks.len() * size_of::<i64>()
    }
}

impl GroupsAccumulator for ConditionMasks {
    fn update_batch(&mut self, columns: &[ArrayRef], groups: &[usize], only: Option<&BooleanArray>, total_groups: usize) -> Result<()> {
        self.masks.resize(total_groups, None);
        self.update(columns, |row| only.is_none_or(|only| only.is_valid(row) && only.value(row)), |row| groups[row])
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total_groups: usize) -> Result<()> {
        self.masks.resize(total_groups, None);
        self.merge(states, |row| groups[row])
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let groups = self.groups_of(emit_to);
        let values = self.values(groups);
        self.forget(groups);
        Ok(values)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let groups = self.groups_of(emit_to);
        let states = self.states(groups);
        self.forget(groups);
        Ok(vec![states])
    }

    fn convert_to_state(&self, columns: &[ArrayRef], only: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let rows = columns.first().map_or(0, |column| column.len());
        let groups: Vec<usize> = (0..rows).collect();
        let mut each = Self { conditions: self.conditions, masks: Vec::new() };
        each.update_batch(columns, &groups, only, rows)?;
        each.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        self.held_bytes()
    }
}

/// One group alone, which may be asked again and again.
#[derive(Debug)]
struct OneGroupMasks(ConditionMasks);

impl Accumulator for OneGroupMasks {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        self.0.update(columns, |_| true, |_| 0)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge(states, |_| 0)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::try_from_array(&self.0.values(1), 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::try_from_array(&self.0.states(1), 0)?])
    }

    fn size(&self) -> usize {
        self.0.held_bytes()
    }
}
