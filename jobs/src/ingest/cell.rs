//! Converts one text cell (of a CSV file, or a string in Parquet) to JSON of its column's type. Text that does not look
//! like the type is written as a string: the decoder then refuses it with a message that says why.

use definitions::ColumnType;
use engine::events::{TimeError, parse_boolean, parse_date, parse_timestamp};
use serde_json::value::RawValue;

use super::numbers::NumberFormat;

/// Appends the JSON of `text` to `out`. Returns false for null (the empty text), and appends nothing.
///
/// Errors: what was found and expected, where the decoder would accept a string: in a JSON column, and for a number
/// that is not in the format `numbers`.
pub(super) fn write_cell(column_type: &ColumnType, numbers: NumberFormat, text: &str, out: &mut Vec<u8>) -> Result<bool, String> {
    let trimmed = text.trim();
    if text.is_empty() || (trimmed.is_empty() && *column_type != ColumnType::Text) {
        return Ok(false);
    }
    let is_number = matches!(column_type, ColumnType::Int | ColumnType::BigInt | ColumnType::Decimal { .. } | ColumnType::Double);
    if is_number && numbers != NumberFormat::Plain {
        let plain = numbers.plain(trimmed);
        let plain = plain.ok_or_else(|| format!("found {}, expected a number written as {numbers}", shortened(trimmed)))?;
        write_number(&plain, out);
        return Ok(true);
    }
    match column_type {
        ColumnType::Text => write_string(text, out),
        ColumnType::Boolean => write_boolean(trimmed, out),
        ColumnType::Int | ColumnType::BigInt | ColumnType::Decimal { .. } => write_number(trimmed, out),
        ColumnType::Double => write_double(trimmed, out),
        ColumnType::TimestampTz => write_time(trimmed, out),
        ColumnType::Date | ColumnType::Uuid | ColumnType::Bytea => write_string(trimmed, out),
        ColumnType::Array(_) => match is_json(trimmed) {
            true => out.extend_from_slice(trimmed.as_bytes()),
            false => write_string(trimmed, out),
        },
        ColumnType::Json if is_json(trimmed) => out.extend_from_slice(trimmed.as_bytes()),
        ColumnType::Json => return Err(format!("found {}, expected JSON text", shortened(trimmed))),
    }
    Ok(true)
}

/// Appends a JSON string.
pub(super) fn write_string(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("a text always serializes, and memory takes all bytes");
}

/// Returns true if the text matches JSON's number grammar: `-1.5e3`, but not `007`, `+1` or `.5`.
pub(super) fn is_json_number(text: &str) -> bool {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(digits)
        && exponent.is_none_or(|exponent| digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)))
}

pub(super) fn is_json(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok()
}

/// Returns a point in time as RFC 3339. A time without a zone is UTC, and a date alone is its midnight.
pub(super) fn time_text(text: &str) -> Option<String> {
    let text = text.strip_suffix(" UTC").unwrap_or(text);
    match parse_timestamp(text) {
        Ok(_) => return Some(text.to_string()),
        Err(TimeError::NoZone) => return Some(format!("{text}Z")),
        Err(TimeError::Invalid | TimeError::OutOfRange) => {}
    }
    if parse_date(text).is_some() {
        return Some(format!("{text}T00:00:00Z"));
    }
    // Spreadsheets omit the seconds.
    let with_seconds = format!("{text}:00Z");
    (text.len() == 16 && parse_timestamp(&with_seconds).is_ok()).then_some(with_seconds)
}

fn write_boolean(text: &str, out: &mut Vec<u8>) {
    match parse_boolean(text) {
        Some(truth) => out.extend_from_slice(if truth { b"true" } else { b"false" }),
        None => write_string(text, out),
    }
}

/// Writes the number's text unchanged; the decoder reads looser forms (`+5`, `007`) from strings.
fn write_number(text: &str, out: &mut Vec<u8>) {
    if is_json_number(text) { out.extend_from_slice(text.as_bytes()) } else { write_string(text, out) }
}

fn write_double(text: &str, out: &mut Vec<u8>) {
    if is_json_number(text) {
        return out.extend_from_slice(text.as_bytes());
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => out.extend_from_slice(format!("{value:?}").as_bytes()),
        _ => write_string(text, out),
    }
}

fn write_time(text: &str, out: &mut Vec<u8>) {
    if is_json_number(text) {
        return out.extend_from_slice(text.as_bytes());
    }
    match time_text(text) {
        Some(time) => write_string(&time, out),
        None => write_string(text, out),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("\"{}..\"", &text[..end]),
        None => format!("\"{text}\""),
    }
}

#[cfg(test)]
mod tests;
