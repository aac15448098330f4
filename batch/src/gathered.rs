//! States of checkpoints on their way to the buckets of a snapshot.

use arrow::array::RecordBatch;
use engine::states::at_kept_levels;
use types::Result;
use types::failures::Failures;
use types::tiles::EdgesFrom;

use crate::attempt::Attempt;
use crate::bucket_partitioner::{BucketPartitioner, BucketRows};
use crate::join::without_expired;

/// The states of some checkpoints.
pub(crate) struct States {
    pub(crate) buckets: Vec<BucketRows>,
    pub(crate) failures: Failures,
    /// The events of links that no window reaches any more, left out.
    pub(crate) expired: i64,
}

/// States on their way to buckets.
pub(crate) struct Gathered<'a> {
    attempt: &'a Attempt<'a>,
    edges_from: &'a EdgesFrom,
    partitioner: BucketPartitioner,
    expired: i64,
    pub(crate) failures: Failures,
}

impl<'a> Gathered<'a> {
    pub(crate) fn begin(attempt: &'a Attempt<'a>, bucket_count: u32, edges_from: &'a EdgesFrom) -> Self {
        let partitioner = BucketPartitioner::new(attempt.shuffle(bucket_count));
        Self { attempt, edges_from, partitioner, expired: 0, failures: Failures::default() }
    }

    /// Adds states of the finest level.
    pub(crate) fn add(&mut self, rows: &RecordBatch) -> Result<()> {
        let Attempt { view, inputs, .. } = self.attempt;
        let rows = at_kept_levels(&view.plan, rows, &inputs.floors)?;
        let (rows, expired) = without_expired(view, self.edges_from, rows)?;
        self.expired += expired;
        self.partitioner.push_rows(rows)
    }

    pub(crate) fn finish(self) -> Result<States> {
        Ok(States { buckets: self.partitioner.finish()?, failures: self.failures, expired: self.expired })
    }
}
