//! The catalog state, the catalog's only kind of read: everything, as of one point in time.

use std::collections::BTreeMap;
use std::sync::Arc;

use types::files::{FileKind, FileRecord};
use types::record::MarkRecord;
use types::tiles::Micros;
use types::vector::{PartitionId, Vector};
use uuid::Uuid;

use crate::records::*;

mod definitions;
mod shared;

pub use definitions::DefinitionVersions;
pub use shared::{Checkpoints, Files};

/// All that queries, runs and decisions depend on, read in one transaction.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CatalogState {
    pub revision: Revision,
    /// Identifies this catalog; set once.
    pub identity: String,
    /// The last commit that is remembered, with its revision: a catalog that was restored from an earlier copy has it
    /// no longer. `None` if no commit is remembered.
    pub last_commit: Option<(Uuid, Revision)>,
    /// Files of checkpoints that were made before this time can no longer be named.
    pub orphaned_before: Micros,
    /// All versions, those that were replaced and dropped too.
    pub definitions: DefinitionVersions,
    /// The newest value of each parameter, ordered by name. Those of parameters that were dropped are among them.
    pub parameters: Vec<ParameterRecord>,
    pub partitions: BTreeMap<PartitionId, PartitionRecord>,
    pub checkpoints: Checkpoints,
    pub files: Files,
    pub snapshots: Vec<SnapshotRecord>,
    /// The running, the requested and the newest ended runs of each view.
    pub runs: Vec<RunRecord>,
    pub leases: Vec<LeaseRecord>,
    /// The processes whose workers offer their fresh layers, ordered by name. Those that died are listed for a while.
    pub workers: Vec<WorkerRecord>,
    pub gaps: Vec<GapRecord>,
    /// Files that were found damaged and are still named, ordered by path.
    pub damages: Vec<DamageRecord>,
    pub marks: BTreeMap<PartitionId, MarkRecord>,
    /// The sinks and alerts that are paused, ordered by kind and name.
    pub pauses: Vec<PauseRecord>,
}

impl CatalogState {
    /// Returns the committed vector.
    pub fn vector(&self) -> Vector {
        self.partitions.values().map(|p| (p.id.clone(), p.next_offset)).collect()
    }

    /// True if a position was ever committed in a partition of the stream. No event, dead letter, gap or cut of it is
    /// in the catalog without one.
    pub fn has_committed(&self, stream: &str) -> bool {
        self.partitions.keys().any(|id| &*id.stream == stream)
    }

    /// Returns the version of a definition that is served (or, before there is one, the version being built).
    pub fn served_or_building(&self, kind: DefinitionKind, name: &str) -> Option<&DefinitionRecord> {
        let of_name = || self.definitions.live_versions(kind, name);
        of_name()
            .find(|d| d.status == DefinitionStatus::Active)
            .or_else(|| of_name().filter(|d| d.status == DefinitionStatus::Building).max_by_key(|d| d.version))
    }

    /// Returns the definitions that the speed layer processes: active ones, those being built and those kept.
    pub fn live(&self, kind: DefinitionKind) -> impl Iterator<Item = &DefinitionRecord> {
        self.definitions.live().filter(move |d| d.kind == kind)
    }

    /// Returns the last version of each definition that has no live one: it was dropped.
    pub fn dropped(&self, kind: DefinitionKind) -> impl Iterator<Item = &DefinitionRecord> {
        let of_kind = self.definitions.iter().filter(move |d| d.kind == kind);
        let last: BTreeMap<&Arc<str>, &DefinitionRecord> = of_kind.map(|d| (&d.name, d)).collect();
        last.into_values().filter(move |d| self.definitions.live_versions(kind, &d.name).next().is_none())
    }

    /// Returns the live versions of all definitions, for a commit that was decided on them.
    pub fn live_versions(&self) -> Vec<LiveVersion> {
        self.definitions.live().map(|d| LiveVersion { kind: d.kind, name: d.name.clone(), version: d.version, status: d.status }).collect()
    }

    /// Returns the live parameters with the versions of their values, for a commit that was decided on them.
    pub fn parameter_versions(&self) -> Vec<(Arc<str>, u32)> {
        let live = self.parameters.iter().filter(|value| self.served_or_building(DefinitionKind::Parameter, &value.parameter).is_some());
        live.map(|value| (value.parameter.clone(), value.version)).collect()
    }

    /// Returns since when a sink or an alert is paused; `None` if it is not.
    pub fn paused_since(&self, kind: DefinitionKind, name: &str) -> Option<Micros> {
        self.pauses.iter().find(|pause| pause.kind == kind && &*pause.name == name).map(|pause| pause.since)
    }

    /// Returns the files of a kind that may be read: those that are not marked for deletion.
    pub fn readable(&self, kind: FileKind) -> impl Iterator<Item = &FileRecord> {
        self.files.iter().filter(move |file| file.kind == kind && !file.marked_for_deletion)
    }

    /// Returns the files of a kind that one checkpoint has and that may be read, ordered by path.
    pub fn readable_of(&self, checkpoint: Uuid, kind: FileKind) -> impl Iterator<Item = &FileRecord> {
        self.files.of_checkpoint(checkpoint).filter(move |file| file.kind == kind && !file.marked_for_deletion)
    }

    /// Returns the published snapshot of a view version.
    pub fn snapshot(&self, view: &str, version: u32) -> Option<&SnapshotRecord> {
        self.snapshots.iter().find(|s| &*s.view == view && s.version == version)
    }
}
