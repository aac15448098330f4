//! Columns of a spine as keys of views and as times. Nothing is rounded: a value that has no equal of the type is
//! refused.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray, TimestampMicrosecondArray};
use arrow::compute::cast;
use arrow::compute::kernels::cmp::distinct;
use arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType, TimestampNanosecondType};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::ScalarValue;
use engine::events::{TimeError, parse_timestamp};
use engine::keys::parse_key;
use types::sql_types::{sql_name, timestamp_type};
use types::tiles::Micros;

/// The years 0001 to 9999.
const TIMES: std::ops::RangeInclusive<Micros> = -62_135_596_800_000_000..=253_402_300_799_999_999;
/// The most characters of a text that are shown.
const SHOWN: usize = 60;
const NO_ZONE: &str = "a time with a zone, such as 2026-01-01T12:00:00Z: without one the point in time is unknown";

/// A column, or the value of one row, that does not have the expected type.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TypeMismatch {
    /// `None`: the whole column.
    pub(super) row: Option<usize>,
    pub(super) found: String,
    pub(super) expected: String,
}

impl TypeMismatch {
    fn value(row: usize, found: impl Into<String>, expected: impl Into<String>) -> TypeMismatch {
        TypeMismatch { row: Some(row), found: found.into(), expected: expected.into() }
    }

    fn column(found: &DataType, expected: impl Into<String>) -> TypeMismatch {
        TypeMismatch { row: None, found: format!("a column of type {}", sql_name(found)), expected: expected.into() }
    }
}

/// A column as keys of this type. `is_uuid`: the texts of the key are UUIDs.
pub(super) fn keys(column: &ArrayRef, key: &DataType, is_uuid: bool) -> Result<ArrayRef, TypeMismatch> {
    let name = if is_uuid { "UUID".to_owned() } else { sql_name(key) };
    if let Some(row) = (0..column.len()).find(|row| column.is_null(*row)) {
        return Err(TypeMismatch::value(row, "NULL", format!("a value of type {name}: a row without a key has no features")));
    }
    if let Some(texts) = texts(column) {
        return from_texts(&texts, key, is_uuid, &name);
    }
    let (from, other) = (column.data_type(), || TypeMismatch::column(column.data_type(), format!("a column of type {name}")));
    match (from, key) {
        (DataType::FixedSizeBinary(16), DataType::Utf8) if is_uuid => {
            let bytes = column.as_fixed_size_binary();
            let text = |row: usize| bytes.value(row).try_into().map(|bytes| uuid::Uuid::from_bytes(bytes).hyphenated().to_string()).ok();
            Ok(Arc::new((0..column.len()).map(text).collect::<StringArray>()))
        }
        _ if from == key => Ok(column.clone()),
        (DataType::Timestamp(_, None), DataType::Timestamp(_, Some(_))) => Err(TypeMismatch::column(from, NO_ZONE)),
        (DataType::Timestamp(_, Some(_)), DataType::Timestamp(_, Some(_))) | (DataType::Date64, DataType::Date32) => {
            exact(column, key, &name)
        }
        (DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_), DataType::Binary) => {
            cast(column, key).map_err(|_| other())
        }
        _ if from.is_numeric() && key.is_numeric() => exact(column, key, &name),
        _ => Err(other()),
    }
}

/// A column as times.
pub(super) fn times(column: &ArrayRef) -> Result<ArrayRef, TypeMismatch> {
    if let Some(row) = (0..column.len()).find(|row| column.is_null(*row)) {
        return Err(TypeMismatch::value(row, "NULL", "a time with a zone"));
    }
    if let Some(texts) = texts(column) {
        let time = |row: usize| {
            let text = texts.value(row);
            parse_timestamp(text.trim()).map_err(|error| match error {
                TimeError::NoZone => TypeMismatch::value(row, shortened(text), NO_ZONE),
                TimeError::Invalid => TypeMismatch::value(row, shortened(text), "a time such as 2026-01-01T12:00:00Z"),
                TimeError::OutOfRange => TypeMismatch::value(row, shortened(text), "a time in the years 0001 to 9999"),
            })
        };
        let times = (0..texts.len()).map(time).collect::<Result<Vec<Micros>, TypeMismatch>>()?;
        return Ok(Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC")));
    }
    let unit = match column.data_type() {
        DataType::Timestamp(unit, Some(_)) => unit,
        DataType::Timestamp(_, None) => return Err(TypeMismatch::column(column.data_type(), NO_ZONE)),
        other => return Err(TypeMismatch::column(other, "TIMESTAMPTZ, or texts such as 2026-01-01T12:00:00Z")),
    };
    if *unit == TimeUnit::Nanosecond {
        let nanos = column.as_primitive::<TimestampNanosecondType>().values();
        if let Some(row) = nanos.iter().position(|time| time % 1_000 != 0) {
            return Err(TypeMismatch::value(row, value(column, row), "a time without a fraction of a microsecond"));
        }
    }
    let times = exact(column, &timestamp_type(), "TIMESTAMPTZ")?;
    let outside = times.as_primitive::<TimestampMicrosecondType>().values().iter().position(|time| !TIMES.contains(time));
    match outside {
        Some(row) => Err(TypeMismatch::value(row, value(column, row), "a time in the years 0001 to 9999")),
        None => Ok(times),
    }
}

/// The values of a column of texts, in whatever encoding.
fn texts(column: &ArrayRef) -> Option<StringArray> {
    let is_text = |data_type: &DataType| matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let is_texts = match column.data_type() {
        DataType::Dictionary(_, values) => is_text(values),
        plain => is_text(plain),
    };
    let texts = is_texts.then(|| cast(column, &DataType::Utf8).ok()).flatten()?;
    Some(texts.as_string::<i32>().clone())
}

fn from_texts(texts: &StringArray, key: &DataType, is_uuid: bool, name: &str) -> Result<ArrayRef, TypeMismatch> {
    if *key == DataType::Utf8 && !is_uuid {
        return Ok(Arc::new(texts.clone()));
    }
    let wrong = |row: usize| TypeMismatch::value(row, shortened(texts.value(row)), format!("a value of type {name}"));
    if texts.is_empty() {
        return Ok(arrow::array::new_empty_array(key));
    }
    let values = (0..texts.len()).map(|row| parse_key(texts.value(row), key, is_uuid).ok_or_else(|| wrong(row)));
    let values = values.collect::<Result<Vec<ScalarValue>, TypeMismatch>>()?;
    ScalarValue::iter_to_array(values).map_err(|_| wrong(0))
}

/// The beginning of a text in quotes, on one line.
fn shortened(text: &str) -> String {
    let shown = text.chars().map(|character| if character.is_control() { ' ' } else { character }).take(SHOWN);
    let end = if text.chars().nth(SHOWN).is_some() { " .." } else { "" };
    format!("\"{}{end}\"", shown.collect::<String>())
}

/// Casts values that have equals of the type.
fn exact(column: &ArrayRef, to: &DataType, name: &str) -> Result<ArrayRef, TypeMismatch> {
    let other = |_| TypeMismatch::column(column.data_type(), format!("a column of type {name}"));
    // What does not fit becomes NULL.
    let there = cast(column, to).map_err(other)?;
    let back = cast(&there, column.data_type()).map_err(other)?;
    let differs = distinct(&back, column).map_err(other)?;
    match (0..column.len()).find(|row| differs.value(*row)) {
        Some(row) => Err(TypeMismatch::value(row, value(column, row), format!("a value of type {name}"))),
        None => Ok(there),
    }
}

fn value(column: &ArrayRef, row: usize) -> String {
    let formatter = ArrayFormatter::try_new(column, &FormatOptions::default());
    formatter.map_or_else(|_| "a value".to_owned(), |formatter| formatter.value(row).to_string())
}

#[cfg(test)]
mod tests;
