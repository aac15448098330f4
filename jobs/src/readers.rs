//! Which processes read which partitions, as far as recent checkpoints show: processes share only the catalog.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use catalog::{CatalogState, CheckpointRecord};
use serde::Serialize;
use types::tiles::{Micros, micros};
use types::vector::PartitionId;

/// A checkpoint is recent for this many intervals.
const INTERVALS: u32 = 3;

/// A process of the speed layer, and the partitions it reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SpeedProcess {
    pub process: String,
    pub workers: usize,
    pub partitions: usize,
}

/// Returns the processes that committed a partition's newest checkpoint recently.
pub fn readers(state: &CatalogState, checkpoint_interval: Duration, now: Micros) -> Vec<SpeedProcess> {
    let mut found: BTreeMap<&str, (BTreeSet<&str>, usize)> = BTreeMap::new();
    for checkpoint in newest(state, now.saturating_sub(micros(checkpoint_interval * INTERVALS))).into_values() {
        let (workers, partitions) = found.entry(process_of(&checkpoint.worker)).or_default();
        workers.insert(&checkpoint.worker);
        *partitions += 1;
    }
    let reader = |(process, (workers, partitions)): (&str, (BTreeSet<&str>, usize))| SpeedProcess {
        process: process.to_owned(),
        workers: workers.len(),
        partitions,
    };
    found.into_iter().map(reader).collect()
}

/// Returns how many partitions are read by other processes than those of these workers, by their recent checkpoints
/// after `begun`.
pub(crate) fn read_elsewhere(state: &CatalogState, workers: &[String], checkpoint_interval: Duration, begun: Micros, now: Micros) -> usize {
    let of_late = now.saturating_sub(micros(checkpoint_interval * INTERVALS));
    let known: BTreeSet<&str> = workers.iter().map(|worker| process_of(worker)).collect();
    let newest = newest(state, of_late.max(begun));
    newest.into_values().filter(|checkpoint| !known.contains(process_of(&checkpoint.worker))).count()
}

/// Returns the newest checkpoint of each partition, if it was committed after `since`.
fn newest(state: &CatalogState, since: Micros) -> BTreeMap<&PartitionId, &CheckpointRecord> {
    let mut newest: BTreeMap<&PartitionId, &CheckpointRecord> = BTreeMap::new();
    for checkpoint in state.checkpoints.iter().filter(|checkpoint| checkpoint.committed_at > since) {
        for range in &checkpoint.ranges {
            let known = newest.entry(&range.partition).or_insert(checkpoint);
            if checkpoint.revision > known.revision {
                *known = checkpoint;
            }
        }
    }
    newest
}

/// The second and later workers of a process have its name with a number: `4711-1a2b3c4d-2`.
fn process_of(worker: &str) -> &str {
    match worker.rsplit_once('-') {
        Some((process, number)) if process.contains('-') && number.len() < 3 && number.bytes().all(|byte| byte.is_ascii_digit()) => process,
        _ => worker,
    }
}

#[cfg(test)]
mod tests;
