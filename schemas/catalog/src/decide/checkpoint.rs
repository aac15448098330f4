//! Turns a speed worker's checkpoint into one commit.

use std::collections::BTreeMap;

use crate::{Add, Advance, CheckpointRange, CheckpointRecord, Commit, Expect};
use types::files::FileRecord;
use types::vector::PartitionId;

/// Returns the commit of a checkpoint whose files are already durable in the object storage. Every range starts at its
/// partition's committed position, and every partition belongs to its log in `identities` (one that is absent there
/// matches any log).
///
/// The commit's id is the checkpoint's, so that a worker whose reply was lost can retry.
pub fn checkpoint_commit(record: CheckpointRecord, files: Vec<FileRecord>, identities: &BTreeMap<PartitionId, String>) -> Commit {
    let mut expect: Vec<Expect> = record.ranges.iter().map(start_of).collect();
    expect.extend(record.ranges.iter().filter_map(|range| log_of(range, identities)));
    expect.push(Expect::NotMarkedForDeletion { paths: files.iter().map(|file| file.path.clone()).collect() });
    let advance = record.ranges.iter().map(|range| advance_over(range, identities)).collect();
    let id = record.id;
    let mut add = vec![Add::Checkpoint(record)];
    add.extend(files.into_iter().map(Add::File));
    Commit { id, expect, add, advance, ..Commit::default() }
}

/// Returns the first range that violates the ledger's law, and the sum of its counts.
pub fn ledger_difference(checkpoint: &CheckpointRecord) -> Option<(&CheckpointRange, i64)> {
    checkpoint.ranges.iter().find(|range| !range.is_balanced()).map(|range| (range, range.counted()))
}

fn start_of(range: &CheckpointRange) -> Expect {
    Expect::NextOffset { partition: range.partition.clone(), offset: range.start }
}

fn log_of(range: &CheckpointRange, identities: &BTreeMap<PartitionId, String>) -> Option<Expect> {
    let identity = identities.get(&range.partition)?.clone();
    Some(Expect::LogIdentity { partition: range.partition.clone(), identity })
}

fn advance_over(range: &CheckpointRange, identities: &BTreeMap<PartitionId, String>) -> Advance {
    Advance {
        partition: range.partition.clone(),
        start: range.start,
        end: range.end,
        log_identity: identities.get(&range.partition).cloned().unwrap_or_default(),
        clock: range.clock,
        max_event_time: range.max_event_time,
        complete_to: range.complete_to,
    }
}
