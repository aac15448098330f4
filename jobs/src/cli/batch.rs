//! `batch run` and `batch history`.

use catalog::RunStatus;
use clap::{Args, Subcommand};
use committed::registry::Registry;
use types::Result;

use super::{Context, Done, progress};
use crate::installation::now;
use crate::status::{RunReport, add_progress, runs_text};

#[derive(Debug, Args)]
pub(super) struct BatchArgs {
    #[command(subcommand)]
    command: BatchCommand,
}

#[derive(Debug, Subcommand)]
enum BatchCommand {
    /// Run a view now and publish its snapshot
    #[command(after_help = "Example:\n  basestream batch run device_velocity\n\n\
        A version that is being built is run first, and served from then on. Definitions are not applied: see `basestream apply`.")]
    Run {
        view: String,
        /// Recompute from the archive, whatever the view's strategy
        #[arg(long)]
        full: bool,
    },
    /// List runs, newest first
    #[command(after_help = "Example:\n  basestream batch history --limit 50")]
    History {
        /// Only this view
        view: Option<String>,
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
}

pub(super) async fn batch(context: &Context, args: BatchArgs) -> Result<Done> {
    match args.command {
        BatchCommand::Run { view, full } => run(context, &view, full).await,
        BatchCommand::History { view, limit } => history(context, view.as_deref(), limit).await,
    }
}

async fn run(context: &Context, view: &str, full: bool) -> Result<Done> {
    let installation = context.installation().await?;
    let bar = progress::counter(view, !context.output.json);
    let shown = bar.clone();
    let progress = move |rows: i64| shown.set_position(rows.max(0) as u64);
    let run = match full {
        true => installation.recompute_view(view, &progress).await,
        false => installation.run_view(view, &progress).await,
    };
    bar.finish_and_clear();
    let report = RunReport::from_run(&run?);
    context.output.print(&report, || runs_text(std::slice::from_ref(&report)))?;
    Ok(Done::Success)
}

async fn history(context: &Context, view: Option<&str>, limit: usize) -> Result<Done> {
    let installation = context.installation().await?;
    let mut runs: Vec<RunReport> = installation.catalog.runs(view, limit).await?.iter().map(RunReport::from_run).collect();
    if runs.iter().any(|run| run.status == RunStatus::Running) {
        let state = installation.catalog.state().await?;
        let registry = Registry::load(&state, &installation.functions).await?;
        add_progress(&mut runs, &state, &registry, now());
    }
    context.output.print(&runs, || if runs.is_empty() { "nothing ran yet".into() } else { runs_text(&runs) })?;
    Ok(Done::Success)
}
