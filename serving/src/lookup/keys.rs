//! Keys as they are asked for: typed values, the texts of a URL, or JSON. All become the exact types of a view's keys.

use arrow::array::{ArrayRef, StringArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, FieldRef, TimeUnit};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use datafusion::common::ScalarValue;
use engine::events::{parse_date, parse_timestamp};
use serde_json::Value;
use types::sql_types::sql_name;
use types::sql_types::timestamp_type;
use types::{Error, Result};

/// JSON numbers with more digits than this may have lost some on their way through a float.
const EXACT_DIGITS: usize = 15;

/// The keys of one lookup; each names every key column of the view once.
#[derive(Debug, Clone)]
pub enum Keys {
    /// In the order of the view's keys.
    Typed(Vec<Vec<ScalarValue>>),
    /// Column and text, as in a URL or on the command line. NULL cannot be said.
    Text(Vec<Vec<(String, String)>>),
    /// Column and JSON value; null is NULL. Decimals and big integers may be texts.
    Json(Vec<serde_json::Map<String, Value>>),
}

impl Keys {
    pub fn len(&self) -> usize {
        match self {
            Keys::Typed(keys) => keys.len(),
            Keys::Text(keys) => keys.len(),
            Keys::Json(keys) => keys.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Each key's values in the order and of the types of the view's keys.
    pub(crate) fn typed(self, fields: &[FieldRef]) -> Result<Vec<Vec<ScalarValue>>> {
        match self {
            Keys::Typed(keys) => keys.into_iter().map(|key| check_types(key, fields)).collect(),
            Keys::Text(keys) => keys.iter().map(|key| from_texts(key, fields)).collect(),
            Keys::Json(keys) => {
                keys.iter().enumerate().map(|(i, key)| from_json(key, fields).map_err(|error| error.with("key", i))).collect()
            }
        }
    }
}

/// One column for each key of the view.
pub(super) fn columns(fields: &[FieldRef], keys: &[Vec<ScalarValue>]) -> Result<Vec<ArrayRef>> {
    if keys.is_empty() {
        return Ok(fields.iter().map(|field| arrow::array::new_empty_array(field.data_type())).collect());
    }
    (0..fields.len()).map(|index| Ok(ScalarValue::iter_to_array(keys.iter().map(|key| key[index].clone()))?)).collect()
}

fn check_types(key: Vec<ScalarValue>, fields: &[FieldRef]) -> Result<Vec<ScalarValue>> {
    if key.len() != fields.len() {
        return Err(Error::input(format!("a key of {} values: expected {}", key.len(), expected(fields))));
    }
    for (value, field) in key.iter().zip(fields) {
        if value.data_type() != *field.data_type() {
            return Err(wrong(field, &format!("{value} of type {}", sql_name(&value.data_type()))));
        }
    }
    Ok(key)
}

fn from_texts(key: &[(String, String)], fields: &[FieldRef]) -> Result<Vec<ScalarValue>> {
    for (index, (name, _)) in key.iter().enumerate() {
        known(name, fields)?;
        if key[..index].iter().any(|(earlier, _)| earlier == name) {
            return Err(Error::input(format!("the key column \"{name}\" is given twice: expected {}", expected(fields))));
        }
    }
    let value = |field: &FieldRef| match key.iter().find(|(name, _)| name == field.name()) {
        Some((_, text)) => parse(field, text),
        None => Err(missing(field, fields)),
    };
    fields.iter().map(value).collect()
}

fn from_json(key: &serde_json::Map<String, Value>, fields: &[FieldRef]) -> Result<Vec<ScalarValue>> {
    key.keys().try_for_each(|name| known(name, fields))?;
    let value = |field: &FieldRef| match key.get(field.name()) {
        Some(value) => json_value(field, value),
        None => Err(missing(field, fields)),
    };
    fields.iter().map(value).collect()
}

fn json_value(field: &FieldRef, value: &Value) -> Result<ScalarValue> {
    let text = is_text(field.data_type());
    match value {
        Value::Null => Ok(ScalarValue::try_new_null(field.data_type())?),
        Value::String(text) => parse(field, text),
        Value::Bool(truth) if *field.data_type() == DataType::Boolean => Ok(ScalarValue::Boolean(Some(*truth))),
        Value::Number(number) if !text && *field.data_type() != DataType::Boolean => {
            let digits = number.to_string();
            if number.is_f64() && !field.data_type().is_floating() && digits.bytes().filter(u8::is_ascii_digit).count() > EXACT_DIGITS {
                return Err(wrong(field, &format!("the number {digits}, of more digits than JSON keeps: write it as a text")));
            }
            parse(field, &digits)
        }
        other => Err(wrong(field, &format!("{other}"))),
    }
}

/// A text as a value of a key's type.
fn parse(field: &FieldRef, text: &str) -> Result<ScalarValue> {
    let found = || wrong(field, &format!("\"{}\"", shortened(text)));
    match field.data_type() {
        DataType::Utf8 => Ok(ScalarValue::Utf8(Some(text.to_owned()))),
        DataType::Date32 => parse_date(text).map(|days| ScalarValue::Date32(Some(days))).ok_or_else(found),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let time = parse_timestamp(text).map_err(|_| found())?;
            Ok(ScalarValue::TimestampMicrosecond(Some(time), zone.clone()))
        }
        DataType::Binary => STANDARD.decode(text).map(|bytes| ScalarValue::Binary(Some(bytes))).map_err(|_| found()),
        DataType::Boolean => match text {
            "true" => Ok(ScalarValue::Boolean(Some(true))),
            "false" => Ok(ScalarValue::Boolean(Some(false))),
            _ => Err(found()),
        },
        other => exact_cast(text, other).ok_or_else(found),
    }
}

/// Arrow's reading of a text. Decimals with more digits than the type keeps are refused, not rounded.
fn exact_cast(text: &str, to: &DataType) -> Option<ScalarValue> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let texts = StringArray::from(vec![text.trim()]);
    let value = ScalarValue::try_from_array(&cast_with_options(&texts, to, &options).ok()?, 0).ok()?;
    if let DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) = to {
        let fraction = text.trim().split_once('.').map_or("", |(_, fraction)| fraction).trim_end_matches('0');
        if fraction.len() > usize::try_from(*scale).unwrap_or(0) || text.contains(['e', 'E']) {
            return None;
        }
    }
    (!value.is_null()).then_some(value)
}

fn is_text(data_type: &DataType) -> bool {
    let by_text = matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Binary | DataType::Date32);
    by_text || *data_type == timestamp_type()
}

fn known(name: &str, fields: &[FieldRef]) -> Result<()> {
    match fields.iter().any(|field| field.name() == name) {
        true => Ok(()),
        false => Err(Error::input(format!("\"{name}\" is not a key column of the view: expected {}", expected(fields)))),
    }
}

fn missing(field: &FieldRef, fields: &[FieldRef]) -> Error {
    Error::input(format!("the key column \"{}\" is missing: expected {}", field.name(), expected(fields)))
}

fn wrong(field: &FieldRef, found: &str) -> Error {
    let form = match field.data_type() {
        DataType::Binary => " as base64",
        DataType::Timestamp(..) => " as RFC 3339 with a zone, such as 2024-05-01T12:30:00Z",
        DataType::Date32 => " as YYYY-MM-DD",
        DataType::Boolean => " (true or false)",
        _ => "",
    };
    Error::input(format!("the key column \"{}\": found {found}, expected {}{form}", field.name(), sql_name(field.data_type())))
}

fn expected(fields: &[FieldRef]) -> String {
    match fields {
        [] => "no key: the view has one row".to_owned(),
        _ => fields.iter().map(|field| format!("{} {}", field.name(), sql_name(field.data_type()))).collect::<Vec<_>>().join(", "),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text.to_owned(),
    }
}
