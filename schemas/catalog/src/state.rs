//! The one read: everything, as of one moment.

use std::collections::BTreeMap;

use types::files::FileRecord;
use types::record::MarkRecord;
use types::tiles::Micros;
use types::vector::{PartitionId, Vector};

use crate::records::*;

/// Everything that queries, runs and decisions stand on, read in one transaction.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CatalogState {
    pub revision: Revision,
    /// Names this catalog; made once.
    pub identity: String,
    /// Files of checkpoints that were made before this time can be named no more.
    pub orphaned_before: Micros,
    pub definitions: Vec<DefinitionRecord>,
    pub partitions: BTreeMap<PartitionId, PartitionRecord>,
    /// In the order of their commits.
    pub checkpoints: Vec<CheckpointRecord>,
    pub files: Vec<FileRecord>,
    pub snapshots: Vec<SnapshotRecord>,
    /// The running ones, the requested ones and the newest ended ones of each view.
    pub runs: Vec<RunRecord>,
    pub leases: Vec<LeaseRecord>,
    pub gaps: Vec<GapRecord>,
    /// Files that were found damaged and are still named, in the order of their paths.
    pub damages: Vec<DamageRecord>,
    pub marks: BTreeMap<PartitionId, MarkRecord>,
}

impl CatalogState {
    /// The committed vector.
    pub fn vector(&self) -> Vector {
        self.partitions.values().map(|p| (p.id.clone(), p.next_offset)).collect()
    }

    /// The version of a definition that is served (or, before the first, the one being built).
    pub fn active(&self, kind: DefinitionKind, name: &str) -> Option<&DefinitionRecord> {
        let of_name = || self.definitions.iter().filter(|d| d.kind == kind && &*d.name == name);
        of_name()
            .find(|d| d.status == DefinitionStatus::Active)
            .or_else(|| of_name().filter(|d| d.status == DefinitionStatus::Building).max_by_key(|d| d.version))
    }

    /// The definitions that the speed layer keeps up: active ones and those being built.
    pub fn live(&self, kind: DefinitionKind) -> impl Iterator<Item = &DefinitionRecord> {
        self.definitions.iter().filter(move |d| d.kind == kind && d.status != DefinitionStatus::Retired)
    }

    pub fn snapshot(&self, view: &str, version: u32) -> Option<&SnapshotRecord> {
        self.snapshots.iter().find(|s| &*s.view == view && s.version == version)
    }
}
