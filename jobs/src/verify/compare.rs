//! Compares served rows with expected ones, by key and column.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, FieldRef, Float32Type, Float64Type, Int64Type, Schema};
use arrow::row::{RowConverter, Rows, SortField};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::execution::SendableRecordBatchStream;
use engine::events::Interval;
use futures::TryStreamExt;
use serde::Serialize;
use types::{Error, Result};

use super::plain::{MAY_BE_PAST, PlainColumn, WeightPart};
use super::spread::Spread;
use super::values::{Tolerance, equal};
use super::{FailedCells, ServedAnswer};

/// How many differences a report lists.
const SHOWN: usize = 20;

/// Shown for a value that is past a limit.
const PAST: &str = "past its limit";

/// A value that differs. For a row that only one side has, the column is `*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ValueDifference {
    pub key: String,
    pub column: String,
    pub served: String,
    pub expected: String,
}

/// The result of a comparison.
#[derive(Debug, Default)]
pub struct Compared {
    /// The number of expected rows.
    pub rows: u64,
    /// How many of them may be estimates.
    pub crowded: u64,
    /// The values that are past a limit, of which both sides say so.
    pub past: u64,
    /// Whether an expected value may be past a limit, as far as the expected rows say so.
    pub may_be_past: bool,
    pub differences: Vec<ValueDifference>,
    pub difference_count: u64,
}

/// The keys of the rows that may be estimates.
#[derive(Debug, Default)]
pub struct Crowded {
    /// The key columns, in order.
    pub keys: Vec<RecordBatch>,
    /// What the error of their estimates depends on ([`super::plain::Plain::weights_sql`]).
    pub weights: Vec<RecordBatch>,
    pub max_degree: u32,
}

/// Compares an answer with the expected rows. Rows and columns may be in any order.
pub async fn compare(
    columns: &[PlainColumn],
    answer: &ServedAnswer,
    mut expected: SendableRecordBatchStream,
    crowded: &Crowded,
    past: &[RecordBatch],
) -> Result<Compared> {
    let mut compared = Compared::default();
    let schema = expected.schema();
    let Some(mut served) = ServedRows::served(columns, answer, &schema, &mut compared)? else { return Ok(compared) };
    served.expect_estimates(crowded)?;
    served.take_failed(&answer.failed)?;
    served.expect_past(past)?;
    let mut seen = vec![false; served.batch.num_rows()];
    while let Some(batch) = expected.try_next().await? {
        compared.rows += batch.num_rows() as u64;
        compared.may_be_past |= may_be_past(&batch)?;
        served.compare(columns, &batch, &mut seen, answer, &mut compared)?;
    }
    for row in (0..seen.len()).filter(|row| !seen[*row]) {
        let key = served.key(row);
        compared.add(|| ValueDifference { key, column: "*".into(), served: "a row".into(), expected: "no row".into() });
    }
    Ok(compared)
}

fn may_be_past(expected: &RecordBatch) -> Result<bool> {
    let Some(flags) = expected.column_by_name(MAY_BE_PAST) else { return Ok(false) };
    let flags = flags.as_boolean_opt().ok_or_else(|| Error::internal("whether a value may be past a limit is no BOOLEAN"))?;
    Ok(flags.true_count() > 0)
}

impl Compared {
    fn add(&mut self, difference: impl FnOnce() -> ValueDifference) {
        self.difference_count += 1;
        if self.differences.len() < SHOWN {
            self.differences.push(difference());
        }
    }
}

/// The served rows, indexed by key, with the order and the types of the expected columns.
struct ServedRows {
    batch: RecordBatch,
    keys: Vec<usize>,
    converter: RowConverter,
    /// The answer came as text, in which a NaN has no sign: all NaNs are one key.
    has_one_nan: bool,
    rows: HashMap<Vec<u8>, usize>,
    crowded: HashMap<Vec<u8>, Spread>,
    max_degree: u32,
    /// By key, the columns whose values could not be computed.
    failed: HashMap<Vec<u8>, HashSet<String>>,
    /// The same, where the expected value is past a limit.
    past: HashMap<Vec<u8>, HashSet<String>>,
}

/// A served row and the expected row of the same key.
struct RowPair<'a> {
    served: usize,
    expected: usize,
    /// What bounds the estimates of the row, if it has any.
    crowded: Option<&'a Spread>,
    failed: Option<&'a HashSet<String>>,
    past: Option<&'a HashSet<String>>,
}

impl ServedRows {
    /// Returns `None` if the columns themselves differ.
    fn served(columns: &[PlainColumn], answer: &ServedAnswer, expected: &Schema, compared: &mut Compared) -> Result<Option<ServedRows>> {
        let keys: Vec<usize> = (0..columns.len()).filter(|index| columns[*index].is_key).collect();
        let served = answer.rows.first().map(RecordBatch::schema);
        let field = |(column, expected): (&PlainColumn, &FieldRef)| {
            let served = served.as_ref().and_then(|served| served.field_with_name(&column.name).ok());
            match served.filter(|served| has_more_digits(served.data_type(), expected.data_type())) {
                Some(served) => Arc::new(expected.as_ref().clone().with_data_type(served.data_type().clone())),
                None => expected.clone(),
            }
        };
        let fields: Vec<FieldRef> = columns.iter().zip(expected.fields()).map(field).collect();
        let sort = keys.iter().map(|index| SortField::new(fields[*index].data_type().clone())).collect();
        let converter = RowConverter::new(sort)?;
        let batch = if let Some(first) = answer.rows.first() {
            if !same_columns(columns, first.schema().as_ref(), expected, compared) {
                return Ok(None);
            }
            arrow::compute::concat_batches(&first.schema(), &answer.rows)?
        } else {
            RecordBatch::new_empty(Arc::new(Schema::new(fields.clone())))
        };
        let ordered = columns.iter().zip(&fields).map(|(column, field)| {
            let array = batch
                .column_by_name(&column.name)
                .ok_or_else(|| Error::internal("a column vanished while comparing").with("column", &column.name))?;
            Ok(if array.data_type() == field.data_type() { array.clone() } else { arrow::compute::cast(array, field.data_type())? })
        });
        let ordered: Vec<ArrayRef> = ordered.collect::<Result<_>>()?;
        let nullable: Vec<_> = fields.iter().map(|field| field.as_ref().clone().with_nullable(true)).collect();
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(nullable)), ordered, &options)?;
        let mut side = ServedRows {
            batch,
            keys,
            converter,
            has_one_nan: answer.without_nan,
            rows: HashMap::new(),
            crowded: HashMap::new(),
            max_degree: 0,
            failed: HashMap::new(),
            past: HashMap::new(),
        };
        side.index(compared)?;
        Ok(Some(side))
    }

    fn expect_estimates(&mut self, crowded: &Crowded) -> Result<()> {
        self.max_degree = crowded.max_degree;
        for batch in crowded.keys.iter().filter(|batch| batch.num_columns() > 0) {
            let rows = self.converted(batch.columns())?;
            self.crowded.extend(rows.iter().map(|row| (row.as_ref().to_vec(), Spread::default())));
        }
        crowded.weights.iter().try_for_each(|batch| self.weigh(batch))
    }

    /// Takes rows of [`Plain::past_sql`](super::plain::Plain::past_sql).
    fn expect_past(&mut self, past: &[RecordBatch]) -> Result<()> {
        for batch in past {
            let (keys, flags) = batch.columns().split_at(self.keys.len().min(batch.num_columns()));
            let keys = if keys.is_empty() { Encoded(None) } else { Encoded(Some(self.converted(keys)?)) };
            for (field, flags) in batch.schema().fields().iter().skip(self.keys.len()).zip(flags) {
                let flags = flags.as_boolean_opt().ok_or_else(|| Error::internal("whether a value is past a limit is no BOOLEAN"))?;
                for row in (0..flags.len()).filter(|row| flags.is_valid(*row) && flags.value(*row)) {
                    self.past.entry(keys.key(row)).or_default().insert(field.name().clone());
                }
            }
        }
        Ok(())
    }

    fn take_failed(&mut self, failed: &[FailedCells]) -> Result<()> {
        for FailedCells { keys, cells } in failed {
            let schema = self.batch.schema();
            let columns = self.keys.iter().map(|index| {
                let field = schema.field(*index);
                let column = keys.column_by_name(field.name());
                let column = column.ok_or_else(|| Error::corrupt("a failed value has no key").with("key", field.name()))?;
                Ok(arrow::compute::cast(column, field.data_type())?)
            });
            let columns = columns.collect::<Result<Vec<_>>>()?;
            let encoded = if columns.is_empty() { Encoded(None) } else { Encoded(Some(self.converter.convert_columns(&columns)?)) };
            for (row, column) in cells {
                self.failed.entry(encoded.key(*row)).or_default().insert(column.clone());
            }
        }
        Ok(())
    }

    /// Adds rows of the weights: the part's index, the keys, the numbers.
    fn weigh(&mut self, batch: &RecordBatch) -> Result<()> {
        let (part, rest) = batch.columns().split_first().ok_or_else(|| Error::internal("weights have no part"))?;
        let (keys, numbers) = rest.split_at(self.keys.len().min(rest.len()));
        let keys = self.converted(keys)?;
        let part = arrow::compute::cast(part, &DataType::Int64)?;
        let part = part.as_primitive::<Int64Type>();
        let numbers = numbers.iter().map(|number| arrow::compute::cast(number, &DataType::Float64)).collect::<Result<Vec<_>, _>>()?;
        let number =
            |column: &ArrayRef, row: usize| if column.is_null(row) { 0.0 } else { column.as_primitive::<Float64Type>().value(row) };
        for row in 0..batch.num_rows() {
            let Some(spread) = self.crowded.get_mut(keys.row(row).as_ref()) else { continue };
            let part = WeightPart::ALL.get(part.value(row) as usize).ok_or_else(|| Error::internal("weights name an unknown part"))?;
            spread.add(
                *part,
                numbers.chunks(2).map(|pair| (number(&pair[0], row), pair.get(1).map_or(0.0, |most| number(most, row)))).collect(),
            );
        }
        Ok(())
    }

    fn index(&mut self, compared: &mut Compared) -> Result<()> {
        let encoded = self.encode(&self.batch)?;
        for row in 0..self.batch.num_rows() {
            if self.rows.insert(encoded.key(row), row).is_some() {
                let key = self.key(row);
                compared.add(|| ValueDifference { key, column: "*".into(), served: "several rows".into(), expected: "one row".into() });
            }
        }
        Ok(())
    }

    fn compare(
        &self,
        columns: &[PlainColumn],
        expected: &RecordBatch,
        seen: &mut [bool],
        answer: &ServedAnswer,
        compared: &mut Compared,
    ) -> Result<()> {
        let pairs = self.pairs(expected, seen, compared)?;
        let mut total = 0;
        for (index, column) in columns.iter().enumerate().filter(|(_, column)| !column.is_key) {
            let distinct = column.distinct.as_ref().and_then(|name| expected.column_by_name(name));
            let distinct = distinct.and_then(|array| array.as_primitive_opt::<Int64Type>());
            let near = near_columns(column, expected);
            let values = (self.batch.column(index), &in_type(expected.column(index), self.batch.column(index).data_type())?);
            for pair in &pairs {
                let distinct = distinct.filter(|counts| counts.is_valid(pair.expected)).map(|counts| counts.value(pair.expected));
                let tolerance = match pair.crowded {
                    Some(spread) => Tolerance::of_crowded(column, spread.bound(total, self.max_degree)),
                    None => Tolerance::for_column(column)
                        .given(distinct, answer.without_nan)
                        .between(near.map(|near| near.map(|column| column.value(pair.expected)))),
                };
                self.compare_values(pair, column, values, tolerance, compared);
            }
            total += usize::from(column.is_total);
        }
        Ok(())
    }

    /// Pairs the expected rows with the served ones, and notes the rows that are not served.
    fn pairs(&self, expected: &RecordBatch, seen: &mut [bool], compared: &mut Compared) -> Result<Vec<RowPair<'_>>> {
        let encoded = self.encode(expected)?;
        let mut pairs = Vec::with_capacity(expected.num_rows());
        for row in 0..expected.num_rows() {
            let key = encoded.key(row);
            let crowded = self.crowded.get(&key);
            compared.crowded += u64::from(crowded.is_some());
            match self.rows.get(&key) {
                Some(served) => {
                    seen[*served] = true;
                    let (failed, past) = (self.failed.get(&key), self.past.get(&key));
                    pairs.push(RowPair { served: *served, expected: row, crowded, failed, past });
                }
                // None of the sampled neighbours met another event.
                None if crowded.is_some() => {}
                None => {
                    let key = key_text(expected, &self.keys, row);
                    compared.add(|| ValueDifference { key, column: "*".into(), served: "no row".into(), expected: "a row".into() });
                }
            }
        }
        Ok(pairs)
    }

    /// Compares one value of a pair. A value that could not be computed equals one that is past a limit, and no other.
    fn compare_values(
        &self,
        pair: &RowPair<'_>,
        column: &PlainColumn,
        (served, expected): (&ArrayRef, &ArrayRef),
        tolerance: Tolerance,
        compared: &mut Compared,
    ) {
        let holds = |columns: Option<&HashSet<String>>| columns.is_some_and(|columns| columns.contains(&column.name));
        let (has_failed, is_past) = (holds(pair.failed), holds(pair.past));
        if has_failed && is_past {
            compared.past += 1;
            return;
        }
        if !has_failed && !is_past && equal(served, pair.served, expected, pair.expected, tolerance) {
            return;
        }
        let shown = |is_past: bool, array: &ArrayRef, row: usize| if is_past { PAST.to_owned() } else { text(array, row) };
        compared.add(|| ValueDifference {
            key: self.key(pair.served),
            column: column.name.clone(),
            served: shown(has_failed, served, pair.served),
            expected: shown(is_past, expected, pair.expected),
        });
    }

    fn encode(&self, batch: &RecordBatch) -> Result<Encoded> {
        if self.keys.is_empty() {
            return Ok(Encoded(None));
        }
        let columns: Vec<ArrayRef> = self.keys.iter().map(|index| batch.column(*index).clone()).collect();
        Ok(Encoded(Some(self.converted(&columns)?)))
    }

    /// Encodes keys, each in the type of its served column.
    fn converted(&self, keys: &[ArrayRef]) -> Result<Rows> {
        let schema = self.batch.schema();
        let keys = keys.iter().zip(&self.keys).map(|(key, index)| {
            let key = in_type(key, schema.field(*index).data_type())?;
            Ok(if self.has_one_nan { with_one_nan(&key) } else { key })
        });
        Ok(self.converter.convert_columns(&keys.collect::<Result<Vec<_>>>()?)?)
    }

    fn key(&self, row: usize) -> String {
        key_text(&self.batch, &self.keys, row)
    }
}

/// Keys as bytes; a view without keys has one key, which is empty.
struct Encoded(Option<Rows>);

impl Encoded {
    fn key(&self, row: usize) -> Vec<u8> {
        self.0.as_ref().map(|rows| rows.row(row).as_ref().to_vec()).unwrap_or_default()
    }
}

/// The percentiles a little below and above a column's own, where it is one.
fn near_columns<'e>(column: &PlainColumn, expected: &'e RecordBatch) -> Option<[&'e Float64Array; 2]> {
    let [below, above] = column.near.as_ref()?;
    let column = |name: &String| expected.column_by_name(name)?.as_primitive_opt::<Float64Type>();
    Some([column(below)?, column(above)?])
}

/// Compares the columns by name and type. Names of list items and nullability are ignored.
fn same_columns(columns: &[PlainColumn], served: &Schema, expected: &Schema, compared: &mut Compared) -> bool {
    let mut same = true;
    for (index, column) in columns.iter().enumerate() {
        let wanted = expected.field(index).data_type();
        let found = served.field_with_name(&column.name).ok().map(|field| field.data_type());
        let fits = found.is_some_and(|found| found.equals_datatype(wanted) || same_values(found, wanted) || has_more_digits(found, wanted));
        if !fits {
            same = false;
            let served = found.map_or_else(|| "no column".to_owned(), |found| format!("type {found}"));
            compared.add(|| ValueDifference { key: "*".into(), column: column.name.clone(), served, expected: format!("type {wanted}") });
        }
    }
    for field in served.fields().iter().filter(|field| !columns.iter().any(|column| column.name == **field.name())) {
        same = false;
        compared.add(|| ValueDifference {
            key: "*".into(),
            column: field.name().clone(),
            served: format!("type {}", field.data_type()),
            expected: "no column".into(),
        });
    }
    same
}

/// Whether the served decimal has more digits after the point than the expected one. The type of `round(x, 1)` follows
/// from its constant, which is known before plain SQL is computed, and after a view's columns are declared.
fn has_more_digits(served: &DataType, expected: &DataType) -> bool {
    matches!((served, expected), (DataType::Decimal128(_, served), DataType::Decimal128(_, expected)) if served > expected)
}

/// The expected values in the type in which they are compared.
fn in_type(values: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    match values.data_type() == data_type {
        true => Ok(values.clone()),
        false => Ok(cast_with_options(values, data_type, &CastOptions { safe: false, ..CastOptions::default() })?),
    }
}

fn with_one_nan(values: &ArrayRef) -> ArrayRef {
    match values.data_type() {
        DataType::Float64 => {
            let one = |value: f64| if value.is_nan() { f64::NAN } else { value };
            Arc::new(values.as_primitive::<Float64Type>().unary::<_, Float64Type>(one))
        }
        DataType::Float32 => {
            let one = |value: f32| if value.is_nan() { f32::NAN } else { value };
            Arc::new(values.as_primitive::<Float32Type>().unary::<_, Float32Type>(one))
        }
        _ => values.clone(),
    }
}

/// Whether two Arrow types represent the same SQL type.
fn same_values(a: &DataType, b: &DataType) -> bool {
    let text = |t: &DataType| matches!(t, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let bytes = |t: &DataType| matches!(t, DataType::Binary | DataType::LargeBinary | DataType::BinaryView);
    (text(a) && text(b)) || (bytes(a) && bytes(b))
}

fn key_text(batch: &RecordBatch, keys: &[usize], row: usize) -> String {
    let schema = batch.schema();
    let parts = keys.iter().map(|index| format!("{}={}", schema.field(*index).name(), text(batch.column(*index), row)));
    parts.collect::<Vec<_>>().join(", ")
}

fn text(array: &ArrayRef, row: usize) -> String {
    if let Some(interval) = Interval::of_array(array, row).filter(|_| array.is_valid(row)) {
        return interval.to_string();
    }
    let options = FormatOptions::default().with_null("NULL");
    match ArrayFormatter::try_new(array.as_ref(), &options) {
        Ok(formatter) => formatter.value(row).try_to_string().unwrap_or_else(|error| error.to_string()),
        Err(error) => error.to_string(),
    }
}
