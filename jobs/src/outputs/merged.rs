//! Reads the partitions of a topic together, by the times of their records.
//!
//! Of each partition a piece is in memory. The next record is the earliest of those that come first in their pieces, so
//! those of one partition stay in their order, whatever their times are.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use event_log::{Log, TopicPartition};
use types::record::Record;
use types::tiles::Micros;
use types::vector::Offset;
use types::{ErrorKind, Result};

/// Records of a partition that are read at once.
const AT_ONCE: usize = 4_096;
/// About how many records of all partitions are in memory.
const HELD: usize = 32_768;
/// A read of Kafka begins a consumer of its own, so it has to be worth that.
const LEAST_AT_ONCE: usize = 256;

/// Whether a record of the topic is passed on.
type IsWanted<'a> = dyn Fn(&Record) -> bool + 'a;

/// A partition that is read up to where it ended a moment ago.
pub(super) struct PartitionRecords {
    source: TopicPartition,
    /// Where the next piece begins.
    next: Offset,
    end: Offset,
    /// What was read of it and not passed on yet.
    piece: std::vec::IntoIter<Record>,
}

impl PartitionRecords {
    pub(super) fn new(source: TopicPartition, next: Offset, end: Offset) -> Self {
        Self { source, next, end, piece: Vec::new().into_iter() }
    }

    fn first(&self) -> Option<&Record> {
        self.piece.as_slice().first()
    }

    /// Reads the next pieces until one has a record, if the last one is used up.
    async fn fill(&mut self, log: &dyn Log, at_once: usize, is_wanted: &IsWanted<'_>) -> Result<()> {
        while self.first().is_none() && self.next < self.end {
            let fetched = match log.read(&self.source, self.next, at_once).await {
                // A retention has deleted it meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                fetched => fetched?,
            };
            if fetched.position <= self.next {
                return Ok(());
            }
            self.next = fetched.position;
            let records: Vec<Record> = fetched.records.into_iter().filter(|record| is_wanted(record)).collect();
            self.piece = records.into_iter();
        }
        Ok(())
    }
}

/// The records of all partitions, the earliest first.
pub(super) struct MergedPartitions<'a> {
    log: &'a dyn Log,
    is_wanted: &'a IsWanted<'a>,
    at_once: usize,
    partitions: Vec<PartitionRecords>,
    /// The partitions of which another piece may have to be read before any record is passed on.
    used: Vec<usize>,
    /// The time of the first record of each other partition.
    first: BinaryHeap<Reverse<(Micros, usize)>>,
}

impl<'a> MergedPartitions<'a> {
    pub(super) fn new(log: &'a dyn Log, partitions: Vec<PartitionRecords>, is_wanted: &'a IsWanted<'a>) -> Self {
        let at_once = (HELD / partitions.len().max(1)).clamp(LEAST_AT_ONCE, AT_ONCE);
        let used = (0..partitions.len()).collect();
        Self { log, is_wanted, at_once, partitions, used, first: BinaryHeap::new() }
    }

    pub(super) async fn next_record(&mut self) -> Result<Option<Record>> {
        while let Some(index) = self.used.pop() {
            let partition = &mut self.partitions[index];
            partition.fill(self.log, self.at_once, self.is_wanted).await?;
            self.first.extend(partition.first().map(|record| Reverse((record.timestamp, index))));
        }
        let Some(Reverse((_, index))) = self.first.pop() else { return Ok(None) };
        self.used.push(index);
        Ok(self.partitions[index].piece.next())
    }

    /// Each partition, and the offset before which all is passed on.
    pub(super) fn positions(&self) -> impl Iterator<Item = (i32, Offset)> {
        self.partitions.iter().map(|partition| {
            let next = partition.first().map_or(partition.next, |record| record.offset);
            (partition.source.partition, next)
        })
    }
}

#[cfg(test)]
mod tests;
