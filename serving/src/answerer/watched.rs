//! What an alert reads of a view: the rows of single keys, the rows of all keys part by part, and the keys that may have
//! changed since a position. For grouped views only: in a linked view an event changes the rows of keys that it does not
//! name.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use committed::registry::LiveView;
use engine::plan::Answering;
use engine::states::{Answered, StateRows};
use types::tiles::Micros;
use types::vector::Vector;
use types::{Error, Result};

use super::grouped::Grouped;
use super::{AskedPart, StateSource};
use crate::read_view::{LoadedView, ReadView};

/// Rows and their keys, as the view's codec encodes them.
#[derive(Debug)]
pub struct WatchedRows {
    pub keys: Vec<Arc<[u8]>>,
    /// The wanted columns of each key.
    pub rows: RecordBatch,
}

/// The rows that exist of one of the parts in which a view is scanned; `wanted` are indices of the plan's columns.
///
/// Errors: `Unavailable` while a part of the snapshot that is needed is being copied.
pub fn rows_of_part(read_view: &ReadView, view: &LoadedView, part: u32, t: Micros, wanted: &[usize]) -> Result<WatchedRows> {
    let source = StateSource::new(read_view, view, None);
    let view = grouped(&view.live)?;
    let (keys, Answered { rows, found, .. }) = view.answer_part(&source, &AskedPart { part, t, wanted })?;
    let keys = keys.into_iter().zip(&found).filter(|(_, found)| **found).map(|(key, _)| key.into()).collect();
    Ok(WatchedRows { keys, rows: filter_record_batch(&rows, &BooleanArray::from(found))? })
}

/// One row for each of these encoded keys, in their order, and whether it exists. Values that cannot be computed are NULL.
///
/// Errors: likewise.
pub fn rows_of_keys(
    read_view: &ReadView,
    view: &LoadedView,
    keys: &[&[u8]],
    t: Micros,
    wanted: &[usize],
) -> Result<(RecordBatch, Vec<bool>)> {
    let source = StateSource::new(read_view, view, None);
    let Answered { rows, found, .. } = grouped(&view.live)?.answer_keys(&source, keys, t, wanted)?;
    Ok((rows, found))
}

/// The keys of a view that have events past this position, and perhaps others; `None` where the states of some of them are
/// in a snapshot, so that any key may have. It costs as much as there is past the position.
pub fn keys_since(read_view: &ReadView, view: &LoadedView, position: &Vector) -> Option<BTreeSet<Arc<[u8]>>> {
    let plan = &view.live.plan;
    let streams = view.live.streams();
    let mut keys = BTreeSet::new();
    let mut add = |rows: &StateRows| keys.extend(rows.keys().iter().flatten().map(Arc::from));
    // What is committed was fresh before, so that nearly always all of it is behind the position.
    if !position.covers(&read_view.loaded.vector.of_streams(&streams)) {
        if !position.covers(&view.cut.of_streams(&streams)) {
            return None;
        }
        let checkpoints = &read_view.loaded.state.checkpoints;
        for layer in &view.layers {
            let mut ranges = layer.checkpoints.iter().flat_map(|id| checkpoints.get(*id)).flat_map(|checkpoint| &checkpoint.ranges);
            if ranges.any(|range| plan.reads(&range.partition.stream) && range.end > position.get(&range.partition)) {
                layer.run.chunks().iter().for_each(&mut add);
            }
        }
    }
    let version = (view.live.name.clone(), view.live.version);
    for layer in &read_view.fresh {
        let is_past = layer.end.iter().any(|(partition, end)| plan.reads(&partition.stream) && end > position.get(partition));
        if let Some(rows) = layer.states.get(&version).filter(|_| is_past) {
            add(rows);
        }
    }
    Some(keys)
}

fn grouped(view: &LiveView) -> Result<Grouped<'_>> {
    match &view.plan.answering {
        Answering::Grouped(_) => Ok(Grouped { view }),
        Answering::Linked(_) => Err(Error::internal("the rows of a linked view are not watched").with("view", &view.name)),
    }
}
