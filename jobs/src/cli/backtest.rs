//! `backtest`.

use std::path::PathBuf;

use batch::Known;
use clap::{Args, ValueEnum};
use engine::events::{parse_date, parse_timestamp};
use types::Result;
use types::tiles::Micros;

use super::{Context, Done, progress};
use crate::backtest::{Asked, backtest};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  basestream backtest scored_payments --from 2026-01-01 --to 2026-04-01 --out scored.parquet\n  \
    basestream backtest scored_payments --from 2026-01-01 --to 2026-04-01 --out scored.csv --known event --force\n\n\
    Beside the sink's columns each row has _partition, _offset, _event_time and _error (why the SELECT failed).")]
pub(super) struct BacktestArgs {
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
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum KnownBy {
    Log,
    Event,
}

pub(super) async fn run(context: &Context, args: BacktestArgs) -> Result<Done> {
    let installation = context.installation().await?;
    let known = match args.known {
        KnownBy::Log => Known::Log,
        KnownBy::Event => Known::Event,
    };
    let asked = Asked { sink: args.sink, from: args.from, to: args.to, known, out: args.out, force: args.force };
    let bar = progress::counter("backtest", !context.output.json);
    let outcome = backtest(&installation, &asked, &|read| bar.set_position(read)).await;
    bar.finish_and_clear();
    let report = outcome?;
    context
        .output
        .print(&report, || format!("{} rows of {} (version {}) in {}", report.rows, report.sink, report.version, report.file.display()))?;
    Ok(Done::Success)
}

const MICROS_OF_DAY: Micros = 86_400_000_000;

fn day_or_time(text: &str) -> Result<Micros, String> {
    let day = parse_date(text).map(|day| Micros::from(day) * MICROS_OF_DAY);
    let time = day.or_else(|| parse_timestamp(text).ok());
    time.ok_or_else(|| format!("found \"{text}\", expected a day such as 2026-01-01, or a time such as 2026-01-01T12:00:00Z"))
}
