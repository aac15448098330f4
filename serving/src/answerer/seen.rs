//! The rows of a view as each of some events sees them: with what the events before it in its batch add, and without what
//! comes after it.

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use engine::states::{AddedStates, StateRows};
use types::Result;
use types::tiles::Micros;

use super::{StateSource, answerer};
use crate::read_view::{LoadedView, ReadView};

/// The events of a batch, and how each sees one view.
#[derive(Debug, Clone, Copy)]
pub struct SeenBy<'a> {
    /// The key of each event's row, a column for each key of the view.
    pub keys: &'a [ArrayRef],
    /// Whether an event has a key. Its row is that of no events, if it has none.
    pub has_key: &'a BooleanArray,
    pub t: &'a [Micros],
    /// What came before the batch and is in no layer of the read view.
    pub before: &'a [StateRows],
    /// What the events of the batch add. `None` if the view does not read their stream.
    pub added: Option<&'a AddedStates>,
    /// How many events of the batch each event counts: those before it, and itself or not.
    pub counted: &'a [u32],
    /// Indices of the plan's columns.
    pub wanted: &'a [usize],
}

/// One row for each event, in their order, with the wanted columns. Values that cannot be computed are NULL.
///
/// Errors: `Unavailable` while a part of the snapshot that is needed is being copied.
pub fn rows_seen(read_view: &ReadView, view: &LoadedView, seen: &SeenBy<'_>) -> Result<RecordBatch> {
    answerer(&view.live).rows_seen(&StateSource::new(read_view, view, None), seen)
}

impl SeenBy<'_> {
    pub(super) fn has_key(&self, event: usize) -> bool {
        self.has_key.is_valid(event) && self.has_key.value(event)
    }
}
