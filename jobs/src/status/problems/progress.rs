//! Problems of progress: partitions that are stuck while the log has more records, and workers that cannot keep up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use catalog::{CheckpointRecord, DefinitionKind};
use engine::events::format_timestamp;
use types::tiles::{Micros, micros};
use types::vector::{Offset, PartitionId};

use super::duration::for_time;
use super::log::bounds;
use super::{Facts, Fault, Problem, Severity};
use crate::output::{count_of, is_or_are};

/// A partition is stuck if it has more records but made no checkpoint for this many intervals, and at least this long.
const INTERVALS: u32 = 6;
const PATIENCE: Duration = Duration::from_secs(60);
/// Answers that are this much older than the log are reported as behind.
const BEHIND_US: Micros = 10 * 60_000_000;

pub(super) fn problems(facts: &Facts) -> Vec<Problem> {
    let patience = micros(PATIENCE.max(facts.checkpoint_interval * INTERVALS));
    let last = last_checkpoints(facts);
    let mut stuck: BTreeMap<Arc<str>, Vec<Lagging<'_>>> = BTreeMap::new();
    let mut unread: BTreeMap<Arc<str>, i64> = BTreeMap::new();
    let mut found = Vec::new();
    for lagging in lagging(facts, &last) {
        if facts.now.saturating_sub(lagging.moved_at) > patience {
            stuck.entry(lagging.id.stream.clone()).or_default().push(lagging);
        } else if !facts.state.partitions.keys().any(|known| known.stream == lagging.id.stream) {
            *unread.entry(lagging.id.stream).or_default() += lagging.lag;
        } else if facts.now.saturating_sub(lagging.complete_to) > BEHIND_US {
            found.push(behind(facts, &lagging));
        }
    }
    found
        .extend(unread.into_iter().filter(|(stream, _)| !stuck.contains_key(stream)).map(|(stream, records)| never_read(&stream, records)));
    for (stream, partitions) in stuck {
        let moves =
            last.iter().any(|(id, checkpoint)| id.stream == stream && facts.now.saturating_sub(checkpoint.committed_at) <= patience);
        found.push(stuck_partitions(facts, &stream, &partitions, moves));
    }
    found
}

/// A partition with records that are not committed, not explained by any other fault.
struct Lagging<'f> {
    id: PartitionId,
    lag: i64,
    next: Offset,
    /// The time of its last checkpoint, or when the first waiting record arrived; without either, when its stream was
    /// defined.
    moved_at: Micros,
    complete_to: Micros,
    last: Option<&'f CheckpointRecord>,
}

fn lagging<'f>(facts: &'f Facts, last: &BTreeMap<PartitionId, &'f CheckpointRecord>) -> Vec<Lagging<'f>> {
    let mut found = Vec::new();
    for stream in facts.state.live(DefinitionKind::Stream) {
        for ends in facts.ends.get(&stream.name).into_iter().flatten().flatten() {
            let id = PartitionId::new(stream.name.clone(), ends.partition);
            let known = facts.state.partitions.get(&id);
            let next = known.map_or(Offset::ZERO, |known| known.next_offset);
            let refused = known.is_some() && bounds(facts, &id).is_some_and(|b| next < b.begin || next > b.end);
            let first = next.max(ends.begin);
            if ends.end <= first || refused {
                continue;
            }
            let last = last.get(&id).copied();
            // If no record arrived for an hour, nothing was committed for an hour: what counts is how long a record
            // waits. One that is waiting came after all were counted.
            let all_counted = known.and_then(|known| known.complete_to);
            let waiting_since = facts.waiting_since.get(&id).copied().max(all_counted).unwrap_or(Micros::MIN);
            let moved_at = last.map_or(stream.created_at, |checkpoint| checkpoint.committed_at).max(waiting_since);
            let complete_to = known.and_then(|known| known.complete_to).unwrap_or(moved_at).max(waiting_since);
            found.push(Lagging { id, lag: ends.end.0 - first.0, next, moved_at, complete_to, last });
        }
    }
    found
}

fn last_checkpoints(facts: &Facts) -> BTreeMap<PartitionId, &CheckpointRecord> {
    let mut last: BTreeMap<PartitionId, &CheckpointRecord> = BTreeMap::new();
    for checkpoint in facts.state.checkpoints.iter() {
        for range in &checkpoint.ranges {
            let known = last.entry(range.partition.clone()).or_insert(checkpoint);
            if checkpoint.committed_at >= known.committed_at {
                *known = checkpoint;
            }
        }
    }
    last
}

/// Returns one problem per stream: without any worker, all of its partitions are stuck.
fn stuck_partitions(facts: &Facts, stream: &str, partitions: &[Lagging<'_>], others_move: bool) -> Problem {
    let places: Vec<String> = partitions.iter().take(8).map(|p| format!("{} at {}", p.id.partition, p.next)).collect();
    let more = if partitions.len() > places.len() { ", .." } else { "" };
    let records: i64 = partitions.iter().map(|p| p.lag).sum();
    let moved_at = partitions.iter().map(|p| p.moved_at).max().unwrap_or_default();
    let newest = partitions.iter().filter_map(|p| p.last).max_by_key(|checkpoint| checkpoint.committed_at);
    let is_compacted = newest.is_some_and(CheckpointRecord::is_compacted);
    let worker = newest.filter(|_| !is_compacted).map(|checkpoint| checkpoint.worker.as_str());
    let last = match (newest, worker) {
        (None, _) => "no worker has read it yet".to_owned(),
        (Some(CheckpointRecord { committed_at, .. }), Some(worker)) => {
            format!("the last checkpoint was committed at {} by worker {worker}", format_timestamp(*committed_at))
        }
        // Others that were compacted with it may have come later, of other partitions and workers.
        (Some(CheckpointRecord { committed_at, .. }), None) => {
            format!("the last checkpoint was committed at {} or earlier, and was compacted since", format_timestamp(*committed_at))
        }
    };
    let at_least = if is_compacted { "at least " } else { "" };
    let cause = match others_move {
        true => format!("no worker owns them, or their worker hangs; other partitions of the stream advance ({last})"),
        false => format!("no speed worker runs, or it cannot commit ({last})"),
    };
    Problem {
        fault: Fault::PartitionStuck,
        severity: Severity::Error,
        what: format!(
            "{stream}: {} waiting, and nothing was committed for {at_least}{} (partition {}{more})",
            records_are(records),
            for_time(facts.now.saturating_sub(moved_at)),
            places.join(", ")
        ),
        cause,
        effect: "answers do not include these records and become older; meta.complete_to shows how old".into(),
        next_step: match worker {
            Some(worker) => format!(
                "start `basestream speed` or `basestream up`; if {worker} still runs, read its log and restart it: \
                 its partitions are taken over"
            ),
            None if is_compacted => {
                "start `basestream speed` or `basestream up`; if one runs, read its log and restart it: its partitions are taken over"
                    .into()
            }
            None => "start `basestream speed` or `basestream up`".into(),
        },
    }
}

/// `1 record is`, `12 records are`
fn records_are(records: i64) -> String {
    format!("{} {}", count_of(records, "record"), is_or_are(records))
}

/// Nothing is wrong yet, but answers say that there is nothing.
fn never_read(stream: &str, records: i64) -> Problem {
    Problem {
        fault: Fault::StreamUnread,
        severity: Severity::Warning,
        what: format!("{stream}: {} in the log, and no worker has committed any record of this stream yet", records_are(records)),
        cause: "no speed worker runs, or one has just started".into(),
        effect: "views of this stream have no row for any key; meta.unread of an answer names the stream".into(),
        next_step: "start `basestream up` or `basestream speed`; if one runs, its first checkpoint comes within speed.checkpoint_interval"
            .into(),
    }
}

fn behind(facts: &Facts, lagging: &Lagging<'_>) -> Problem {
    Problem {
        fault: Fault::PartitionBehind,
        severity: Severity::Warning,
        what: format!(
            "{}: {} waiting; what is committed is complete to {}",
            lagging.id,
            records_are(lagging.lag),
            format_timestamp(lagging.complete_to)
        ),
        cause: format!(
            "records arrive faster than they are read, or a backlog of {} is being read",
            for_time(facts.now.saturating_sub(lagging.complete_to))
        ),
        effect: "answers are correct but old; meta.complete_to shows how old".into(),
        next_step: "wait while the lag shrinks; if it grows, start more `basestream speed` workers, up to the number of partitions".into(),
    }
}
