//! Answers a query: merges state rows over each range of a view, and evaluates the view's columns over the merged
//! values.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};

use crate::plan::{ColumnKind, Use, ViewPlan};
use crate::states::pieces::Pieces;
use crate::states::ranges::merge;
use crate::states::rows::KeyCodec;
use crate::states::values::Values;
use types::tiles::Micros;
use types::{Error, Result};

/// The state that counts a range's events.
const EVENTS_STATE: usize = 0;

/// Returns the columns `wanted` (indices into the plan's columns) for each of `keys` (encoded) at time `t`, in the
/// order of `keys`, and whether each key has a row: an event in the view's longest window. A view without keys always
/// has its row.
pub fn answer(
    plan: &ViewPlan,
    codec: &KeyCodec,
    keys: &[&[u8]],
    pieces: &Pieces<'_>,
    t: Micros,
    wanted: &[usize],
) -> Result<(RecordBatch, Vec<bool>)> {
    let need = Need::for_columns(plan, plan.existence, wanted);
    let asked: Vec<Use> = need
        .ranges
        .iter()
        .map(|range| Use { state: EVENTS_STATE, range: *range })
        .chain(need.uses.iter().map(|at| plan.uses[*at]))
        .collect();
    let mut values = Values::new(plan.value_schema(), keys.len());
    values.set(0, codec.decode(keys.iter().copied())?);
    values.set(plan.keys.len(), [Arc::new(TimestampMicrosecondArray::from_value(t, keys.len()).with_timezone("UTC")) as ArrayRef]);
    let events_from = plan.keys.len() + 1;
    let places = need.ranges.iter().map(|range| events_from + range);
    let places = places.chain(need.uses.iter().map(|at| events_from + plan.ranges.len() + at));
    for (place, merged) in places.zip(merge(plan, pieces, keys.len(), t, &asked)?) {
        values.set(place, [merged]);
    }
    let existence = values.get(events_from + plan.existence);
    let existence = existence.and_then(|events| events.as_any().downcast_ref::<Int64Array>());
    let existence = existence.ok_or_else(|| Error::internal("the count of events changed its type"))?;
    let found = (0..keys.len()).map(|key| plan.keys.is_empty() || existence.value(key) > 0).collect();
    Ok((values.project(plan, wanted)?, found))
}

/// The ranges and uses that the wanted columns need, each once and in order.
pub(crate) struct Need {
    pub(crate) ranges: Vec<usize>,
    pub(crate) uses: Vec<usize>,
}

impl Need {
    /// `existence` is the range that decides which keys have a row. It is always needed.
    pub(crate) fn for_columns(plan: &ViewPlan, existence: usize, wanted: &[usize]) -> Need {
        let (mut ranges, mut uses) = (vec![existence], Vec::new());
        for column in wanted {
            if let ColumnKind::Value(value) = &plan.columns[*column].kind {
                ranges.extend_from_slice(&value.ranges);
                uses.extend_from_slice(&value.uses);
            }
        }
        for list in [&mut ranges, &mut uses] {
            list.sort_unstable();
            list.dedup();
        }
        Need { ranges, uses }
    }
}

#[cfg(test)]
mod tests;
