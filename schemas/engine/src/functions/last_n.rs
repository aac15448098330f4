//! `last_n(x, n)`: the last n values, newest first.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StructArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use arrow_row::{RowConverter, SortField};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, Signature, Volatility};

use super::bounds::checked_bound;
use super::group_rows::{Direction, GroupColumns, GroupRows, Groups, Handed, KeepsRows, OneGroup, ordering_types};

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
/// result depends only on the set of rows, not on the order in which they arrive and are merged: rows of equal order
/// are ordered by their values.
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
        Ok(Box::new(OneGroup::new(LastNs::new(&args)?)))
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs<'_>) -> bool {
        true
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(Groups(LastNs::new(&args)?)))
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

/// The last n of every group. Rows beyond the limit are dropped once there are as many as there are rows to keep.
#[derive(Debug)]
struct LastNs {
    limit: usize,
    ignore_nulls: bool,
    /// The ordering columns, then the value, so that the result does not depend on the order of arrival.
    rows: GroupRows,
    row_fields: Fields,
    /// How many rows are beyond the limit of their groups.
    surplus: usize,
}

impl LastNs {
    fn new(args: &AccumulatorArgs<'_>) -> Result<Self> {
        let limit = checked_bound(LAST_N, args, LAST_N_MAX)?;
        if args.order_bys.is_empty() {
            return plan_err!("{LAST_N} has no order outside a view: write {LAST_N}(x, n ORDER BY ..)");
        }
        let Some(ordering_types) = ordering_types(args)? else {
            return plan_err!("{LAST_N} cannot order by arrays or structs: they have no total order");
        };
        let value_type = args.expr_fields[0].data_type();
        let ordering = ordering_types.iter().zip(args.order_bys.iter());
        let mut fields: Vec<SortField> =
            ordering.map(|(data_type, sort)| SortField::new_with_options(data_type.clone(), sort.options)).collect();
        fields.push(SortField::new(value_type.clone()));
        if !RowConverter::supports_fields(&fields) {
            return plan_err!("{LAST_N} does not keep values of {value_type}");
        }
        let row_fields = state_row(value_type, &ordering_types);
        let rows = GroupRows::new(LAST_N, fields, Direction::Descending)?;
        Ok(Self { limit, ignore_nulls: args.ignore_nulls, rows, row_fields, surplus: 0 })
    }

    /// Adds these rows of the columns, each with its group.
    fn add(&mut self, ordering: &[ArrayRef], values: &ArrayRef, rows: impl Iterator<Item = (usize, usize)>) -> Result<()> {
        let columns: Vec<ArrayRef> = ordering.iter().chain([values]).cloned().collect();
        let encoded = self.rows.encode(&columns)?;
        for (row, group) in rows {
            self.rows.push(encoded.row(row).as_ref(), group)?;
            self.surplus += usize::from(self.rows.count(group) > self.limit);
            // Dropping as many as are kept costs each row a constant number of comparisons, times log n.
            if self.surplus >= (self.rows.len() - self.surplus).max(2 * self.limit.min(16)) {
                self.settle();
            }
        }
        Ok(())
    }
}

impl KeepsRows for LastNs {
    fn empty(&self) -> Result<Self> {
        let row_fields = self.row_fields.clone();
        Ok(Self { limit: self.limit, ignore_nulls: self.ignore_nulls, rows: self.rows.empty()?, row_fields, surplus: 0 })
    }

    fn rows(&self) -> &GroupRows {
        &self.rows
    }

    fn rows_mut(&mut self) -> &mut GroupRows {
        &mut self.rows
    }

    fn update(&mut self, columns: &[ArrayRef], counts: impl Fn(usize) -> bool, groups: &[usize]) -> Result<()> {
        let [values, _n, ordering @ ..] = columns else {
            return exec_err!("{LAST_N} got {} columns: expected its two arguments and its order", columns.len());
        };
        let nulls = if self.ignore_nulls { values.logical_nulls() } else { None };
        let chosen = |row: &usize| counts(*row) && nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*row));
        self.add(ordering, values, (0..values.len()).filter(chosen).map(|row| (row, groups[row])))
    }

    fn merge(&mut self, states: &[ArrayRef], groups: &[usize]) -> Result<()> {
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
        let (first, last) = (offsets[0] as usize, offsets[lists.len()] as usize);
        let columns: Vec<ArrayRef> = rows.columns().iter().map(|column| column.slice(first, last - first)).collect();
        let of_list = |list: usize| offsets[list] as usize - first..offsets[list + 1] as usize - first;
        let valid = (0..lists.len()).filter(|list| lists.is_valid(*list));
        self.add(&columns[1..], &columns[0], valid.flat_map(|list| of_list(list).map(move |row| (row, groups[list]))))
    }

    fn settle(&mut self) {
        if self.surplus > 0 {
            let limit = self.limit;
            self.rows.thin_out(|rows, _| rows.len().min(limit));
            self.surplus = 0;
        }
    }

    fn surplus(&self) -> usize {
        self.surplus
    }

    fn columns(&self, GroupColumns { mut columns, offsets, nulls }: GroupColumns, handed: Handed) -> Result<Vec<ArrayRef>> {
        // The value is the last column, and the first field.
        columns.rotate_right(1);
        let columns = columns.iter().zip(&self.row_fields).map(|(column, field)| Ok(cast(column, field.data_type())?));
        let mut columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        let items: ArrayRef = match handed {
            Handed::Values => columns.swap_remove(0),
            Handed::State => Arc::new(StructArray::try_new(self.row_fields.clone(), columns, None)?),
        };
        let field = Arc::new(Field::new_list_field(items.data_type().clone(), true));
        Ok(vec![Arc::new(ListArray::try_new(field, offsets, items, nulls)?)])
    }
}

#[cfg(test)]
mod tests;
