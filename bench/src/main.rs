//! The command line of the benchmarks.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use basestream_bench::{
    Programs, Report, alerts, batch, compaction, contest, cost, flight, freshness, history, hot, ingest, isolation, links_batch,
    links_lookup, lookup, lookups_during_run, run_memory, scan, sinks, soak, start,
};
use clap::{Args, Parser, Subcommand};
use types::{Error, Result};

mod cli;

/// The allocator of the product's binary, so that lookups in process are measured as they run there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const RESULTS_HEAD: &str = "# Results\n\n`bench results` writes this file from the reports of single runs. All figures in one table come from one run; figures of different\n\
    runs are of different days. A figure followed by brackets is a median, with the minimum and the maximum in the brackets.\n\
    [docs/measured](../docs/measured/index.md) explains what limits the aims that are missed, and what was tried.\n";

/// What a query costs here and what it costs a peer, measured in one run.
#[derive(Debug, Parser)]
#[command(name = "bench", max_term_width = 110, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Alerts on silence and over a linked view: how soon a record can be read, after a SIGKILL too, and what they cost
    Alerts(cli::Alerts),
    /// A full recompute of a view: DuckDB, Polars, DataFusion, and a batch run
    Batch(cli::Batch),
    /// What compaction leaves of many small checkpoints, and of a catalog of many days
    Compaction(cli::Compaction),
    /// Bytes stored per event and per key, objects per hour, processor time per million events
    Cost(cli::Cost),
    /// A whole view read over Flight SQL, as HTTP's Arrow stream and by COPY; compared with COPY of PostgreSQL
    Flight(cli::Flight),
    /// How soon an event counts, from its acknowledgement to a lookup; also while a view is built over history
    Freshness(cli::Freshness),
    /// The same on nodes apart from their worker, and what the nodes cost it
    FreshnessApart(cli::FreshnessApart),
    /// What batch runs cost as history grows: full, and incremental after a little more of it
    History(cli::History),
    /// What a hot key costs everybody else: `/healthz` and other lookups meanwhile
    Hot(cli::Hot),
    /// Events per second through the speed layer, from the embedded log and from Kafka
    Ingest(cli::Ingest),
    /// What full scans, and batch runs, in the same process cost lookups of random keys over HTTP and PostgreSQL
    Isolation(cli::Isolation),
    /// The whole answer of a view over a JOIN: DuckDB, DataFusion, and a batch run
    LinksBatch(cli::LinksBatch),
    /// Point lookups of a view over a JOIN, in process and over HTTP, idle and while events arrive; how soon a new link
    /// counts
    LinksLookup(cli::LinksLookup),
    /// Point lookups of views over windows, in process and over HTTP, idle and under load; compared with Redis and
    /// PostgreSQL; and keys of every view in one call, at a given rate
    Lookup(cli::Lookup),
    /// What batch runs in the same process cost lookups of random keys: idle, during runs, and the ratio
    LookupsDuringRun(cli::LookupsDuringRun),
    /// What a batch run holds of its memory limit: for each aggregate, with one key and with many
    RunMemory(cli::RunMemory),
    /// SQL over a whole view: all of its windows and columns, and only a few of them
    Scan(cli::Scan),
    /// A sink: how soon after an event its record can be read, and records per second from a backlog; compared with
    /// Flink SQL
    Sinks(cli::Sinks),
    /// Whether memory, files, run times and disk are level while events arrive at a constant rate and views run every
    /// minute
    Soak(cli::Soak),
    /// From the start of a killed process to its first answer, and to a new event in one; from SIGTERM to the end of
    /// one over a large catalog
    Start(cli::Start),
    /// Reports of several runs (their JSON files) as Markdown
    Results { reports: Vec<PathBuf> },
    /// Answers one question from a file by plain SQL over an archive
    #[command(hide = true)]
    PlainSelect { question: PathBuf },
    /// Answers one question from a file with a separate node
    #[command(hide = true)]
    ScanOnce { question: PathBuf },
}

/// Options of every benchmark.
#[derive(Debug, Args)]
struct Common {
    /// Also write the report here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where the data goes: an empty folder, which is kept; by default a temporary folder
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

fn main() -> ExitCode {
    jobs::memory::keep_what_is_freed();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let outcome = runtime.map_err(Error::from).and_then(|runtime| runtime.block_on(run(Cli::parse())));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The command as a report shows it, without the path of the JSON file.
fn said(words: impl Iterator<Item = String>) -> String {
    let mut line = "bench".to_owned();
    let mut words = words.filter(|word| !word.starts_with("--json="));
    while let Some(word) = words.next() {
        match word.as_str() {
            "--json" => drop(words.next()),
            _ => line = format!("{line} {word}"),
        }
    }
    line
}

async fn run(cli: Cli) -> Result<()> {
    match cli.command {
        Command::Alerts(args) => measure(&args.common, args.options(), alerts::run).await,
        Command::Batch(args) => measure(&args.common, args.options(), batch::run).await,
        Command::Compaction(args) => measure(&args.common, args.options(), compaction::run).await,
        Command::Cost(args) => measure(&args.common, args.options(), cost::run).await,
        Command::Flight(args) => measure(&args.common, args.options(), flight::run).await,
        Command::Freshness(args) => measure(&args.common, args.options(), freshness::run).await,
        Command::FreshnessApart(args) => measure(&args.common, args.options(), freshness::apart::run).await,
        Command::History(args) => measure(&args.common, args.options(), history::run).await,
        Command::Hot(args) => measure(&args.common, args.options(), hot::run).await,
        Command::Ingest(args) => measure(&args.common, args.options(), ingest::run).await,
        Command::Isolation(args) => measure(&args.common, args.options(), isolation::run).await,
        Command::LinksBatch(args) => measure(&args.common, args.options(), links_batch::run).await,
        Command::LinksLookup(args) => measure(&args.common, args.options(), links_lookup::run).await,
        Command::Lookup(args) => measure(&args.common, args.options(), lookup::run).await,
        Command::LookupsDuringRun(args) => measure(&args.common, args.options(), lookups_during_run::run).await,
        Command::RunMemory(args) => measure(&args.common, args.options(), run_memory::run).await,
        Command::Scan(args) => measure(&args.common, args.options(), scan::run).await,
        Command::Sinks(args) => measure(&args.common, args.options(), sinks::run).await,
        Command::Soak(args) => measure(&args.common, args.options(), soak::run).await,
        Command::Start(args) => measure(&args.common, args.options(), start::run).await,
        Command::Results { reports } => {
            let sections = reports.iter().map(|path| Report::read_json(path).map(|report| report.markdown()));
            print!(
                "{}",
                sections.collect::<Result<Vec<_>>>()?.into_iter().fold(RESULTS_HEAD.to_owned(), |text, section| text + "\n" + &section)
            );
            Ok(())
        }
        Command::PlainSelect { question } => {
            println!("{}", contest::plain::answer(&question).await?);
            Ok(())
        }
        Command::ScanOnce { question } => {
            println!("{}", scan::once::answer(&question).await?);
            Ok(())
        }
    }
}

/// Runs a benchmark in its folder and shows what it found.
async fn measure<O>(common: &Common, options: O, benchmark: impl AsyncFnOnce(&O, &Programs, &Path, &str) -> Result<Report>) -> Result<()> {
    let command = said(std::env::args().skip(1));
    let (folder, _kept) = folder(common)?;
    let report = benchmark(&options, &Programs::of_this_binary()?, &folder, &command).await?;
    show(&report, common)
}

/// Returns the folder, and a guard that deletes it if it is temporary.
fn folder(common: &Common) -> Result<(PathBuf, Option<tempfile::TempDir>)> {
    if let Some(folder) = &common.folder {
        std::fs::create_dir_all(folder)?;
        if std::fs::read_dir(folder)?.next().is_some() {
            return Err(Error::input("the folder is not empty").with("folder", folder.display()));
        }
        return Ok((std::path::absolute(folder)?, None));
    }
    let temporary = tempfile::Builder::new().prefix("basestream-bench-").tempdir()?;
    Ok((temporary.path().to_path_buf(), Some(temporary)))
}

fn show(report: &Report, common: &Common) -> Result<()> {
    println!("{report}");
    common.json.as_ref().map_or(Ok(()), |path| report.write_json(path))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_command_is_reported_without_the_place_of_its_json() {
        for words in ["scan --json a/b.json --keys 5", "scan --keys 5 --json=a/b.json", "scan --keys 5 --json"] {
            assert_eq!(super::said(words.split(' ').map(str::to_owned)), "bench scan --keys 5");
        }
    }
}
