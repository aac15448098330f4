//! Which state rows of edges still count.

use arrow::array::{AsArray, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::TimestampMicrosecondType;

use crate::plan::links::Side;
use crate::states::StateRows;
use crate::walk::Walk;
use types::tiles::Micros;
use types::{Error, Result};

/// A side's longest range: state rows without an event in it add to no answer, and their edges are no neighbours.
#[derive(Clone, Copy)]
pub(super) struct LongestRange {
    pub(super) side: Side,
    from: Option<Micros>,
    /// The column with when edges were seen.
    seen: usize,
}

impl LongestRange {
    pub(super) fn on_side(walk: &Walk<'_>, side: Side) -> LongestRange {
        let range = walk.links.longest_range().range(side);
        LongestRange { side, from: range.at(walk.t).from, seen: walk.plan.state_offset(walk.links.seen) }
    }

    /// Which of some state rows hold an event of it.
    pub(super) fn alive<'a>(&self, rows: &'a StateRows) -> Result<Alive<'a>> {
        Ok(Alive { seen: timestamps(rows.batch(), self.seen)?.values(), from: self.from })
    }
}

pub(super) struct Alive<'a> {
    seen: &'a [Micros],
    from: Option<Micros>,
}

impl Alive<'_> {
    pub(super) fn holds(&self, row: usize) -> bool {
        self.from.is_none_or(|from| from <= self.seen[row])
    }
}

/// A column with when edges were seen.
pub(super) fn timestamps(batch: &RecordBatch, column: usize) -> Result<&TimestampMicrosecondArray> {
    let seen = batch.column(column).as_primitive_opt::<TimestampMicrosecondType>();
    seen.ok_or_else(|| Error::corrupt("when an edge was seen is no timestamp"))
}
