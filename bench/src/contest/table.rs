//! Formats the measurements as tables, with ratios.

use super::contender::{How, Measured, Outcome, Site};
use super::parts::Parts;
use crate::child::POLL;
use crate::report::{Figure, Table};
use crate::spread::Spread;

pub fn build(site: &Site<'_>, repeats: usize, outcomes: &[Outcome]) -> Table {
    let columns = [
        "program",
        "memory limit MiB",
        "seconds",
        "relative to DuckDB",
        "relative to DataFusion",
        "process: wall s",
        "processor s",
        "processor relative to DuckDB",
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
            Figure::text(outcome_text(outcome)),
        ]
    };
    let notes = vec![
        format!("repeats: {}, in turns; figures: median (min - max)", repeats.max(1)),
        "processor: user and system time of all threads of the process".to_owned(),
        "peak: the greatest resident memory of the process, as the kernel records it, including the pages of mapped files, which the kernel can \
         reclaim at any time"
            .to_owned(),
        format!(
            "own peak: the greatest amount of the process's own memory (anonymous and shared pages, no pages of files), sampled every {} ms",
            POLL.as_millis()
        ),
        format!("threads: {} for DuckDB, 2 for DataFusion and the batch run", site.threads),
        "seconds: for DuckDB and DataFusion until the answer is in memory, for a batch run until its snapshot is durable and published".to_owned(),
    ];
    Table {
        title: "The whole answer".into(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: outcomes.iter().map(row).collect(),
        notes,
    }
}

/// The time of each step of the batch runs; `None` if they do not report it.
pub fn parts(site: &Site<'_>, outcomes: &[Outcome]) -> Option<Table> {
    let row = |outcome: &Outcome| {
        let parts: Vec<&Parts> = outcome.measured.iter().filter_map(|measured| measured.parts.as_ref()).collect();
        let seconds = |step: usize| Spread::from_values(parts.iter().map(|parts| parts[step])).map(Figure::Seconds);
        let who = [Figure::text(&*outcome.contender.name), Figure::Count(outcome.contender.memory_bytes >> 20)];
        who.into_iter().map(Some).chain((0..site.steps.len()).map(seconds)).collect::<Option<Vec<Figure>>>()
    };
    let rows: Vec<Vec<Figure>> = outcomes.iter().filter_map(row).collect();
    let steps = site.steps.iter().map(|(name, _)| format!("{name} s"));
    let columns = ["program".to_owned(), "memory limit MiB".to_owned()].into_iter().chain(steps).collect();
    let title = "Parts of a batch run".to_owned();
    (!rows.is_empty()).then_some(Table { title, columns, rows, notes: Vec::new() })
}

pub fn seconds(outcome: &Outcome) -> Option<Spread> {
    spread(outcome, |measured| measured.seconds)
}

/// The peak resident memory of the processes.
pub fn peak(outcome: &Outcome) -> Option<Spread> {
    spread(outcome, |measured| measured.used.peak_bytes as f64)
}

/// The peak private memory of the processes.
pub fn own_peak(outcome: &Outcome) -> Option<Spread> {
    spread(outcome, |measured| measured.used.own_peak_bytes as f64)
}

/// The highest peak relative to its memory limit.
pub fn of_limit(peak: Option<Spread>, outcome: &Outcome) -> Option<f64> {
    peak.map(|peak| peak.max / outcome.contender.memory_bytes as f64)
}

fn processor(outcome: &Outcome) -> Option<Spread> {
    spread(outcome, |measured| measured.used.processor_s)
}

fn spread(outcome: &Outcome, of: impl Fn(&Measured) -> f64) -> Option<Spread> {
    Spread::from_values(outcome.measured.iter().map(of))
}

fn outcome_text(outcome: &Outcome) -> String {
    match (&outcome.failure, outcome.rows) {
        (Some(error), _) => format!("gave up: {}", error.message()),
        (None, Some(rows)) => format!("{rows} rows, the same as all others"),
        (None, None) => "-".to_owned(),
    }
}
