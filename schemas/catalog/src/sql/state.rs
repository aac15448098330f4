//! Reads the whole state as of one point in time. A reader that has an earlier state reads only the checkpoints, files
//! and definitions that were written or removed since, and shares the rest with it: the cost depends on the change, not
//! on the history. A state with commits that the catalog lost, because it was restored from a copy, is of no use to it:
//! other commits have their revisions since.

use std::sync::Arc;

use super::session::Session;
use super::{checkpoint, damage, definition, file, gap, lease, mark, meta, parameter, partition, pause, removed, run, snapshot, worker};
use crate::{CatalogState, Checkpoints, DefinitionVersions, Files, Revision};
use types::Result;

/// Before all revisions.
const NEVER: Revision = -1;

/// Reads the state in one transaction; `last` is a state that was read earlier, if any.
pub(super) async fn read(session: &mut Session, last: Option<&Arc<CatalogState>>) -> Result<Arc<CatalogState>> {
    let meta = meta::read(session).await?;
    let last = last.filter(|last| last.identity == meta.identity && last.revision <= meta.revision);
    let is_continued = match last {
        Some(last) => meta::has(session, last.last_commit).await?,
        None => true,
    };
    let last = last.filter(|_| is_continued);
    if let Some(last) = last.filter(|last| last.revision == meta.revision) {
        return Ok(last.clone());
    }
    // What was removed is listed for a while: a reader of an older state reads everything again.
    let last = last.filter(|last| meta.removed_revision <= last.revision);
    let since = last.map_or(NEVER, |last| last.revision);
    let (mut checkpoints, mut files) = match last {
        Some(last) => without_removed(session, last).await?,
        None => (Checkpoints::default(), Files::default()),
    };
    // None is ever removed.
    let mut definitions = last.map_or_else(DefinitionVersions::default, |last| last.definitions.clone());
    checkpoints.extend(checkpoint::since(session, since).await?);
    files.extend(file::since(session, since).await?);
    definitions.extend(definition::since(session, since).await?);
    Ok(Arc::new(CatalogState {
        revision: meta.revision,
        identity: meta.identity,
        last_commit: meta::last_commit(session).await?,
        orphaned_before: meta::orphaned_before(session).await?,
        definitions,
        parameters: parameter::newest(session).await?,
        partitions: partition::all(session).await?,
        checkpoints,
        files,
        snapshots: snapshot::all(session).await?,
        runs: run::recent(session).await?,
        leases: lease::all(session).await?,
        workers: worker::all(session).await?,
        gaps: gap::all(session).await?,
        damages: damage::all(session).await?,
        marks: mark::all(session).await?,
        pauses: pause::all(session).await?,
    }))
}

/// Returns the checkpoints and files of a state that are still there.
async fn without_removed(session: &mut Session, last: &CatalogState) -> Result<(Checkpoints, Files)> {
    let removed = removed::since(session, last.revision).await?;
    let (mut checkpoints, mut files) = (last.checkpoints.clone(), last.files.clone());
    checkpoints.remove(&removed.checkpoints);
    files.remove(removed.files.iter().map(String::as_str));
    Ok((checkpoints, files))
}
