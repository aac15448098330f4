//! The measurements as tables.

use super::speed::Measured;
use super::{AIM_AGGREGATES, AIM_KEYS, AIM_PER_SECOND, Options, Outcome};
use crate::report::{Figure, Table};
use crate::spread::Spread;

pub(super) fn of(options: &Options, outcomes: &[Outcome], left_out: Vec<String>) -> Table {
    let columns =
        ["from", "keys", "aggregates", "events", "events/s", "aim", "seconds", "processor s per million", "peak MiB", "checkpoints"];
    let row = |outcome: &Outcome| {
        vec![
            Figure::text(outcome.source.name()),
            Figure::Count(outcome.payments.accounts),
            Figure::Count(outcome.aggregates as u64),
            Figure::Count(outcome.payments.records),
            Figure::per_second(spread(outcome, |measured| measured.events_per_second)),
            aim(outcome),
            Figure::seconds(spread(outcome, |measured| measured.seconds)),
            Figure::seconds(spread(outcome, |measured| measured.processor_s_per_million)),
            Figure::bytes(spread(outcome, |measured| measured.peak_bytes)),
            Figure::Count(outcome.measured.last().map_or(0, |measured| measured.checkpoints)),
        ]
    };
    let mut notes = vec![
        format!("{} repeats in turns; the middle one (least - greatest)", options.repeats.max(1)),
        "seconds: from taking the partitions over to the last committed checkpoint; the topic was filled before".to_owned(),
        "one record in 1000 is a duplicate; every run: all records committed, the ledger balances, counts and sums are right".to_owned(),
    ];
    notes.extend(left_out);
    Table {
        title: "Through the speed layer".into(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: outcomes.iter().map(row).collect(),
        notes,
    }
}

/// Is it linear in events? `None` of no sizes.
pub(super) fn sizes(outcomes: &[Outcome]) -> Option<Table> {
    let rate = |outcome: &Outcome| spread(outcome, |measured| measured.events_per_second);
    let first = |outcome: &Outcome| outcomes.iter().find(|first| first.source == outcome.source).and_then(rate);
    let row = |outcome: &Outcome| {
        vec![
            Figure::text(outcome.source.name()),
            Figure::Count(outcome.payments.records),
            Figure::seconds(spread(outcome, |measured| measured.seconds)),
            Figure::per_second(rate(outcome)),
            Figure::ratio(rate(outcome).zip(first(outcome)).map(|(own, first)| own.over(&first))),
            Figure::seconds(spread(outcome, |measured| measured.processor_s_per_million)),
            Figure::bytes(spread(outcome, |measured| measured.peak_bytes)),
        ]
    };
    let columns = ["from", "events", "seconds", "events/s", "of the first size", "processor s per million", "peak MiB"];
    (!outcomes.is_empty()).then(|| Table {
        title: "Over the number of events".into(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: outcomes.iter().map(row).collect(),
        notes: vec![format!("{} keys, {AIM_AGGREGATES} aggregates", outcomes[0].payments.accounts)],
    })
}

fn aim(outcome: &Outcome) -> Figure {
    if (outcome.aggregates, outcome.payments.accounts) != (AIM_AGGREGATES, AIM_KEYS) {
        return Figure::Absent;
    }
    let Some(rate) = spread(outcome, |measured| measured.events_per_second) else { return Figure::Absent };
    let verdict = if rate.median >= AIM_PER_SECOND { "met" } else { "missed" };
    Figure::text(format!("{AIM_PER_SECOND}: {verdict}"))
}

fn spread(outcome: &Outcome, of: impl Fn(&Measured) -> f64) -> Option<Spread> {
    Spread::of(outcome.measured.iter().map(of))
}
