//! Gathers state rows that arrive piece by piece. They are merged as they arrive, so that memory holds about as much as
//! the merged rows take.

use arrow::record_batch::RecordBatch;

use crate::plan::ViewPlan;
use crate::states::keys::KeyCodec;
use crate::states::merge::{merge_sets, sort_and_merge};
use crate::states::rows::StateRows;
use types::{Error, Result};

/// Merges the last two parts while they are of similar size, as in an LSM tree. Called after each part that is added,
/// it keeps the parts few (each is less than half of the one before it) and merges each row only a few times.
pub fn compact_pairwise(plan: &ViewPlan, codec: &KeyCodec, parts: &mut Vec<StateRows>) -> Result<()> {
    while let [.., older, newer] = parts.as_slice()
        && newer.len() * 2 >= older.len()
    {
        let merged = merge_sets(plan, codec, &[older, newer])?;
        parts.truncate(parts.len() - 2);
        parts.push(merged);
    }
    Ok(())
}

/// This many parts of similar size become one (the eight of [`compact_by_eight`]).
const PARTS_MERGED: usize = 8;

/// Merges the last eight parts while they are of similar size: fewer merges and more parts than [`compact_pairwise`],
/// for parts that are searched by hash. Another part costs a search far less than a merge costs each row.
pub fn compact_by_eight(plan: &ViewPlan, codec: &KeyCodec, parts: &mut Vec<StateRows>) -> Result<()> {
    while let Some(from) = similar_from(&parts.iter().map(StateRows::len).collect::<Vec<_>>()) {
        let merged = merge_sets(plan, codec, &parts[from..].iter().collect::<Vec<_>>())?;
        parts.truncate(from);
        parts.push(merged);
    }
    Ok(())
}

/// The index from which parts of these sizes, oldest first, are merged: the last ones, unless the oldest of them was
/// merged before and is therefore large compared with the newest.
fn similar_from(sizes: &[usize]) -> Option<usize> {
    let from = sizes.len().checked_sub(PARTS_MERGED)?;
    let (oldest, newest) = (sizes.get(from)?, sizes.last()?);
    (*oldest < newest.max(&1).saturating_mul(PARTS_MERGED / 2)).then_some(from)
}

/// The rows gathered so far, in few pieces however many arrive.
pub struct Gather<'a> {
    plan: &'a ViewPlan,
    codec: &'a KeyCodec,
    limit_bytes: usize,
    pieces: Vec<StateRows>,
}

impl<'a> Gather<'a> {
    /// Gathering fails with `Limit` if the merged rows exceed `limit_bytes`.
    pub fn new(plan: &'a ViewPlan, codec: &'a KeyCodec, limit_bytes: usize) -> Self {
        Self { plan, codec, limit_bytes, pieces: Vec::new() }
    }

    /// Adds unsorted rows.
    pub fn push(&mut self, batches: &[RecordBatch]) -> Result<()> {
        if batches.iter().all(|batch| batch.num_rows() == 0) {
            return Ok(());
        }
        self.pieces.push(sort_and_merge(self.plan, self.codec, batches)?);
        compact_pairwise(self.plan, self.codec, &mut self.pieces)?;
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
            [] => sort_and_merge(self.plan, self.codec, &[]),
            [one] => Ok((*one).clone()),
            several => merge_sets(self.plan, self.codec, several),
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

#[cfg(test)]
mod tests;
