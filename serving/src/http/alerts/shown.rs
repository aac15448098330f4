//! Open alerts and transitions as JSON. Keys and records are JSON already, and shown as they were committed.

use catalog::{AlertTransition, OpenAlert};
use engine::events::format_timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use types::{Error, Result};

#[derive(Serialize)]
struct Shown<'a> {
    alert: &'a str,
    version: u32,
    seq: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    key: &'a RawValue,
    since: String,
    at: String,
    record: Option<&'a RawValue>,
}

/// Writes a key that satisfies an alert's condition, with its last record.
pub(super) fn open_alert(out: &mut Vec<u8>, open: &OpenAlert) -> Result<()> {
    let (key, record) = (raw(&open.keys)?, raw_record(Some(&open.record))?);
    let (since, at) = (format_timestamp(open.since), format_timestamp(open.last_put_out));
    let shown = Shown { alert: &open.alert, version: open.version, seq: open.seq, state: None, key, since, at, record };
    Ok(serde_json::to_writer(out, &shown)?)
}

/// A transition. Without a record, where none is put out: what is resolved, without `resolve`.
pub(super) fn transition(made: &AlertTransition) -> Result<String> {
    let (key, record) = (raw(&made.keys)?, raw_record(made.record.as_deref())?);
    let (since, at) = (format_timestamp(made.since), format_timestamp(made.at));
    let state = Some(made.kind.word());
    let shown = Shown { alert: &made.alert, version: made.version, seq: made.seq, state, key, since, at, record };
    Ok(serde_json::to_string(&shown)?)
}

fn raw_record(record: Option<&str>) -> Result<Option<&RawValue>> {
    record.filter(|record| !record.is_empty()).map(raw).transpose()
}

fn raw(json: &str) -> Result<&RawValue> {
    serde_json::from_str(json).map_err(|error| Error::corrupt("what the catalog has of an alert is not JSON").caused_by(error))
}
