//! `backtest`.

use std::path::PathBuf;

use batch::{BacktestProgress, Known};
use clap::{Args, ValueEnum};
use engine::events::{parse_date, parse_timestamp};
use indicatif::ProgressBar;
use types::Result;
use types::tiles::Micros;

use super::{Context, Done, progress};
use crate::backtest::{
    BacktestReport, BacktestRequest, Cell, EditedSink, LateRows, NoRows, UnappliedDefinitions, VerdictDifference, backtest,
};
use crate::output::{count_of, table};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  basestream backtest scored_payments --from 2026-01-01 --to 2026-04-01 --out scored.parquet\n  \
    basestream backtest scored_payments --from 2026-01-01 --to 2026-04-01 --out scored.csv --known event --force\n  \
    basestream backtest scored_payments --from 2026-01-01 --to 2026-04-01 --out strict.parquet --set max_hourly=10\n  \
    basestream backtest scored_payments --from 2026-01-01 --to 2026-04-01 --out both.parquet --as-changed stricter.sql\n\n\
    Beside the sink's columns each row has _partition, _offset, _event_time and _error (why the SELECT failed).")]
pub(super) struct BacktestArgs {
    /// A sink in the catalog
    sink: String,
    /// The first event time that is scored: a day in UTC, or RFC 3339 with a zone
    #[arg(long, value_name = "TIME", value_parser = day_or_time)]
    from: Micros,
    /// The first event time that is not scored any more
    #[arg(long, value_name = "TIME", value_parser = day_or_time)]
    to: Micros,
    /// The file to write, by its extension: .parquet, .csv, .ndjson or .jsonl
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// What an event sees: what had arrived before it, or what is dated before it
    #[arg(long, value_enum, default_value = "log")]
    known: KnownBy,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    /// The value of a parameter, in the place of the one in effect; for several, repeat it
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
    /// Also ask an edited definition of the sink (a CREATE SINK of the same name, with views and parameters that it
    /// reads), and show where it decides otherwise
    #[arg(long, value_name = "FILE.sql")]
    as_changed: Option<PathBuf>,
    /// The column in which the definitions decide [default: decision, or verdict]
    #[arg(long, value_name = "COLUMN", requires = "as_changed")]
    verdict: Option<String>,
    /// The column whose sums are shown [default: amount, if there is one]
    #[arg(long, value_name = "COLUMN", requires = "as_changed")]
    amount: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum KnownBy {
    Log,
    Event,
}

impl From<KnownBy> for Known {
    fn from(known: KnownBy) -> Known {
        match known {
            KnownBy::Log => Known::Log,
            KnownBy::Event => Known::Event,
        }
    }
}

pub(super) async fn run(context: &Context, args: BacktestArgs) -> Result<Done> {
    let (verdict, amount) = (args.verdict, args.amount);
    let changed = args.as_changed.map(|file| EditedSink { file, verdict, amount });
    let BacktestArgs { sink, from, to, out, force, set, .. } = args;
    let request = BacktestRequest { sink, from, to, known: Known::from(args.known), out, force, set, changed };
    let installation = request.mistakes().before(context.installation().await)?;
    let bar = progress::counter("backtest", !context.output.json);
    let outcome = backtest(&installation, &request, &|progress| show(&bar, progress)).await;
    bar.finish_and_clear();
    let report = outcome?;
    context.output.print(&report, || text(&report))?;
    Ok(Done::Success)
}

fn show(bar: &ProgressBar, progress: BacktestProgress) {
    let (doing, read) = match progress {
        BacktestProgress::FindingKeys(read) => ("backtest: finding keys".to_owned(), read),
        BacktestProgress::Scoring(read) => ("backtest".to_owned(), read),
        BacktestProgress::Sorting(read) => ("backtest: sorting".to_owned(), read),
        BacktestProgress::ReadingPart { part, parts, events } => (format!("backtest: part {part} of {parts} of the keys"), events),
    };
    bar.set_prefix(doing);
    bar.set_position(read);
}

fn text(report: &BacktestReport) -> String {
    let values: Vec<String> = report.parameters.iter().map(|(name, value)| format!(", {name} = {value}")).collect();
    let made_by = format!("{} (version {}{})", report.sink, report.version, values.concat());
    let done = format!("{} of {made_by} in {}", count_of(report.rows, "row"), report.file.display());
    let done = match &report.no_rows {
        Some(no_rows) => format!("{done}\n{}", why_no_rows(no_rows)),
        None => done,
    };
    let warnings = report.received_late.iter().map(|late| format!("\nwarning: {}", warning(report.rows, late)));
    let done = done + &warnings.collect::<String>();
    let done = match report.unapplied.is_empty() {
        true => done,
        false => format!("{done}\nthe changed sink reads what is not applied: {}", unapplied(&report.unapplied)),
    };
    match &report.difference {
        Some(difference) => format!("{done}\n\n{}", compared(difference, report.rows)),
        None => done,
    }
}

fn unapplied(UnappliedDefinitions { views, parameters }: &UnappliedDefinitions) -> String {
    let views = views.iter().map(|view| view.to_string());
    let parameters = parameters.iter().map(|(name, value)| format!("{name} = {value}"));
    views.chain(parameters).collect::<Vec<_>>().join(", ")
}

fn warning(all: u64, LateRows { view, rows }: &LateRows) -> String {
    format!(
        "{rows} of {all} events were received so late that no window of {view} reaches back to their own time; --known event takes events \
         by their own time"
    )
}

fn why_no_rows(no_rows: &NoRows) -> String {
    let NoRows { may_have_events, earliest, latest } = no_rows;
    let none = match may_have_events {
        true => "no event is in the range, or the sink's WHERE holds for none of them",
        false => "no event is in the range",
    };
    match (earliest, latest) {
        (Some(earliest), Some(latest)) => format!("{none}: the archive has events from {earliest} to {latest}"),
        _ => format!("{none}: the archive has no events of the sink's stream"),
    }
}

/// The verdicts of both definitions as a matrix, then their sums, then examples. A matrix that would be too wide is a
/// list of the pairs that there are.
fn compared(difference: &VerdictDifference, rows: u64) -> String {
    let VerdictDifference { verdict, amount, different, cells, examples } = difference;
    let decided = format!("{verdict}: {different} of {rows} events are decided differently");
    let (live, changed) = difference.verdicts();
    let mut parts = Vec::new();
    if is_wide(&live, &changed) {
        parts.push(decided);
        parts.push(pairs(cells, amount.as_deref()));
    } else {
        let matrix = |value: &dyn Fn(Option<&Cell>) -> String| matrix(cells, &live, &changed, value);
        parts.push(format!("{decided} (rows: live, columns: changed)"));
        parts.push(matrix(&|cell: Option<&Cell>| cell.map_or(0, |cell| cell.events).to_string()));
        if let Some(amount) = amount {
            parts.push(format!("sum of {amount}:"));
            parts.push(matrix(&|cell: Option<&Cell>| cell.map_or_else(|| "0".to_owned(), sum)));
        }
    }
    if !examples.is_empty() {
        parts.push("examples:".to_owned());
        let row = |example: &crate::backtest::VerdictExample| {
            let id = example.id.clone().unwrap_or_default();
            let place = [example.partition.to_string(), example.offset.to_string(), example.event_time.clone()];
            [example.live.clone(), example.changed.clone(), id].into_iter().chain(place).collect()
        };
        parts.push(table(&["live", "changed", "id", "partition", "offset", "event time"], examples.iter().map(row)));
    }
    parts.join("\n\n")
}

/// The most characters of a line of the matrix.
const WIDEST: usize = 100;
/// What a count or a sum takes at least, with the space after it.
const CELL: usize = 8;

fn is_wide(live: &[&str], changed: &[&str]) -> bool {
    let length = |verdict: &&str| verdict.chars().count() + 2;
    let widest_row = live.iter().map(length).max().unwrap_or(0);
    widest_row + changed.iter().map(|verdict| length(verdict).max(CELL)).sum::<usize>() > WIDEST
}

fn matrix(cells: &[Cell], live: &[&str], changed: &[&str], value: &dyn Fn(Option<&Cell>) -> String) -> String {
    let header: Vec<&str> = std::iter::once("").chain(changed.iter().copied()).collect();
    let row = |verdict: &&str| {
        let cell = |other: &&str| value(cells.iter().find(|cell| cell.live == *verdict && cell.changed == *other));
        std::iter::once((*verdict).to_owned()).chain(changed.iter().map(cell)).collect()
    };
    table(&header, live.iter().map(row))
}

fn pairs(cells: &[Cell], amount: Option<&str>) -> String {
    let sum_of = amount.map(|amount| format!("sum of {amount}"));
    let header: Vec<&str> = ["live", "changed", "events"].into_iter().chain(sum_of.as_deref()).collect();
    let row = |cell: &Cell| {
        let sum = amount.map(|_| sum(cell));
        [cell.live.clone(), cell.changed.clone(), cell.events.to_string()].into_iter().chain(sum).collect()
    };
    table(&header, cells.iter().map(row))
}

fn sum(cell: &Cell) -> String {
    match &cell.amount {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(number) => number.to_string(),
        None => "0".to_owned(),
    }
}

const MICROS_OF_DAY: Micros = 86_400_000_000;

fn setting(text: &str) -> Result<(String, String), String> {
    let both = text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    both.ok_or_else(|| format!("found \"{text}\", expected a parameter and its value, such as max_hourly=30"))
}

fn day_or_time(text: &str) -> Result<Micros, String> {
    let day = parse_date(text).map(|day| Micros::from(day) * MICROS_OF_DAY);
    let time = day.or_else(|| parse_timestamp(text).ok());
    time.ok_or_else(|| format!("found \"{text}\", expected a day such as 2026-01-01, or a time such as 2026-01-01T12:00:00Z"))
}

#[cfg(test)]
mod tests;
