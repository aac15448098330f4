//! `last_n(x, n)`: the last n values, newest first.

use std::cmp::Ordering;
use std::mem::{size_of, size_of_val};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StructArray};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::utils::{SingleRowListArrayBuilder, compare_rows, get_row_at_idx};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};

use super::calls::checked_bound;

pub(crate) const LAST_N: &str = "last_n";
/// The greatest `n`.
pub(crate) const LAST_N_MAX: usize = 1000;

/// `last_n(x, n [ORDER BY ..]) -> LIST<x>`: the last `n` values in the order of its ORDER BY, the very last first.
///
/// In a view the planner appends event time, source, partition and offset to the ORDER BY. Without an ORDER BY the
/// values are therefore the newest, newest first. NULLs are values, unless `IGNORE NULLS` is given. Without rows the
/// result is NULL. `n` is a literal from 1 to 1000.
///
/// State: one `List<Struct<value, order_0, order_1, ..>>` of at most `n` rows, newest first; NULL for no rows. The
/// result depends only on the set of rows, not on the order in which they arrive and are merged. Rows of equal order
/// are distinguished by their values, except for lists and structs.
pub fn last_n() -> AggregateUDF {
    AggregateUDF::from(LastN { signature: Signature::any(2, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct LastN {
    signature: Signature,
}

impl AggregateUDFImpl for LastN {
    fn name(&self) -> &str {
        LAST_N
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(Arc::new(Field::new_list_field(arguments[0].clone(), true))))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let ordering: Vec<DataType> = args.ordering_fields.iter().map(|field| field.data_type().clone()).collect();
        let row = DataType::Struct(state_row(args.input_fields[0].data_type(), &ordering));
        Ok(vec![Field::new_list(format_state_name(args.name, LAST_N), Field::new_list_field(row, true), true).into()])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let limit = checked_bound(LAST_N, &args, LAST_N_MAX)?;
        if args.order_bys.is_empty() {
            return plan_err!("{LAST_N} has no order outside a view: write {LAST_N}(x, n ORDER BY ..)");
        }
        let ordering_types = args.order_bys.iter().map(|sort| sort.expr.data_type(args.schema)).collect::<Result<Vec<_>>>()?;
        if let Some(nested) = ordering_types.iter().find(|data_type| data_type.is_nested()) {
            return plan_err!("{LAST_N} cannot order by values of {nested}: they have no total order");
        }
        let value_type = args.expr_fields[0].data_type();
        Ok(Box::new(LastNAccumulator {
            limit,
            ties_by_value: !value_type.is_nested(),
            ignore_nulls: args.ignore_nulls,
            options: args.order_bys.iter().map(|sort| sort.options).collect(),
            row_fields: state_row(value_type, &ordering_types),
            rows: Vec::new(),
            sorted: 0,
            bytes: 0,
        }))
    }

    /// Not insensitive, or DataFusion would not pass the ordering columns to the accumulator. No sorted input is
    /// required.
    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Beneficial
    }

    fn with_beneficial_ordering(self: Arc<Self>, _beneficial_ordering: bool) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        Ok(Some(self))
    }

    fn supports_null_handling_clause(&self) -> bool {
        true
    }
}

/// The fields of a state's row. They are named here because DataFusion's names of ordering columns contain positions of
/// one plan.
fn state_row(value: &DataType, ordering: &[DataType]) -> Fields {
    let value = Field::new("value", value.clone(), true);
    let ordering = ordering.iter().enumerate().map(|(i, data_type)| Field::new(format!("order_{i}"), data_type.clone(), true));
    std::iter::once(value).chain(ordering).collect()
}

#[derive(Debug)]
struct LastNAccumulator {
    limit: usize,
    ignore_nulls: bool,
    /// False for lists and structs, which have no total order.
    ties_by_value: bool,
    options: Vec<SortOptions>,
    row_fields: Fields,
    /// The first `sorted` rows are newest first. Behind them are rows that are not sorted in yet, up to a limit.
    rows: Vec<Row>,
    sorted: usize,
    /// The heap size of all rows.
    bytes: usize,
}

#[derive(Debug)]
struct Row {
    value: ScalarValue,
    ordering: Vec<ScalarValue>,
}

impl Accumulator for LastNAccumulator {
    /// The columns: x, n, the ordering columns.
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let [values, _n, ordering @ ..] = columns else {
            return exec_err!("{LAST_N} got {} columns: expected its two arguments and its order", columns.len());
        };
        let nulls = if self.ignore_nulls { values.logical_nulls() } else { None };
        for row in 0..values.len() {
            if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                self.add(values, ordering, row)?;
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let Some(lists) = states.first().and_then(|state| state.as_list_opt::<i32>()) else {
            return exec_err!("the state of {LAST_N} is no list");
        };
        let Some(rows) = lists.values().as_struct_opt().filter(|rows| rows.num_columns() == self.row_fields.len()) else {
            return exec_err!(
                "the state of {LAST_N} holds {}: expected structs of {} fields",
                lists.values().data_type(),
                self.row_fields.len()
            );
        };
        let offsets = lists.value_offsets();
        for list in (0..lists.len()).filter(|list| lists.is_valid(*list)) {
            for row in offsets[list] as usize..offsets[list + 1] as usize {
                self.add(rows.column(0), &rows.columns()[1..], row)?;
            }
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.settle()?;
        if self.rows.is_empty() {
            return Ok(vec![ScalarValue::new_null_list(DataType::Struct(self.row_fields.clone()), true, 1)]);
        }
        let values = ScalarValue::iter_to_array(self.rows.iter().map(|row| row.value.clone()))?;
        let mut columns = vec![values];
        for i in 0..self.options.len() {
            columns.push(ScalarValue::iter_to_array(self.rows.iter().map(|row| row.ordering[i].clone()))?);
        }
        let rows = StructArray::try_new(self.row_fields.clone(), columns, None)?;
        Ok(vec![SingleRowListArrayBuilder::new(Arc::new(rows)).build_list_scalar()])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.settle()?;
        if self.rows.is_empty() {
            return Ok(ScalarValue::new_null_list(self.row_fields[0].data_type().clone(), true, 1));
        }
        let values = ScalarValue::iter_to_array(self.rows.iter().map(|row| row.value.clone()))?;
        Ok(SingleRowListArrayBuilder::new(values).build_list_scalar())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.bytes + self.rows.capacity() * size_of::<Row>()
    }
}

impl LastNAccumulator {
    fn add(&mut self, values: &ArrayRef, ordering: &[ArrayRef], index: usize) -> Result<()> {
        if self.is_too_old(ordering, index)? {
            return Ok(());
        }
        let value = ScalarValue::try_from_array(values, index)?.compacted();
        let ordering = get_row_at_idx(ordering, index)?.into_iter().map(ScalarValue::compacted).collect();
        let row = Row { value, ordering };
        self.bytes += row.heap_size();
        self.rows.push(row);
        // Sorting at twice the limit costs each row a constant number of comparisons, times log n.
        if self.rows.len() >= 2 * self.limit.max(8) {
            self.settle()?;
        }
        Ok(())
    }

    /// Whether the first ordering column alone shows that this row comes after the n newest.
    fn is_too_old(&self, ordering: &[ArrayRef], index: usize) -> Result<bool> {
        let Some(oldest) = self.rows.get(self.limit - 1).filter(|_| self.sorted >= self.limit) else { return Ok(false) };
        let first = ScalarValue::try_from_array(&ordering[0], index)?;
        Ok(compare_rows(&[first], &oldest.ordering[..1], &self.options[..1])?.is_lt())
    }

    /// Sorts newest first and drops rows beyond the limit.
    fn settle(&mut self) -> Result<()> {
        if self.sorted == self.rows.len() {
            return Ok(());
        }
        let mut failed = None;
        self.rows.sort_unstable_by(|left, right| {
            newest_first(left, right, &self.options, self.ties_by_value).unwrap_or_else(|error| {
                failed = Some(error);
                Ordering::Equal
            })
        });
        if let Some(error) = failed {
            return Err(error);
        }
        for row in self.rows.drain(self.limit.min(self.rows.len())..) {
            self.bytes -= row.heap_size();
        }
        self.sorted = self.rows.len();
        Ok(())
    }
}

/// Compares by the ordering columns, then by value, so that the result does not depend on the order of arrival.
fn newest_first(left: &Row, right: &Row, options: &[SortOptions], ties_by_value: bool) -> Result<Ordering> {
    let by_order = compare_rows(&right.ordering, &left.ordering, options)?;
    if by_order.is_ne() || !ties_by_value {
        return Ok(by_order);
    }
    Ok(right.value.partial_cmp(&left.value).unwrap_or(Ordering::Equal))
}

impl Row {
    fn heap_size(&self) -> usize {
        self.value.size() - size_of_val(&self.value) + self.ordering.iter().map(ScalarValue::size).sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
