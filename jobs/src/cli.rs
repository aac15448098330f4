//! The command line: prints results to standard output, errors and logs to standard error.
//!
//! Exit codes: 0 success, 1 a failure, 2 wrong usage.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use ::definitions::settings::{FILE_NAME, Settings, Variables};
use access::{audit, local_user};
use clap::{Args, Parser, Subcommand};
use committed::damage::with_help;
use engine::functions::Functions;
use types::{Error, ErrorKind, Result, threads};

use crate::installation::Installation;
use crate::output::Printer;

mod alert;
mod ask;
mod backtest;
mod batch;
mod dead_letters;
mod definitions;
mod features;
mod ingest;
mod layers;
mod logging;
mod operate;
mod parameter;
mod progress;
mod records;
mod repair;
mod replay;
mod sink;
mod status;
mod storage;
mod token;
mod training;
mod verify;
mod view;

pub(crate) const EXAMPLES: &str = "\
Start with your own file:
  basestream init shop --from orders.csv && cd shop
  basestream check
  basestream apply
  basestream up

Meanwhile, in a second terminal:
  cd shop
  basestream ingest orders ../orders.csv
  basestream lookup orders_by_customer customer_id=00001
  basestream query 'SELECT * FROM orders_by_customer LIMIT 10'
  basestream batch run orders_by_customer
  basestream verify orders_by_customer

Or run the demo, which needs no preparation:
  basestream demo";

const WRONG_USAGE: u8 = 2;

/// One plain SQL SELECT over event streams, kept complete and fresh.
#[derive(Debug, Parser)]
#[command(name = "basestream", version, after_help = EXAMPLES, max_term_width = 110, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
struct Global {
    /// Where the project runs: its settings. The folders of its definitions are in the same folder
    #[arg(long, global = true, value_name = "FILE", default_value = FILE_NAME)]
    config: PathBuf,
    /// Print results and errors as JSON
    #[arg(long, global = true)]
    json: bool,
    /// What is logged on standard error: error, warn, info, debug, trace, or a filter as in RUST_LOG
    /// [default: info for up, speed, serve and scheduler, else warn]
    #[arg(long, global = true, value_name = "LEVEL")]
    log_level: Option<String>,
    /// How logs are written
    #[arg(long, global = true, value_name = "FORMAT", value_enum, default_value_t = logging::LogFormat::Text)]
    log_format: logging::LogFormat,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create a new project: settings, a stream, a view
    Init(definitions::InitArgs),
    /// List every mistake in the definitions, and what they result in; needs no service
    Check(definitions::CheckArgs),
    /// Show what `apply` would change in the catalog
    Plan(definitions::PlanArgs),
    /// Write the files' definitions to the catalog
    Apply(definitions::ApplyArgs),
    /// Fill columns of archived events from their raw records, as the catalog's definition of the stream reads them
    Backfill(definitions::BackfillArgs),
    /// Translate a script of the feature language into streams, views and a sink; needs no service
    Features(features::FeaturesArgs),
    /// Show a view's three layers as SQL, and its kept states; of a sink or an alert, what it reads. Needs no service
    Explain(definitions::ExplainArgs),
    /// Show all layers at work on synthetic payments, with nothing to prepare
    Demo(layers::DemoArgs),
    /// Apply the definitions, then run all layers in one process
    Up(layers::SpeedArgs),
    /// Run the speed layer: reads the log, commits checkpoints, and puts out the records of sinks and alerts
    Speed(layers::SpeedArgs),
    /// Run the serving layer: answers over HTTP, to PostgreSQL and to Flight SQL clients
    Serve(layers::LayerArgs),
    /// Run batch when it is due, and collect files that are no longer needed
    Scheduler(layers::LayerArgs),
    /// Append files of JSON lines, CSV or Parquet to a stream
    Ingest(ingest::IngestArgs),
    /// List, export and replay records that could not become events
    DeadLetters(dead_letters::DeadLettersArgs),
    /// Run a view's batch now, or list what ran
    Batch(batch::BatchArgs),
    /// Compute a view's states anew from the log or the archive, through the speed layer's code
    Replay(replay::ReplayArgs),
    /// List the views; list, compare, switch, roll back and drop a view's versions
    View(view::ViewArgs),
    /// Print the row of one key of a view
    Lookup(ask::LookupArgs),
    /// Run a SELECT over views, streams and system tables
    Query(ask::QueryArgs),
    /// Compare what is served with plain SQL over the archive; exit 1 on any difference
    Verify(verify::VerifyArgs),
    /// Check every file against its checksum and rebuild what is damaged; exit 1 if something is left damaged
    Repair(repair::RepairArgs),
    /// Show how far each partition is read, what each view is served from, what ran, and what is wrong
    Status(status::StatusArgs),
    /// Show where the bytes are, by stream, view, kind and age, and what another retention would free
    Storage(storage::StorageArgs),
    /// List the sinks, print what one puts out, and from which events on which version does
    Sink(sink::SinkArgs),
    /// List the alerts and what is open, and print what one puts out
    Alert(alert::AlertArgs),
    /// Stop putting out the records of a sink or an alert
    Pause(operate::PauseArgs),
    /// End a pause
    Resume(operate::ResumeArgs),
    /// Return to the text that a sink or an alert had before
    Rollback(operate::RollbackArgs),
    /// Give a parameter another value, while sinks and alerts run
    Set(parameter::SetArgs),
    /// List the parameters: type, value, since when and by whom
    Parameters(parameter::ParametersArgs),
    /// Score archived events as a sink would have, each with what was known of it then
    Backtest(backtest::BacktestArgs),
    /// Add the columns of views to the rows of a file, each as of its own time: training data without leakage
    Training(training::TrainingArgs),
    /// Create, list and revoke tokens: who may do what over HTTP, PostgreSQL and Flight SQL
    Token(token::TokenArgs),
}

/// The outcome of a command that ran without an error.
enum Done {
    Success,
    /// It ran, but found a difference, a mistake or damage: exits with 1, without another message.
    Found,
}

/// What every command has access to.
struct Context {
    config: PathBuf,
    output: Printer,
    functions: Functions,
}

impl Context {
    fn settings(&self) -> Result<Settings> {
        Settings::load(&self.config, &Variables::from_process()).map_err(|error| {
            if error.kind() == ErrorKind::NotFound { error.with("help", "`basestream init DIR` makes a project") } else { error }
        })
    }

    async fn installation(&self) -> Result<Installation> {
        Installation::open(&self.settings()?, self.functions.clone()).await
    }
}

/// Runs the whole command line and plans with `functions`. Call it from the `main` of a binary that has its own
/// aggregates.
pub fn main(functions: Functions) -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && asks_for_json(std::env::args_os()) => {
            Printer { json: true }.print_error(&usage_error(&error));
            return ExitCode::from(WRONG_USAGE);
        }
        Err(error) => error.exit(),
    };
    let output = Printer { json: cli.global.json };
    match run(cli, functions) {
        Ok(Done::Success) => ExitCode::SUCCESS,
        Ok(Done::Found) => ExitCode::FAILURE,
        Err(error) => {
            output.print_error(&with_help(error));
            ExitCode::FAILURE
        }
    }
}

/// Whether `--json` is among the arguments of a command line that is not understood.
fn asks_for_json(arguments: impl Iterator<Item = OsString>) -> bool {
    arguments.take_while(|argument| argument != "--").any(|argument| argument == "--json")
}

/// Takes the text of wrong usage apart: what is wrong, how the command is used, and what may have been meant.
fn usage_error(error: &clap::Error) -> Error {
    let one_line = |paragraph: &str| paragraph.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let text = error.to_string();
    let mut paragraphs = text.trim().split("\n\n").map(one_line);
    let first = paragraphs.next().unwrap_or_default();
    let message = match error.kind() {
        // Its text is that of `--help`.
        clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "an argument or a command is missing",
        _ => first.strip_prefix("error: ").unwrap_or(&first),
    };
    paragraphs.fold(Error::input(message), |error, paragraph| match paragraph.split_once(": ") {
        Some(("tip", tip)) => error.with("help", tip),
        Some(("Usage", usage)) => error.with("usage", usage),
        _ => error,
    })
}

fn run(cli: Cli, functions: Functions) -> Result<Done> {
    logging::start(cli.global.log_level.as_deref(), cli.global.log_format, logged(&cli.command))?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    // Planning recurses to the depth of a SELECT.
    runtime.enable_all().thread_stack_size(8 << 20).on_thread_start(threads::shorten_slice);
    let runtime = runtime.build().map_err(|error| Error::from(error).with("while", "starting"))?;
    let context = Context { config: cli.global.config, output: Printer { json: cli.global.json }, functions };
    let change = change(&cli.command);
    let done = runtime.block_on(dispatch(&context, cli.command));
    if let Some(change) = change {
        audit(local_user(), change.action, &change.object, &change.outcome(&done));
    }
    // What still runs then is a request to a service whose answer nothing needs any more.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    done
}

fn logged(command: &Command) -> logging::Usual {
    match command {
        Command::Up(_) | Command::Speed(_) | Command::Serve(_) | Command::Scheduler(_) => logging::Usual::Work,
        Command::Demo(_) => logging::Usual::WarningsAlone,
        _ => logging::Usual::Warnings,
    }
}

/// What a command is to change, for the audit log.
struct AuditedChange {
    action: &'static str,
    object: String,
    /// The kind of what it leaves where it ends with [`Done::Found`].
    found: ErrorKind,
}

impl AuditedChange {
    fn new(action: &'static str, what: &str, name: &str) -> Option<AuditedChange> {
        Some(AuditedChange { action, object: format!("the {what} \"{name}\""), found: ErrorKind::Input })
    }

    fn outcome(&self, done: &Result<Done>) -> Result<()> {
        match done {
            Ok(Done::Success) => Ok(()),
            Ok(Done::Found) => Err(Error::new(self.found, "something is left that is wrong")),
            Err(error) => Err(error.copied()),
        }
    }
}

/// `None` for commands that change nothing, and for those that run on: they log their changes as they make them.
fn change(command: &Command) -> Option<AuditedChange> {
    match command {
        Command::Apply(_) => {
            Some(AuditedChange { action: "apply", object: "the project's definitions".to_owned(), found: ErrorKind::Input })
        }
        Command::Backfill(args) => args.change(),
        Command::DeadLetters(args) => args.change(),
        Command::Batch(args) => args.change(),
        Command::Replay(args) => args.change(),
        Command::View(args) => args.change(),
        Command::Pause(args) => args.change(),
        Command::Resume(args) => args.change(),
        Command::Rollback(args) => args.change(),
        Command::Repair(args) => args.change(),
        Command::Storage(args) => args.change(),
        Command::Set(args) => args.change(),
        Command::Token(args) => args.change(),
        _ => None,
    }
}

async fn dispatch(context: &Context, command: Command) -> Result<Done> {
    match command {
        Command::Init(args) => definitions::init(context, args),
        Command::Check(args) => definitions::check(context, args).await,
        Command::Plan(args) => definitions::plan(context, args).await,
        Command::Apply(args) => definitions::apply(context, args).await,
        Command::Backfill(args) => definitions::backfill(context, args).await,
        Command::Features(args) => features::features(context, args).await,
        Command::Explain(args) => definitions::explain(context, args).await,
        Command::Demo(args) => layers::run_demo(args).await,
        Command::Up(args) => layers::up(context, args).await,
        Command::Serve(args) => layers::serve(context, args).await,
        Command::Speed(args) => layers::speed(context, args).await,
        Command::Scheduler(args) => layers::scheduler(context, args).await,
        Command::Ingest(args) => ingest::ingest(context, args).await,
        Command::DeadLetters(args) => dead_letters::dead_letters(context, args).await,
        Command::Batch(args) => batch::batch(context, args).await,
        Command::Replay(args) => replay::replay(context, args).await,
        Command::View(args) => view::view(context, args).await,
        Command::Lookup(args) => ask::lookup(context, args).await,
        Command::Query(args) => ask::query(context, args).await,
        Command::Verify(args) => verify::verify(context, args).await,
        Command::Repair(args) => repair::run(context, args).await,
        Command::Status(args) => status::status(context, args).await,
        Command::Storage(args) => storage::storage(context, args).await,
        Command::Sink(args) => sink::sink(context, args).await,
        Command::Alert(args) => alert::alert(context, args).await,
        Command::Pause(args) => operate::pause(context, args).await,
        Command::Resume(args) => operate::resume(context, args).await,
        Command::Rollback(args) => operate::rollback(context, args).await,
        Command::Set(args) => parameter::set_parameter(context, args).await,
        Command::Parameters(args) => parameter::parameters(context, args).await,
        Command::Backtest(args) => backtest::run(context, args).await,
        Command::Training(args) => training::run(context, args).await,
        Command::Token(args) => token::token(context, args).await,
    }
}

#[cfg(test)]
mod tests;
