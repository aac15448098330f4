//! Bounds the DataFusion functions whose result is as large as a number argument says, or as the product of two texts.
//! They allocate their result at once, so that a large number would abort the process instead of the query. And the one
//! that takes as many steps as the product of two texts: of constants it is computed while a query is planned, when
//! nothing can end it.
//!
//! Functions whose result is at most a few times as large as their input are left as DataFusion defines them, but for
//! `encode`, which doubles its own result if calls of it are nested.

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, OffsetSizeTrait, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit};
use datafusion::common::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF};
use datafusion::{functions, functions_nested};

use super::wrapped::{FunctionCall, Wrapped};
use types::Error;

/// The most bytes that one value may take whose size is a number. It leaves room for what multiplies the value (a join,
/// `unnest`).
const MAX_VALUE_BYTES: u64 = 64 << 10;
/// The most bytes that all rows of a batch may take, as they are computed together.
const MAX_BATCH_BYTES: u64 = 64 << 20;
/// The same for what texts grow by. A text that is escaped grows with its own length, which an event bounds.
const MAX_GROWN_VALUE_BYTES: u64 = 4 << 20;
const MAX_GROWN_BATCH_BYTES: u64 = 256 << 20;
/// The same where it is not known how often a pattern is found, so that most texts grow by far less.
const MAX_MATCHED_VALUE_BYTES: u64 = 16 << 20;
const MAX_MATCHED_BATCH_BYTES: u64 = 1 << 30;
/// The most steps that are taken for one value, and for the rows of a batch.
const MAX_VALUE_STEPS: u64 = 1 << 20;
const MAX_BATCH_STEPS: u64 = 256 << 20;
/// The most bytes and steps for constants alone. They are computed while a query is planned, once more for each call
/// around one that fails, and nothing ends that.
const MAX_BYTES_OF_CONSTANTS: u64 = 64 << 10;
const MAX_STEPS_OF_CONSTANTS: u64 = 64 << 10;
/// The length of a padded text is given in characters of up to this many bytes.
const BYTES_OF_A_CHARACTER: u64 = 4;
/// An item of a list takes at least this many bytes while the list is built.
const BYTES_OF_AN_ITEM: u64 = 8;

/// Returns the bounded functions, under their names and aliases in DataFusion.
pub(super) fn bounded() -> &'static [Arc<ScalarUDF>] {
    static BOUNDED: LazyLock<Vec<Arc<ScalarUDF>>> = LazyLock::new(|| {
        let all = functions::all_default_functions().into_iter().chain(functions_nested::all_default_nested_functions());
        all.filter_map(|inner| Some(Arc::new(ScalarUDF::from(Wrapped { call: Growth::by_name(inner.name())?, inner })))).collect()
    });
    &BOUNDED
}

/// A function is not called if its result would exceed a bound.
impl FunctionCall for Growth {
    fn call(&self, inner: &ScalarUDF, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let are_constants = arguments.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        if are_constants {
            // One row stands for all, even if the function would compute each.
            arguments.number_rows = 1;
        }
        let columns = arguments.args.iter().map(|argument| argument.to_array(1)).collect::<Result<Vec<_>>>()?;
        self.check_sizes(inner.name(), &self.sizes(&columns, 0..arguments.number_rows)?, are_constants)?;
        inner.invoke_with_args(arguments)
    }
}

/// What the result's size depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Growth {
    /// A text, repeated a number of times.
    Repeated,
    /// A text padded to a number of characters.
    Padded,
    /// A list of one value, repeated a number of times.
    Filled,
    /// A list, filled up to a number of items.
    Resized,
    /// The numbers or times between two bounds.
    Series,
    /// A text, with another one in each place of a third.
    Replaced,
    /// The same in each place of a pattern.
    Matched,
    /// The items of a list as one text, with another one between them.
    Joined,
    /// Bytes as a text of two characters for each.
    Encoded,
    /// A text, compared with another one: a step for each pair of their characters.
    Compared,
}

impl Growth {
    fn by_name(name: &str) -> Option<Self> {
        match name {
            "repeat" => Some(Self::Repeated),
            "lpad" | "rpad" => Some(Self::Padded),
            "array_repeat" => Some(Self::Filled),
            "array_resize" => Some(Self::Resized),
            "range" | "generate_series" => Some(Self::Series),
            "replace" => Some(Self::Replaced),
            "regexp_replace" => Some(Self::Matched),
            "array_to_string" => Some(Self::Joined),
            "encode" => Some(Self::Encoded),
            "levenshtein" => Some(Self::Compared),
            _ => None,
        }
    }

    /// The most bytes, or steps, of a value and of a batch.
    fn most(self) -> (u64, u64) {
        match self {
            Self::Repeated | Self::Padded | Self::Filled | Self::Resized | Self::Series => (MAX_VALUE_BYTES, MAX_BATCH_BYTES),
            Self::Replaced | Self::Joined | Self::Encoded => (MAX_GROWN_VALUE_BYTES, MAX_GROWN_BATCH_BYTES),
            Self::Matched => (MAX_MATCHED_VALUE_BYTES, MAX_MATCHED_BATCH_BYTES),
            Self::Compared => (MAX_VALUE_STEPS, MAX_BATCH_STEPS),
        }
    }

    fn check_sizes(self, name: &str, sizes: &[u64], are_constants: bool) -> Result<()> {
        let (mut most, most_together) = self.most();
        if are_constants {
            most = most.min(if self == Self::Compared { MAX_STEPS_OF_CONSTANTS } else { MAX_BYTES_OF_CONSTANTS });
        }
        let largest = sizes.iter().copied().max().unwrap_or(0);
        if largest > most {
            let what = match self {
                Self::Compared => format!("takes {largest} steps for a value"),
                _ => format!("makes a value of {largest} bytes"),
            };
            return Err(Error::input(format!("{name} {what}: expected at most {most}")).into());
        }
        let together = sizes.iter().copied().fold(0, u64::saturating_add);
        if together > most_together {
            let what = match self {
                Self::Compared => format!("takes {together} steps"),
                _ => format!("makes {together} bytes"),
            };
            let message = format!("{name} {what} for {} rows at once: expected at most {most_together}", sizes.len());
            return Err(Error::input(message).into());
        }
        Ok(())
    }

    /// Returns an upper bound of each row's result in bytes, or of its steps. Empty for arguments that the function
    /// itself refuses.
    ///
    /// A column of one row stands for all rows.
    fn sizes(self, columns: &[ArrayRef], rows: Range<usize>) -> Result<Vec<u64>> {
        match (self, columns) {
            (Self::Repeated, [text, times]) => {
                let (texts, times) = (text_bytes(text), integers(times)?);
                Ok(rows.map(|row| texts[at(texts.len(), row)].saturating_mul(count(&times, row))).collect())
            }
            (Self::Padded, [_, characters, ..]) => {
                let characters = integers(characters)?;
                Ok(rows.map(|row| BYTES_OF_A_CHARACTER.saturating_mul(count(&characters, row))).collect())
            }
            (Self::Filled, [value, times]) => {
                let (values, times) = (row_bytes(value), integers(times)?);
                Ok(rows.map(|row| values[at(values.len(), row)].saturating_mul(count(&times, row))).collect())
            }
            (Self::Resized, [list, items, value @ ..]) => match list.data_type() {
                DataType::List(item) => resized::<i32>(list, items, value.first(), item.data_type(), rows),
                DataType::LargeList(item) => resized::<i64>(list, items, value.first(), item.data_type(), rows),
                _ => Ok(Vec::new()),
            },
            (Self::Series, [first, ..]) => match first.data_type() {
                DataType::Int64 => series_of_integers(columns, rows),
                DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => series_of_times(columns, rows),
                _ => Ok(Vec::new()),
            },
            (Self::Replaced, [text, from, to]) => {
                let columns = [texts(text), texts(from), texts(to)];
                let of_row = |row: usize| columns.each_ref().map(|texts| texts[at(texts.len(), row)].unwrap_or_default());
                Ok(rows.map(|row| added_by_replacing(of_row(row))).collect())
            }
            (Self::Matched, [text, _, to, flags @ ..]) => {
                let (lengths, to, flags) = (text_bytes(text), texts(to), flags.first().map(texts));
                let size = |row: usize| {
                    let flags = flags.as_ref().and_then(|flags| flags[at(flags.len(), row)]).unwrap_or_default();
                    added_by_matching(lengths[at(lengths.len(), row)], to[at(to.len(), row)].unwrap_or_default(), flags)
                };
                Ok(rows.map(size).collect())
            }
            (Self::Joined, [list, between, null @ ..]) => {
                let (between, null) = (text_bytes(between), null.first().map_or_else(|| vec![0], text_bytes));
                let size = |row: usize| {
                    let added = between[at(between.len(), row)].saturating_add(null[at(null.len(), row)]);
                    items_in(&list.slice(at(list.len(), row), 1)).saturating_mul(added)
                };
                Ok(rows.map(size).collect())
            }
            (Self::Encoded, [bytes, _]) => {
                let bytes = row_bytes(bytes);
                Ok(rows.map(|row| bytes[at(bytes.len(), row)].saturating_mul(2)).collect())
            }
            (Self::Compared, [a, b]) => {
                let (a, b) = (text_bytes(a), text_bytes(b));
                Ok(rows.map(|row| a[at(a.len(), row)].saturating_mul(b[at(b.len(), row)])).collect())
            }
            _ => Ok(Vec::new()),
        }
    }
}

/// Returns the bytes by which a text grows. Nothing is in the place of an empty text.
fn added_by_replacing([text, from, to]: [&str; 3]) -> u64 {
    let longer = to.len().saturating_sub(from.len()) as u64;
    match longer == 0 || from.is_empty() {
        true => 0,
        false => longer.saturating_mul(text.matches(from).count() as u64),
    }
}

/// Returns the most bytes by which a text may grow: a pattern may be found before each byte and at the end, and what is
/// found is put in for `\1` or `${1}`.
fn added_by_matching(text_bytes: u64, to: &str, flags: &str) -> u64 {
    let places = if flags.contains('g') { text_bytes.saturating_add(1) } else { 1 };
    let found_again = to.bytes().filter(|byte| matches!(byte, b'\\' | b'$')).count() as u64;
    places.saturating_mul(to.len() as u64).saturating_add(found_again.saturating_mul(text_bytes))
}

/// Returns how many items lists have, counting those of lists in them instead of these.
fn items_in(lists: &ArrayRef) -> u64 {
    match lists.data_type() {
        DataType::List(_) => lists.as_list::<i32>().iter().flatten().map(|list| items_in(&list)).sum(),
        DataType::LargeList(_) => lists.as_list::<i64>().iter().flatten().map(|list| items_in(&list)).sum(),
        DataType::FixedSizeList(..) => items_in(lists.as_fixed_size_list().values()),
        _ => lists.len() as u64,
    }
}

/// Returns the bytes added to each list. Items that it keeps or loses belong to the input.
fn resized<O: OffsetSizeTrait>(
    list: &ArrayRef,
    items: &ArrayRef,
    value: Option<&ArrayRef>,
    item: &DataType,
    rows: Range<usize>,
) -> Result<Vec<u64>> {
    let (lists, items) = (list.as_list::<O>(), integers(items)?);
    let values = value.map_or_else(|| row_bytes(&new_null_array(item, 1)), row_bytes);
    let added = |row: usize| {
        let list = at(lists.len(), row);
        if lists.is_null(list) {
            return 0;
        }
        let present = lists.value_length(list).as_usize() as u64;
        count(&items, row).saturating_sub(present).saturating_mul(values[at(values.len(), row)])
    };
    Ok(rows.map(added).collect())
}

fn series_of_integers(columns: &[ArrayRef], rows: Range<usize>) -> Result<Vec<u64>> {
    let numbers = columns.iter().map(integers).collect::<Result<Vec<_>>>()?;
    let (start, stop, step) = match numbers.as_slice() {
        [stop] => (None, stop, None),
        [start, stop] => (Some(start), stop, None),
        [start, stop, step] => (Some(start), stop, Some(step)),
        _ => return Ok(Vec::new()),
    };
    let value_or = |column: Option<&Int64Array>, row: usize, default: i64| column.map_or(Some(default), |column| integer(column, row));
    let items = |row: usize| {
        let (start, stop, step) = (value_or(start, row, 0)?, integer(stop, row)?, value_or(step, row, 1)?);
        Some(items_between(start.into(), stop.into(), step.into()))
    };
    Ok(rows.map(|row| items(row).unwrap_or(0).saturating_mul(BYTES_OF_AN_ITEM)).collect())
}

fn series_of_times(columns: &[ArrayRef], rows: Range<usize>) -> Result<Vec<u64>> {
    let [start, stop, step] = columns else { return Ok(Vec::new()) };
    let interval = DataType::Interval(IntervalUnit::MonthDayNano);
    if step.data_type() != &interval {
        return Ok(Vec::new());
    }
    let steps = step.as_primitive::<IntervalMonthDayNanoType>();
    let of_days = matches!(start.data_type(), DataType::Date32 | DataType::Date64);
    let (starts, stops) = if of_days { (days(start)?, days(stop)?) } else { (nanoseconds(start)?, nanoseconds(stop)?) };
    let mut sizes = Vec::with_capacity(rows.len());
    for row in rows {
        let step = at(steps.len(), row);
        let items = match (integer(&starts, row), integer(&stops, row)) {
            (Some(start), Some(stop)) if !steps.is_null(step) => {
                items_between(start.into(), stop.into(), shortest(steps.value(step), of_days)?)
            }
            _ => 0,
        };
        sizes.push(items.saturating_mul(BYTES_OF_AN_ITEM));
    }
    Ok(sizes)
}

/// Returns the most items that a series can have, both ends included. The function itself refuses a step of zero.
fn items_between(start: i128, stop: i128, step: i128) -> u64 {
    let span = stop - start;
    if step == 0 || (span != 0 && (span > 0) != (step > 0)) {
        return 0;
    }
    u64::try_from(span.unsigned_abs() / step.unsigned_abs() + 1).unwrap_or(u64::MAX)
}

/// Returns the least that a step advances, in days or in nanoseconds: a month has at least 28 days. A step whose parts
/// point in opposite directions (a month less 31 days) may not advance at all, so that its series would never end.
fn shortest(step: IntervalMonthDayNano, of_days: bool) -> Result<i128> {
    const NANOSECONDS_A_DAY: i128 = 86_400_000_000_000;
    let (months, days, nanoseconds) = (i128::from(step.months), i128::from(step.days), i128::from(step.nanoseconds));
    let parts = [months, days, nanoseconds];
    if parts.iter().any(|part| *part > 0) && parts.iter().any(|part| *part < 0) {
        return Err(Error::input("a step of a series has parts that point both ways: expected all forward or all backward").into());
    }
    let whole_days = 28 * months + days;
    Ok(if of_days { whole_days } else { whole_days * NANOSECONDS_A_DAY + nanoseconds })
}

/// Converts dates to days since 1970.
fn days(dates: &ArrayRef) -> Result<Int64Array> {
    integers(&cast(&cast(dates, &DataType::Date32)?, &DataType::Int32)?)
}

/// Converts times to nanoseconds since 1970. A time out of range is NULL, as it is for the function.
fn nanoseconds(times: &ArrayRef) -> Result<Int64Array> {
    let zone = match times.data_type() {
        DataType::Timestamp(_, zone) => zone.clone(),
        _ => None,
    };
    integers(&cast(times, &DataType::Timestamp(TimeUnit::Nanosecond, zone))?)
}

fn integers(column: &ArrayRef) -> Result<Int64Array> {
    Ok(cast(column, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
}

fn integer(column: &Int64Array, row: usize) -> Option<i64> {
    let row = at(column.len(), row);
    column.is_valid(row).then(|| column.value(row))
}

/// Reads a count. NULL and negative numbers are 0.
fn count(column: &Int64Array, row: usize) -> u64 {
    integer(column, row).and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
}

/// Returns the index of a row in a column, where a single row stands for all.
fn at(len: usize, row: usize) -> usize {
    if len == 1 { 0 } else { row }
}

/// Returns the bytes of each text.
fn text_bytes(column: &ArrayRef) -> Vec<u64> {
    texts(column).into_iter().map(|text| text.map_or(0, |text| text.len() as u64)).collect()
}

/// Returns each text; none of a column of another type.
fn texts(column: &ArrayRef) -> Vec<Option<&str>> {
    match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().iter().collect(),
        DataType::LargeUtf8 => column.as_string::<i64>().iter().collect(),
        DataType::Utf8View => column.as_string_view().iter().collect(),
        _ => vec![None; column.len()],
    }
}

/// Returns the bytes of each row as an item of a list.
fn row_bytes(column: &ArrayRef) -> Vec<u64> {
    (0..column.len()).map(|row| item_bytes(&column.slice(row, 1))).collect()
}

/// Returns the bytes of all items together.
fn item_bytes(items: &ArrayRef) -> u64 {
    let data_type = items.data_type();
    let width = data_type.primitive_width().map_or(BYTES_OF_AN_ITEM, |width| BYTES_OF_AN_ITEM.max(width as u64));
    let beneath: u64 = match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => text_bytes(items).into_iter().sum(),
        DataType::Binary => items.as_binary::<i32>().iter().flatten().map(|bytes| bytes.len() as u64).sum(),
        DataType::LargeBinary => items.as_binary::<i64>().iter().flatten().map(|bytes| bytes.len() as u64).sum(),
        DataType::BinaryView => items.as_binary_view().iter().flatten().map(|bytes| bytes.len() as u64).sum(),
        DataType::List(_) => items.as_list::<i32>().iter().flatten().map(|list| item_bytes(&list)).sum(),
        DataType::LargeList(_) => items.as_list::<i64>().iter().flatten().map(|list| item_bytes(&list)).sum(),
        DataType::FixedSizeList(..) => item_bytes(items.as_fixed_size_list().values()),
        DataType::Struct(_) => items.as_struct().columns().iter().map(item_bytes).sum(),
        data_type if data_type.primitive_width().is_some() || matches!(data_type, DataType::Null | DataType::Boolean) => 0,
        _ => items.get_array_memory_size() as u64,
    };
    (items.len() as u64).saturating_mul(width).saturating_add(beneath)
}

#[cfg(test)]
mod tests;
