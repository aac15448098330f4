//! `array_agg` and `string_agg` in an order or of different values: the same states as DataFusion's, kept as rows of
//! all groups instead of scalars.
//!
//! DataFusion keeps such a value, and each value that it is ordered by, as a scalar: some five hundred bytes for an
//! event. It has grouped accumulators only for lists in any order, which views do not have.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, LargeStringBuilder, ListArray, StructArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use arrow_row::{RowConverter, SortField};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::functions_aggregate::string_agg::string_agg_udaf;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Expr, GroupsAccumulator, Signature};
use datafusion::physical_expr::expressions::Literal;

use super::group_rows::{Direction, GroupColumns, GroupRows, Groups, Handed, KeepsRows, OneGroup, ordering_types};

const ARRAY_AGG: &str = "array_agg";
const STRING_AGG: &str = "string_agg";

/// DataFusion's `string_agg`, which sorts its values itself but asks for sorted input too. Two orders in one SELECT
/// would contradict each other.
pub(super) fn string_agg() -> AggregateUDF {
    AggregateUDF::from(ListInAnyOrder { inner: string_agg_udaf(), is_ours: false })
}

/// Gives a call of `array_agg` or `string_agg` that has an order or DISTINCT accumulators of ours. Other calls are
/// returned unchanged.
pub(super) fn grouped(call: Expr) -> Expr {
    match call {
        Expr::AggregateFunction(AggregateFunction { func, params })
            if [ARRAY_AGG, STRING_AGG].contains(&func.name()) && (params.distinct || !params.order_by.is_empty()) =>
        {
            let func = Arc::new(AggregateUDF::from(ListInAnyOrder { inner: func, is_ours: true }));
            Expr::AggregateFunction(AggregateFunction { func, params })
        }
        other => other,
    }
}

/// DataFusion's function, which takes its input in any order.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ListInAnyOrder {
    inner: Arc<AggregateUDF>,
    /// Whether the accumulators are ours.
    is_ours: bool,
}

impl ListInAnyOrder {
    /// Our accumulator, if it is to be ours and there is one for these values.
    fn lists(&self, args: &AccumulatorArgs<'_>) -> Result<Option<Lists>> {
        if self.is_ours { Lists::new(args) } else { Ok(None) }
    }
}

impl AggregateUDFImpl for ListInAnyOrder {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match self.lists(&args)? {
            Some(lists) => Ok(Box::new(OneGroup::new(lists))),
            None => self.inner.accumulator(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        match self.lists(&args) {
            Ok(Some(_)) => true,
            Ok(None) => self.inner.groups_accumulator_supported(args),
            // It is refused when its accumulator is made.
            Err(_) => false,
        }
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        match self.lists(&args)? {
            Some(lists) => Ok(Box::new(Groups(lists))),
            None => self.inner.create_groups_accumulator(args),
        }
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
        self.inner.supports_null_handling_clause()
    }
}

/// The lists of every group.
#[derive(Debug)]
struct Lists {
    /// The ordering columns, then the value; of DISTINCT the value alone.
    rows: GroupRows,
    value_type: DataType,
    /// Of `string_agg`.
    delimiter: Option<String>,
    ignore_nulls: bool,
    /// How many arguments come before the ordering columns.
    arguments: usize,
    kept: Kept,
}

/// Which rows are kept.
#[derive(Debug, Clone)]
enum Kept {
    /// All, with what they are ordered by.
    InOrder(Fields),
    /// One of each set of equal rows. The next search for equal rows begins at `next_search` rows.
    Different { next_search: usize },
}

/// With fewer rows, none are compared.
const FEWEST_SEARCHED: usize = 1024;

impl Lists {
    /// `None` for values that have no row format, and for an order of nested values: DataFusion has one of its own.
    fn new(args: &AccumulatorArgs<'_>) -> Result<Option<Self>> {
        let value_type = args.expr_fields[0].data_type().clone();
        let (mut fields, kept) = match args.is_distinct {
            true => (Vec::new(), Kept::Different { next_search: FEWEST_SEARCHED }),
            false => {
                let Some(types) = ordering_types(args)? else { return Ok(None) };
                let ordering = types.iter().zip(args.order_bys.iter());
                let fields = ordering.clone().map(|(data_type, sort)| SortField::new_with_options(data_type.clone(), sort.options));
                // Named as DataFusion names them.
                let row_fields = ordering.map(|(data_type, sort)| Field::new(sort.expr.to_string(), data_type.clone(), true));
                (fields.collect(), Kept::InOrder(row_fields.collect()))
            }
        };
        fields.push(match args.order_bys {
            [sort] if args.is_distinct && sort.expr.eq(&args.exprs[0]) => SortField::new_with_options(value_type.clone(), sort.options),
            [_, ..] if args.is_distinct => return plan_err!("{} of DISTINCT values can only be ordered by the values", args.name),
            _ => SortField::new(value_type.clone()),
        });
        if !RowConverter::supports_fields(&fields) {
            return Ok(None);
        }
        let (name, delimiter) = match args.exprs {
            [_] => (ARRAY_AGG, None),
            _ => (STRING_AGG, Some(delimiter(args)?)),
        };
        let (arguments, ignore_nulls) = (args.exprs.len(), args.ignore_nulls);
        let rows = GroupRows::new(name, fields, Direction::Ascending)?;
        Ok(Some(Self { rows, value_type, delimiter, ignore_nulls, arguments, kept }))
    }

    /// Adds these rows of the columns, each with its group.
    fn add(&mut self, columns: &[ArrayRef], rows: impl Iterator<Item = (usize, usize)>) -> Result<()> {
        let encoded = self.rows.encode(columns)?;
        for (row, group) in rows {
            self.rows.push(encoded.row(row).as_ref(), group)?;
            if matches!(self.kept, Kept::Different { next_search } if self.rows.len() >= next_search) {
                self.settle();
            }
        }
        Ok(())
    }

    /// The texts of each list, with the delimiter between them. Those that are NULL are left out.
    fn joined(&self, delimiter: &str, values: &ArrayRef, offsets: &OffsetBuffer<i32>) -> Result<ArrayRef> {
        let texts = cast(values, &DataType::LargeUtf8)?;
        let texts = texts.as_string::<i64>();
        let mut joined = LargeStringBuilder::new();
        let mut text = String::new();
        for list in offsets.windows(2) {
            text.clear();
            let mut present = (list[0] as usize..list[1] as usize).filter(|row| texts.is_valid(*row)).peekable();
            let is_null = present.peek().is_none();
            while let Some(row) = present.next() {
                text.push_str(texts.value(row));
                if present.peek().is_some() {
                    text.push_str(delimiter);
                }
            }
            joined.append_option((!is_null).then_some(&text));
        }
        Ok(Arc::new(joined.finish()))
    }
}

/// The literal second argument of `string_agg`.
fn delimiter(args: &AccumulatorArgs<'_>) -> Result<String> {
    match args.exprs[1].downcast_ref::<Literal>().map(|literal| literal.value().try_as_str()) {
        Some(Some(text)) => Ok(text.unwrap_or_default().to_owned()),
        // An untyped NULL.
        Some(None) if args.expr_fields[1].data_type().is_null() => Ok(String::new()),
        _ => plan_err!("the delimiter of {STRING_AGG} is {}: expected a literal text", args.exprs[1]),
    }
}

impl KeepsRows for Lists {
    fn empty(&self) -> Result<Self> {
        Ok(Self {
            rows: self.rows.empty()?,
            value_type: self.value_type.clone(),
            delimiter: self.delimiter.clone(),
            kept: self.kept.clone(),
            ..*self
        })
    }

    fn rows(&self) -> &GroupRows {
        &self.rows
    }

    fn rows_mut(&mut self) -> &mut GroupRows {
        &mut self.rows
    }

    fn update(&mut self, columns: &[ArrayRef], counts: impl Fn(usize) -> bool, groups: &[usize]) -> Result<()> {
        let ordering = match &self.kept {
            Kept::InOrder(ordering) => ordering.len(),
            Kept::Different { .. } => 0,
        };
        if columns.len() < self.arguments + ordering {
            return exec_err!("a list got {} columns: expected {} arguments and {ordering} to order by", columns.len(), self.arguments);
        }
        let values = &columns[0];
        let nulls = if self.ignore_nulls { values.logical_nulls() } else { None };
        let chosen = |row: &usize| counts(*row) && nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*row));
        let rows = (0..values.len()).filter(chosen).map(|row| (row, groups[row]));
        let columns: Vec<ArrayRef> = columns[self.arguments..][..ordering].iter().chain([values]).cloned().collect();
        self.add(&columns, rows)
    }

    fn merge(&mut self, states: &[ArrayRef], groups: &[usize]) -> Result<()> {
        let lists: Vec<&ListArray> = states.iter().filter_map(|state| state.as_list_opt::<i32>()).collect();
        let (values, ordering) = match (lists.as_slice(), &self.kept) {
            ([values], Kept::Different { .. }) => (*values, None),
            ([values, ordering], Kept::InOrder(_)) => (*values, Some(*ordering)),
            _ => return exec_err!("the state of a list has {} lists in {} columns", lists.len(), states.len()),
        };
        let mut columns = Vec::new();
        if let (Some(ordering), Kept::InOrder(fields)) = (ordering, &self.kept) {
            let rows = items(ordering);
            let Some(rows) = rows.as_struct_opt().filter(|rows| rows.num_columns() == fields.len()) else {
                return exec_err!("a list is ordered by {}: expected structs of {} fields", rows.data_type(), fields.len());
            };
            if !ordering.offsets().lengths().eq(values.offsets().lengths()) {
                return exec_err!("the state of a list has other numbers of values than of what they are ordered by");
            }
            columns.extend_from_slice(rows.columns());
        }
        columns.push(items(values));
        let offsets = values.value_offsets();
        let of_list = |list: usize| (offsets[list] - offsets[0]) as usize..(offsets[list + 1] - offsets[0]) as usize;
        let valid = (0..values.len()).filter(|list| values.is_valid(*list));
        self.add(&columns, valid.flat_map(|list| of_list(list).map(move |row| (row, groups[list]))))
    }

    fn settle(&mut self) {
        let Kept::Different { next_search } = &mut self.kept else { return };
        self.rows.thin_out(|rows, bytes| {
            let mut different = 0;
            for row in 0..rows.len() {
                if different == 0 || rows[row].bytes(bytes) != rows[different - 1].bytes(bytes) {
                    rows[different] = rows[row];
                    different += 1;
                }
            }
            different
        });
        *next_search = (2 * self.rows.len()).max(FEWEST_SEARCHED);
    }

    fn surplus(&self) -> usize {
        0
    }

    fn columns(&self, GroupColumns { mut columns, offsets, nulls }: GroupColumns, handed: Handed) -> Result<Vec<ArrayRef>> {
        let Some(values) = columns.pop() else { return exec_err!("a list has no values") };
        let values = cast(&values, &self.value_type)?;
        if let (Handed::Values, Some(delimiter)) = (handed, &self.delimiter) {
            return Ok(vec![self.joined(delimiter, &values, &offsets)?]);
        }
        let mut lists = vec![list(values, offsets.clone(), nulls)?];
        if let (Handed::State, Kept::InOrder(fields)) = (handed, &self.kept) {
            let columns = columns.iter().zip(fields).map(|(column, field)| Ok(cast(column, field.data_type())?));
            let ordering = StructArray::try_new(fields.clone(), columns.collect::<Result<_>>()?, None)?;
            lists.push(list(Arc::new(ordering), offsets, None)?);
        }
        Ok(lists)
    }
}

/// The items of all lists together, also of those that are NULL.
fn items(lists: &ListArray) -> ArrayRef {
    let offsets = lists.value_offsets();
    let (first, last) = (offsets[0] as usize, offsets[lists.len()] as usize);
    lists.values().slice(first, last - first)
}

fn list(items: ArrayRef, offsets: OffsetBuffer<i32>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    let field = Arc::new(Field::new_list_field(items.data_type().clone(), true));
    Ok(Arc::new(ListArray::try_new(field, offsets, items, nulls)?))
}

#[cfg(test)]
mod tests;
