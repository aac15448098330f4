//! A typed value, read from JSON text by the rules of its column.

use std::borrow::Cow;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, DecimalType, Float64Type, Int32Type, Int64Type, TimeUnit as ArrowTimeUnit,
    TimestampMicrosecondType,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;

use super::number::floored;
use super::spelling;
use super::time::{self, TimeError, format_date, format_timestamp};
use definitions::{ColumnType, TimeUnit};
use types::tiles::Micros;

/// A value of a stream's column. Texts without escapes are borrowed from the record.
#[derive(Debug, Clone, PartialEq)]
pub enum ColumnValue<'a> {
    Null,
    /// TEXT, UUID (lower case, with hyphens) and JSON (its text).
    Text(Cow<'a, str>),
    Boolean(bool),
    Int(i32),
    BigInt(i64),
    Double(f64),
    Decimal {
        unscaled: i128,
        scale: i8,
    },
    /// Days since 1970-01-01.
    Date(i32),
    /// Microseconds since 1970-01-01 UTC.
    Timestamp(Micros),
    Bytes(Vec<u8>),
    List(Vec<ColumnValue<'a>>),
}

impl ColumnValue<'_> {
    /// Returns the unique text of this value as an id or a key, the same that [`canonical_text`] returns for the
    /// archived value. `None` for null and for arrays.
    pub fn canonical_text(&self) -> Option<Cow<'_, str>> {
        Some(match self {
            ColumnValue::Null | ColumnValue::List(_) => return None,
            ColumnValue::Text(text) => Cow::Borrowed(text),
            ColumnValue::Boolean(value) => value.to_string().into(),
            ColumnValue::Int(value) => value.to_string().into(),
            ColumnValue::BigInt(value) => value.to_string().into(),
            ColumnValue::Double(value) => value.to_string().into(),
            ColumnValue::Decimal { unscaled, scale } => decimal_text(*unscaled, *scale).into(),
            ColumnValue::Date(days) => format_date(*days).into(),
            ColumnValue::Timestamp(time) => format_timestamp(*time).into(),
            ColumnValue::Bytes(bytes) => STANDARD.encode(bytes).into(),
        })
    }
}

/// Returns the unique text of an archived value as an id or a key. `None` for null and for types that no column has.
pub fn canonical_text(array: &dyn Array, row: usize) -> Option<Cow<'_, str>> {
    if array.is_null(row) {
        return None;
    }
    Some(match array.data_type() {
        DataType::Utf8 => Cow::Borrowed(array.as_string::<i32>().value(row)),
        DataType::Utf8View => Cow::Borrowed(array.as_string_view().value(row)),
        DataType::Boolean => array.as_boolean().value(row).to_string().into(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(row).to_string().into(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).to_string().into(),
        DataType::Float64 => array.as_primitive::<Float64Type>().value(row).to_string().into(),
        DataType::Decimal128(_, scale) => decimal_text(array.as_primitive::<Decimal128Type>().value(row), *scale).into(),
        DataType::Date32 => format_date(array.as_primitive::<Date32Type>().value(row)).into(),
        DataType::Timestamp(ArrowTimeUnit::Microsecond, _) => {
            format_timestamp(array.as_primitive::<TimestampMicrosecondType>().value(row)).into()
        }
        DataType::Binary => STANDARD.encode(array.as_binary::<i32>().value(row)).into(),
        DataType::BinaryView => STANDARD.encode(array.as_binary_view().value(row)).into(),
        _ => return None,
    })
}

/// Why a value does not fit its column's type.
#[derive(Debug)]
pub(crate) struct Mismatch {
    /// The position in an array, as `[3]`; empty for the value itself.
    pub(super) place: String,
    pub(super) found: String,
    pub(super) expected: String,
}

/// Reads a value by its column's type. JSON's null becomes [`ColumnValue::Null`].
pub(crate) fn read<'a>(column_type: &ColumnType, unit: Option<TimeUnit>, json: &'a str) -> Result<ColumnValue<'a>, Mismatch> {
    if json == "null" {
        return Ok(ColumnValue::Null);
    }
    let value = match column_type {
        ColumnType::Text => text(json).map(ColumnValue::Text),
        ColumnType::Json => Some(ColumnValue::Text(Cow::Borrowed(json))),
        ColumnType::Boolean => boolean(json),
        ColumnType::Int => whole(json).and_then(|value| value.try_into().ok()).map(ColumnValue::Int),
        ColumnType::BigInt => whole(json).and_then(|value| value.try_into().ok()).map(ColumnValue::BigInt),
        ColumnType::Double => double(json),
        ColumnType::Decimal { precision, scale } => decimal(json, *precision, *scale),
        ColumnType::Date => text(json).and_then(|text| time::parse_date(&text)).map(ColumnValue::Date),
        ColumnType::Uuid => text(json).and_then(spelling::canonical_uuid).map(ColumnValue::Text),
        ColumnType::Bytea => text(json).and_then(|text| spelling::bytes(&text)).map(ColumnValue::Bytes),
        ColumnType::TimestampTz => return timestamp(json, unit),
        ColumnType::Array(item) => return list(item, unit, json),
    };
    value.ok_or_else(|| mismatch(json, expectation(column_type)))
}

/// Returns what a column expects of its values, for error messages.
fn expectation(column_type: &ColumnType) -> String {
    let rule = match column_type {
        ColumnType::Text => "a JSON string".to_string(),
        ColumnType::Boolean => "true or false".to_string(),
        ColumnType::Int => format!("a whole number from {} to {}", i32::MIN, i32::MAX),
        ColumnType::BigInt => format!("a whole number from {} to {}", i64::MIN, i64::MAX),
        ColumnType::Double => "a finite JSON number".to_string(),
        ColumnType::Decimal { precision, scale } => {
            let before = i16::from(*precision) - i16::from(*scale);
            format!("a number with at most {before} digits before the point and {scale} behind it")
        }
        ColumnType::Date => "'YYYY-MM-DD', years 0001 to 9999".to_string(),
        ColumnType::TimestampTz => "RFC 3339 text with a zone, years 0001 to 9999".to_string(),
        ColumnType::Uuid => "32 hexadecimal digits with hyphens".to_string(),
        ColumnType::Bytea => "base64 text".to_string(),
        ColumnType::Json => "any JSON value".to_string(),
        ColumnType::Array(_) => "a JSON array".to_string(),
    };
    format!("{column_type}: {rule}")
}

/// Returns a JSON text, shortened to at most 60 characters.
pub(super) fn shortened(json: &str) -> String {
    match json.char_indices().nth(60) {
        Some((end, _)) => format!("{}.. ({} bytes)", &json[..end], json.len()),
        None => json.to_string(),
    }
}

fn mismatch(json: &str, expected: String) -> Mismatch {
    Mismatch { place: String::new(), found: shortened(json), expected }
}

/// Returns the content of a JSON string. `None` if it is not a string, or if it has an escape that is not a character.
fn text(json: &str) -> Option<Cow<'_, str>> {
    let content = json.strip_prefix('"')?.strip_suffix('"')?;
    if content.as_bytes().contains(&b'\\') { serde_json::from_str(json).ok().map(Cow::Owned) } else { Some(Cow::Borrowed(content)) }
}

fn boolean<'a>(json: &str) -> Option<ColumnValue<'a>> {
    json.parse().ok().map(ColumnValue::Boolean)
}

/// Returns the text of a number, or of a string that contains one.
fn number_text(json: &str) -> Option<Cow<'_, str>> {
    match json.as_bytes().first()? {
        b'"' => text(json),
        b'-' | b'0'..=b'9' => Some(Cow::Borrowed(json)),
        _ => None,
    }
}

fn whole(json: &str) -> Option<i128> {
    spelling::whole(&number_text(json)?)
}

fn double<'a>(json: &str) -> Option<ColumnValue<'a>> {
    let value = if is_number(json) { spelling::double(json)? } else { return None };
    value.is_finite().then_some(ColumnValue::Double(value))
}

fn is_number(json: &str) -> bool {
    json.starts_with(|first: char| first == '-' || first.is_ascii_digit())
}

fn decimal<'a>(json: &str, precision: u8, scale: i8) -> Option<ColumnValue<'a>> {
    spelling::decimal(&number_text(json)?, precision, scale).map(|unscaled| ColumnValue::Decimal { unscaled, scale })
}

/// Reads a timestamp: text in RFC 3339, or a number (or a string that contains one) in the column's unit.
fn timestamp<'a>(json: &str, unit: Option<TimeUnit>) -> Result<ColumnValue<'a>, Mismatch> {
    let wrong = |help: &str| mismatch(json, format!("{}{help}", expectation(&ColumnType::TimestampTz)));
    if let Some(unit) = unit
        && let Some(number) = number_text(json)
        && let Some(time) = in_unit(&number, unit)
    {
        let time = i64::try_from(time).ok().and_then(time::in_range).ok_or_else(|| wrong(", or a number in the column's unit"))?;
        return Ok(ColumnValue::Timestamp(time));
    }
    let Some(text) = text(json) else {
        return Err(match unit {
            None if is_number(json) => wrong("; for numbers give the column a unit: OPTIONS (unit = 's', 'ms', 'us' or 'ns')"),
            None => wrong(""),
            Some(_) => wrong(", or a number in the column's unit"),
        });
    };
    time::parse_timestamp(&text).map(ColumnValue::Timestamp).map_err(|error| match error {
        TimeError::NoZone => wrong("; this one has no zone: add Z or an offset as +02:00"),
        TimeError::Invalid | TimeError::OutOfRange => wrong(""),
    })
}

/// Converts a number of the unit to microseconds, rounded down.
fn in_unit(number: &str, unit: TimeUnit) -> Option<i128> {
    match unit {
        TimeUnit::Seconds => floored(number, 6),
        TimeUnit::Millis => floored(number, 3),
        TimeUnit::Micros => floored(number, 0),
        TimeUnit::Nanos => floored(number, 0).map(|nanos| nanos.div_euclid(1000)),
    }
}

fn list<'a>(item: &ColumnType, unit: Option<TimeUnit>, json: &'a str) -> Result<ColumnValue<'a>, Mismatch> {
    let wrong = || mismatch(json, format!("{item}[]: a JSON array"));
    if !json.starts_with('[') {
        return Err(wrong());
    }
    let items: Vec<&'a RawValue> = serde_json::from_str(json).map_err(|_| wrong())?;
    let read_one = |(index, raw): (usize, &'a RawValue)| {
        read(item, unit, raw.get()).map_err(|inner| Mismatch { place: format!("[{index}]{}", inner.place), ..inner })
    };
    items.into_iter().enumerate().map(read_one).collect::<Result<_, _>>().map(ColumnValue::List)
}

fn decimal_text(unscaled: i128, scale: i8) -> String {
    Decimal128Type::format_decimal(unscaled, arrow::datatypes::DECIMAL128_MAX_PRECISION, scale)
}
