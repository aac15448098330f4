//! `up`, `speed`, `serve`, `scheduler` and `demo`: the commands that run until they are stopped.

use std::path::PathBuf;

use clap::Args;
use types::Result;

use super::{Context, Done};
use crate::check;
use crate::demo::{DemoOptions, demo};
use crate::up::{self, UpOptions, stop_on_signals, unless_stopped};

const UNTIL: &str = "Runs until Ctrl-C or SIGTERM, finishes what is under way (a batch run within five seconds), and exits 0. \
    While that takes, it logs what it waits for; a second signal ends it at once, and nothing is lost by it. \
    Several may run on the same URLs.";

#[derive(Debug, Args)]
#[command(after_help = UNTIL)]
pub(super) struct LayerArgs {}

#[derive(Debug, Args)]
#[command(after_help = UNTIL)]
pub(super) struct SpeedArgs {
    /// Continue where the log no longer has offsets that were never read, and record them as lost
    #[arg(long)]
    accept_gap: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Needs no project and no service. Ctrl-C ends it.")]
pub(super) struct DemoArgs {
    /// End after the checks; exit 0 only if all of them held
    #[arg(long)]
    once: bool,
    /// How many records of history to begin with
    #[arg(long, value_name = "N", default_value_t = DemoOptions::default().events)]
    events: u64,
    /// The traffic's seed: the same seed gives the same events
    #[arg(long, value_name = "S", default_value_t = DemoOptions::default().seed)]
    seed: u64,
    /// Keep the data here, instead of in a temporary folder that is deleted at the end
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) async fn up(context: &Context, args: SpeedArgs) -> Result<Done> {
    let stop = stop_on_signals()?;
    let settings = context.settings()?;
    let checked = check::check_project(&settings.project, &context.functions, crate::now()).await?;
    checked.diagnostics.clone().into_result()?;
    let Some(mut installation) = unless_stopped(&stop, context.installation()).await? else { return Ok(Done::Success) };
    installation.settings.speed.accept_gap = args.accept_gap;
    let options = UpOptions { definitions: Some(checked.definitions), quiet: context.output.json, ..UpOptions::default() };
    up::up(installation, options, stop).await?;
    Ok(Done::Success)
}

pub(super) async fn speed(context: &Context, args: SpeedArgs) -> Result<Done> {
    let stop = stop_on_signals()?;
    let Some(mut installation) = unless_stopped(&stop, context.installation()).await? else { return Ok(Done::Success) };
    installation.settings.speed.accept_gap = args.accept_gap;
    let options = UpOptions { quiet: context.output.json, ..UpOptions::default() };
    up::speed(installation, options, stop).await?;
    Ok(Done::Success)
}

pub(super) async fn serve(context: &Context, _: LayerArgs) -> Result<Done> {
    let stop = stop_on_signals()?;
    let Some(installation) = unless_stopped(&stop, context.installation()).await? else { return Ok(Done::Success) };
    let options = UpOptions { quiet: context.output.json, ..UpOptions::default() };
    up::serve(installation, options, stop).await?;
    Ok(Done::Success)
}

pub(super) async fn scheduler(context: &Context, _: LayerArgs) -> Result<Done> {
    let stop = stop_on_signals()?;
    let Some(installation) = unless_stopped(&stop, context.installation()).await? else { return Ok(Done::Success) };
    let options = UpOptions { quiet: context.output.json, ..UpOptions::default() };
    up::scheduler(installation, options, stop).await?;
    Ok(Done::Success)
}

pub(super) async fn run_demo(args: DemoArgs) -> Result<Done> {
    let stop = stop_on_signals()?;
    let options = DemoOptions { once: args.once, events: args.events, seed: args.seed, dir: args.dir };
    let outcome = demo(options, stop).await?;
    Ok(if outcome.has_failed() || (args.once && !outcome.is_verified()) { Done::Found } else { Done::Success })
}
