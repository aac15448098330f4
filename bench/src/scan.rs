//! Measures scans of a whole view through SQL: only the named windows and columns are merged.

use std::path::Path;
use std::process::Command;

use serde_json::json;
use types::{Error, Result};

use crate::Programs;
use crate::child::{self, Limits, Used};
use crate::installed::{Installed, Pristine};
use crate::machine::Context;
use crate::purchases::{FOUR_WINDOWS, Purchases, VIEW};
use crate::report::{Figure, Report, Table, at_most};
use crate::spread::Spread;

pub mod once;
mod questions;

use once::{Reported, ScanTask};
use questions::Query;

#[derive(Debug, Clone)]
pub struct Options {
    pub purchases: Purchases,
    /// Repeats of each query, in one process.
    pub repeats: usize,
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Self {
        let limits = Limits { time: std::time::Duration::from_secs(600), memory_bytes: 16 << 30 };
        Self { purchases: Purchases::with_size(5_000_000, 1_000_000), repeats: 5, limits }
    }
}

struct Row {
    query: Query,
    reported: Reported,
    used: Used,
}

/// Runs the benchmark and compares the answers with the events. The installation goes to `folder`.
pub async fn run(options: &Options, programs: &Programs, folder: &Path, command: &str) -> Result<Report> {
    let context = Context::begin(command, programs);
    let purchases = &options.purchases;
    let installed = Installed::create(&folder.join("project"), purchases).await?;
    installed.archive(purchases).await?;
    installed.installation.run_view(VIEW, &|_| {}).await?;
    let installed = installed.close().await?;
    let truth = questions::truth(purchases);
    let mut rows = Vec::new();
    for query in questions::all() {
        let (reported, used) = ask(options, programs, folder, &installed, &query)?;
        truth.hold(&query, &reported)?;
        rows.push(Row { query, reported, used });
    }
    let question = format!("How long does SQL take over a view of {} keys and {} windows?", truth.keys, FOUR_WINDOWS.len());
    Ok(Report { benchmark: "scan".into(), question, context: context.end(), tables: vec![table(options, &rows)] })
}

fn ask(options: &Options, programs: &Programs, folder: &Path, installed: &Pristine, query: &Query) -> Result<(Reported, Used)> {
    let task = ScanTask { config: installed.config.clone(), sql: query.sql.clone(), repeats: options.repeats };
    let path = folder.join("task.json");
    std::fs::write(&path, json!(task).to_string())?;
    let finished = child::run(Command::new(&programs.bench).arg("scan-once").arg(path), &options.limits)?;
    let reported = serde_json::from_str(&finished.stdout)
        .map_err(|error| Error::internal(format!("a process reported no seconds: {error}")).with("found", &finished.stdout))?;
    Ok((reported, finished.used))
}

fn table(options: &Options, rows: &[Row]) -> Table {
    let columns = [
        "query",
        "windows x aggregates",
        "rows",
        "seconds",
        "relative to all columns, aim 1.0",
        "keys/s",
        "peak MiB",
        "MiB above the node alone",
    ];
    let all = rows.iter().find(|row| row.query.is_all).and_then(|row| Spread::from_values(row.reported.seconds.iter().copied()));
    let alone = rows.iter().find(|row| row.query.sql.is_none()).map_or(0, |row| row.used.peak_bytes);
    let keys = rows.iter().map(|row| row.reported.rows).max().unwrap_or_default();
    let row = |row: &Row| {
        let seconds = Spread::from_values(row.reported.seconds.iter().copied());
        let of_all = seconds.zip(all).filter(|_| row.query.is_part).map(|(own, all)| own.median / all.median);
        vec![
            Figure::text(row.query.name),
            Figure::text(row.query.named),
            Figure::Count(row.reported.rows),
            Figure::seconds(seconds),
            at_most(of_all, 1.0),
            Figure::per_second(Spread::from_values(row.reported.seconds.iter().map(|seconds| keys as f64 / seconds))),
            Figure::bytes(Spread::from_values([row.used.peak_bytes as f64])),
            Figure::bytes(Spread::from_values([row.used.peak_bytes.saturating_sub(alone) as f64])),
        ]
    };
    let notes = vec![
        format!("{} events, all in one snapshot", options.purchases.events),
        format!(
            "each query has its own process and runs {} times in it; rows are read as they arrive; figures: median (min - max)",
            options.repeats
        ),
        "peak: resident memory of the process, including the parts of the snapshot's mapped copy that it read".to_owned(),
        "checked against the events: how many keys have a row, and how many events each window has".to_owned(),
    ];
    Table { title: "Scans".into(), columns: columns.map(str::to_owned).to_vec(), rows: rows.iter().map(row).collect(), notes }
}
