//! Which archive files hold the events that are asked for, and which checkpoints come after a cut: the one answer for
//! runs, queries, replays and the speed layer's start. `verify` does not use it, and reads every file.

use std::sync::Arc;

use types::files::{FileKind, FileRecord};
use types::tiles::Micros;
use types::vector::Vector;
use types::{Error, Result};
use uuid::Uuid;

use crate::{CatalogState, CheckpointRecord};

/// What is asked of the archive. A bound leaves out files in which no event is within it; a file that remains may hold
/// other events too.
#[derive(Debug, Clone, Copy, Default)]
pub struct ArchiveBounds<'a> {
    /// Only checkpoints whose events of the stream are entirely before this vector.
    pub cut: Option<&'a Vector>,
    /// Only events of this time or later.
    pub oldest: Option<Micros>,
    /// Only events of this time or earlier.
    pub newest: Option<Micros>,
}

impl ArchiveBounds<'_> {
    fn may_hold(&self, state: &CatalogState, file: &FileRecord) -> bool {
        self.is_before_cut(state, file)
            && self.oldest.is_none_or(|oldest| file.max_event_time.is_none_or(|last| last >= oldest))
            && self.newest.is_none_or(|newest| file.min_event_time.is_none_or(|first| first <= newest))
    }

    fn is_before_cut(&self, state: &CatalogState, file: &FileRecord) -> bool {
        let (Some(cut), Some(id)) = (self.cut, file.checkpoint) else { return true };
        let streams = file.subject.as_slice();
        state.checkpoints.get(id).is_some_and(|checkpoint| checkpoint.is_within_of(streams, cut))
    }
}

/// Returns the archive files of these streams that may hold events within the bounds, ordered by path.
pub fn archive_files<'s>(state: &'s CatalogState, streams: &[Arc<str>], bounds: ArchiveBounds<'_>) -> Vec<&'s FileRecord> {
    let is_of_stream = |file: &&FileRecord| file.subject.as_ref().is_some_and(|stream| streams.contains(stream));
    state.readable(FileKind::Archive).filter(is_of_stream).filter(|file| bounds.may_hold(state, file)).collect()
}

/// Returns the archive file with the events that one checkpoint has of a stream; `None` if it has none, or none any
/// more.
pub fn archive_file_of<'s>(state: &'s CatalogState, checkpoint: Uuid, stream: &str) -> Option<&'s FileRecord> {
    state.readable_of(checkpoint, FileKind::Archive).find(|file| file.subject.as_deref() == Some(stream))
}

/// Returns the checkpoints of these streams after a cut, in the order of the catalog. What they have of other streams
/// does not matter: it may be on both sides of the cut, as a view does not hold up the compaction of what it does not
/// read.
///
/// Errors: `Corrupt` when one lies on both sides of it.
pub fn checkpoints_after<'s>(state: &'s CatalogState, streams: &[Arc<str>], cut: &Vector) -> Result<Vec<&'s CheckpointRecord>> {
    let reads = |checkpoint: &&CheckpointRecord| checkpoint.ranges.iter().any(|range| streams.contains(&range.partition.stream));
    // A cut is the vector of a catalog state: whatever was committed before a checkpoint within it is within it too.
    let recent = state.checkpoints.iter().rev().take_while(|checkpoint| !checkpoint.is_within(cut));
    let mut after = Vec::new();
    for checkpoint in recent.filter(reads).take_while(|checkpoint| !checkpoint.is_within_of(streams, cut)) {
        if !checkpoint.ranges_of(streams).all(|range| range.start >= cut.get(&range.partition)) {
            return Err(Error::corrupt("a checkpoint lies on both sides of a cut").with("checkpoint", checkpoint.id).with("cut", cut));
        }
        after.push(checkpoint);
    }
    after.reverse();
    Ok(after)
}
