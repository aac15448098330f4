//! Encodes and decodes a stored record batch: one BLOB, format 1.
//!
//! The BLOB holds the records in order. Each record is a flag byte (1 has a key, 2 has a value), then the length and
//! bytes of the key and of the value where present, then the number of headers and, for each, the length and bytes of
//! its name and of its value. Lengths are unsigned LEB128. The checksum is CRC-32 over the batch's place (partition,
//! base offset, records, timestamp; little endian, 4 + 8 + 8 + 8 bytes) and the BLOB, so that a batch in the wrong
//! place is detected as well.

use bytes::Bytes;

use crate::{NewRecord, TopicPartition};
use types::record::Record;
use types::tiles::Micros;
use types::vector::Offset;
use types::{Error, Result};

const HAS_KEY: u8 = 1;
const HAS_VALUE: u8 = 2;

/// One row of the table `batch`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BatchRow {
    pub(super) base_offset: i64,
    pub(super) records: i64,
    pub(super) timestamp: Micros,
    pub(super) checksum: i64,
    pub(super) data: Vec<u8>,
}

impl BatchRow {
    /// Encodes records that start at `base_offset`.
    pub(super) fn encode<'a>(
        partition: i32,
        base_offset: i64,
        timestamp: Micros,
        records: impl ExactSizeIterator<Item = &'a NewRecord>,
    ) -> BatchRow {
        let count = records.len() as i64;
        let mut data = Vec::new();
        for record in records {
            put_record(&mut data, record);
        }
        let checksum = checksum(partition, base_offset, count, timestamp, &data);
        BatchRow { base_offset, records: count, timestamp, checksum, data }
    }

    /// Returns the offset after its last record.
    pub(super) fn end(&self) -> i64 {
        self.base_offset.saturating_add(self.records)
    }

    /// Checks the batch and appends its records at or after `from` to `into`, until `into` has `max_records` records.
    /// Errors: `Corrupt`, naming the partition and the base offset.
    pub(super) fn decode(&self, source: &TopicPartition, from: i64, max_records: usize, into: &mut Vec<Record>) -> Result<()> {
        let found = checksum(source.partition, self.base_offset, self.records, self.timestamp, &self.data);
        if found != self.checksum {
            return Err(self.damaged(source, "its checksum does not fit"));
        }
        let mut rest = self.data.as_slice();
        for offset in self.base_offset..self.end() {
            if into.len() >= max_records {
                return Ok(());
            }
            let fields = take_record(&mut rest).ok_or_else(|| self.damaged(source, "it ends early"))?;
            if offset >= from {
                into.push(fields.into_record(Offset(offset), self.timestamp));
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(self.damaged(source, "it has bytes after its last record")) }
    }

    fn damaged(&self, source: &TopicPartition, reason: &str) -> Error {
        Error::corrupt("a record batch of the log is damaged")
            .with("topic", &source.topic)
            .with("partition", source.partition)
            .with("base offset", self.base_offset)
            .with("reason", reason)
    }
}

/// Returns about how many bytes a record takes in a batch.
pub(super) fn size_of(record: &NewRecord) -> usize {
    let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
    let headers: usize = record.headers.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
    length(&record.key) + length(&record.value) + headers + 8
}

fn checksum(partition: i32, base_offset: i64, records: i64, timestamp: Micros, data: &[u8]) -> i64 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&partition.to_le_bytes());
    crc.update(&base_offset.to_le_bytes());
    crc.update(&records.to_le_bytes());
    crc.update(&timestamp.to_le_bytes());
    crc.update(data);
    i64::from(crc.finalize())
}

/// A record's fields, still within the batch's bytes.
struct Fields<'a> {
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    headers: Vec<(&'a str, &'a [u8])>,
}

impl Fields<'_> {
    fn into_record(self, offset: Offset, timestamp: Micros) -> Record {
        Record {
            offset,
            timestamp,
            key: self.key.map(Bytes::copy_from_slice),
            value: self.value.map(Bytes::copy_from_slice),
            headers: self.headers.into_iter().map(|(name, value)| (name.to_owned(), Bytes::copy_from_slice(value))).collect(),
        }
    }
}

fn put_record(data: &mut Vec<u8>, record: &NewRecord) {
    let key_flag = if record.key.is_some() { HAS_KEY } else { 0 };
    let value_flag = if record.value.is_some() { HAS_VALUE } else { 0 };
    data.push(key_flag | value_flag);
    for bytes in [&record.key, &record.value].into_iter().flatten() {
        put_bytes(data, bytes);
    }
    put_length(data, record.headers.len());
    for (name, value) in &record.headers {
        put_bytes(data, name.as_bytes());
        put_bytes(data, value);
    }
}

fn take_record<'a>(rest: &mut &'a [u8]) -> Option<Fields<'a>> {
    let (&flags, after) = rest.split_first()?;
    *rest = after;
    if flags & !(HAS_KEY | HAS_VALUE) != 0 {
        return None;
    }
    let key = if flags & HAS_KEY == 0 { None } else { Some(take_bytes(rest)?) };
    let value = if flags & HAS_VALUE == 0 { None } else { Some(take_bytes(rest)?) };
    let mut headers = Vec::new();
    for _ in 0..take_length(rest)? {
        let name = std::str::from_utf8(take_bytes(rest)?).ok()?;
        headers.push((name, take_bytes(rest)?));
    }
    Some(Fields { key, value, headers })
}

fn put_bytes(data: &mut Vec<u8>, bytes: &[u8]) {
    put_length(data, bytes.len());
    data.extend_from_slice(bytes);
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take_length(rest)?;
    let (bytes, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(bytes)
}

fn put_length(data: &mut Vec<u8>, mut length: usize) {
    while length >= 0x80 {
        data.push(length as u8 | 0x80);
        length >>= 7;
    }
    data.push(length as u8);
}

fn take_length(rest: &mut &[u8]) -> Option<usize> {
    let mut length = 0u64;
    for shift in (0..63).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        length |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return usize::try_from(length).ok();
        }
    }
    None
}

#[cfg(test)]
mod tests;
