//! What one transaction of appends reads and writes beside its outputs: the ends of partitions, and batches.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::FromRow;
use sqlx::sqlite::SqliteRow;

use super::batch::{self, BatchRow};
use super::store::failed;
use super::transaction::{AppendTransaction, ROWS_AT_ONCE, Statements};
use crate::NewRecord;
use types::tiles::Micros;
use types::{Error, Result};

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

/// Adds the statement that reads these topics.
pub(super) fn select_topics(statements: &mut Statements, names: &BTreeSet<&str>) {
    let sql = statements.next();
    sql.push("SELECT name, id, number, end_offset, last_timestamp FROM topic JOIN topic_partition ON topic_id = id WHERE name IN (");
    let mut listed = sql.separated(", ");
    for name in names {
        listed.push_bind(*name);
    }
    sql.push(") ORDER BY id, number");
}

/// Returns those of the topics that are in the log, from the rows that were read.
pub(super) fn topics(rows: &[SqliteRow]) -> Result<BTreeMap<String, TopicTail>> {
    let mut topics = BTreeMap::new();
    for row in rows {
        let (name, id, number, offset, timestamp): (String, i64, i32, i64, Micros) = FromRow::from_row(row).map_err(failed)?;
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
pub(super) fn note_ends(statements: &mut Statements, ends: &[(PartitionKey, PartitionEnd)]) {
    for ends in ends.chunks(ROWS_AT_ONCE) {
        // The rows are there already: nothing else of them changes.
        let sql = statements.next();
        sql.push("INSERT INTO topic_partition (topic_id, number, begin_offset, end_offset, last_timestamp) ");
        sql.push_values(ends, |mut row, ((topic_id, number), end)| {
            row.push_bind(*topic_id).push_bind(*number).push_bind(0_i64).push_bind(end.offset).push_bind(end.timestamp);
        });
        sql.push(
            " ON CONFLICT (topic_id, number) DO UPDATE SET end_offset = excluded.end_offset, last_timestamp = excluded.last_timestamp",
        );
    }
}

/// Batches that are inserted by one statement.
#[derive(Debug, Default)]
pub(super) struct Inserts {
    rows: Vec<(PartitionKey, BatchRow)>,
}

impl Inserts {
    /// Adds a batch. Those that were added are written once they are as many as one statement inserts.
    pub(super) async fn add(&mut self, partition: PartitionKey, batch: BatchRow, transaction: &mut AppendTransaction) -> Result<()> {
        transaction.statements().note_bytes(batch.data.len());
        self.rows.push((partition, batch));
        if self.rows.len() >= ROWS_AT_ONCE || transaction.is_large() {
            self.finish(transaction.statements());
            transaction.write_if_large().await?;
        }
        Ok(())
    }

    /// Adds a statement for the batches since the last one.
    pub(super) fn finish(&mut self, statements: &mut Statements) {
        let rows = std::mem::take(&mut self.rows);
        if rows.is_empty() {
            return;
        }
        let sql = statements.next();
        sql.push("INSERT INTO batch (topic_id, number, base_offset, records, timestamp, checksum, data) ");
        sql.push_values(rows, |mut row, ((topic_id, number), batch)| {
            let BatchRow { base_offset, records, timestamp, checksum, data } = batch;
            row.push_bind(topic_id).push_bind(number).push_bind(base_offset).push_bind(records);
            row.push_bind(timestamp).push_bind(checksum).push_bind(data);
        });
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
