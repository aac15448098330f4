//! The rows of a view as each of some events sees them: with what the events before it in its batch add, and without what
//! comes after it.

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use engine::states::{AddedStates, StateRows};
use types::Result;
use types::tiles::Micros;

use super::{StateSource, answerer};
use crate::read_view::{LoadedView, ReadView};

/// Rows that are answered together.
const AT_ONCE: usize = 1_024;

/// The events of a batch, and how each sees one view.
#[derive(Debug, Clone, Copy)]
pub struct SeenBy<'a> {
    /// The key of each event's row, a column for each key of the view.
    pub keys: &'a [ArrayRef],
    /// Whether an event has a key. Its row is that of no events, if it has none.
    pub has_key: &'a BooleanArray,
    pub t: &'a [Micros],
    /// What came before the batch and is in no layer of the read view.
    pub before: Option<&'a StateRows>,
    /// What the events of the batch add. `None` if the view does not read their stream.
    pub added: Option<&'a AddedStates>,
    /// How many events of the batch each event counts: those before it, and itself or not.
    pub counted: &'a [u32],
    /// Indices of the plan's columns.
    pub wanted: &'a [usize],
}

/// Some of the events, all at one time.
pub(crate) struct SeenAt<'a> {
    pub(super) seen: &'a SeenBy<'a>,
    pub(super) events: &'a [u32],
    pub(super) t: Micros,
}

/// One row for each event, in their order, with the wanted columns. Values that cannot be computed are NULL.
///
/// Errors: `Unavailable` while a part of the snapshot that is needed is being copied.
pub fn rows_seen(read_view: &ReadView, view: &LoadedView, seen: &SeenBy<'_>) -> Result<RecordBatch> {
    let source = StateSource::new(read_view, view, None);
    let mut order: Vec<u32> = (0..seen.t.len() as u32).collect();
    order.sort_by_key(|event| seen.t[*event as usize]);
    let mut parts = Vec::new();
    for at_one_time in order.chunk_by(|a, b| seen.t[*a as usize] == seen.t[*b as usize]) {
        for events in at_one_time.chunks(AT_ONCE) {
            parts.push(answerer(&view.live).rows_seen(&source, &SeenAt { seen, events, t: seen.t[events[0] as usize] })?);
        }
    }
    let Some(first) = parts.first() else {
        let fields: Vec<_> = seen.wanted.iter().map(|column| view.live.plan.columns[*column].field.clone()).collect();
        return Ok(RecordBatch::new_empty(std::sync::Arc::new(arrow::datatypes::Schema::new(fields))));
    };
    let rows = concat_batches(&first.schema(), &parts)?;
    if rows.num_columns() == 0 || order.is_sorted() {
        return Ok(rows);
    }
    let mut place_of = vec![0; order.len()];
    for (place, event) in order.iter().enumerate() {
        place_of[*event as usize] = place as u32;
    }
    Ok(take_record_batch(&rows, &UInt32Array::from(place_of))?)
}

impl SeenAt<'_> {
    /// The keys of these events.
    pub(super) fn keys(&self) -> Result<Vec<ArrayRef>> {
        let events = UInt32Array::from(self.events.to_vec());
        self.seen.keys.iter().map(|column| Ok(arrow::compute::take(column, &events, None)?)).collect()
    }

    pub(super) fn has_key(&self, event: u32) -> bool {
        self.seen.has_key.is_valid(event as usize) && self.seen.has_key.value(event as usize)
    }

    pub(super) fn counted(&self, event: u32) -> u32 {
        self.seen.counted[event as usize]
    }
}
