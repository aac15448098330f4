//! `training`.

use std::path::PathBuf;

use batch::Known;
use clap::Args;
use types::Result;

use super::backtest::KnownBy;
use super::{Context, Done, progress};
use crate::output::count_of;
use crate::training::{NotArrived, TrainingReport, TrainingRequest, training};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  basestream training labels.parquet device_velocity --out train.parquet\n  \
    basestream training labels.csv device_velocity user_velocity --time decided_at --exclusive --out train.parquet --force\n\n\
    The output has the rows of the spine in their order, with all of its columns, then those of each view that are not keys.")]
pub(super) struct TrainingArgs {
    /// Rows with the views' keys and a time: a file that ends in .parquet, .csv, .ndjson or .jsonl
    spine: PathBuf,
    /// Views with GROUP BY
    #[arg(required = true, value_name = "VIEW")]
    views: Vec<String>,
    /// The file to write, by its extension: .parquet, .csv, .ndjson or .jsonl
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The spine's column with the time of each row
    #[arg(long, value_name = "COLUMN", default_value = "ts")]
    time: String,
    /// Count only what is dated before the time of a row, and not what has the same time
    #[arg(long)]
    exclusive: bool,
    /// What a row sees: what is dated up to its time, or only what had arrived by then too
    #[arg(long, value_enum, default_value = "event")]
    known: KnownBy,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

pub(super) async fn run(context: &Context, args: TrainingArgs) -> Result<Done> {
    let TrainingArgs { spine, views, out, time, exclusive, known, force } = args;
    let request = TrainingRequest { spine, views, time, exclusive, known: Known::from(known), out, force };
    let installation = request.mistakes().before(context.installation().await)?;
    let bar = progress::counter("training", !context.output.json);
    let outcome = training(&installation, &request, &|read| bar.set_position(read)).await;
    bar.finish_and_clear();
    let report = outcome?;
    context.output.print(&report, || text(&report))?;
    Ok(Done::Success)
}

fn text(report: &TrainingReport) -> String {
    let views: Vec<String> = report.views.iter().map(|view| format!("{} (version {})", view.view, view.version)).collect();
    let done = format!("{} with the columns of {} in {}", count_of(report.rows, "row"), views.join(", "), report.file.display());
    let warnings = report.not_arrived.iter().map(|not_arrived| format!("\nwarning: {}", warning(report.rows, not_arrived)));
    done + &warnings.collect::<String>()
}

fn warning(all: u64, NotArrived { stream, rows, first }: &NotArrived) -> String {
    match first {
        Some(first) => format!(
            "{rows} of {all} rows lie before anything of {stream} had arrived by the log's clock (first: {first}); --known event takes \
             events by their own time"
        ),
        None => format!("the archive has no event of {stream}, so that no row counts any"),
    }
}
