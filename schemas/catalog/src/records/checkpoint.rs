//! Checkpoints, and the ledger of each of their ranges.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use types::files::made_at;
use types::tiles::Micros;
use types::uuid_text;
use types::vector::{Offset, PartitionId, Vector};
use uuid::Uuid;

use super::Revision;

/// What a checkpoint did in one partition: `end - start = archived + duplicate + dead_lettered + absent`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRange {
    pub partition: PartitionId,
    pub start: Offset,
    pub end: Offset,
    pub archived: i64,
    pub duplicate: i64,
    pub dead_lettered: i64,
    /// Offsets without a record.
    pub absent: i64,
    /// The partition's values after this checkpoint.
    pub clock: Option<Micros>,
    pub max_event_time: Option<Micros>,
    pub complete_to: Option<Micros>,
}

/// One worker's commit: ranges of its partitions, and the files that hold them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRecord {
    #[serde(with = "uuid_text")]
    pub id: Uuid,
    pub worker: String,
    pub committed_at: Micros,
    /// Set by the commit.
    #[serde(default)]
    pub revision: Revision,
    pub ranges: Vec<CheckpointRange>,
}

impl CheckpointRange {
    /// A range in which every offset became an event. No time is known.
    pub fn of_events(partition: PartitionId, start: i64, end: i64) -> Self {
        Self {
            partition,
            start: Offset(start),
            end: Offset(end),
            archived: end - start,
            duplicate: 0,
            dead_lettered: 0,
            absent: 0,
            clock: None,
            max_event_time: None,
            complete_to: None,
        }
    }

    /// The offsets that its counts account for.
    pub fn counted(&self) -> i64 {
        let counts = [self.archived, self.duplicate, self.dead_lettered, self.absent];
        counts.into_iter().fold(0, i64::saturating_add)
    }

    /// True if it obeys the ledger's law: `end - start = archived + duplicate + dead_lettered + absent`.
    pub fn is_balanced(&self) -> bool {
        self.end.0.saturating_sub(self.start.0) == self.counted()
    }
}

impl CheckpointRecord {
    /// One that is to be committed.
    pub fn new(id: Uuid, worker: &str, committed_at: Micros, ranges: Vec<CheckpointRange>) -> Self {
        Self { id, worker: worker.to_owned(), committed_at, revision: 0, ranges }
    }

    /// Returns when its records were all decided, before its files were written and committed; of a compacted one, the
    /// time of its last commit.
    pub fn sealed_at(&self) -> Micros {
        made_at(self.id).map_or(self.committed_at, |at| at.min(self.committed_at))
    }

    /// True if it took the place of others. Its worker and time are those of the last of them, whichever partitions
    /// that one had: a worker's checkpoint has its id before it is committed, a compacted one after.
    pub fn is_compacted(&self) -> bool {
        made_at(self.id).is_some_and(|at| at > self.committed_at)
    }

    /// True if all of this checkpoint is before `vector`.
    pub fn is_within(&self, vector: &Vector) -> bool {
        self.ranges.iter().all(|range| range.end <= vector.get(&range.partition))
    }

    /// True if all that this checkpoint has of these streams is before `vector`.
    pub fn is_within_of(&self, streams: &[Arc<str>], vector: &Vector) -> bool {
        self.ranges_of(streams).all(|range| range.end <= vector.get(&range.partition))
    }

    /// Its ranges of these streams.
    pub fn ranges_of<'a>(&'a self, streams: &'a [Arc<str>]) -> impl Iterator<Item = &'a CheckpointRange> {
        self.ranges.iter().filter(|range| streams.contains(&range.partition.stream))
    }
}
