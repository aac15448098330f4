//! Reads the bounds of partitions, and their record batches.

use std::collections::BTreeMap;

use futures::TryStreamExt;
use sqlx::{Either, FromRow, QueryBuilder, Sqlite};

use super::batch::BatchRow;
use super::store::{Store, failed};
use super::transaction::{ROWS_AT_ONCE, RowsAndEnds, Statements};
use crate::topic::outside;
use crate::{Fetched, PartitionBounds, TopicPartition};
use types::record::Record;
use types::tiles::Micros;
use types::vector::Offset;
use types::{Error, Result};

/// One fetch returns at most about this many bytes.
const MAX_FETCH_BYTES: usize = 16 << 20;
/// Partitions with this many records at most are read together.
const FEW_RECORDS: i64 = 1_024;

/// What is read of a partition.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartitionRead<'a> {
    pub(super) topic_id: i64,
    pub(super) source: &'a TopicPartition,
    /// The partition's bounds a moment ago.
    pub(super) bounds: &'a PartitionBounds,
    pub(super) from: Offset,
}

impl PartitionRead<'_> {
    fn add_to(&self, statements: &mut Statements) {
        let (topic_id, number, from) = (self.topic_id, self.source.partition, self.from.0);
        let sql = statements.next();
        sql.push("SELECT base_offset, records, timestamp, checksum, data FROM batch WHERE topic_id = ").push_bind(topic_id);
        sql.push(" AND number = ").push_bind(number).push(" AND base_offset + records > ").push_bind(from);
        sql.push(" AND base_offset >= coalesce((SELECT max(base_offset) FROM batch WHERE topic_id = ").push_bind(topic_id);
        sql.push(" AND number = ").push_bind(number).push(" AND base_offset <= ").push_bind(from);
        sql.push("), ").push_bind(from).push(") ORDER BY base_offset");
    }
}

impl Store {
    /// Returns the bounds of each partition of the topic with this id, in order.
    pub(super) async fn bounds(&self, topic_id: i64) -> Result<Vec<PartitionBounds>> {
        Ok(self.bounds_of([topic_id]).await?.remove(&topic_id).unwrap_or_default())
    }

    /// Returns the bounds of each partition of these topics, by the topic's id, in order.
    pub(super) async fn bounds_of(&self, topic_ids: impl IntoIterator<Item = i64>) -> Result<BTreeMap<i64, Vec<PartitionBounds>>> {
        let mut sql =
            QueryBuilder::<Sqlite>::new("SELECT topic_id, number, begin_offset, end_offset FROM topic_partition WHERE topic_id IN (");
        let mut listed = sql.separated(", ");
        for topic_id in topic_ids {
            listed.push_bind(topic_id);
        }
        sql.push(") ORDER BY topic_id, number");
        let rows: Vec<(i64, i32, i64, i64)> = sql.build_query_as().fetch_all(self.readers()).await.map_err(failed)?;
        let mut bounds: BTreeMap<i64, Vec<PartitionBounds>> = BTreeMap::new();
        for (topic_id, partition, begin, end) in rows {
            bounds.entry(topic_id).or_default().push(PartitionBounds { partition, begin: Offset(begin), end: Offset(end) });
        }
        Ok(bounds)
    }

    /// Reads up to `max_records` records of a partition; `fetched_at` is the present time.
    pub(super) async fn read(&self, read: PartitionRead<'_>, max_records: usize, fetched_at: Micros) -> Result<Fetched> {
        let found = self.read_together(&[read], max_records, fetched_at).await?;
        found.into_iter().next().ok_or_else(|| Error::internal("a partition was not read"))
    }

    /// Reads up to `max_records` records of each of several partitions, by one message to SQLite's thread: the first
    /// one, and those after it that have few records together. What it returns may end before the last of them.
    /// `fetched_at` is the present time.
    ///
    /// Records before a batch that is damaged or missing are returned first: only a read that begins with it fails.
    pub(super) async fn read_together(&self, reads: &[PartitionRead<'_>], max_records: usize, fetched_at: Micros) -> Result<Vec<Fetched>> {
        let reads = &reads[..few(reads)];
        for PartitionRead { source, bounds, from, .. } in reads {
            if *from < bounds.begin || *from > bounds.end {
                return Err(outside(source, *from, bounds.begin, bounds.end));
            }
        }
        let mut found = Vec::with_capacity(reads.len());
        for records in self.found(reads, max_records).await? {
            if records.is_missing_some() {
                if found.is_empty() {
                    return Err(self.missing_or_trimmed(records.read, records.position).await);
                }
                break;
            }
            found.push(records.fetched(fetched_at));
        }
        Ok(found)
    }

    async fn found<'a>(&self, reads: &[PartitionRead<'a>], max_records: usize) -> Result<Vec<FoundRecords<'a>>> {
        let mut statements = Statements::default();
        reads.iter().for_each(|read| read.add_to(&mut statements));
        let mut connection = self.readers().acquire().await.map_err(failed)?;
        let mut rows = statements.fetch(&mut connection);
        let (mut found, mut bytes) = (Vec::with_capacity(reads.len()), 0);
        for read in reads {
            let mut records = FoundRecords::begin(*read);
            let is_whole = match records.take(&mut rows, max_records).await {
                Ok(is_whole) => is_whole,
                Err(error) if found.is_empty() => return Err(error),
                Err(_) => break,
            };
            bytes += records.bytes;
            found.push(records);
            if !is_whole || bytes >= MAX_FETCH_BYTES {
                break;
            }
        }
        Ok(found)
    }

    /// The error for an offset whose batch is not there: it may have been trimmed since the bounds were read.
    async fn missing_or_trimmed(&self, read: PartitionRead<'_>, position: i64) -> Error {
        let source = read.source;
        match self.bounds(read.topic_id).await {
            Ok(bounds) => match bounds.iter().find(|bounds| bounds.partition == source.partition && position < bounds.begin.0) {
                Some(bounds) => outside(source, Offset(position), bounds.begin, bounds.end),
                None => missing(source, position),
            },
            Err(error) => error,
        }
    }
}

/// How many partitions are read together: the first one, and those after it that have few records together.
fn few(reads: &[PartitionRead<'_>]) -> usize {
    let mut records = 0_i64;
    let is_few = |read: &&PartitionRead<'_>| {
        records = records.saturating_add(read.bounds.end.0 - read.from.0);
        records <= FEW_RECORDS
    };
    reads.iter().take(ROWS_AT_ONCE).take_while(is_few).count().max(1).min(reads.len())
}

/// The records of a partition that were found.
struct FoundRecords<'a> {
    read: PartitionRead<'a>,
    records: Vec<Record>,
    /// The offset after them.
    position: i64,
    bytes: usize,
    at_end: bool,
    /// Whether a batch begins after the position.
    has_gap: bool,
}

impl<'a> FoundRecords<'a> {
    fn begin(read: PartitionRead<'a>) -> Self {
        FoundRecords { read, records: Vec::new(), position: read.from.0, bytes: 0, at_end: true, has_gap: false }
    }

    /// Takes the rows of one statement. Returns false if it leaves some.
    async fn take(&mut self, rows: &mut RowsAndEnds<'_>, max_records: usize) -> Result<bool> {
        while let Some(Either::Right(row)) = rows.try_next().await.map_err(failed)? {
            if self.records.len() >= max_records || self.bytes >= MAX_FETCH_BYTES {
                self.at_end = false;
                return Ok(false);
            }
            let (base_offset, count, timestamp, checksum, data) = FromRow::from_row(&row).map_err(failed)?;
            let batch = BatchRow { base_offset, records: count, timestamp, checksum, data };
            if batch.base_offset > self.position {
                self.has_gap = true;
                return Ok(false);
            }
            let before = self.records.len();
            if let Err(error) = batch.decode(self.read.source, self.position, max_records, &mut self.records) {
                if before == 0 {
                    return Err(error);
                }
                self.records.truncate(before);
                self.at_end = false;
                return Ok(false);
            }
            self.position = self.records.last().map_or(self.position, |record| record.offset.next().0);
            self.bytes += batch.data.len();
            self.at_end = self.position == batch.end();
        }
        Ok(true)
    }

    /// Whether the batch is missing with which it would begin.
    fn is_missing_some(&self) -> bool {
        self.records.is_empty() && !self.is_continued()
    }

    /// Whether no batch is missing after what was found.
    fn is_continued(&self) -> bool {
        !self.has_gap && (!self.at_end || self.position >= self.read.bounds.end.0)
    }

    fn fetched(self, fetched_at: Micros) -> Fetched {
        let at_end = self.at_end && self.is_continued();
        let FoundRecords { read, records, position, .. } = self;
        Fetched { source: read.source.clone(), records, position: Offset(position), at_end, fetched_at }
    }
}

fn missing(source: &TopicPartition, offset: i64) -> Error {
    Error::corrupt("a record batch of the log is missing")
        .with("topic", &source.topic)
        .with("partition", source.partition)
        .with("offset", offset)
}

#[cfg(test)]
mod tests;
