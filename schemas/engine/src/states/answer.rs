//! Answers a query: merges state rows over each range of a view, and evaluates the view's columns on the merged values.

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch};

use crate::plan::{AskedUses, MergedValues, ViewPlan};
use crate::states::kept_key::{KeptKey, cost_of, merge_kept};
use crate::states::keys::KeyCodec;
use crate::states::pieces::Pieces;
use crate::states::ranges::merge;
use crate::states::values::{FailedValue, MergedColumn, Values};
use types::tiles::{Micros, RowTime, Span};
use types::{Error, Result};

/// A key with at most this many values is cheap whatever is asked, so its ranges are not examined.
const ALWAYS_CHEAP: usize = 1_024;

/// The rows of keys, in the order of the keys.
#[derive(Debug)]
pub struct Answered {
    pub rows: RecordBatch,
    /// Whether each key has a row, that is, an event in the view's longest window. A view without keys always has its
    /// row.
    pub found: Vec<bool>,
    /// The values of existing rows that could not be computed.
    pub failed: Vec<FailedValue>,
}

/// One key, and its state rows in all layers.
#[derive(Clone, Copy)]
pub struct KeyPieces<'a> {
    /// A column for each key of the view, each of one row.
    pub key: &'a [ArrayRef],
    pub pieces: &'a Pieces<'a>,
}

/// Returns the columns `wanted` (indices into the plan's columns) for each of `keys` (encoded) at a time.
///
/// Errors: `Internal` for a view over a JOIN, whose edges are walked instead.
pub fn answer(
    plan: &ViewPlan,
    codec: &KeyCodec,
    keys: &[&[u8]],
    pieces: &Pieces<'_>,
    time: impl Into<RowTime>,
    wanted: &[usize],
) -> Result<Answered> {
    let (time, columns) = (time.into(), codec.decode(keys.iter().copied())?);
    answer_by(plan, &columns, &vec![time.t; keys.len()], wanted, |asked| merge(plan, pieces, keys.len(), time, asked))
}

/// Like [`answer`], for one key.
pub fn answer_key(plan: &ViewPlan, codec: &KeyCodec, of_key: KeyPieces<'_>, t: Micros, wanted: &[usize]) -> Result<Answered> {
    let KeyPieces { key, pieces } = of_key;
    answer_by(plan, &codec.canonical(key), &[t], wanted, |asked| merge(plan, pieces, 1, t, asked))
}

/// Like [`answer_key`]. Uses the merged values in `kept`, and keeps those there that were costly to merge.
pub fn answer_kept(
    plan: &ViewPlan,
    codec: &KeyCodec,
    of_key: KeyPieces<'_>,
    t: Micros,
    wanted: &[usize],
    kept: &KeptKey,
) -> Result<Answered> {
    let KeyPieces { key, pieces } = of_key;
    answer_by(plan, &codec.canonical(key), &[t], wanted, |asked| merge_kept(plan, pieces, t, asked, kept))
}

/// Estimates what it costs to answer one key of which these are all pieces, in values of some fifty nanoseconds each.
pub fn cost_of_key(plan: &ViewPlan, pieces: &Pieces<'_>, t: Micros, wanted: &[usize], kept: Option<&KeptKey>) -> Result<usize> {
    let most = pieces.values(plan);
    if most <= ALWAYS_CHEAP {
        return Ok(most);
    }
    cost_of(plan, pieces, t, &plan.need(wanted).merged.uses, kept)
}

/// The event times of every range that the wanted columns of a row at `t` depend on. Rows of the same states at two
/// times with the same spans differ only in what is computed from the time itself ([`ViewPlan::reads_time`]).
pub fn spans_of(plan: &ViewPlan, wanted: &[usize], t: Micros) -> Vec<Span> {
    plan.need(wanted).ranges.iter().map(|range| plan.range(range.in_view()).at(t)).collect()
}

/// Returns the rows of the keys in these columns, each at its own time, from the values that `merge` returns for the
/// uses that it is given.
pub(super) fn answer_by(
    plan: &ViewPlan,
    keys: &[ArrayRef],
    t: &[Micros],
    wanted: &[usize],
    merge: impl FnOnce(&AskedUses) -> Result<Vec<MergedColumn>>,
) -> Result<Answered> {
    let need = plan.need(wanted);
    let values = values_of(plan)?;
    let mut row = Values::new(&values.schema, t);
    row.set(0, keys.iter().cloned());
    let events_from = plan.keys.len() + 1;
    let mut merged = merge(&need.merged)?.into_iter();
    for (range, events) in need.ranges.iter().zip(&mut merged) {
        row.set(events_from + range.0, [events.values]);
    }
    for (usage, merged) in need.uses.iter().zip(merged) {
        row.set_merged(events_from + plan.ranges.len() + usage.0, *usage, merged);
    }
    let existence = row.get(events_from + plan.existence.0);
    let existence = existence.and_then(|events| events.as_any().downcast_ref::<Int64Array>());
    let existence = existence.ok_or_else(|| Error::internal("the count of events changed its type"))?;
    let found: Vec<bool> = (0..t.len()).map(|key| plan.keys.is_empty() || existence.value(key) > 0).collect();
    let (rows, mut failed) = row.project(plan, wanted)?;
    failed.retain(|value| found[value.row]);
    Ok(Answered { rows, found, failed })
}

fn values_of(plan: &ViewPlan) -> Result<&MergedValues> {
    plan.values().ok_or_else(|| Error::internal("a linked view is answered by a walk").with("view", &plan.view))
}

#[cfg(test)]
mod tests;
