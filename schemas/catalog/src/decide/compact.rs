//! Decides which checkpoints become one. A compacted checkpoint is a checkpoint as any other, with longer ranges and
//! larger files: the catalog has fewer records then, and the archive fewer and larger files.
//!
//! Checkpoints of one day (UTC, by commit) are compacted, in the order of their commits and without leaving one out, so
//! that their ranges follow one another and the ledger keeps its totals for each day. What may still be read by
//! checkpoint is left alone: whatever is not before every pin, and before every cut of a snapshot whose view reads it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use types::files::{FileKind, FileRecord};
use types::tiles::Micros;
use uuid::Uuid;

use super::archive::archive_file_of;
use super::collect::FileNeeds;
use super::reads::{Published, StreamsRead};
use crate::{Add, CatalogState, CheckpointRange, CheckpointRecord, Commit, Expect, GapRecord, SnapshotRecord};

const DAY: Micros = 24 * 3_600 * 1_000_000;

/// Checkpoints are compacted once together they are at least this many times as large as the largest. So the file of a
/// row grows by this factor each time that it is written again, which is log4(target / first size) times at most, and
/// once more when its day is over.
const GROWTH: i64 = 4;

/// At most this many checkpoints become one at a time.
const MOST: usize = 2_048;

/// What is compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionRules {
    /// No stream has a file larger than this after a compaction.
    pub target_bytes: i64,
    /// Checkpoints that were committed less than this ago are left alone.
    pub after: Duration,
}

/// Returns the groups of checkpoints that are due to be compacted at `now`, each in the order of commits.
///
/// `group_starts`: checkpoints that are not compacted with the one before them, because their files were written by
/// other versions of their streams.
pub fn compactions<'s>(
    state: &'s CatalogState,
    reads: &StreamsRead,
    rules: &CompactionRules,
    group_starts: &BTreeSet<Uuid>,
    now: Micros,
) -> Vec<Vec<&'s CheckpointRecord>> {
    let sequences = sequences(state, reads, rules, group_starts, now);
    let mut due = Vec::new();
    for (day, sequence) in &sequences {
        let is_over = (day + 1).saturating_mul(DAY) <= committed_before(rules, now);
        for bin in bins(sequence, rules.target_bytes) {
            if is_over && bin.len() > 1 {
                due.push(bin);
            } else {
                add_grown(bin, &mut due);
            }
        }
    }
    due.into_iter().map(|group| group.into_iter().map(|sized| sized.checkpoint).collect()).collect()
}

/// Returns the commit that replaces checkpoints with one. Its files are already durable, and hold exactly
/// the rows of the others' files, in any order.
///
/// The commit's id is of version 7, as it says when the files were superseded.
pub fn compaction_commit(id: Uuid, state: &CatalogState, compacted: CheckpointRecord, replaced: &[Uuid], files: Vec<FileRecord>) -> Commit {
    let superseded: Vec<String> = replaced.iter().flat_map(|id| state.files.of_checkpoint(*id)).map(|file| file.path.clone()).collect();
    let files_before = superseded.len();
    let expect = vec![
        Expect::Named { paths: superseded },
        Expect::NotMarkedForDeletion { paths: files.iter().map(|file| file.path.clone()).collect() },
    ];
    let mut add = vec![Add::Compacted { checkpoint: compacted, of: replaced.to_vec(), files: files_before }];
    add.extend(files.into_iter().map(Add::File));
    Commit { id, expect, add, ..Commit::default() }
}

/// Returns the record of the checkpoint that takes the place of these, which are in the order of commits.
pub fn compacted(id: Uuid, replaced: &[&CheckpointRecord]) -> Option<CheckpointRecord> {
    let last = replaced.last()?;
    let mut ranges: Vec<CheckpointRange> = replaced.iter().flat_map(|checkpoint| checkpoint.ranges.iter().cloned()).collect();
    ranges.sort_by(|a, b| (&a.partition, a.start, a.end).cmp(&(&b.partition, b.start, b.end)));
    let mut joined: Vec<CheckpointRange> = Vec::new();
    for range in ranges {
        match joined.last_mut().filter(|before| before.partition == range.partition && before.end == range.start) {
            Some(before) => *before = followed_by(before, range),
            None => joined.push(range),
        }
    }
    Some(CheckpointRecord { id, ranges: joined, ..(*last).clone() })
}

/// Returns the range of both, with the values after the second.
fn followed_by(first: &CheckpointRange, second: CheckpointRange) -> CheckpointRange {
    CheckpointRange {
        start: first.start,
        archived: first.archived + second.archived,
        duplicate: first.duplicate + second.duplicate,
        dead_lettered: first.dead_lettered + second.dead_lettered,
        absent: first.absent + second.absent,
        ..second
    }
}

/// A checkpoint with the bytes of its files, by stream.
struct Sized<'s> {
    checkpoint: &'s CheckpointRecord,
    by_stream: BTreeMap<&'s Arc<str>, i64>,
    bytes: i64,
}

impl<'s> Sized<'s> {
    /// `None` for a checkpoint that is left alone: one whose states may still be read, whose files are not as they
    /// should be, or that is beside offsets that were given up, where the ledger and repairs go by single checkpoints.
    fn new(state: &'s CatalogState, checkpoint: &'s CheckpointRecord, damaged: &HashSet<&str>) -> Option<Self> {
        if is_beside_gap(state, checkpoint) || lacks_archive(state, checkpoint) {
            return None;
        }
        let mut by_stream = BTreeMap::new();
        for file in state.files.of_checkpoint(checkpoint.id) {
            let is_kept = matches!(file.kind, FileKind::Archive | FileKind::DeadLetters) && !file.marked_for_deletion;
            let stream = file.subject.as_ref().filter(|_| is_kept && !damaged.contains(&*file.path))?;
            *by_stream.entry(stream).or_default() += file.bytes;
        }
        let bytes = by_stream.values().sum();
        Some(Sized { checkpoint, by_stream, bytes })
    }
}

/// Whether offsets of the checkpoint's ranges, or those just before them, were given up.
fn is_beside_gap(state: &CatalogState, checkpoint: &CheckpointRecord) -> bool {
    let is_beside =
        |range: &CheckpointRange, gap: &GapRecord| range.partition == gap.partition && range.start <= gap.end && gap.start < range.end;
    checkpoint.ranges.iter().any(|range| state.gaps.iter().any(|gap| is_beside(range, gap)))
}

/// Whether events of some stream are gone: the ledger would miss a part of a longer checkpoint.
fn lacks_archive(state: &CatalogState, checkpoint: &CheckpointRecord) -> bool {
    let archived: BTreeSet<&Arc<str>> =
        checkpoint.ranges.iter().filter(|range| range.archived > 0).map(|range| &range.partition.stream).collect();
    archived.into_iter().any(|stream| archive_file_of(state, checkpoint.id, stream).is_none())
}

fn committed_before(rules: &CompactionRules, now: Micros) -> Micros {
    now.saturating_sub(Micros::try_from(rules.after.as_micros()).unwrap_or(Micros::MAX))
}

/// Returns the longest sequences of checkpoints that may become one, as far as size does not matter, each with its day.
fn sequences<'s>(
    state: &'s CatalogState,
    reads: &StreamsRead,
    rules: &CompactionRules,
    group_starts: &BTreeSet<Uuid>,
    now: Micros,
) -> Vec<(i64, Vec<Sized<'s>>)> {
    let retention = BTreeMap::new();
    let need = FileNeeds::new(state, reads, &retention, now);
    let published = |snapshot: &'s SnapshotRecord| reads.published(&snapshot.view, snapshot.version, Some(&snapshot.cut));
    let snapshots: Vec<Published<'_>> = state.snapshots.iter().map(published).collect();
    let damaged: HashSet<&str> = state.damages.iter().map(|damage| &*damage.path).collect();
    let mut sequences: Vec<(i64, Vec<Sized<'_>>)> = Vec::new();
    let mut goes_on = false;
    for checkpoint in state.checkpoints.iter() {
        let is_old = checkpoint.committed_at < committed_before(rules, now);
        // A snapshot of a retired version may become the one that is served again.
        let is_settled = is_old && need.is_below_all(checkpoint) && snapshots.iter().all(|snapshot| snapshot.holds(checkpoint));
        let Some(sized) = is_settled.then(|| Sized::new(state, checkpoint, &damaged)).flatten() else {
            goes_on = false;
            continue;
        };
        let day = checkpoint.committed_at.div_euclid(DAY);
        match sequences.last_mut().filter(|(of, _)| goes_on && *of == day && !group_starts.contains(&checkpoint.id)) {
            Some((_, sequence)) => sequence.push(sized),
            None => sequences.push((day, vec![sized])),
        }
        goes_on = true;
    }
    sequences
}

/// Cuts a sequence into parts that fit into files of the target size.
fn bins<'a, 's>(sequence: &'a [Sized<'s>], target_bytes: i64) -> Vec<Vec<&'a Sized<'s>>> {
    let mut bins: Vec<Vec<&Sized<'_>>> = Vec::new();
    let mut filled: BTreeMap<&Arc<str>, i64> = BTreeMap::new();
    for sized in sequence {
        let fits = sized.by_stream.iter().all(|(stream, bytes)| filled.get(*stream).is_none_or(|filled| filled + bytes <= target_bytes));
        match bins.last_mut().filter(|bin| fits && bin.len() < MOST) {
            Some(bin) => bin.push(sized),
            None => {
                filled.clear();
                bins.push(vec![sized]);
            }
        }
        for (stream, bytes) in &sized.by_stream {
            *filled.entry(*stream).or_default() += bytes;
        }
    }
    bins
}

/// Adds the parts of a bin that are large enough beside their largest checkpoint: all of it, or parts on either side of
/// that one.
fn add_grown<'a, 's>(bin: Vec<&'a Sized<'s>>, due: &mut Vec<Vec<&'a Sized<'s>>>) {
    let mut waiting = vec![bin];
    while let Some(mut part) = waiting.pop() {
        let Some((at, largest)) = part.iter().map(|sized| sized.bytes).enumerate().max_by_key(|(_, bytes)| *bytes) else { continue };
        let bytes: i64 = part.iter().map(|sized| sized.bytes).sum();
        if part.len() > 1 && bytes >= largest.saturating_mul(GROWTH) && part.len() as i64 >= GROWTH {
            due.push(part);
            continue;
        }
        let after = part.split_off(at + 1);
        part.pop();
        waiting.extend([part, after]);
    }
}

#[cfg(test)]
mod tests;
