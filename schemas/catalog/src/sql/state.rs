//! Reads the whole state as of one point in time. A checkpoint never changes and a file rarely does, so a reader that
//! has an earlier state reads only what was written since: the cost depends on the change, not on the size.

use super::session::Session;
use super::{checkpoint, damage, definition, file, gap, lease, mark, meta, partition, run, snapshot};
use crate::{CatalogState, CheckpointRecord, Revision};
use types::Result;
use types::files::FileRecord;

/// Before all revisions.
const NEVER: Revision = -1;

/// Reads the state in one transaction; `last` is a state that was read earlier, if any.
pub(super) async fn read(session: &mut Session, last: Option<&CatalogState>) -> Result<CatalogState> {
    let meta = meta::read(session).await?;
    let last = last.filter(|last| last.identity == meta.identity && last.revision <= meta.revision);
    if let Some(last) = last.filter(|last| last.revision == meta.revision) {
        return Ok(last.clone());
    }
    // Deletions do not show in what was written since: after one, everything is read again.
    let last = last.filter(|last| meta.removed_revision <= last.revision);
    let since = last.map_or(NEVER, |last| last.revision);
    let (known_checkpoints, known_files) = last.map_or((&[][..], &[][..]), |last| (&last.checkpoints, &last.files));
    Ok(CatalogState {
        revision: meta.revision,
        identity: meta.identity,
        orphaned_before: meta::orphaned_before(session).await?,
        definitions: definition::all(session).await?,
        partitions: partition::all(session).await?,
        checkpoints: extended(known_checkpoints, checkpoint::since(session, since).await?),
        files: updated(known_files, file::since(session, since).await?),
        snapshots: snapshot::all(session).await?,
        runs: run::recent(session).await?,
        leases: lease::all(session).await?,
        gaps: gap::all(session).await?,
        damages: damage::all(session).await?,
        marks: mark::all(session).await?,
    })
}

fn extended(known: &[CheckpointRecord], newer: Vec<CheckpointRecord>) -> Vec<CheckpointRecord> {
    let mut all = Vec::with_capacity(known.len() + newer.len());
    all.extend_from_slice(known);
    all.extend(newer);
    all
}

/// Merges two lists ordered by path; for a path in both, the newer entry wins.
fn updated(known: &[FileRecord], newer: Vec<FileRecord>) -> Vec<FileRecord> {
    let mut all = Vec::with_capacity(known.len() + newer.len());
    let mut known = known.iter().peekable();
    for file in newer {
        while let Some(before) = known.next_if(|before| before.path < file.path) {
            all.push(before.clone());
        }
        known.next_if(|same| same.path == file.path);
        all.push(file);
    }
    all.extend(known.cloned());
    all
}
