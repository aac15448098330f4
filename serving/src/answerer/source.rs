//! Where the states of an answer come from.

use super::key_range::KeyRange;
use crate::archive::ArchiveLayer;
use crate::read_view::{LoadedView, ReadView};

/// The states of one view.
#[derive(Clone, Copy)]
pub enum StateSource<'a> {
    /// Snapshot, checkpoints and fresh layers.
    Layers { read_view: &'a ReadView, view: &'a LoadedView },
    /// Recomputed from the archive, for a time that the kept states no longer (or not yet) answer.
    Archive(&'a ArchiveLayer),
}

impl<'a> StateSource<'a> {
    /// The archive's states where there are some, else those of a view's layers.
    pub(crate) fn new(read_view: &'a ReadView, view: &'a LoadedView, archive: Option<&'a ArchiveLayer>) -> Self {
        match archive {
            Some(layer) => StateSource::Archive(layer),
            None => StateSource::Layers { read_view, view },
        }
    }
}

/// Keys of a view: those that hash to one of several parts and lie in a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPart {
    pub(super) part: u32,
    pub(super) parts: u32,
    pub(super) range: KeyRange,
}

/// The number of parts in which a view is scanned, one after the other: memory holds one part's keys at a time.
pub fn scan_parts(source: &StateSource<'_>) -> u32 {
    match source {
        StateSource::Layers { view, .. } => view.snapshot.as_ref().map_or(1, |snapshot| snapshot.parts()),
        StateSource::Archive(_) => 1,
    }
}
