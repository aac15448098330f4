//! A record's bytes: one JSON object, with the columns as its members in the order of the SELECT. Two headers say which
//! event it is of, and which version of which sink made it.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::DataType;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use bytes::Bytes;
use committed::registry::LiveSink;
use engine::sinks::{Records, SinkPlan};
use event_log::{NewRecord, TopicPartition};
use types::columns::KEY;
use types::vector::Offset;
use types::{Error, Result};

/// The header that names the event: `topic/partition/offset`.
pub const SOURCE_HEADER: &str = "basestream-source";
/// The header that names the sink: `name@version`.
pub const SINK_HEADER: &str = "basestream-sink";

/// By default Kafka refuses records of more than about a megabyte.
const MAX_RECORD_BYTES: usize = 900 << 10;

pub(crate) struct Writer<'a> {
    pub(crate) sink: &'a LiveSink,
    pub(crate) plan: &'a SinkPlan,
    pub(crate) partition: &'a TopicPartition,
    pub(crate) events: &'a RecordBatch,
    /// Of the events.
    pub(crate) offsets: &'a [i64],
}

impl Writer<'_> {
    /// The records in the order of their events. An event on which the SELECT fails has one too: every accepted event has
    /// its record.
    pub(crate) fn records(&self, made: &Records) -> Result<Vec<(Offset, NewRecord)>> {
        let mut records = Vec::with_capacity(made.events.len() + made.failed.len());
        for (row, event) in made.events.iter().enumerate() {
            let mut value = Vec::new();
            serving::json::write_row(&mut value, &made.rows, row)?;
            if value.len() > MAX_RECORD_BYTES {
                value = failed(&format!("the record has {} bytes: expected at most {MAX_RECORD_BYTES}", value.len()));
            }
            let key = match self.plan.key {
                Some(key) => text(made.rows.column(key), row)?,
                None => self.key_of_event(*event),
            };
            records.push(self.record(*event, key, value)?);
        }
        for event in &made.failed {
            records.push(self.record(event.event, self.key_of_event(event.event), failed(&event.reason))?);
        }
        records.sort_by_key(|(offset, _)| *offset);
        Ok(records)
    }

    fn record(&self, event: u32, key: Option<Bytes>, value: Vec<u8>) -> Result<(Offset, NewRecord)> {
        let offset = self.offsets.get(event as usize).copied().ok_or_else(|| Error::internal("a record of no event"))?;
        let source = format!("{}/{offset}", self.partition);
        let sink = format!("{}@{}", self.sink.name, self.sink.version);
        let headers = vec![(SOURCE_HEADER.to_owned(), Bytes::from(source.clone())), (SINK_HEADER.to_owned(), Bytes::from(sink))];
        // Without a key, the records of one event's place always go to the same partition.
        let record = NewRecord { key, value: Some(Bytes::from(value)), headers, partition_by: Some(Bytes::from(source)) };
        Ok((Offset(offset), record))
    }

    /// The key of the event's own record, where the archive keeps it.
    fn key_of_event(&self, event: u32) -> Option<Bytes> {
        let keys = self.events.column_by_name(KEY)?.as_binary_opt::<i32>()?;
        keys.is_valid(event as usize).then(|| Bytes::copy_from_slice(keys.value(event as usize)))
    }
}

/// The record of an event that has no other.
fn failed(reason: &str) -> Vec<u8> {
    serde_json::json!({ "_error": reason }).to_string().into_bytes()
}

/// Whether a record's value is such a one: no column of a sink has this name.
pub(crate) fn is_failed(value: &[u8]) -> bool {
    value.starts_with(b"{\"_error\":")
}

/// A value as the text of a key.
fn text(column: &ArrayRef, row: usize) -> Result<Option<Bytes>> {
    if column.is_null(row) {
        return Ok(None);
    }
    if let DataType::Utf8 = column.data_type() {
        return Ok(Some(Bytes::copy_from_slice(column.as_string::<i32>().value(row).as_bytes())));
    }
    let options = FormatOptions::default();
    let formatter = ArrayFormatter::try_new(column, &options)?;
    Ok(Some(Bytes::from(formatter.value(row).try_to_string()?)))
}

/// The sink that made a record, and its version, by the record's headers.
pub fn sink_of(headers: &[(String, Bytes)]) -> Option<(&str, u32)> {
    let (name, version) = header(headers, SINK_HEADER)?.rsplit_once('@')?;
    Some((name, version.parse().ok()?))
}

/// The event of a record, by the record's headers.
pub fn source_of(headers: &[(String, Bytes)]) -> Option<(TopicPartition, Offset)> {
    let (source, offset) = header(headers, SOURCE_HEADER)?.rsplit_once('/')?;
    let (topic, partition) = source.rsplit_once('/')?;
    Some((TopicPartition { topic: topic.into(), partition: partition.parse().ok()? }, Offset(offset.parse().ok()?)))
}

fn header<'h>(headers: &'h [(String, Bytes)], name: &str) -> Option<&'h str> {
    let (_, value) = headers.iter().find(|(known, _)| known == name)?;
    std::str::from_utf8(value).ok()
}
