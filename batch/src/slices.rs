//! Cuts the archive into slices, so that a recomputation of much history can save its states after each. All are pure
//! functions of a catalog state.
//!
//! A slice ends where a checkpoint ends, and slices follow each other without a gap: whichever files hold the events
//! meanwhile, each event is in one slice.

use std::sync::Arc;

use catalog::{ArchiveBounds, CatalogState, CheckpointRecord, archive_file_of, archive_files};
use committed::registry::LiveView;
use storage::OffsetRanges;
use types::files::FileRecord;
use types::vector::Vector;

use crate::decide::RunInputs;

/// The archive is cut into at most this many slices, however large it is, because each has files of its own.
const MOST: u64 = 32;

/// Events of a view's streams between two vectors.
pub(crate) struct Slice {
    /// The place in the order of slices; a slice that several runs reach at the same time has the same number in all of
    /// them.
    pub(crate) number: u32,
    pub(crate) from: Vector,
    pub(crate) to: Vector,
    /// The files that may hold its events which still count, and perhaps others.
    pub(crate) files: Vec<FileRecord>,
}

impl Slice {
    /// Its offsets of a stream.
    pub(crate) fn ranges(&self, stream: &Arc<str>) -> OffsetRanges {
        OffsetRanges { stream: stream.clone(), from: self.from.clone(), to: self.to.clone() }
    }
}

/// The archive up to a run's cut, to be read in slices.
pub(crate) struct Slices<'a> {
    state: &'a CatalogState,
    streams: Vec<Arc<str>>,
    inputs: &'a RunInputs,
    view: &'a LiveView,
    /// A slice has about this many events.
    size: i64,
}

impl<'a> Slices<'a> {
    pub(crate) fn new(state: &'a CatalogState, view: &'a LiveView, inputs: &'a RunInputs, events_per_slice: u64) -> Self {
        let streams = view.streams();
        // Whatever the view's windows are: so runs of several views have the same slices.
        let bounds = ArchiveBounds { cut: Some(&inputs.cut), ..ArchiveBounds::default() };
        let events = archive_files(state, &streams, bounds).into_iter().map(|file| file.rows).sum();
        Self { state, streams, inputs, view, size: slice_size(events, events_per_slice) }
    }

    /// All of it, if that is one slice.
    pub(crate) fn only(&self) -> Option<Slice> {
        let whole =
            || Slice { number: 0, from: Vector::new(), to: self.inputs.cut.clone(), files: self.inputs.archive(self.state, self.view) };
        let first = self.after(&Vector::new(), 0);
        let is_only = first.is_none_or(|first| self.after(&first.to, 1).is_none());
        is_only.then(whole)
    }

    /// The slice that begins at a vector; `None` at the cut.
    pub(crate) fn after(&self, from: &Vector, number: u32) -> Option<Slice> {
        let cut = self.inputs.cut.of_streams(&self.streams);
        if from.covers(&cut) {
            return None;
        }
        let mut events = 0;
        let mut to = from.clone();
        for checkpoint in self.state.checkpoints.iter().filter(|checkpoint| self.is_ahead(checkpoint, from)) {
            events += self.events_of(checkpoint);
            for range in checkpoint.ranges_of(&self.streams) {
                let end = to.get(&range.partition).max(range.end);
                to.set(range.partition.clone(), end);
            }
            if events >= self.size {
                break;
            }
        }
        // What no checkpoint holds, such as offsets before the first, belongs to the last slice.
        let to = if events < self.size { cut } else { to };
        let is_within = |file: &FileRecord| self.has_offsets_of(file, from, &to);
        let files = self.inputs.archive(self.state, self.view).into_iter().filter(is_within).collect();
        Some(Slice { number, from: from.clone(), to, files })
    }

    /// Whether a checkpoint within the cut has events from this vector on.
    fn is_ahead(&self, checkpoint: &CheckpointRecord, from: &Vector) -> bool {
        checkpoint.is_within_of(&self.streams, &self.inputs.cut) && !checkpoint.is_within_of(&self.streams, from)
    }

    fn events_of(&self, checkpoint: &CheckpointRecord) -> i64 {
        let files = self.streams.iter().filter_map(|stream| archive_file_of(self.state, checkpoint.id, stream));
        files.map(|file| file.rows).sum()
    }

    fn has_offsets_of(&self, file: &FileRecord, from: &Vector, to: &Vector) -> bool {
        let checkpoint = file.checkpoint.and_then(|id| self.state.checkpoints.get(id));
        checkpoint.is_none_or(|checkpoint| {
            let mut ranges = checkpoint.ranges_of(file.subject.as_slice());
            ranges.any(|range| range.start < to.get(&range.partition) && range.end > from.get(&range.partition))
        })
    }
}

/// A power of two times `events_per_slice`, so that the archive is cut in the same places when it has grown a little.
fn slice_size(events: i64, events_per_slice: u64) -> i64 {
    let mut size = events_per_slice.max(1);
    while size.saturating_mul(MOST) < events.max(0) as u64 {
        size = size.saturating_mul(2);
    }
    i64::try_from(size).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
