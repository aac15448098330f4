//! Counts the events of each key in state rows. A micro-batch has one row per key and tile, so this costs a fraction of
//! computing its states.

use std::ops::Range;

use arrow::array::{ArrayRef, AsArray, Int64Array, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::Int64Type;

use crate::plan::{StateIndex, ViewPlan};
use crate::states::keys::KeyCodec;
use crate::states::rows::StateRows;
use types::{Error, Result};

/// The keys that have a large share of the events. They are the keys by which a view is queried.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BusyKeys {
    /// The events of all keys.
    pub events: u64,
    /// The encoded keys that have at least the wanted share, and their events.
    pub keys: Vec<(Vec<u8>, u64)>,
}

/// Returns the keys that have at least one in `parts` of the events. For a linked view, these are the events of near
/// edges, by the node that they leave.
pub fn busy_keys(plan: &ViewPlan, codec: &KeyCodec, rows: &StateRows, parts: u64) -> Result<BusyKeys> {
    let events = events_of(plan, rows)?;
    if plan.links().is_none() {
        let encoded = rows.keys();
        let starts = (0..rows.len()).filter(|row| *row == 0 || encoded.value(*row) != encoded.value(*row - 1));
        let busy = busy_ranges(events, starts, 0..rows.len(), parts);
        let keys = busy.ranges.iter().map(|(range, events)| (encoded.value(range.start).to_vec(), *events)).collect();
        return Ok(BusyKeys { events: busy.events, keys });
    }
    let nodes = codec.nodes()?;
    let ([starts, _], near) = (nodes.first_rows(rows.batch())?, nodes.near_rows(rows.batch())?);
    let busy = busy_ranges(events, starts.into_iter().map(|row| row as usize), near, parts);
    let first = UInt32Array::from_iter_values(busy.ranges.iter().map(|(range, _)| range.start as u32));
    let groups = &rows.batch().columns()[nodes.group_columns()];
    let groups = groups.iter().map(|column| Ok(take(column, &first, None)?)).collect::<Result<Vec<ArrayRef>>>()?;
    let encoded = nodes.near(&groups, first.len())?;
    let keys = encoded.iter().flatten().map(<[u8]>::to_vec).zip(busy.ranges.iter().map(|(_, events)| *events)).collect();
    Ok(BusyKeys { events: busy.events, keys })
}

struct BusyRanges {
    events: u64,
    ranges: Vec<(Range<usize>, u64)>,
}

/// Returns the ranges, each from one of `starts` to the next, that have the share.
fn busy_ranges(events: &Int64Array, starts: impl Iterator<Item = usize>, rows: Range<usize>, parts: u64) -> BusyRanges {
    let in_rows = |rows: Range<usize>| events.values()[rows].iter().map(|events| u64::try_from(*events).unwrap_or(0)).sum::<u64>();
    let all = in_rows(rows.clone());
    let mut ranges = Vec::new();
    let mut add = |range: Range<usize>| {
        let events = in_rows(range.clone());
        if events > 0 && events.saturating_mul(parts) >= all {
            ranges.push((range, events));
        }
    };
    let mut from = rows.start;
    for start in starts.filter(|start| *start > rows.start).chain([rows.end]) {
        add(from..start);
        from = start;
    }
    BusyRanges { events: all, ranges }
}

/// The number of events of each row.
fn events_of<'r>(plan: &ViewPlan, rows: &'r StateRows) -> Result<&'r Int64Array> {
    let column = rows.batch().column(plan.state_offset(StateIndex::EVENTS));
    column
        .as_primitive_opt::<Int64Type>()
        .ok_or_else(|| Error::corrupt(format!("the count of events is {}, expected Int64", column.data_type())))
}

#[cfg(test)]
mod tests;
