//! Plans what to do about damaged files: a pure function of the catalog, the damage found and the state of the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::{CatalogState, CheckpointRecord};
use committed::registry::Registry;
use serde::Serialize;
use types::files::{FileKind, FileRecord};
use types::vector::{Offset, PartitionId};
use uuid::Uuid;

use super::check::{self, Damaged};

/// What the log knows of one stream's topic.
#[derive(Debug, Clone, PartialEq)]
pub enum LogFacts {
    /// By partition, the begin and the end of its log.
    Known { identity: String, bounds: BTreeMap<i32, (Offset, Offset)> },
    /// Why the log did not answer.
    Unknown(String),
}

/// One damaged file and the action for it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RepairStep {
    pub path: String,
    pub kind: FileKind,
    pub error: String,
    #[serde(flatten)]
    pub action: RepairAction,
}

/// How a damaged file is repaired.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum RepairAction {
    /// Rebuild it from the archive.
    RebuildStates,
    /// A run of this view replaces the snapshot.
    RequestRun { view: Arc<str>, version: u32 },
    /// Its records are read from the log again and decided as before.
    ReadAgain { stream: Arc<str>, checkpoint: String },
    /// Its records are gone from the log: they are recorded as lost.
    GiveUp { stream: Arc<str>, lost: Vec<OffsetRange>, why: String },
    /// Nothing reads it: the collector deletes it.
    Leave,
    /// The user must decide.
    Refuse { why: String, help: String },
}

/// Offsets of one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OffsetRange {
    pub partition: i32,
    pub start: Offset,
    pub end: Offset,
}

impl RepairAction {
    /// Returns true if there is nothing to do.
    pub fn is_harmless(&self) -> bool {
        matches!(self, RepairAction::Leave)
    }
}

/// Returns the steps in the order of execution: the archive first, oldest first (ids are reread from it), then what is
/// derived from it.
pub fn plan(
    state: &CatalogState,
    registry: &Registry,
    damaged: &[Damaged],
    logs: &BTreeMap<Arc<str>, LogFacts>,
    accept_gap: bool,
) -> Vec<RepairStep> {
    // The file may have been replaced or collected since it was read.
    let is_named = |damaged: &&Damaged| check::named(state).any(|file| file.path == damaged.file.path);
    let mut named: Vec<&Damaged> = damaged.iter().filter(is_named).collect();
    named.sort_by_key(|damaged| {
        let revision = checkpoint_record(state, &damaged.file).map_or(i64::MAX, |checkpoint| checkpoint.revision);
        (damaged.file.kind as u8, revision, damaged.file.path.clone())
    });
    let step = |damaged: &Damaged| {
        let action = match damaged.file.kind {
            FileKind::States => RepairAction::RebuildStates,
            // A run that was published since it was read may have carried the file over.
            FileKind::Snapshot | FileKind::Manifest => {
                let run = state.files.get(&damaged.file.path).and_then(|file| file.run);
                snapshot_action(state, registry, run)
            }
            FileKind::Archive | FileKind::DeadLetters => log_action(state, &damaged.file, logs, accept_gap),
            FileKind::Superseded => RepairAction::Leave,
        };
        RepairStep { path: damaged.file.path.clone(), kind: damaged.file.kind, error: damaged.error.clone(), action }
    };
    named.into_iter().map(step).collect()
}

/// Returns true for a file that can only be rebuilt from the log.
pub(super) fn is_from_log(file: &FileRecord) -> bool {
    matches!(file.kind, FileKind::Archive | FileKind::DeadLetters)
}

fn snapshot_action(state: &CatalogState, registry: &Registry, run: Option<Uuid>) -> RepairAction {
    let published = state.snapshots.iter().find(|snapshot| Some(snapshot.run) == run);
    let live = published.and_then(|published| registry.view(&published.view, published.version));
    match live.filter(|live| live.status.is_live()) {
        Some(live) => RepairAction::RequestRun { view: live.name.clone(), version: live.version },
        None => RepairAction::Leave,
    }
}

fn log_action(state: &CatalogState, file: &FileRecord, logs: &BTreeMap<Arc<str>, LogFacts>, accept_gap: bool) -> RepairAction {
    let refuse = |why: String, help: &str| RepairAction::Refuse { why, help: help.into() };
    let (Some(stream), Some(checkpoint)) = (&file.subject, checkpoint_record(state, file)) else {
        return refuse("the catalog no longer holds the file's checkpoint".into(), RESTORE);
    };
    let ranges: Vec<OffsetRange> = checkpoint
        .ranges
        .iter()
        .filter(|range| range.partition.stream == *stream)
        .map(|range| OffsetRange { partition: range.partition.partition, start: range.start, end: range.end })
        .collect();
    match in_log(state, stream, &ranges, logs.get(stream)) {
        Ok(()) => RepairAction::ReadAgain { stream: stream.clone(), checkpoint: checkpoint.id.to_string() },
        Err(MissingFromLog::Unknown(why)) => refuse(why, "try again when the log answers, with the log that the stream was read from"),
        Err(MissingFromLog::Lost(why)) if accept_gap => RepairAction::GiveUp { stream: stream.clone(), lost: ranges, why },
        Err(MissingFromLog::Lost(why)) => refuse(why, RESTORE),
    }
}

const RESTORE: &str =
    "restore the file from a backup; or `basestream repair --accept-gap` records its offsets as lost and continues without them";

/// Why the log cannot supply the records of a file.
enum MissingFromLog {
    Unknown(String),
    Lost(String),
}

/// Checks that the log still has all of these ranges, and that it is the log from which they were read.
fn in_log(state: &CatalogState, stream: &Arc<str>, ranges: &[OffsetRange], log: Option<&LogFacts>) -> Result<(), MissingFromLog> {
    let (identity, bounds) = match log {
        Some(LogFacts::Known { identity, bounds }) => (identity, bounds),
        Some(LogFacts::Unknown(why)) => return Err(MissingFromLog::Unknown(why.clone())),
        None => return Err(MissingFromLog::Unknown(format!("the log of {stream} was not queried"))),
    };
    for range in ranges {
        let id = PartitionId::new(stream.clone(), range.partition);
        let known = state.partitions.get(&id).map_or("", |partition| partition.log_identity.as_str());
        if !known.is_empty() && known != identity {
            return Err(MissingFromLog::Lost(format!("the log is a different one: found {identity}, expected {known}")));
        }
        let (begin, end) = bounds.get(&range.partition).copied().unwrap_or_default();
        if range.start < begin || end < range.end {
            return Err(MissingFromLog::Lost(format!("the log has {begin}..{end} of {id}, expected {}..{}", range.start, range.end)));
        }
    }
    Ok(())
}

fn checkpoint_record<'s>(state: &'s CatalogState, file: &FileRecord) -> Option<&'s CheckpointRecord> {
    file.checkpoint.and_then(|id| state.checkpoints.get(id))
}

#[cfg(test)]
mod tests;
