//! `last_n(x, n)`: the last n values, newest first.

use std::cmp::Ordering;
use std::mem::{size_of, size_of_val};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, ListArray, StructArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use arrow_row::{RowConverter, SortField};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility};

use super::MOST_AT_ONCE;
use super::bounds::checked_bound;
use super::room::{give_back, make_room};

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
        let mut of_all = LastNs::new(&args)?;
        of_all.counts.push(0);
        Ok(Box::new(LastNOfAll(of_all)))
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs<'_>) -> bool {
        true
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(LastNs::new(&args)?))
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

/// The last n of every group.
///
/// A row is kept as its ordering and its value in row format, which sort like them: some fifty bytes, where scalars
/// take five hundred. Rows beyond the limit are dropped once there are as many as there are rows to keep.
#[derive(Debug)]
struct LastNs {
    limit: usize,
    ignore_nulls: bool,
    /// Of the ordering columns, then the value.
    fields: Vec<SortField>,
    converter: RowConverter,
    row_fields: Fields,
    bytes: Vec<u8>,
    rows: Vec<Row>,
    /// How many rows each group has.
    counts: Vec<u32>,
    /// How many rows are beyond the limit of their groups.
    surplus: usize,
}

/// Where a row's bytes are.
#[derive(Debug, Clone, Copy)]
struct Row {
    start: usize,
    len: u32,
    group: u32,
}

/// What is handed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Handed {
    State,
    Values,
}

impl LastNs {
    fn new(args: &AccumulatorArgs<'_>) -> Result<Self> {
        let limit = checked_bound(LAST_N, args, LAST_N_MAX)?;
        if args.order_bys.is_empty() {
            return plan_err!("{LAST_N} has no order outside a view: write {LAST_N}(x, n ORDER BY ..)");
        }
        let ordering_types = args.order_bys.iter().map(|sort| sort.expr.data_type(args.schema)).collect::<Result<Vec<_>>>()?;
        if let Some(nested) = ordering_types.iter().find(|data_type| data_type.is_nested()) {
            return plan_err!("{LAST_N} cannot order by values of {nested}: they have no total order");
        }
        let value_type = args.expr_fields[0].data_type();
        let ordering = ordering_types.iter().zip(args.order_bys.iter());
        let mut fields: Vec<SortField> =
            ordering.map(|(data_type, sort)| SortField::new_with_options(data_type.clone(), sort.options)).collect();
        fields.push(SortField::new(value_type.clone()));
        if !RowConverter::supports_fields(&fields) {
            return plan_err!("{LAST_N} does not keep values of {value_type}");
        }
        Self::with_fields(limit, args.ignore_nulls, fields, state_row(value_type, &ordering_types))
    }

    fn with_fields(limit: usize, ignore_nulls: bool, fields: Vec<SortField>, row_fields: Fields) -> Result<Self> {
        let converter = RowConverter::new(fields.clone())?;
        let (bytes, rows, counts) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { limit, ignore_nulls, fields, converter, row_fields, bytes, rows, counts, surplus: 0 })
    }

    /// Adds events. The columns: x, n, the ordering columns.
    fn update(&mut self, columns: &[ArrayRef], counts: impl Fn(usize) -> bool, groups: &[usize]) -> Result<()> {
        let [values, _n, ordering @ ..] = columns else {
            return exec_err!("{LAST_N} got {} columns: expected its two arguments and its order", columns.len());
        };
        let nulls = if self.ignore_nulls { values.logical_nulls() } else { None };
        let chosen = |row: &usize| counts(*row) && nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*row));
        self.add(ordering, values, (0..values.len()).filter(chosen).map(|row| (row, groups[row])))
    }

    /// Adds the rows of states.
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

    /// Adds these rows of the columns, each with its group.
    fn add(&mut self, ordering: &[ArrayRef], values: &ArrayRef, rows: impl Iterator<Item = (usize, usize)>) -> Result<()> {
        let columns: Vec<ArrayRef> = ordering.iter().chain([values]).cloned().collect();
        let encoded = self.converter.convert_columns(&columns)?;
        for (row, group) in rows {
            let bytes = encoded.row(row);
            self.push(bytes.as_ref(), group)?;
            // Dropping as many as are kept costs each row a constant number of comparisons, times log n.
            if self.surplus >= (self.rows.len() - self.surplus).max(2 * self.limit.min(16)) {
                self.settle();
            }
        }
        Ok(())
    }

    fn push(&mut self, bytes: &[u8], group: usize) -> Result<()> {
        let (Ok(group_number), Ok(len)) = (u32::try_from(group), u32::try_from(bytes.len())) else {
            return exec_err!("{LAST_N} has a row of {} bytes in group {group}: expected at most {} of each", bytes.len(), u32::MAX);
        };
        make_room(&mut self.bytes, bytes.len());
        make_room(&mut self.rows, 1);
        self.rows.push(Row { start: self.bytes.len(), len, group: group_number });
        self.bytes.extend_from_slice(bytes);
        self.counts[group] += 1;
        self.surplus += usize::from(self.counts[group] as usize > self.limit);
        Ok(())
    }

    /// Drops the rows beyond the limit.
    fn settle(&mut self) {
        if self.surplus == 0 {
            return;
        }
        let Self { limit, bytes, rows, counts, .. } = self;
        let mut crowded: Vec<Row> = rows.extract_if(.., |row| counts[row.group as usize] as usize > *limit).collect();
        crowded.sort_unstable_by(|left, right| newest_first(left, right, bytes));
        for of_group in crowded.chunk_by(|left, right| left.group == right.group) {
            rows.extend_from_slice(&of_group[..*limit]);
            counts[of_group[0].group as usize] = *limit as u32;
        }
        self.surplus = 0;
        self.close_gaps();
    }

    /// Moves the bytes of all rows together.
    fn close_gaps(&mut self) {
        self.rows.sort_unstable_by_key(|row| row.start);
        let mut end = 0;
        for row in &mut self.rows {
            let len = row.len as usize;
            self.bytes.copy_within(row.start..row.start + len, end);
            row.start = end;
            end += len;
        }
        self.bytes.truncate(end);
        give_back(&mut self.bytes);
        give_back(&mut self.rows);
    }

    /// The lists of the first groups, newest first in each.
    fn lists(&mut self, groups: usize, handed: Handed) -> Result<ArrayRef> {
        self.settle();
        let bytes = &self.bytes;
        self.rows.sort_unstable_by(|left, right| newest_first(left, right, bytes));
        let taken = &self.rows[..self.rows.partition_point(|row| (row.group as usize) < groups)];
        let total: usize = taken.iter().map(|row| row.len as usize).sum();
        if i32::try_from(total).is_err() {
            return exec_err!("{LAST_N} has {total} bytes to hand on at once: expected at most {}", i32::MAX);
        }
        let parser = self.converter.parser();
        let mut columns = self.converter.convert_rows(taken.iter().map(|row| parser.parse(row.bytes(bytes))))?;
        // The value is the last column, and the first field.
        columns.rotate_right(1);
        let columns = columns.iter().zip(&self.row_fields).map(|(column, field)| Ok(cast(column, field.data_type())?));
        let mut columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        let items: ArrayRef = match handed {
            Handed::Values => columns.swap_remove(0),
            Handed::State => Arc::new(StructArray::try_new(self.row_fields.clone(), columns, None)?),
        };
        let counts = &self.counts[..groups];
        let valid: NullBuffer = counts.iter().map(|count| *count > 0).collect::<Vec<bool>>().into();
        let offsets = OffsetBuffer::from_lengths(counts.iter().map(|count| *count as usize));
        let field = Arc::new(Field::new_list_field(items.data_type().clone(), true));
        Ok(Arc::new(ListArray::try_new(field, offsets, items, Some(valid).filter(|valid| valid.null_count() > 0))?))
    }

    /// Forgets the first groups. The others are numbered from 0.
    fn forget(&mut self, groups: usize) {
        if groups == self.counts.len() {
            (self.bytes, self.rows, self.counts, self.surplus) = (Vec::new(), Vec::new(), Vec::new(), 0);
            return;
        }
        self.counts.drain(..groups);
        self.rows.retain(|row| row.group as usize >= groups);
        self.rows.iter_mut().for_each(|row| row.group -= groups as u32);
        self.close_gaps();
    }

    fn hand_on(&mut self, emit_to: EmitTo, handed: Handed) -> Result<ArrayRef> {
        let groups = match emit_to {
            EmitTo::All => self.counts.len(),
            EmitTo::First(groups) => groups,
        };
        let lists = self.lists(groups, handed)?;
        self.forget(groups);
        Ok(lists)
    }

    /// What is held, and what it takes to hand it on. More than any limit once it approaches what Arrow's lists hold:
    /// when memory is refused, operators emit everything at once.
    fn held_bytes(&self) -> usize {
        if self.bytes.len() > MOST_AT_ONCE {
            return usize::MAX / 64;
        }
        let held = self.bytes.capacity() + self.rows.capacity() * size_of::<Row>() + self.counts.capacity() * size_of::<u32>();
        size_of_val(self) + held + self.bytes.len()
    }
}

impl Row {
    fn bytes<'b>(&self, all: &'b [u8]) -> &'b [u8] {
        &all[self.start..self.start + self.len as usize]
    }
}

/// By group, then newest first: by the ordering, then by value, so that the result does not depend on the order of
/// arrival.
fn newest_first(left: &Row, right: &Row, bytes: &[u8]) -> Ordering {
    left.group.cmp(&right.group).then_with(|| right.bytes(bytes).cmp(left.bytes(bytes)))
}

impl GroupsAccumulator for LastNs {
    fn update_batch(&mut self, columns: &[ArrayRef], groups: &[usize], only: Option<&BooleanArray>, total_groups: usize) -> Result<()> {
        self.counts.resize(total_groups, 0);
        self.update(columns, |row| only.is_none_or(|only| only.is_valid(row) && only.value(row)), groups)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total_groups: usize) -> Result<()> {
        self.counts.resize(total_groups, 0);
        self.merge(states, groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        self.hand_on(emit_to, Handed::Values)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.hand_on(emit_to, Handed::State)?])
    }

    fn convert_to_state(&self, columns: &[ArrayRef], only: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let mut each = Self::with_fields(self.limit, self.ignore_nulls, self.fields.clone(), self.row_fields.clone())?;
        let rows = columns.first().map_or(0, |column| column.len());
        let groups: Vec<usize> = (0..rows).collect();
        each.update_batch(columns, &groups, only, rows)?;
        each.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        self.held_bytes()
    }
}

/// One group alone, which may be asked again and again.
#[derive(Debug)]
struct LastNOfAll(LastNs);

impl Accumulator for LastNOfAll {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let rows = columns.first().map_or(0, |column| column.len());
        self.0.update(columns, |_| true, &vec![0; rows])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let rows = states.first().map_or(0, |column| column.len());
        self.0.merge(states, &vec![0; rows])
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::try_from_array(&self.0.lists(1, Handed::State)?, 0)?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::try_from_array(&self.0.lists(1, Handed::Values)?, 0)
    }

    fn size(&self) -> usize {
        self.0.held_bytes()
    }
}

#[cfg(test)]
mod tests;
