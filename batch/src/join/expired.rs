//! Drops edges that no window reaches any more when a linked view's tiers are merged.

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use arrow::compute::{filter_record_batch, not};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use committed::registry::LiveView;
use types::tiles::EdgesFrom;
use types::{Error, Result};

/// Leaves out the edges of a tier that were last seen before `edges_from`. The second result is the number of events
/// that they counted. Rows that are kept by tile are left out by the tiles' floors instead.
pub(crate) fn without_expired(view: &LiveView, edges_from: &EdgesFrom, rows: RecordBatch) -> Result<(RecordBatch, i64)> {
    let plan = &view.plan;
    let links = plan.liveness_links().filter(|_| *edges_from != EdgesFrom::default());
    let Some(links) = links else { return Ok((rows, 0)) };
    let wrong = || Error::corrupt("the rows of edges are not of their view's schema").with("view", &view.name);
    let is_far = rows.column(0).as_boolean_opt().ok_or_else(wrong)?;
    let seen = rows.column(plan.state_offset(links.seen)).as_primitive_opt::<TimestampMicrosecondType>().ok_or_else(wrong)?;
    let stays = |row: usize| {
        let from = if is_far.value(row) { edges_from.far } else { edges_from.near };
        seen.is_null(row) || from.is_none_or(|from| from <= seen.value(row))
    };
    let stays = BooleanArray::from_iter((0..rows.num_rows()).map(|row| Some(stays(row))));
    if stays.true_count() == rows.num_rows() {
        return Ok((rows, 0));
    }
    let left_out = filter_record_batch(&rows, &not(&stays)?)?;
    // After the keys: level, tile, and the number of events.
    let events = left_out.column(plan.keys.len() + 2).as_primitive_opt::<Int64Type>().ok_or_else(wrong)?;
    let events = events.iter().flatten().sum();
    Ok((filter_record_batch(&rows, &stays)?, events))
}
