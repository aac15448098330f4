//! A record's bytes: one JSON object with the columns of the SELECT, then what happened.
//!
//! ```text
//! {"device_id":"d-7", .., "_alert":"device_silent","_id":"..","_state":"began","_since":"..","_at":"..",
//!  "_parameters":{"silence":3}}
//! ```
//!
//! `_parameters` has the version of the value of each parameter that the alert uses; without one it is left out.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Float32Type, Float64Type, Schema};
use bytes::Bytes;
use catalog::AlertTransition;
use committed::registry::LiveView;
use engine::events::format_timestamp;
use engine::parameters::UsedParameters;
use event_log::{MAX_OUTPUT_BYTES, NewRecord};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use types::{Error, Result, TransitionKind};

/// The header that names the alert: `name@version`.
pub const ALERT_HEADER: &str = "basestream-alert";

/// The JSON of a record. `columns` are those of the SELECT, `Err` with why they cannot be computed; `parameters` those
/// that the alert was planned with.
pub(crate) fn json(
    transition: &AlertTransition,
    columns: Result<(&RecordBatch, usize), &str>,
    parameters: &UsedParameters,
) -> Result<String> {
    let failed = |reason: &str| format!("{{\"_error\":{}", Value::from(reason)).into_bytes();
    let mut out = Vec::new();
    match columns {
        Ok((columns, row)) => {
            serving::json::write_row(&mut out, columns, row)?;
            if out.len() > MAX_OUTPUT_BYTES {
                out = failed(&format!("the record has {} bytes: expected at most {MAX_OUTPUT_BYTES}", out.len()));
            } else {
                out.pop();
            }
        }
        Err(reason) => out = failed(reason),
    }
    let mut members = vec![
        ("_alert", &*transition.alert).into_member(),
        ("_id", transition.id.as_str()).into_member(),
        ("_state", transition.kind.word()).into_member(),
    ];
    members.push(("_since", format_timestamp(transition.since).as_str()).into_member());
    members.push(("_at", format_timestamp(transition.at).as_str()).into_member());
    if !parameters.is_empty() {
        members.push(format!("\"_parameters\":{}", serde_json::to_string(parameters)?));
    }
    if out.len() > 1 {
        out.push(b',');
    }
    out.extend_from_slice(members.join(",").as_bytes());
    out.push(b'}');
    String::from_utf8(out).map_err(|_| Error::internal("a record is not UTF-8"))
}

trait Member {
    fn into_member(self) -> String;
}

impl Member for (&str, &str) {
    fn into_member(self) -> String {
        format!("\"{}\":{}", self.0, Value::from(self.1))
    }
}

/// Names what began: the alert with its version, the key, and when.
pub(crate) fn id((alert, version): (&str, u32), keys: &str, since: i64) -> String {
    format!("{alert}@{version}:{keys}:{}", format_timestamp(since))
}

/// Each encoded key as a JSON object of the view's keys.
pub(crate) fn keys_json(view: &LiveView, keys: &[Arc<[u8]>]) -> Result<Vec<String>> {
    let columns = view.decoded_keys(&keys.iter().map(|key| &**key).collect::<Vec<_>>())?;
    if columns.is_empty() {
        return Ok(vec!["{}".to_owned(); keys.len()]);
    }
    let fields: Vec<_> = view.plan.answer_keys().iter().map(|key| Arc::new(key.as_ref().clone().with_nullable(true))).collect();
    json_of_keys(&RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

/// NaN and infinities are texts: JSON has null for them, which is another key.
fn json_of_keys(keys: &RecordBatch) -> Result<Vec<String>> {
    let in_json = |(row, json): (usize, Box<RawValue>)| match with_texts(keys, row)? {
        None => Ok(json.get().to_owned()),
        Some(key) => Ok(serving::json::rows(&key)?.iter().map(|json| json.get()).collect()),
    };
    serving::json::rows(keys)?.into_iter().enumerate().map(in_json).collect()
}

/// The row with texts for floats that JSON does not have. `None` if it has none of these.
fn with_texts(keys: &RecordBatch, row: usize) -> Result<Option<RecordBatch>> {
    let texts: Vec<Option<&str>> = keys.columns().iter().map(|column| special_float(column, row)).collect();
    if texts.iter().all(Option::is_none) {
        return Ok(None);
    }
    let values = keys.schema_ref().fields().iter().zip(keys.columns()).zip(texts).map(|((field, column), text)| match text {
        Some(text) => (field.name(), Arc::new(StringArray::from(vec![text])) as ArrayRef, true),
        None => (field.name(), column.slice(row, 1), true),
    });
    Ok(Some(RecordBatch::try_from_iter_with_nullable(values)?))
}

fn special_float(column: &ArrayRef, row: usize) -> Option<&'static str> {
    let float = match column.data_type() {
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row),
        DataType::Float32 => f64::from(column.as_primitive::<Float32Type>().value(row)),
        _ => return None,
    };
    match (float.is_nan(), float.is_sign_negative()) {
        _ if float.is_finite() || column.is_null(row) => None,
        (true, false) => Some("NaN"),
        (true, true) => Some("-NaN"),
        (false, false) => Some("Infinity"),
        (false, true) => Some("-Infinity"),
    }
}

/// The other way round.
pub(crate) fn parsed_keys(json: &str) -> Result<Map<String, Value>> {
    match serde_json::from_str(json) {
        Ok(Value::Object(keys)) => Ok(keys),
        _ => Err(Error::corrupt("an open alert has no key").with("found", json)),
    }
}

/// The key of a record in its topic: the key's value where the view has one key, else all of them as JSON.
pub(crate) fn record_key(keys: &str) -> Result<String> {
    let parsed = parsed_keys(keys)?;
    let mut values = parsed.into_iter().map(|(_, value)| value);
    Ok(match (values.next(), values.next()) {
        (Some(Value::String(text)), None) => text,
        (Some(Value::Null), None) => keys.to_owned(),
        (Some(one), None) => one.to_string(),
        _ => keys.to_owned(),
    })
}

/// The record of a transition; `None` for what is not put out.
pub(crate) fn new_record(transition: &AlertTransition) -> Option<NewRecord> {
    let value = transition.record.clone()?;
    let alert = format!("{}@{}", transition.alert, transition.version);
    Some(NewRecord {
        key: transition.record_key.clone().map(Bytes::from),
        value: Some(Bytes::from(value)),
        headers: vec![(ALERT_HEADER.to_owned(), Bytes::from(alert))],
        partition_by: None,
    })
}

/// Whether a transition of this kind is put out.
pub(crate) fn is_put_out(kind: TransitionKind, resolve: bool) -> bool {
    kind != TransitionKind::Resolved || resolve
}

/// The alert of a record, and its version, by the record's headers.
pub fn alert_of(headers: &[(String, Bytes)]) -> Option<(&str, u32)> {
    let (_, value) = headers.iter().find(|(known, _)| known == ALERT_HEADER)?;
    let (name, version) = std::str::from_utf8(value).ok()?.rsplit_once('@')?;
    Some((name, version.parse().ok()?))
}

#[cfg(test)]
mod tests;
