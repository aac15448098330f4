//! Reads a key's value from a text in a query or a lookup, in any of the spellings that events may have.

use arrow::array::StringArray;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;

use crate::events::spelling::{bytes, decimal, double, whole};
use crate::events::{asked_uuid, parse_boolean, parse_date, parse_timestamp};

/// Reads a text as a value of a key's type, whatever its spelling. `is_uuid`: the texts of this key are UUIDs. `None`
/// if the text means no value of the type; nothing is rounded.
pub fn parse_key(text: &str, data_type: &DataType, is_uuid: bool) -> Option<ScalarValue> {
    match data_type {
        DataType::Utf8 if is_uuid => asked_uuid(text).map(|uuid| ScalarValue::Utf8(Some(uuid.into_owned()))),
        DataType::Utf8 => Some(ScalarValue::Utf8(Some(text.to_owned()))),
        DataType::Binary => bytes(text).map(|bytes| ScalarValue::Binary(Some(bytes))),
        other => plain_key(text.trim(), other),
    }
}

fn plain_key(text: &str, data_type: &DataType) -> Option<ScalarValue> {
    match data_type {
        DataType::Boolean => parse_boolean(text).map(|truth| ScalarValue::Boolean(Some(truth))),
        DataType::Date32 => parse_date(text).map(|days| ScalarValue::Date32(Some(days))),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            parse_timestamp(text).ok().map(|time| ScalarValue::TimestampMicrosecond(Some(time), zone.clone()))
        }
        DataType::Decimal128(precision, scale) => {
            decimal(text, *precision, *scale).map(|unscaled| ScalarValue::Decimal128(Some(unscaled), *precision, *scale))
        }
        DataType::Int8 => integer(text).map(|value| ScalarValue::Int8(Some(value))),
        DataType::Int16 => integer(text).map(|value| ScalarValue::Int16(Some(value))),
        DataType::Int32 => integer(text).map(|value| ScalarValue::Int32(Some(value))),
        DataType::Int64 => integer(text).map(|value| ScalarValue::Int64(Some(value))),
        DataType::UInt8 => integer(text).map(|value| ScalarValue::UInt8(Some(value))),
        DataType::UInt16 => integer(text).map(|value| ScalarValue::UInt16(Some(value))),
        DataType::UInt32 => integer(text).map(|value| ScalarValue::UInt32(Some(value))),
        DataType::UInt64 => integer(text).map(|value| ScalarValue::UInt64(Some(value))),
        DataType::Float64 => double(text).map(|value| ScalarValue::Float64(Some(value))),
        other => exact_cast(text, other),
    }
}

fn integer<T: TryFrom<i128>>(text: &str) -> Option<T> {
    T::try_from(whole(text)?).ok()
}

/// Arrow's reading of a text, for types that no column of a stream has but an expression can. Decimals with more digits
/// than the type keeps are refused, not rounded.
fn exact_cast(text: &str, to: &DataType) -> Option<ScalarValue> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let texts = StringArray::from(vec![text]);
    let value = ScalarValue::try_from_array(&cast_with_options(&texts, to, &options).ok()?, 0).ok()?;
    if let DataType::Decimal256(_, scale) = to {
        let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction).trim_end_matches('0');
        if fraction.len() > usize::try_from(*scale).unwrap_or(0) || text.contains(['e', 'E']) {
            return None;
        }
    }
    (!value.is_null()).then_some(value)
}

#[cfg(test)]
mod tests;
