//! Collects dead letters: the raw record with its place and the reason.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryBuilder, Int32Builder, Int64Builder, RecordBatch, StringBuilder, TimestampMicrosecondBuilder};
use bytes::Bytes;
use engine::events::headers_to_json;
use event_log::TopicPartition;
use storage::dead_letter_schema;
use types::Result;
use types::record::Record;

#[derive(Debug, Default)]
pub(crate) struct DeadLetters {
    source: StringBuilder,
    partition: Int32Builder,
    offset: Int64Builder,
    timestamp: TimestampMicrosecondBuilder,
    reason: StringBuilder,
    key: BinaryBuilder,
    value: BinaryBuilder,
    headers: BinaryBuilder,
    bytes: usize,
}

impl DeadLetters {
    pub(crate) fn append(&mut self, source: &TopicPartition, record: &Record, reason: &str) {
        self.source.append_value(&source.topic);
        self.partition.append_value(source.partition);
        self.offset.append_value(record.offset.0);
        self.timestamp.append_value(record.timestamp);
        self.reason.append_value(reason);
        self.key.append_option(record.key.as_deref());
        self.value.append_option(record.value.as_deref());
        let headers = headers_to_json(&record.headers);
        let raw = [record.key.as_ref().map_or(0, Bytes::len), record.value.as_ref().map_or(0, Bytes::len)];
        self.bytes += 64 + reason.len() + raw.iter().sum::<usize>() + headers.as_ref().map_or(0, String::len);
        self.headers.append_option(headers);
    }

    /// Returns about how many bytes of memory they take, including everything kept of each record. Checkpoints become
    /// due by this number.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes the dead letters so far.
    pub(crate) fn finish(&mut self) -> Result<RecordBatch> {
        self.bytes = 0;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.source.finish()),
            Arc::new(self.partition.finish()),
            Arc::new(self.offset.finish()),
            Arc::new(self.timestamp.finish().with_timezone("UTC")),
            Arc::new(self.reason.finish()),
            Arc::new(self.key.finish()),
            Arc::new(self.value.finish()),
            Arc::new(self.headers.finish()),
        ];
        Ok(RecordBatch::try_new(dead_letter_schema(), columns)?)
    }
}

#[cfg(test)]
mod tests;
