//! Formats the measurements as tables.

use super::speed::Measured;
use super::{AIM_AGGREGATES, AIM_KEYS, AIM_PER_SECOND, Contender, Options, Outcome};
use crate::payments::Kept;
use crate::report::{Figure, Table, verdict};
use crate::spread::Spread;

pub(super) fn build(options: &Options, outcomes: &[Outcome], left_out: Vec<String>) -> Table {
    let columns = [
        "program",
        "source",
        "keys",
        "aggregates",
        "events",
        "events/s",
        "relative to Flink",
        "aim",
        "seconds",
        "processor s per million",
        "peak MiB",
        "checkpoints",
        "checkpoint s",
    ];
    let row = |outcome: &Outcome| {
        let rate = spread(outcome, |measured| measured.events_per_second);
        vec![
            Figure::text(who(outcome)),
            Figure::text(outcome.source.name()),
            Figure::Count(outcome.payments.accounts),
            Figure::Count(outcome.aggregates as u64),
            Figure::Count(outcome.payments.records),
            Figure::per_second(rate),
            Figure::ratio(rate.zip(flink(outcomes, outcome)).map(|(own, flink)| own.over(&flink))),
            aim(outcome),
            Figure::seconds(spread(outcome, |measured| measured.seconds)),
            Figure::seconds(spread(outcome, |measured| measured.processor_s_per_million)),
            Figure::bytes(spread(outcome, |measured| measured.peak_bytes)),
            of_speed(outcome, |measured| Figure::Count(measured.checkpoints)),
            of_speed(outcome, |_| Figure::seconds(spread(outcome, |measured| measured.checkpoints_s))),
        ]
    };
    let mut notes = vec![
        format!("repeats: {}, in turns; figures: median (min - max)", options.repeats.max(1)),
        "seconds: from taking over the partitions to the last committed checkpoint; the topic was filled before".to_owned(),
        "checkpoint s: the total of all checkpoints, each from its first file to its commit".to_owned(),
        "unless stated otherwise, the stream declares all eleven members and its archive keeps the raw records; the view reads four columns"
            .to_owned(),
        "one record in 1000 is a duplicate".to_owned(),
        "checked in every run: all records are committed, the ledger balances, counts and sums are correct".to_owned(),
    ];
    if outcomes.iter().any(is_flink) {
        notes.push(
            "Flink computes the same five aggregates per key and minute with a window, and drops the results; it has no archive, no checkpoints \
             and no deduplication, and it decodes three fields"
                .to_owned(),
        );
        notes.push(
            "Flink's figures are those of its job alone, in a JVM that is already running; 2 threads, objects reused, mini-batches, state in memory"
                .to_owned(),
        );
    }
    notes.extend(left_out);
    Table {
        title: "Through the speed layer".into(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: outcomes.iter().map(row).collect(),
        notes,
    }
}

/// Shows whether ingest is linear in events; `None` without sizes.
pub(super) fn sizes(outcomes: &[Outcome]) -> Option<Table> {
    let rate = |outcome: &Outcome| spread(outcome, |measured| measured.events_per_second);
    let first = |outcome: &Outcome| outcomes.iter().find(|first| first.payments.accounts == outcome.payments.accounts).and_then(rate);
    let row = |outcome: &Outcome| {
        vec![
            Figure::Count(outcome.payments.accounts),
            Figure::Count(outcome.payments.records),
            Figure::seconds(spread(outcome, |measured| measured.seconds)),
            Figure::per_second(rate(outcome)),
            Figure::ratio(rate(outcome).zip(first(outcome)).map(|(own, first)| own.over(&first))),
            Figure::seconds(spread(outcome, |measured| measured.processor_s_per_million)),
            Figure::bytes(spread(outcome, |measured| measured.peak_bytes)),
        ]
    };
    let columns = ["keys", "events", "seconds", "events/s", "relative to the first size", "processor s per million", "peak MiB"];
    (!outcomes.is_empty()).then(|| Table {
        title: "By number of events".into(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: outcomes.iter().map(row).collect(),
        notes: vec![format!("source: {}, {AIM_AGGREGATES} aggregates", outcomes[0].source.name())],
    })
}

fn is_flink(outcome: &Outcome) -> bool {
    matches!(outcome.contender, Contender::Flink(_))
}

fn who(outcome: &Outcome) -> String {
    match (&outcome.contender, &outcome.failure) {
        (Contender::Speed(Kept { all_columns: true, .. }), _) => "basestream speed".to_owned(),
        (Contender::Speed(Kept { raw: true, .. }), _) => "basestream speed, view's columns and raw records".to_owned(),
        (Contender::Speed(_), _) => "basestream speed, view's columns only".to_owned(),
        (Contender::Flink(_), None) => "Flink SQL".to_owned(),
        (Contender::Flink(_), Some(error)) => format!("Flink SQL, given up: {}", error.message()),
    }
}

/// Flink's rate on the same topic, for an outcome with the same number of aggregates.
fn flink(outcomes: &[Outcome], of: &Outcome) -> Option<Spread> {
    let same = |other: &&Outcome| (&other.source, other.payments, other.aggregates) == (&of.source, of.payments, of.aggregates);
    let flink = outcomes.iter().filter(same).find(|other| is_flink(other))?;
    spread(flink, |measured| measured.events_per_second)
}

/// A figure that Flink does not have, because it makes no checkpoints.
fn of_speed(outcome: &Outcome, figure: impl Fn(&Measured) -> Figure) -> Figure {
    outcome.measured.last().filter(|_| !is_flink(outcome)).map_or(Figure::Absent, figure)
}

fn aim(outcome: &Outcome) -> Figure {
    if is_flink(outcome) || (outcome.aggregates, outcome.payments.accounts) != (AIM_AGGREGATES, AIM_KEYS) {
        return Figure::Absent;
    }
    let Some(rate) = spread(outcome, |measured| measured.events_per_second) else { return Figure::Absent };
    Figure::text(format!("{}: {}", Figure::Count(AIM_PER_SECOND as u64), verdict(rate.median >= AIM_PER_SECOND)))
}

fn spread(outcome: &Outcome, of: impl Fn(&Measured) -> f64) -> Option<Spread> {
    Spread::from_values(outcome.measured.iter().map(of))
}
