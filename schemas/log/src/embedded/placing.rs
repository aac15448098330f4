//! What one transaction of appends reads and writes beside its outputs: the ends of partitions, and batches.
//!
//! SQLite works on a thread of its own, and each statement is a message there and one back. On busy processors these
//! wakings take most of the time of an append, so statements are for many rows.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{QueryBuilder, Sqlite, SqliteConnection};

use super::batch::{self, BatchRow};
use super::store::failed;
use crate::NewRecord;
use types::tiles::Micros;
use types::{Error, Result};

/// One statement writes at most this many rows: prepared statements of each number of rows are kept.
pub(super) const ROWS_AT_ONCE: usize = 16;
/// One statement inserts batches of about this many bytes at most, unless one batch alone is larger.
const BYTES_AT_ONCE: usize = 4 << 20;
/// A batch row holds at most this many records, and at most about this many bytes unless one record alone is larger.
const MAX_BATCH_RECORDS: usize = 4096;
const MAX_BATCH_BYTES: usize = 1 << 20;

/// The topic's id and the partition.
pub(super) type PartitionKey = (i64, i32);

/// A topic, and where the next records of its partitions go, by their numbers.
#[derive(Debug)]
pub(super) struct TopicTail {
    pub(super) id: i64,
    pub(super) ends: Vec<PartitionEnd>,
}

/// The end of a partition.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartitionEnd {
    /// Of the next record.
    pub(super) offset: i64,
    /// Of the last record.
    pub(super) timestamp: Micros,
}

/// Returns those topics that are in the log.
pub(super) async fn topics(connection: &mut SqliteConnection, names: &BTreeSet<&str>) -> Result<BTreeMap<String, TopicTail>> {
    let mut sql = QueryBuilder::<Sqlite>::new(
        "SELECT name, id, number, end_offset, last_timestamp FROM topic JOIN topic_partition ON topic_id = id WHERE name IN (",
    );
    let mut listed = sql.separated(", ");
    for name in names {
        listed.push_bind(*name);
    }
    sql.push(") ORDER BY id, number");
    let rows: Vec<(String, i64, i32, i64, Micros)> = sql.build_query_as().fetch_all(connection).await.map_err(failed)?;
    let mut topics = BTreeMap::new();
    for (name, id, number, offset, timestamp) in rows {
        let damaged = || Error::corrupt("the log file has not all partitions of a topic").with("topic", &name).with("found", number);
        let topic = topics.entry(name.clone()).or_insert_with(|| TopicTail { id, ends: Vec::new() });
        if usize::try_from(number) != Ok(topic.ends.len()) {
            return Err(damaged().with("expected", topic.ends.len()));
        }
        topic.ends.push(PartitionEnd { offset, timestamp });
    }
    Ok(topics)
}

/// Notes where partitions end now.
pub(super) async fn note_ends(connection: &mut SqliteConnection, ends: &[(PartitionKey, PartitionEnd)]) -> Result<()> {
    for ends in ends.chunks(ROWS_AT_ONCE) {
        // The rows are there already: nothing else of them changes.
        let mut sql =
            QueryBuilder::<Sqlite>::new("INSERT INTO topic_partition (topic_id, number, begin_offset, end_offset, last_timestamp) ");
        sql.push_values(ends, |mut row, ((topic_id, number), end)| {
            row.push_bind(*topic_id).push_bind(*number).push_bind(0_i64).push_bind(end.offset).push_bind(end.timestamp);
        });
        sql.push(
            " ON CONFLICT (topic_id, number) DO UPDATE SET end_offset = excluded.end_offset, last_timestamp = excluded.last_timestamp",
        );
        sql.build().execute(&mut *connection).await.map_err(failed)?;
    }
    Ok(())
}

/// Batches that are inserted by one statement.
#[derive(Debug, Default)]
pub(super) struct Inserts {
    rows: Vec<(PartitionKey, BatchRow)>,
    bytes: usize,
}

impl Inserts {
    /// Adds a batch. Returns a statement for all that were added, if they are as many as one is to insert.
    pub(super) fn add(&mut self, partition: PartitionKey, batch: BatchRow) -> Option<QueryBuilder<Sqlite>> {
        self.bytes += batch.data.len();
        self.rows.push((partition, batch));
        let is_full = self.rows.len() >= ROWS_AT_ONCE || self.bytes >= BYTES_AT_ONCE;
        if is_full { self.rest() } else { None }
    }

    /// Returns a statement for what was added since the last one.
    pub(super) fn rest(&mut self) -> Option<QueryBuilder<Sqlite>> {
        self.bytes = 0;
        let rows = std::mem::take(&mut self.rows);
        if rows.is_empty() {
            return None;
        }
        let mut sql = QueryBuilder::<Sqlite>::new("INSERT INTO batch (topic_id, number, base_offset, records, timestamp, checksum, data) ");
        sql.push_values(rows, |mut row, ((topic_id, number), batch)| {
            let BatchRow { base_offset, records, timestamp, checksum, data } = batch;
            row.push_bind(topic_id).push_bind(number).push_bind(base_offset).push_bind(records);
            row.push_bind(timestamp).push_bind(checksum).push_bind(data);
        });
        Some(sql)
    }
}

/// Splits records into pieces that each fit a batch row.
pub(super) fn chunks<'a, 'b>(mut records: &'a [&'b NewRecord]) -> Vec<&'a [&'b NewRecord]> {
    let mut chunks = Vec::new();
    while !records.is_empty() {
        let mut bytes = 0;
        let fits = |record: &&&NewRecord| {
            bytes += batch::size_of(record);
            bytes <= MAX_BATCH_BYTES
        };
        let count = records.iter().take(MAX_BATCH_RECORDS).take_while(fits).count().max(1);
        let (chunk, rest) = records.split_at(count);
        chunks.push(chunk);
        records = rest;
    }
    chunks
}

#[cfg(test)]
mod tests;
