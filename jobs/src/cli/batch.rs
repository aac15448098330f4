//! `batch run` and `batch history`.

use batch::{FileTotals, RunMode, RunPlan};
use catalog::{DefinitionKind, RunStatus};
use clap::{Args, Subcommand, value_parser};
use committed::names::no_view;
use committed::registry::Registry;
use types::{Result, Strategy};

use super::{AuditedChange, Context, Done, progress};
use crate::installation::{Installation, now};
use crate::output::{count_of, size};
use crate::status::{RunReport, add_progress, comparison_text, runs_text};

#[derive(Debug, Args)]
pub(super) struct BatchArgs {
    #[command(subcommand)]
    command: BatchCommand,
}

#[derive(Debug, Subcommand)]
enum BatchCommand {
    /// Run a view now and publish its snapshot
    #[command(after_help = "Example:\n  basestream batch run device_velocity\n\n\
        A version that is being built is run first, and served from then on. Definitions are not applied: see `basestream apply`.\n\
        State rows are what a snapshot consists of: one for each key and each tile of time in which the key has events.")]
    Run(RunArgs),
    /// List runs, newest first
    #[command(
        visible_alias = "list",
        after_help = "Example:\n  basestream batch history --limit 50\n\n\
        State rows are what a snapshot consists of: one for each key and each tile of time in which the key has events."
    )]
    History {
        /// Only this view
        view: Option<String>,
        /// List at most this many
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = value_parser!(u32).range(1..))]
        limit: u32,
    },
}

#[derive(Debug, Args)]
struct RunArgs {
    /// A view in the catalog
    view: String,
    /// Recompute from the archive, whatever the view's strategy
    #[arg(long)]
    full: bool,
    /// Do not compare what is recomputed with the states that incremental runs had kept
    #[arg(long, requires = "full")]
    no_compare: bool,
    /// Only say what would be read and written
    #[arg(long)]
    dry_run: bool,
}

impl BatchArgs {
    pub(super) fn change(&self) -> Option<AuditedChange> {
        match &self.command {
            BatchCommand::Run(RunArgs { view, dry_run: false, .. }) => AuditedChange::new("run", "view", view),
            _ => None,
        }
    }
}

pub(super) async fn batch(context: &Context, args: BatchArgs) -> Result<Done> {
    match args.command {
        BatchCommand::Run(args) if args.dry_run => plan(context, &args).await,
        BatchCommand::Run(args) => run(context, &args).await,
        BatchCommand::History { view, limit } => history(context, view.as_deref(), limit as usize).await,
    }
}

async fn run(context: &Context, args: &RunArgs) -> Result<Done> {
    let view = args.view.as_str();
    let installation = context.installation().await?;
    let bar = progress::state_rows(view, !context.output.json);
    let shown = bar.clone();
    let progress = move |rows: i64| shown.set_position(rows.max(0) as u64);
    let run = match args.full {
        true => installation.recompute_view(view, !args.no_compare, &progress).await,
        false => installation.run_view(view, &progress).await,
    };
    bar.finish_and_clear();
    let report = RunReport::from_run(&run?);
    context.output.print(&report, || run_text(&report))?;
    Ok(Done::Success)
}

/// Formats a run that was asked for, with what its comparison found.
pub(super) fn run_text(report: &RunReport) -> String {
    let runs = runs_text(std::slice::from_ref(report));
    report.comparison.as_ref().map_or(runs.clone(), |comparison| format!("{runs}\n\n{}", comparison_text(comparison)))
}

async fn plan(context: &Context, args: &RunArgs) -> Result<Done> {
    let mode = if args.full { RunMode::Full } else { RunMode::ByStrategy };
    let plan = context.installation().await?.plan_run(&args.view, mode, !args.no_compare).await?;
    context.output.print(&plan, || plan_text(&plan))?;
    Ok(Done::Success)
}

fn plan_text(plan: &RunPlan) -> String {
    let RunPlan { view, version, events, .. } = plan;
    if plan.skipped {
        return format!("a run of {view} (version {version}) would be skipped: nothing is new");
    }
    let why = plan.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let mut text = format!("a run of {view} (version {version}) would be {}{why}\n", plan.strategy.name());
    let files = |of: &FileTotals| format!("{} ({})", of.files, size(of.bytes));
    text += &format!("  events          {events}\n");
    if plan.resumed > 0 {
        text += &format!("  read already    {} by a run that ended early\n", count_of(plan.resumed, "event"));
    }
    if plan.strategy != Strategy::Full {
        text += &format!("  checkpoints     {}\n  states objects  {}\n", plan.checkpoints, files(&plan.states_objects));
    }
    if plan.replayed > 0 {
        text += &format!("  from the log    {}\n", count_of(plan.replayed, "event"));
    }
    text += &format!("  archive files   {}\n", files(&plan.archive));
    if plan.merged.files > 0 {
        text += &format!("  files merged    {}\n", files(&plan.merged));
    }
    if plan.compared.files > 0 {
        text += &format!("  files compared  {}\n", files(&plan.compared));
    }
    let written = plan.written_bytes.map_or("not known before it ran".to_owned(), |bytes| {
        let most = if plan.strategy != Strategy::Full { "at most " } else { "about " };
        format!("{most}{}", size(bytes))
    });
    text + &format!("  written         {written}")
}

async fn history(context: &Context, view: Option<&str>, limit: usize) -> Result<Done> {
    let installation = context.installation().await?;
    if let Some(view) = view {
        known_view(&installation, view).await?;
    }
    let mut runs: Vec<RunReport> = installation.catalog.runs(view, limit).await?.iter().map(RunReport::from_run).collect();
    if runs.iter().any(|run| run.status == RunStatus::Running) {
        let state = installation.catalog.state().await?;
        let registry = Registry::load(&state, &installation.functions).await?;
        add_progress(&mut runs, &state, &registry, now());
    }
    context.output.print(&runs, || if runs.is_empty() { "nothing ran yet".into() } else { runs_text(&runs) })?;
    Ok(Done::Success)
}

/// Errors: `NotFound` for a view that was never defined.
async fn known_view(installation: &Installation, view: &str) -> Result<()> {
    let state = installation.catalog.state().await?;
    match state.definitions.versions(DefinitionKind::View, view).next() {
        Some(_) => Ok(()),
        None => Err(no_view(view, state.definitions.iter().map(|definition| (definition.kind, &*definition.name)))),
    }
}
