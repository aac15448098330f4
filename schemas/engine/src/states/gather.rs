//! Gathers state rows that arrive piece by piece. They are merged as they arrive, so that memory holds about as much as
//! the merged rows take.

use arrow::record_batch::RecordBatch;

use crate::plan::ViewPlan;
use crate::states::merge::{merge_all, merge_rows};
use crate::states::rows::{KeyCodec, StateRows};
use types::{Error, Result};

/// Rows gathered so far. Pieces of similar size are merged, as in an LSM tree: each row is merged only a few times,
/// however many pieces arrive.
pub struct Gather<'a> {
    plan: &'a ViewPlan,
    codec: &'a KeyCodec,
    limit_bytes: usize,
    pieces: Vec<StateRows>,
}

impl<'a> Gather<'a> {
    /// Gathering fails with `Limit` when the merged rows exceed `limit_bytes`.
    pub fn new(plan: &'a ViewPlan, codec: &'a KeyCodec, limit_bytes: usize) -> Self {
        Self { plan, codec, limit_bytes, pieces: Vec::new() }
    }

    /// Adds unsorted rows.
    pub fn push(&mut self, batches: &[RecordBatch]) -> Result<()> {
        if batches.iter().all(|batch| batch.num_rows() == 0) {
            return Ok(());
        }
        self.pieces.push(merge_rows(self.plan, self.codec, batches)?);
        while let [.., older, newer] = self.pieces.as_slice()
            && newer.len() * 2 >= older.len()
        {
            let merged = merge_all(self.plan, self.codec, &[older, newer])?;
            self.pieces.truncate(self.pieces.len() - 2);
            self.pieces.push(merged);
        }
        self.check()
    }

    /// The size of the rows gathered so far.
    pub fn memory_bytes(&self) -> usize {
        self.pieces.iter().map(StateRows::memory_bytes).sum()
    }

    /// Returns all rows, sorted and merged.
    pub fn finish(self) -> Result<StateRows> {
        let pieces: Vec<&StateRows> = self.pieces.iter().collect();
        match pieces.as_slice() {
            [] => merge_rows(self.plan, self.codec, &[]),
            [one] => Ok((*one).clone()),
            several => merge_all(self.plan, self.codec, several),
        }
    }

    fn check(&self) -> Result<()> {
        let held = self.memory_bytes();
        if held <= self.limit_bytes {
            return Ok(());
        }
        Err(Error::limit("the states do not fit the memory limit")
            .with("view", &self.plan.view)
            .with("found", format_args!("{held} bytes"))
            .with("expected", format_args!("at most {} bytes", self.limit_bytes)))
    }
}
