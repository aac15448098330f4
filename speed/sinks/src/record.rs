//! A record's bytes: one JSON object with the columns as members, in the order of the SELECT. Headers name the event,
//! the sink with its version, and the values of parameters.

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, RecordBatch};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use bytes::Bytes;
use committed::registry::LiveSink;
use engine::parameters::{UsedParameters, used_text};
use engine::sinks::{OutputRecords, SinkPlan};
use event_log::{MAX_OUTPUT_BYTES, NewRecord, TopicPartition};
use types::columns::KEY;
use types::vector::Offset;
use types::{Error, Result};

/// The header that names the event: `topic/partition/offset`.
pub const SOURCE_HEADER: &str = "basestream-source";
/// The header that names the sink: `name@version`.
pub const SINK_HEADER: &str = "basestream-sink";
/// The header that names the parameters that the sink uses, each with the version of its value:
/// `name@version,name@version`.
pub const PARAMETERS_HEADER: &str = "basestream-parameters";

pub(crate) struct RecordWriter<'a> {
    pub(crate) sink: &'a LiveSink,
    pub(crate) plan: &'a SinkPlan,
    pub(crate) partition: &'a TopicPartition,
    pub(crate) events: &'a RecordBatch,
    /// The offsets of the events.
    pub(crate) offsets: &'a [i64],
}

impl RecordWriter<'_> {
    /// The records in the order of their events. An event on which the SELECT fails has one too.
    pub(crate) fn records(&self, made: &OutputRecords) -> Result<Vec<(Offset, NewRecord)>> {
        let mut records = Vec::with_capacity(made.events.len() + made.failed.len());
        let common = self.common_headers();
        let keys = RecordKeys::new(self.plan.key.map(|key| made.rows.column(key)), self.events)?;
        // A record is about as long as the one before.
        let mut length = 0;
        for (row, event) in made.events.iter().enumerate() {
            let mut value = Vec::with_capacity(length);
            serving::json::write_row(&mut value, &made.rows, row)?;
            length = value.len();
            if value.len() > MAX_OUTPUT_BYTES {
                value = failed(&format!("the record has {} bytes: expected at most {MAX_OUTPUT_BYTES}", value.len()));
            }
            records.push(self.record(*event, keys.key_of_row(row, *event)?, value, &common)?);
        }
        for event in &made.failed {
            records.push(self.record(event.event, keys.key_of_event(event.event), failed(&event.reason), &common)?);
        }
        records.sort_by_key(|(offset, _)| *offset);
        Ok(records)
    }

    /// The headers that all records of the sink have.
    fn common_headers(&self) -> Vec<(String, Bytes)> {
        let sink = format!("{}@{}", self.sink.name, self.sink.version);
        let parameters =
            (!self.plan.parameters.is_empty()).then(|| (PARAMETERS_HEADER.to_owned(), used_text(&self.plan.parameters).into()));
        [(SINK_HEADER.to_owned(), Bytes::from(sink))].into_iter().chain(parameters).collect()
    }

    fn record(&self, event: u32, key: Option<Bytes>, value: Vec<u8>, common: &[(String, Bytes)]) -> Result<(Offset, NewRecord)> {
        let offset = self.offsets.get(event as usize).copied().ok_or_else(|| Error::internal("a record of no event"))?;
        let source = Bytes::from(format!("{}/{offset}", self.partition));
        let own = (SOURCE_HEADER.to_owned(), source.clone());
        let headers = std::iter::once(own).chain(common.iter().cloned()).collect();
        // Without a key, a record goes to a partition that depends on its event's place: a repeat goes to the same one.
        let record = NewRecord { key, value: Some(Bytes::from(value)), headers, partition_by: Some(source) };
        Ok((Offset(offset), record))
    }
}

/// The keys of records: those of a column, as text, or those of the events.
struct RecordKeys<'a> {
    column: Option<(&'a ArrayRef, ArrayFormatter<'a>)>,
    /// The keys of the events' own records, if the archive keeps them.
    of_events: Option<&'a BinaryArray>,
}

impl<'a> RecordKeys<'a> {
    fn new(column: Option<&'a ArrayRef>, events: &'a RecordBatch) -> Result<RecordKeys<'a>> {
        let column = match column {
            Some(column) => Some((column, ArrayFormatter::try_new(column, &FormatOptions::default())?)),
            None => None,
        };
        let of_events = events.column_by_name(KEY).and_then(|keys| keys.as_binary_opt::<i32>());
        Ok(RecordKeys { column, of_events })
    }

    fn key_of_row(&self, row: usize, event: u32) -> Result<Option<Bytes>> {
        let Some((column, formatter)) = &self.column else { return Ok(self.key_of_event(event)) };
        if column.is_null(row) {
            return Ok(None);
        }
        if let Some(texts) = column.as_string_opt::<i32>() {
            return Ok(Some(Bytes::copy_from_slice(texts.value(row).as_bytes())));
        }
        Ok(Some(Bytes::from(formatter.value(row).try_to_string()?)))
    }

    /// Also the key of an event on which the SELECT fails.
    fn key_of_event(&self, event: u32) -> Option<Bytes> {
        let (keys, event) = (self.of_events?, event as usize);
        keys.is_valid(event).then(|| Bytes::copy_from_slice(keys.value(event)))
    }
}

/// The value of the record of an event on which the SELECT fails.
fn failed(reason: &str) -> Vec<u8> {
    serde_json::json!({ "_error": reason }).to_string().into_bytes()
}

/// Whether a record's value says that the SELECT failed. No column of a sink can have this name.
pub(crate) fn is_failed(value: &[u8]) -> bool {
    value.starts_with(b"{\"_error\":")
}

/// The sink that made a record and its version, from the record's headers.
pub fn sink_of(headers: &[(String, Bytes)]) -> Option<(&str, u32)> {
    let (name, version) = header(headers, SINK_HEADER)?.rsplit_once('@')?;
    Some((name, version.parse().ok()?))
}

/// The parameters that a record was made with, each with the version of its value, from the record's headers.
pub fn parameters_of(headers: &[(String, Bytes)]) -> UsedParameters {
    let used = header(headers, PARAMETERS_HEADER).unwrap_or_default().split(',').filter_map(|one| one.rsplit_once('@'));
    used.filter_map(|(name, version)| Some((name.into(), version.parse().ok()?))).collect()
}

/// The event of a record, from the record's headers.
pub fn source_of(headers: &[(String, Bytes)]) -> Option<(TopicPartition, Offset)> {
    let (source, offset) = header(headers, SOURCE_HEADER)?.rsplit_once('/')?;
    let (topic, partition) = source.rsplit_once('/')?;
    Some((TopicPartition { topic: topic.into(), partition: partition.parse().ok()? }, Offset(offset.parse().ok()?)))
}

fn header<'h>(headers: &'h [(String, Bytes)], name: &str) -> Option<&'h str> {
    let (_, value) = headers.iter().find(|(known, _)| known == name)?;
    std::str::from_utf8(value).ok()
}

#[cfg(test)]
mod tests;
