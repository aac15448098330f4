//! Reads for alerts: the rows of single keys, the rows of all keys part by part, and the keys that may have changed
//! since a position. `links` has those of linked views.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use committed::registry::LiveView;
use engine::alerts::AlertPlan;
use engine::plan::{Answering, ViewPlan};
use engine::states::{Answered, Pieces, SortedRun, StateRows, answer};
use engine::walk::CancelCheck;
use types::tiles::{Micros, RowTime, Span};
use types::vector::Vector;
use types::{Error, Result};

use super::grouped::Grouped;
use super::key_range::{KeyRange, sampled, sampling_step};
use super::{KeyPart, StateSource};
use crate::read_view::{LoadedView, ReadView};

mod links;

pub use links::{LinkedKeys, ReverseIndex};

/// About how many rows of states are merged at once. They take tenths of a second: an alert's runner shows progress
/// between two parts, and without progress it loses its lease.
const PART_ROWS: usize = 131_072;
/// The same of a linked view, of which only keys are read. A bucket of the snapshot is read once for each of its parts.
const LINKED_PART_ROWS: usize = 524_288;

/// The rows of an alert's keys at a time, in their order. Events that are read already and lie after the hop of that
/// time do not count in the windows yet, and no row exists by them.
#[derive(Debug)]
pub struct WatchedRows {
    /// The wanted columns. Values that cannot be computed are NULL.
    pub rows: RecordBatch,
    /// Whether each row exists.
    pub found: Vec<bool>,
    /// When each may be another one though no event comes; `None` if it stays as it is.
    pub changes: Vec<Option<Micros>>,
    /// Since when each is known to be what it is. At an earlier time it may have been another one.
    pub since: Vec<Micros>,
}

/// The parts in which an alert reads all keys of a view: each bucket of its snapshot, in as many ranges of keys as its
/// rows and those of layers need, or, of a linked view, in as many smaller buckets.
///
/// Errors: `Unavailable` while a part of the snapshot is being copied.
pub fn watched_parts(read_view: &ReadView, view: &LoadedView) -> Result<Vec<KeyPart>> {
    let part_rows = if view.live.plan.links().is_some() { LINKED_PART_ROWS } else { PART_ROWS };
    parts_of_about(part_rows, read_view, view)
}

fn parts_of_about(part_rows: usize, read_view: &ReadView, view: &LoadedView) -> Result<Vec<KeyPart>> {
    let parts = view.snapshot.as_ref().map_or(1, |snapshot| snapshot.parts()).max(1);
    let rows = state_rows(read_view, view);
    let in_each = rows.div_ceil(part_rows).div_ceil(parts as usize);
    if view.live.plan.links().is_some() {
        return Ok(links::parts(parts.saturating_mul(in_each.max(1) as u32)));
    }
    let ranges = key_ranges(read_view, view, (rows, in_each))?;
    let of_bucket = |part| ranges.iter().map(move |range| KeyPart { part, parts, range: range.clone() });
    Ok((0..parts).flat_map(of_bucket).collect())
}

/// This many ranges, each with about as many of the rows.
fn key_ranges(read_view: &ReadView, view: &LoadedView, (rows, count): (usize, usize)) -> Result<Vec<KeyRange>> {
    if count <= 1 {
        return Ok(vec![KeyRange::default()]);
    }
    let of_snapshot = view.snapshot.as_ref().map_or(Ok(Vec::new()), |snapshot| snapshot.runs())?;
    let of_layers = view.layers.iter().flat_map(|layer| layer.run.chunks());
    let fresh = read_view.fresh_of(&view.live).map(|rows| &**rows);
    let chunks = of_snapshot.into_iter().flat_map(SortedRun::chunks).chain(of_layers).chain(fresh);
    Ok(KeyRange::split(sampled(chunks, sampling_step(rows, count)), count))
}

/// The rows of states in all layers.
fn state_rows(read_view: &ReadView, view: &LoadedView) -> usize {
    let of_snapshot = view.snapshot.iter().flat_map(|snapshot| snapshot.manifest.tiers()).map(|tier| tier.rows().max(0) as usize);
    let of_layers = view.layers.iter().map(|layer| layer.run.rows());
    let fresh = read_view.fresh_of(&view.live).map(|rows| rows.len());
    of_snapshot.chain(of_layers).chain(fresh).sum()
}

/// The rows of the keys of one of [`watched_parts`], but for those that do not exist and will not either. The view has
/// no JOIN.
///
/// Errors: `Unavailable` while a part of the snapshot that is needed is being copied.
pub fn rows_of_part(
    read_view: &ReadView,
    view: &LoadedView,
    alert: &AlertPlan,
    part: &KeyPart,
    t: Micros,
) -> Result<(Vec<Arc<[u8]>>, WatchedRows)> {
    let source = StateSource::new(read_view, view, None);
    let grouped = grouped(&view.live)?;
    let (keys, pieces) = grouped.pieces_of_part(&source, part)?;
    let WatchedRows { rows, found, changes, since } = watched(&view.live, alert, &keys, &pieces, t)?;
    let is_watched: BooleanArray = found.iter().zip(&changes).map(|(found, changes)| Some(*found || changes.is_some())).collect();
    let is_kept = |index: &usize| is_watched.value(*index);
    let kept: Vec<usize> = (0..keys.len()).filter(is_kept).collect();
    let watched = WatchedRows {
        rows: filter_record_batch(&rows, &is_watched)?,
        found: kept.iter().map(|index| found[*index]).collect(),
        changes: kept.iter().map(|index| changes[*index]).collect(),
        since: kept.iter().map(|index| since[*index]).collect(),
    };
    Ok((kept.iter().map(|index| keys[*index].into()).collect(), watched))
}

/// The rows of these encoded keys. Those of a linked view may take many seconds: `cancel_check` is called before each
/// batch of edges.
///
/// Errors: likewise, and those of `cancel_check`.
pub fn rows_of_keys(
    read_view: &ReadView,
    view: &LoadedView,
    alert: &AlertPlan,
    (keys, t): (&[&[u8]], Micros),
    cancel_check: &CancelCheck<'_>,
) -> Result<WatchedRows> {
    if view.live.plan.links().is_some() {
        return links::rows_of_keys(read_view, view, alert, (keys, t), cancel_check);
    }
    let source = StateSource::new(read_view, view, None);
    let grouped = grouped(&view.live)?;
    let pieces = grouped.pieces_of_keys(&source, keys)?;
    watched(&view.live, alert, keys, &pieces, t)
}

fn watched(view: &LiveView, alert: &AlertPlan, keys: &[&[u8]], pieces: &Pieces<'_>, t: Micros) -> Result<WatchedRows> {
    let plan = &view.plan;
    let Answered { rows, mut found, .. } = answer(plan, &view.codec, keys, pieces, RowTime::up_to(t), &alert.wanted)?;
    let changes = pieces.changes(plan, alert.ranges(), keys.len(), t)?;
    if let Some(later) = not_counted_yet(plan, alert, t) {
        let of_row = pieces.events_in(plan, keys.len(), RowTime::up_to(t).span(plan.range(plan.existence)))?;
        let later = pieces.events_in(plan, keys.len(), later)?;
        for (found, (of_row, later)) in found.iter_mut().zip(of_row.into_iter().zip(later)) {
            *found &= of_row > later;
        }
    }
    Ok(WatchedRows { rows, found, changes, since: vec![Micros::MIN; keys.len()] })
}

/// The part of the range by which rows exist that is later than the end of the alert's finest hop at `t`; `None` if no
/// part is. Where all events of a row are in it, the row does not exist yet: a short window would be empty before the
/// first event of its key.
fn not_counted_yet(plan: &ViewPlan, alert: &AlertPlan, t: Micros) -> Option<Span> {
    let hop = alert.hop().filter(|_| !plan.keys.is_empty())?;
    let from = hop.floor(t).checked_add(hop.length_us()?)?;
    let Span { to, .. } = RowTime::up_to(t).span(plan.range(plan.existence));
    to.is_none_or(|to| from < to).then_some(Span { from: Some(from), to })
}

/// The keys of a view whose rows may have changed by the events past this position, and perhaps others; `None` where
/// any key's may have. It costs as much as there is past the position, and in a linked view, as many keys as lead
/// there.
/// `t` is the time of the last look, which was at this position. `index` has all chunks of a linked view:
/// `cancel_check` is called before each of them, and before each batch of new edges.
///
/// Errors: `Unavailable` while a part of the snapshot that is needed is being copied, and those of `cancel_check`.
pub fn keys_since(
    read_view: &ReadView,
    view: &LoadedView,
    (position, t): (&Vector, Micros),
    index: &ReverseIndex,
    cancel_check: &CancelCheck<'_>,
) -> Result<Option<BTreeSet<Arc<[u8]>>>> {
    let Some(past) = rows_past(read_view, view, position) else { return Ok(None) };
    match view.live.plan.links() {
        Some(_) => links::keys_changed_by(read_view, view, (&past, t), index, cancel_check),
        None => Ok(Some(past.iter().flat_map(|rows| rows.keys().iter().flatten()).map(Arc::from).collect())),
    }
}

/// The layers' state rows with events past this position; `None` where the states of some of them are in a snapshot.
fn rows_past<'v>(read_view: &'v ReadView, view: &'v LoadedView, position: &Vector) -> Option<Vec<&'v StateRows>> {
    let plan = &view.live.plan;
    let streams = view.live.streams();
    let mut past: Vec<&StateRows> = Vec::new();
    // What is committed was fresh before, so that nearly always all of it is behind the position.
    if !position.covers(&read_view.loaded.vector.of_streams(&streams)) {
        if !position.covers(&view.cut.of_streams(&streams)) {
            return None;
        }
        let checkpoints = &read_view.loaded.state.checkpoints;
        for layer in &view.layers {
            let mut ranges = layer.checkpoints.iter().flat_map(|id| checkpoints.get(*id)).flat_map(|checkpoint| &checkpoint.ranges);
            if ranges.any(|range| plan.reads(&range.partition.stream) && range.end > position.get(&range.partition)) {
                past.extend(layer.run.chunks().iter());
            }
        }
    }
    let version = view.live.view_version();
    for layer in &read_view.fresh {
        let is_past = layer.end.iter().any(|(partition, end)| plan.reads(&partition.stream) && end > position.get(partition));
        past.extend(layer.states.get(&version).filter(|_| is_past).map(|rows| &**rows));
    }
    Some(past)
}

fn grouped(view: &LiveView) -> Result<Grouped<'_>> {
    match &view.plan.answering {
        Answering::Grouped(_) => Ok(Grouped { view }),
        Answering::Linked(_) => Err(Error::internal("the rows of a linked view are walked").with("view", &view.name)),
    }
}

#[cfg(test)]
mod tests;
