//! The measurements as a table, with ratios.

use super::Options;
use super::contender::{Kind, Measured, Outcome};
use super::parts::Parts;
use crate::report::{Figure, Table};
use crate::spread::Spread;

pub(super) fn of(options: &Options, outcomes: &[Outcome]) -> Table {
    let columns = [
        "who",
        "may hold MiB",
        "seconds",
        "of DuckDB",
        "of DataFusion",
        "process: wall s",
        "processor s",
        "of DuckDB",
        "peak MiB",
        "answer",
    ];
    let first = |kind: Kind| outcomes.iter().find(|outcome| outcome.contender.kind == kind);
    let (duckdb, plain) = (first(Kind::DuckDb).and_then(seconds), first(Kind::PlainSelect).and_then(seconds));
    let duckdb_processor = first(Kind::DuckDb).and_then(processor);
    let row = |outcome: &Outcome| {
        let own = seconds(outcome);
        let over = |other: &Option<Spread>| Figure::ratio(own.zip(*other).map(|(own, other)| own.over(&other)));
        vec![
            Figure::text(outcome.contender.name()),
            Figure::Count(outcome.contender.memory_bytes >> 20),
            Figure::seconds(own),
            over(&duckdb),
            over(&plain),
            Figure::seconds(spread(outcome, |measured| measured.wall_s)),
            Figure::seconds(processor(outcome)),
            Figure::ratio(processor(outcome).zip(duckdb_processor).map(|(own, other)| own.over(&other))),
            Figure::bytes(spread(outcome, |measured| measured.used.peak_bytes as f64)),
            Figure::text(told(outcome)),
        ]
    };
    let notes = vec![
        format!(
            "{} repeats in turns; the middle one (least - greatest); peak: resident memory of the process; processor: user and system time of all its threads",
            options.repeats.max(1)
        ),
        format!("threads: {} of DuckDB, 2 of DataFusion and of the batch run", options.threads),
        "seconds: DuckDB and DataFusion until the answer is in memory; a batch run until its snapshot is durable and published".to_owned(),
    ];
    Table {
        title: "The whole answer".into(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: outcomes.iter().map(row).collect(),
        notes,
    }
}

/// What batch runs spent their time on; `None` where they do not tell.
pub(super) fn parts(outcomes: &[Outcome]) -> Option<Table> {
    let row = |outcome: &Outcome| {
        let parts: Vec<Parts> = outcome.measured.iter().filter_map(|measured| measured.parts).collect();
        let seconds = |of: fn(&Parts) -> f64| Spread::of(parts.iter().map(of)).map(Figure::Seconds);
        let figures = [seconds(|parts| parts.edges_s)?, seconds(|parts| parts.join_s)?, seconds(|parts| parts.publish_s)?];
        let who = [Figure::text(outcome.contender.name()), Figure::Count(outcome.contender.memory_bytes >> 20)];
        Some(who.into_iter().chain(figures).collect())
    };
    let rows: Vec<Vec<Figure>> = outcomes.iter().filter_map(row).collect();
    let columns = ["who", "may hold MiB", "edges s", "join s", "publishing s"].map(str::to_owned).to_vec();
    let title = "The parts of a batch run".to_owned();
    (!rows.is_empty()).then_some(Table { title, columns, rows, notes: Vec::new() })
}

fn seconds(outcome: &Outcome) -> Option<Spread> {
    spread(outcome, |measured| measured.seconds)
}

fn processor(outcome: &Outcome) -> Option<Spread> {
    spread(outcome, |measured| measured.used.processor_s)
}

fn spread(outcome: &Outcome, of: impl Fn(&Measured) -> f64) -> Option<Spread> {
    Spread::of(outcome.measured.iter().map(of))
}

fn told(outcome: &Outcome) -> String {
    match (&outcome.failure, &outcome.answer) {
        (Some(error), _) => format!("gave up: {}", error.message()),
        (None, Some(answer)) => format!("{} rows, as all others", answer.len()),
        (None, None) => "-".to_owned(),
    }
}
