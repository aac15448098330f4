//! Problems of records: dead letters, and replays that were interrupted.

use std::collections::BTreeMap;

use catalog::DEAD_LETTER_REPLAYS;
use types::tiles::Micros;

use super::duration::for_time;
use super::{Facts, Fault, Problem, Severity};
use crate::dead_letters::{FrequentReason, RecentDeadLetters};
use crate::output::count_of;

/// Checkpoints this recent show the current state.
pub(in crate::status) const RECENT_US: Micros = 3_600_000_000;
/// More than one record in a hundred is not an exception.
const MANY: f64 = 0.01;

pub(super) fn problems(facts: &Facts) -> Vec<Problem> {
    let mut found = dead_letters(facts);
    found.extend(unfinished_replays(facts));
    found
}

fn dead_letters(facts: &Facts) -> Vec<Problem> {
    let mut counts: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    let since = facts.now.saturating_sub(RECENT_US);
    for range in facts.state.checkpoints.iter().filter(|c| c.committed_at >= since).flat_map(|checkpoint| &checkpoint.ranges) {
        let (dead, records) = counts.entry(&range.partition.stream).or_default();
        *dead += range.dead_lettered;
        *records += range.archived + range.duplicate + range.dead_lettered;
    }
    for (stream, (dead, _)) in &mut counts {
        *dead -= facts.dead_letters.get(*stream).map_or(0, |recent| recent.replayed);
    }
    let problem = |(stream, (dead, records)): (&str, (i64, i64))| {
        let share = dead as f64 / records.max(1) as f64;
        Problem {
            fault: Fault::DeadLetters,
            severity: if share >= MANY { Severity::Warning } else { Severity::Notice },
            what: format!(
                "{stream}: {dead} of the {records} records of the last {} became dead letters ({:.2} %)",
                for_time(RECENT_US),
                share * 100.0
            ),
            cause: cause(facts.dead_letters.get(stream)),
            effect: "no answer includes these records; they are kept unchanged".into(),
            next_step: format!(
                "`basestream dead-letters list {stream}`; correct the producer or the stream's definition, then \
                 `basestream dead-letters replay {stream}`"
            ),
        }
    };
    counts.into_iter().filter(|(_, (dead, _))| *dead > 0).map(problem).collect()
}

fn cause(recent: Option<&RecentDeadLetters>) -> String {
    match recent.and_then(|recent| recent.reason.as_ref()) {
        Some(Ok(FrequentReason { example, of: 1, .. })) => format!("reason of the newest dead letter: {example}"),
        Some(Ok(FrequentReason { example, count, of })) => {
            format!("most frequent reason: {example} ({count} of the newest {})", count_of(*of, "dead letter"))
        }
        Some(Err(error)) => format!("not known, as the dead letters cannot be read: {error}"),
        None => "not known, as the dead letters were not read".into(),
    }
}

fn unfinished_replays(facts: &Facts) -> Vec<Problem> {
    let ended = facts.state.leases.iter().filter(|lease| lease.expires_at <= facts.now);
    let streams = ended.filter_map(|lease| lease.name.strip_prefix(DEAD_LETTER_REPLAYS));
    let problem = |stream: &str| Problem {
        fault: Fault::ReplayUnfinished,
        severity: Severity::Warning,
        what: format!("{stream}: a replay of dead letters stopped before it finished"),
        cause: "its process was killed, or the log or the catalog did not answer".into(),
        effect: "some dead letters may be in the log again without being marked as replayed".into(),
        next_step: format!("run `basestream dead-letters replay {stream}` again: it detects what was sent and sends nothing twice"),
    };
    streams.map(problem).collect()
}
