//! Which state rows of edges still count.

use arrow::array::{AsArray, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::TimestampMicrosecondType;

use crate::plan::links::Side;
use crate::states::StateRows;
use crate::walk::Walk;
use types::tiles::Micros;
use types::{Error, Result};

/// Which state rows hold an event of their side's longest range: the others add to no answer, and their edges are no
/// neighbours.
pub(super) struct Alive<'a> {
    seen: &'a [Micros],
    from: Option<Micros>,
}

impl<'a> Alive<'a> {
    pub(super) fn in_longest_range(walk: &Walk<'_>, side: Side, rows: &'a StateRows) -> Result<Alive<'a>> {
        let longest = walk.links.longest_range();
        let seen = timestamps(rows.batch(), walk.plan.state_offset(walk.links.seen))?;
        Ok(Alive { seen: seen.values(), from: longest.range(side).at(walk.t).from })
    }

    pub(super) fn holds(&self, row: usize) -> bool {
        self.from.is_none_or(|from| from <= self.seen[row])
    }
}

/// A column with when edges were seen.
pub(super) fn timestamps(batch: &RecordBatch, column: usize) -> Result<&TimestampMicrosecondArray> {
    let seen = batch.column(column).as_primitive_opt::<TimestampMicrosecondType>();
    seen.ok_or_else(|| Error::corrupt("when an edge was seen is no timestamp"))
}
