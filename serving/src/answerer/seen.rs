//! The rows of a view as each of some events sees them: with what the events before it in its batch add, and without
//! what comes after it.

use arrow::array::RecordBatch;
use engine::states::SeenBy;
use types::Result;

use super::{StateSource, answerer};
use crate::read_view::{LoadedView, ReadView};

/// One row for each event, in their order, with the wanted columns. Values that cannot be computed are NULL.
///
/// Errors: `Unavailable` while a part of the snapshot that is needed is being copied.
pub fn rows_seen(read_view: &ReadView, view: &LoadedView, seen: &SeenBy<'_>) -> Result<RecordBatch> {
    answerer(&view.live).rows_seen(&StateSource::new(read_view, view, None), seen)
}
