//! What recomputations have saved of view versions before they publish a snapshot. The catalog's files do not include
//! it, so the storage is listed.

use std::collections::BTreeSet;
use std::sync::Arc;

use catalog::{CatalogState, DefinitionKind, ORPHAN_AGE, RunRecord, RunStatus, draft_to_resume, last_recomputation};
use engine::events::format_timestamp;
use serde::Serialize;
use storage::ObjectStorage;
use types::files::{ObjectName, folder_of_version};
use types::tiles::{Micros, micros};
use types::{Result, Strategy};

/// The stored slices of one version of a view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SlicesUsage {
    pub view: Arc<str>,
    pub version: u32,
    pub status: SlicesStatus,
    pub files: u64,
    pub bytes: u64,
    /// When the collector may delete those that are resumable. `None` for all others.
    pub kept_until: Option<String>,
}

/// Who deletes slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SlicesStatus {
    /// The recomputation that is running, once it publishes.
    Running,
    /// The last recomputation ended early. The next one goes on with them, and deletes them once it publishes.
    Resumable,
    /// The collector: no recomputation goes on with them.
    Obsolete,
}

/// Returns the slices that the storage has at the time `now`, by view and version.
pub(super) async fn stored_slices(storage: &ObjectStorage, state: &CatalogState, now: Micros) -> Result<Vec<SlicesUsage>> {
    let saves = |run: &&RunRecord| run.strategy == Some(Strategy::Full) && (run.status == RunStatus::Running || run.draft.is_some());
    let versions: BTreeSet<(&Arc<str>, u32)> = state.runs.iter().filter(saves).map(|run| (&run.view, run.version)).collect();
    let mut found = Vec::new();
    for (view, version) in versions {
        let (status, kept_until) = slices_status(state, view, version, now);
        let mut usage = SlicesUsage { view: view.clone(), version, status, files: 0, bytes: 0, kept_until };
        for object in storage.list(&folder_of_version(view, version)).await? {
            if object.path.parse().is_ok_and(|name: ObjectName| name.is_of_slice()) {
                usage.files += 1;
                usage.bytes += object.bytes;
            }
        }
        found.extend(Some(usage).filter(|usage| usage.files > 0));
    }
    Ok(found)
}

/// Returns who deletes the slices of a view version, and until when those that are resumable are kept.
fn slices_status(state: &CatalogState, view: &str, version: u32, now: Micros) -> (SlicesStatus, Option<String>) {
    let Some(last) = last_recomputation(state, view, version) else { return (SlicesStatus::Obsolete, None) };
    let is_live = || state.definitions.get(DefinitionKind::View, view, version).is_some_and(|record| record.status.is_live());
    match last.ended_at {
        None => (SlicesStatus::Running, None),
        Some(ended_at) if is_live() && draft_to_resume(state, view, version, now).is_some() => {
            (SlicesStatus::Resumable, Some(format_timestamp(ended_at.saturating_add(micros(ORPHAN_AGE)))))
        }
        Some(_) => (SlicesStatus::Obsolete, None),
    }
}
