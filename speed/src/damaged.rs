//! Streams that a worker leaves out because an archive file from which it has to reread their ids is damaged.
//!
//! The records of such a stream are not decided, so nothing of it is lost, skipped or counted twice. The worker's other
//! streams continue. The stream is read again once the catalog no longer lists the file as damaged.
//!
//! Nothing here uses a clock or a storage.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use catalog::{CatalogState, DefinitionKind};
use types::files::FileKind;
use types::outage::Outage;

/// The name of the outage in `/readyz` and in `status`.
pub const ARCHIVE_DAMAGED: &str = "a stream is not read because a file of its archive is damaged";

/// The streams that one worker leaves out.
#[derive(Debug, Default)]
pub(crate) struct DamagedStreams(BTreeMap<Arc<str>, DamagedArchive>);

#[derive(Debug)]
struct DamagedArchive {
    path: String,
    error: String,
    since: Instant,
}

impl DamagedStreams {
    pub(crate) fn leave_out(&mut self, stream: Arc<str>, path: String, error: String, now: Instant) {
        self.0.insert(stream, DamagedArchive { path, error, since: now });
    }

    /// Forgets the streams whose files are repaired, and those that were dropped.
    pub(crate) fn follow_repairs(&mut self, state: &CatalogState) {
        self.0.retain(|stream, archive| damaged_stream(state, &archive.path).as_ref() == Some(stream));
    }

    pub(crate) fn left_out(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.keys()
    }

    pub(crate) fn outage(&self, now: Instant) -> Option<Outage> {
        let since = self.0.values().map(|archive| archive.since).min()?;
        let said = self.0.iter().map(|(stream, archive)| format!("the stream \"{stream}\": {}", archive.error));
        let error = said.collect::<Vec<_>>().join("; ");
        Some(Outage { what: ARCHIVE_DAMAGED, lasting: now.saturating_duration_since(since), error, errors: BTreeMap::new() })
    }
}

/// Returns the stream of an archive file that the catalog knows to be damaged and still needs.
pub(crate) fn damaged_stream(state: &CatalogState, path: &str) -> Option<Arc<str>> {
    let file = state.files.get(path).filter(|file| file.kind == FileKind::Archive && !file.marked_for_deletion)?;
    let stream = file.subject.clone().filter(|_| state.damages.iter().any(|damage| damage.path == path))?;
    state.live(DefinitionKind::Stream).any(|live| live.name == stream).then_some(stream)
}
