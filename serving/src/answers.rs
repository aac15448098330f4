//! The rows of some keys, as an answerer makes them.

use arrow::array::RecordBatch;
use engine::states::FailedRows;

/// The answers of a lookup, in the order of the keys asked.
#[derive(Clone)]
pub(crate) struct Answers {
    pub(crate) rows: RecordBatch,
    pub(crate) found: Vec<bool>,
    /// Nodes had more neighbours than are followed: their values are estimates.
    pub(crate) estimated: bool,
    /// Linking paths, where they were asked for.
    pub(crate) paths: Option<RecordBatch>,
    /// Values that could not be computed: they are NULL.
    pub(crate) failed: FailedRows,
}

impl Answers {
    pub(crate) fn memory_bytes(&self) -> usize {
        let arrays = self.rows.columns().iter().chain(self.paths.iter().flat_map(RecordBatch::columns)).chain(&self.failed.keys);
        let failed: usize = self.failed.values.iter().map(|value| size_of_val(value) + value.why.len()).sum();
        size_of::<Self>() + self.found.len() + failed + arrays.map(|array| array.get_array_memory_size()).sum::<usize>()
    }
}
