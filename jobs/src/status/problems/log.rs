//! Problems of the log: where it does not match the catalog, and which offsets were accepted as lost.

use std::collections::BTreeMap;

use catalog::PartitionRecord;
use engine::events::format_timestamp;
use event_log::{OpenTransaction, PartitionBounds, ReaderGroup};
use types::tiles::Micros;
use types::vector::{Offset, PartitionId};

use super::duration::for_time;
use super::{Facts, Fault, Problem, Severity};
use crate::output::{count_of, is_or_are};

/// A transaction is a problem once it has been open for so long: by default Kafka aborts it then.
const OPEN_FOR_LONG_US: Micros = 60_000_000;

pub(super) fn problems(facts: &Facts) -> Vec<Problem> {
    let mut found = Vec::new();
    for partition in facts.state.partitions.values() {
        found.extend(refusal(facts, partition));
    }
    found.extend(gaps(facts));
    found.extend(held_back(facts));
    found.extend(facts.idle_groups.iter().map(held));
    if facts.embedded_log {
        found.extend(absent(facts));
    }
    found
}

/// Returns the reason for which the speed layer would refuse this partition.
fn refusal(facts: &Facts, known: &PartitionRecord) -> Option<Problem> {
    if let Some(identity) = facts.identities.get(&known.id.stream)
        && !known.log_identity.is_empty()
        && known.log_identity != *identity
    {
        return Some(recreated(known, identity));
    }
    let Some(bounds) = bounds(facts, &known.id) else {
        let is_known = facts.ends.get(&known.id.stream).is_some_and(Result::is_ok);
        return (is_known && known.next_offset > Offset::ZERO).then(|| deleted(known));
    };
    if known.next_offset < bounds.begin {
        return Some(expired(known, bounds));
    }
    (known.next_offset > bounds.end).then(|| shortened(known, bounds))
}

pub(super) fn bounds<'f>(facts: &'f Facts, id: &PartitionId) -> Option<&'f PartitionBounds> {
    facts.ends.get(&id.stream)?.as_ref().ok()?.iter().find(|bounds| bounds.partition == id.partition)
}

const REFUSED: &str =
    "the speed layer refuses the partition and exits; its records are not counted, and answers stay at the committed vector";
const ACCEPT: &str = "`basestream speed --accept-gap` (or `basestream up --accept-gap`) records the loss and continues";

fn expired(known: &PartitionRecord, bounds: &PartitionBounds) -> Problem {
    let PartitionRecord { id, next_offset, .. } = known;
    let lost = bounds.begin.0 - next_offset.0;
    Problem {
        fault: Fault::LogExpired,
        severity: Severity::Error,
        what: format!(
            "{id}: the log expired past the committed offset: {}, offsets {next_offset}..{}, {} gone",
            count_of(lost, "record"),
            bounds.begin,
            is_or_are(lost)
        ),
        cause: "the log's retention is shorter than the time during which no worker read it".into(),
        effect: REFUSED.into(),
        next_step: format!("if another system still has these records, keep them for `basestream ingest --again`; then {ACCEPT}"),
    }
}

fn shortened(known: &PartitionRecord, bounds: &PartitionBounds) -> Problem {
    let PartitionRecord { id, next_offset, .. } = known;
    Problem {
        fault: Fault::LogShortened,
        severity: Severity::Error,
        what: format!(
            "{id}: the log ends at {}, but offset {next_offset} is committed: the log is shorter than the \
            catalog expects",
            bounds.end
        ),
        cause: "the log lost records that were counted: the topic was recreated, an old backup was restored, or a \
            broker lost its disk"
            .into(),
        effect: REFUSED.into(),
        next_step: "restore the whole log; if that is not possible, define the stream under a new name on the topic: \
            the archive still holds what was counted"
            .into(),
    }
}

fn deleted(known: &PartitionRecord) -> Problem {
    let PartitionRecord { id, next_offset, .. } = known;
    Problem {
        fault: Fault::LogRecreated,
        severity: Severity::Error,
        what: format!("{id}: the log has no such partition, but offset {next_offset} is committed"),
        cause: "the topic or the log's folder was deleted, or log.url points to another log".into(),
        effect: REFUSED.into(),
        next_step: "correct log.url or restore the log; if it is lost, define the stream under a new name: the archive \
            still holds what was counted"
            .into(),
    }
}

fn recreated(known: &PartitionRecord, identity: &str) -> Problem {
    let PartitionRecord { id, next_offset, log_identity, .. } = known;
    Problem {
        fault: Fault::LogRecreated,
        severity: Severity::Error,
        what: format!("{id}: the log is not the one that the catalog knows: found {identity}, expected {log_identity}"),
        cause: "the topic was deleted and recreated, or log.url points to another log".into(),
        effect: format!("{REFUSED} (offset {next_offset})"),
        next_step: format!(
            "correct log.url; if the old log is lost, define the stream under a new name on the topic; if all offsets \
             of the new log are at or after the committed one, {ACCEPT}"
        ),
    }
}

/// Returns one notice per stream.
fn gaps(facts: &Facts) -> Vec<Problem> {
    let mut of_stream: BTreeMap<&str, Vec<&catalog::GapRecord>> = BTreeMap::new();
    for gap in &facts.state.gaps {
        of_stream.entry(&gap.partition.stream).or_default().push(gap);
    }
    let problem = |(stream, gaps): (&str, Vec<&catalog::GapRecord>)| {
        let newest = gaps.iter().max_by_key(|gap| gap.accepted_at)?;
        let lost: i64 = gaps.iter().map(|gap| gap.end.0 - gap.start.0).sum();
        let places: Vec<String> = gaps.iter().take(4).map(|gap| format!("{}: {}..{}", gap.partition, gap.start, gap.end)).collect();
        let more = if gaps.len() > places.len() { ", .." } else { "" };
        Some(Problem {
            fault: Fault::Gap,
            severity: Severity::Notice,
            what: format!("{stream}: {} {} recorded as lost ({}{more})", count_of(lost, "offset"), is_or_are(lost), places.join(", ")),
            cause: format!("{}, at {}", newest.reason, format_timestamp(newest.accepted_at)),
            effect: "answers do not include these records, and the ledger shows the gap".into(),
            next_step: format!(
                "none; if another system still has the records, send them again with `basestream ingest {stream} FILE --again`"
            ),
        })
    };
    of_stream.into_iter().filter_map(problem).collect()
}

/// Returns one problem per stream, of the transactions that have been open for long: those after them wait too.
fn held_back(facts: &Facts) -> Vec<Problem> {
    let mut of_stream: BTreeMap<&str, Vec<(&OpenTransaction, Micros)>> = BTreeMap::new();
    for (id, open) in &facts.open_transactions {
        // The time of a record may be any. It came after all were counted.
        let counted_to = facts.state.partitions.get(id).and_then(|known| known.complete_to);
        let lasting = facts.now.saturating_sub(counted_to.map_or(open.since, |counted_to| open.since.max(counted_to)));
        if lasting >= OPEN_FOR_LONG_US {
            of_stream.entry(&id.stream).or_default().push((open, lasting));
        }
    }
    let problem = |(stream, open): (&str, Vec<(&OpenTransaction, Micros)>)| {
        let lasting = open.iter().map(|(_, lasting)| *lasting).max().unwrap_or_default();
        let held_back: i64 = open.iter().map(|(open, _)| open.held_back).sum();
        let places: Vec<String> = open.iter().take(8).map(|(open, _)| format!("{} from {}", open.partition, open.offset)).collect();
        let more = if open.len() > places.len() { ", .." } else { "" };
        Problem {
            fault: Fault::TransactionOpen,
            severity: Severity::Warning,
            what: format!(
                "{stream}: an open transaction holds back {} for {} (partition and offset: {}{more})",
                count_of(held_back, "offset"),
                for_time(lasting),
                places.join(", ")
            ),
            cause: "a producer began a transaction, and neither committed nor aborted it; the log does not deliver what follows it".into(),
            effect: "these records are not counted, and complete_to stands still: alerts on silence in this stream wait".into(),
            next_step: "end the producer, or abort its transaction: `kafka-transactions.sh --bootstrap-server BROKER find-hanging`, then \
                `abort`"
                .into(),
        }
    };
    of_stream.into_iter().map(problem).collect()
}

/// Whether the group will read again is known to nobody but the user.
fn held(ReaderGroup { name, topics, .. }: &ReaderGroup) -> Problem {
    let topics = topics.join(", ");
    Problem {
        fault: Fault::LogHeld,
        severity: Severity::Notice,
        what: format!("the consumer group \"{name}\" has read {topics} and has no worker that runs"),
        cause: "`speed.group` had another name, or the workers of another installation over the same log are stopped".into(),
        effect: "no record of these topics is deleted from the embedded log, whatever log.retention says: it grows".into(),
        next_step: format!(
            "if its workers will run again, none; otherwise `basestream storage forget-group {name}`: what it has not read may be deleted \
             then"
        ),
    }
}

/// The embedded log has no gaps: an offset without a record is a defect.
fn absent(facts: &Facts) -> Vec<Problem> {
    let mut of_partition: BTreeMap<&PartitionId, i64> = BTreeMap::new();
    for range in facts.state.checkpoints.iter().flat_map(|checkpoint| &checkpoint.ranges).filter(|range| range.absent > 0) {
        *of_partition.entry(&range.partition).or_default() += range.absent;
    }
    let problem = |(id, absent): (&PartitionId, i64)| Problem {
        fault: Fault::OffsetsAbsent,
        severity: Severity::Error,
        what: format!("{id}: {} of the embedded log delivered no record", count_of(absent, "offset")),
        cause: "a defect, or the log file was modified by hand: the embedded log has a record at every offset".into(),
        effect: "records may be missing from every answer".into(),
        next_step: "keep log.db unchanged; list what is missing with `basestream verify VIEW --log`, and report it".into(),
    };
    of_partition.into_iter().map(problem).collect()
}
