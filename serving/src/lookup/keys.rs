//! The keys of a lookup: typed values, the texts of a URL, or JSON. All are converted to the exact types of a view's
//! keys, whatever their spelling.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, FieldRef};
use committed::registry::LiveView;
use datafusion::common::ScalarValue;
use engine::keys::parse_key;
use engine::plan::ViewPlan;
use serde_json::Value;
use types::sql_types::sql_name;
use types::sql_types::timestamp_type;
use types::{Error, Result};

use crate::answerer::answerer;

/// JSON numbers with more digits than this may have lost precision as floats.
const EXACT_DIGITS: usize = 15;

/// The keys of one lookup; each names every key column of the view once.
#[derive(Debug, Clone)]
pub enum Keys {
    /// In the order of the view's keys.
    Typed(Vec<Vec<ScalarValue>>),
    /// Column and text, as in a URL or on the command line. NULL cannot be written.
    Text(Vec<Vec<(String, String)>>),
    /// Column and JSON value; null is NULL. Decimals and big integers may be texts.
    Json(Vec<serde_json::Map<String, Value>>),
}

impl Keys {
    /// The number of keys.
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

    /// Each key's values in the order and of the types of the view's keys, in the spelling that is stored.
    pub(crate) fn typed(self, plan: &ViewPlan) -> Result<Vec<Vec<ScalarValue>>> {
        let types = plan.answer_keys().iter().enumerate().map(|(key, field)| KeyType { field, is_uuid: plan.is_uuid(key) });
        self.with_types(&types.collect::<Vec<_>>())
    }

    fn with_types(self, types: &[KeyType]) -> Result<Vec<Vec<ScalarValue>>> {
        match self {
            Keys::Typed(keys) => keys.into_iter().map(|key| check_types(key, types)).collect(),
            Keys::Text(keys) => keys.iter().map(|key| from_texts(key, types)).collect(),
            Keys::Json(keys) => {
                keys.iter().enumerate().map(|(i, key)| from_json(key, types).map_err(|error| error.with("key", i))).collect()
            }
        }
    }
}

/// A key column of the view.
#[derive(Debug, Clone, Copy)]
struct KeyType<'a> {
    field: &'a FieldRef,
    is_uuid: bool,
}

impl KeyType<'_> {
    fn name(&self) -> &str {
        self.field.name()
    }

    fn data_type(&self) -> &DataType {
        self.field.data_type()
    }

    fn sql_name(&self) -> String {
        if self.is_uuid { "UUID".to_owned() } else { sql_name(self.data_type()) }
    }
}

/// The keys as one column for each key column of the view.
pub(super) fn columns(fields: &[FieldRef], keys: &[Vec<ScalarValue>]) -> Result<Vec<ArrayRef>> {
    match keys {
        [] => Ok(fields.iter().map(|field| arrow::array::new_empty_array(field.data_type())).collect()),
        [key] => key.iter().map(|value| Ok(value.to_array()?)).collect(),
        _ => (0..fields.len()).map(|index| Ok(ScalarValue::iter_to_array(keys.iter().map(|key| key[index].clone()))?)).collect(),
    }
}

/// Encodes keys of a view that are JSON objects of its key columns.
///
/// Errors: `Input` for an object that is not a key of the view.
pub fn encoded_keys(view: &LiveView, keys: Vec<serde_json::Map<String, Value>>) -> Result<Vec<Arc<[u8]>>> {
    let count = keys.len();
    let columns = columns(view.plan.answer_keys(), &Keys::Json(keys).typed(&view.plan)?)?;
    Ok(answerer(view).encode(&columns, count)?.iter().flatten().map(Arc::from).collect())
}

fn check_types(key: Vec<ScalarValue>, types: &[KeyType]) -> Result<Vec<ScalarValue>> {
    if key.len() != types.len() {
        return Err(Error::input(format!("the key has {} values: expected {}", key.len(), expected(types))));
    }
    let value = |(value, key): (ScalarValue, &KeyType)| match &value {
        found if found.data_type() != *key.data_type() => Err(wrong(key, &format!("{found} of type {}", sql_name(&found.data_type())))),
        ScalarValue::Utf8(Some(text)) if key.is_uuid => parse(key, text),
        _ => Ok(value),
    };
    key.into_iter().zip(types).map(value).collect()
}

fn from_texts(key: &[(String, String)], types: &[KeyType]) -> Result<Vec<ScalarValue>> {
    for (index, (name, _)) in key.iter().enumerate() {
        known(name, types)?;
        if key[..index].iter().any(|(earlier, _)| earlier == name) {
            return Err(Error::input(format!("the key column \"{name}\" is given twice: expected {}", expected(types))));
        }
    }
    let value = |of: &KeyType| match key.iter().find(|(name, _)| name == of.name()) {
        Some((_, text)) => parse(of, text),
        None => Err(missing(of, types)),
    };
    types.iter().map(value).collect()
}

fn from_json(key: &serde_json::Map<String, Value>, types: &[KeyType]) -> Result<Vec<ScalarValue>> {
    key.keys().try_for_each(|name| known(name, types))?;
    let value = |of: &KeyType| match key.get(of.name()) {
        Some(value) => json_value(of, value),
        None => Err(missing(of, types)),
    };
    types.iter().map(value).collect()
}

fn json_value(key: &KeyType, value: &Value) -> Result<ScalarValue> {
    let data_type = key.data_type();
    match value {
        Value::Null => Ok(ScalarValue::try_new_null(data_type)?),
        Value::String(text) => parse(key, text),
        Value::Bool(truth) if *data_type == DataType::Boolean => Ok(ScalarValue::Boolean(Some(*truth))),
        Value::Number(number) if !is_text(data_type) && *data_type != DataType::Boolean => {
            let digits = number.to_string();
            if number.is_f64() && !data_type.is_floating() && digits.bytes().filter(u8::is_ascii_digit).count() > EXACT_DIGITS {
                return Err(wrong(key, &format!("the number {digits}, of more digits than JSON keeps: write it as a text")));
            }
            parse(key, &digits)
        }
        other => Err(wrong(key, &format!("{other}"))),
    }
}

/// Parses a text, in any spelling, as a value of a key's type. It may come from a query string, where an unescaped `+`
/// becomes a space.
fn parse(key: &KeyType, text: &str) -> Result<ScalarValue> {
    let meant = match key.data_type() {
        DataType::Timestamp(..) => with_zones_plus(text),
        DataType::Binary => Cow::Owned(text.replace(' ', "+")),
        _ => Cow::Borrowed(text),
    };
    parse_key(&meant, key.data_type(), key.is_uuid).ok_or_else(|| wrong(key, &format!("\"{}\"", shortened(text))))
}

/// Restores the `+` of a zone in a time from a query string, where an unescaped `+` becomes a space.
pub(crate) fn with_zones_plus(time: &str) -> Cow<'_, str> {
    const DATE: usize = "2026-05-01".len();
    match time.rsplit_once(' ') {
        Some((before, zone)) if before.len() > DATE && zone.starts_with(|first: char| first.is_ascii_digit()) => {
            Cow::Owned(format!("{before}+{zone}"))
        }
        _ => Cow::Borrowed(time),
    }
}

fn is_text(data_type: &DataType) -> bool {
    let by_text = matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Binary | DataType::Date32);
    by_text || *data_type == timestamp_type()
}

fn known(name: &str, types: &[KeyType]) -> Result<()> {
    match types.iter().any(|key| key.name() == name) {
        true => Ok(()),
        false => Err(Error::input(format!("\"{name}\" is not a key column of the view: expected {}", expected(types)))),
    }
}

fn missing(key: &KeyType, types: &[KeyType]) -> Error {
    Error::input(format!("the key column \"{}\" is missing: expected {}", key.name(), expected(types)))
}

fn wrong(key: &KeyType, found: &str) -> Error {
    let form = match key.data_type() {
        _ if key.is_uuid => " (32 hexadecimal digits, with hyphens or without)",
        DataType::Binary => " as base64",
        DataType::Timestamp(..) => " as RFC 3339 with a zone, such as 2024-05-01T12:30:00Z",
        DataType::Date32 => " as YYYY-MM-DD",
        DataType::Boolean => " (true or false)",
        _ => "",
    };
    Error::input(format!("the key column \"{}\": found {found}, expected {}{form}", key.name(), key.sql_name()))
}

fn expected(types: &[KeyType]) -> String {
    match types {
        [] => "no key: the view has one row".to_owned(),
        _ => types.iter().map(|key| format!("{} {}", key.name(), key.sql_name())).collect::<Vec<_>>().join(", "),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
