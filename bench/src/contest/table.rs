//! The measurements as tables, with ratios.

use super::contender::{How, Measured, Outcome, Site};
use super::parts::Parts;
use crate::child::POLL;
use crate::report::{Figure, Table};
use crate::spread::Spread;

pub fn of(site: &Site<'_>, repeats: usize, outcomes: &[Outcome]) -> Table {
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
        "own peak MiB",
        "answer",
    ];
    let first = |is: fn(&How) -> bool| outcomes.iter().find(|outcome| is(&outcome.contender.how));
    let duckdb = first(|how| matches!(how, How::DuckDb(_)));
    let plain = first(|how| matches!(how, How::PlainSelect(_))).and_then(seconds);
    let (duckdb, duckdb_processor) = (duckdb.and_then(seconds), duckdb.and_then(processor));
    let row = |outcome: &Outcome| {
        let own = seconds(outcome);
        let over = |other: &Option<Spread>| Figure::ratio(own.zip(*other).map(|(own, other)| own.over(&other)));
        vec![
            Figure::text(&*outcome.contender.name),
            Figure::Count(outcome.contender.memory_bytes >> 20),
            Figure::seconds(own),
            over(&duckdb),
            over(&plain),
            Figure::seconds(spread(outcome, |measured| measured.wall_s)),
            Figure::seconds(processor(outcome)),
            Figure::ratio(processor(outcome).zip(duckdb_processor).map(|(own, other)| own.over(&other))),
            Figure::bytes(peak(outcome)),
            Figure::bytes(own_peak(outcome)),
            Figure::text(told(outcome)),
        ]
    };
    let notes = vec![
        format!(
            "{} repeats in turns; the middle one (least - greatest); processor: user and system time of all threads of the process",
            repeats.max(1)
        ),
        format!(
            "peak: the most resident memory of the process, as the kernel keeps it, with the pages of files that it maps, which can be taken back at any time; own peak: the most memory of its own (anonymous and shared pages, no file's), as seen every {} ms",
            POLL.as_millis()
        ),
        format!("threads: {} of DuckDB, 2 of DataFusion and of the batch run", site.threads),
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
pub fn parts(site: &Site<'_>, outcomes: &[Outcome]) -> Option<Table> {
    let row = |outcome: &Outcome| {
        let parts: Vec<&Parts> = outcome.measured.iter().filter_map(|measured| measured.parts.as_ref()).collect();
        let seconds = |step: usize| Spread::of(parts.iter().map(|parts| parts[step])).map(Figure::Seconds);
        let who = [Figure::text(&*outcome.contender.name), Figure::Count(outcome.contender.memory_bytes >> 20)];
        who.into_iter().map(Some).chain((0..site.steps.len()).map(seconds)).collect::<Option<Vec<Figure>>>()
    };
    let rows: Vec<Vec<Figure>> = outcomes.iter().filter_map(row).collect();
    let steps = site.steps.iter().map(|(name, _)| format!("{name} s"));
    let columns = ["who".to_owned(), "may hold MiB".to_owned()].into_iter().chain(steps).collect();
    let title = "The parts of a batch run".to_owned();
    (!rows.is_empty()).then_some(Table { title, columns, rows, notes: Vec::new() })
}

pub fn seconds(outcome: &Outcome) -> Option<Spread> {
    spread(outcome, |measured| measured.seconds)
}

/// The greatest resident memory of the processes.
pub fn peak(outcome: &Outcome) -> Option<Spread> {
    spread(outcome, |measured| measured.used.peak_bytes as f64)
}

/// The greatest memory of their own.
pub fn own_peak(outcome: &Outcome) -> Option<Spread> {
    spread(outcome, |measured| measured.used.own_peak_bytes as f64)
}

/// The greatest of its peaks, against what it may hold.
pub fn of_limit(peak: Option<Spread>, outcome: &Outcome) -> Option<f64> {
    peak.map(|peak| peak.max / outcome.contender.memory_bytes as f64)
}

fn processor(outcome: &Outcome) -> Option<Spread> {
    spread(outcome, |measured| measured.used.processor_s)
}

fn spread(outcome: &Outcome, of: impl Fn(&Measured) -> f64) -> Option<Spread> {
    Spread::of(outcome.measured.iter().map(of))
}

fn told(outcome: &Outcome) -> String {
    match (&outcome.failure, outcome.rows) {
        (Some(error), _) => format!("gave up: {}", error.message()),
        (None, Some(rows)) => format!("{rows} rows, as all others"),
        (None, None) => "-".to_owned(),
    }
}
