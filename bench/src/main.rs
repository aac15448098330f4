//! The command line of the benchmarks.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use basestream_bench::{
    Programs, Report, batch, compaction, contest, cost, flight, freshness, history, hot, ingest, isolation, links_batch, links_lookup,
    lookup, lookups_during_run, scan, sinks, soak, start,
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
    /// A full recompute of a view: DuckDB, Polars, DataFusion, and a batch run
    Batch(cli::Batch),
    /// What compaction leaves of many small checkpoints, and of a catalog of many days
    Compaction(cli::Compaction),
    /// Bytes stored per event and per key, objects per hour, processor time per million events
    Cost(cli::Cost),
    /// A whole view read over Flight SQL, as HTTP's Arrow stream and by COPY; compared with COPY of PostgreSQL
    Flight(cli::Flight),
    /// How soon an event counts, from its acknowledgement to a lookup
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
    LinksBatch(LinksBatch),
    /// Point lookups of a view over a JOIN, in process and over HTTP, idle and while events arrive; how soon a new link
    /// counts
    LinksLookup(LinksLookup),
    /// Point lookups of views over windows, in process and over HTTP, idle and under load; compared with Redis and
    /// PostgreSQL
    Lookup(cli::Lookup),
    /// What batch runs in the same process cost lookups of random keys: idle, during runs, and the ratio
    LookupsDuringRun(cli::LookupsDuringRun),
    /// SQL over a whole view: all of its windows and columns, and only a few of them
    Scan(cli::Scan),
    /// A sink: how soon after an event its record can be read, and records per second from a backlog
    Sinks(cli::Sinks),
    /// Whether memory, files, run times and disk are level while events arrive at a constant rate and views run every
    /// minute
    Soak(cli::Soak),
    /// From the start of a killed process to its first answer
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

#[derive(Debug, Args)]
struct LinksBatch {
    #[command(flatten)]
    common: Common,
    /// Factor for 2 million accounts, 20 million logins, 1 million users and 500 thousand devices
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// How many devices each user logs in from; 0: from any device each time
    #[arg(long, default_value_t = 0)]
    devices_per_user: u64,
    #[arg(long, default_value_t = links_batch::Options::default().repeats)]
    repeats: usize,
    /// Seconds that one process may take
    #[arg(long, default_value_t = 600)]
    timeout: u64,
}

#[derive(Debug, Args)]
struct LinksLookup {
    #[command(flatten)]
    common: Common,
    #[arg(long, value_delimiter = ',', default_values_t = links_lookup::Options::default().degrees)]
    degrees: Vec<u64>,
    #[arg(long, default_value_t = links_lookup::Options::default().devices)]
    devices: u64,
    /// Length of each stretch of measuring
    #[arg(long, default_value_t = links_lookup::Options::default().seconds)]
    seconds: f64,
    #[arg(long, default_value_t = links_lookup::Options::default().repeats)]
    repeats: usize,
    /// Events per second that arrive; 0: measure only idle
    #[arg(long, default_value_t = links_lookup::Options::default().rate)]
    rate: u64,
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
    let command = said(std::env::args().skip(1));
    match cli.command {
        Command::Batch(args) => {
            let (folder, _kept) = folder(&args.common)?;
            show(&batch::run(&args.options(), &Programs::of_this_binary()?, &folder, &command).await?, &args.common)
        }
        Command::Lookup(args) => {
            let (folder, _kept) = folder(&args.common)?;
            show(&lookup::run(&args.options(), &Programs::of_this_binary()?, &folder, &command).await?, &args.common)
        }
        Command::Compaction(args) => {
            let (folder, _kept) = folder(&args.common)?;
            show(&compaction::run(&args.options(), &Programs::of_this_binary()?, &folder, &command).await?, &args.common)
        }
        Command::Cost(args) => {
            let (folder, _kept) = folder(&args.common)?;
            show(&cost::run(&args.options(), &Programs::of_this_binary()?, &folder, &command).await?, &args.common)
        }
        Command::Flight(args) => {
            let (folder, _kept) = folder(&args.common)?;
            show(&flight::run(&args.options(), &Programs::of_this_binary()?, &folder, &command).await?, &args.common)
        }
        Command::Freshness(args) => {
            let (folder, _kept) = folder(&args.common)?;
            show(&freshness::run(&args.options(), &Programs::of_this_binary()?, &folder, &command).await?, &args.common)
        }
        Command::FreshnessApart(args) => {
            let (folder, _kept) = folder(&args.common)?;
            show(&freshness::apart::run(&args.options(), &Programs::of_this_binary()?, &folder, &command).await?, &args.common)
        }
        Command::History(args) => {
            let (folder, _kept) = folder(&args.common)?;
            show(&history::run(&args.options(), &Programs::of_this_binary()?, &folder, &command).await?, &args.common)
        }
        Command::Hot(args) => {
            let (folder, _kept) = folder(&args.common)?;
            show(&hot::run(&args.options(), &Programs::of_this_binary()?, &folder, &command).await?, &args.common)
        }
        Command::Ingest(args) => {
            let (folder, _kept) = folder(&args.common)?;
            show(&ingest::run(&args.options(), &Programs::of_this_binary()?, &folder, &command).await?, &args.common)
        }
        Command::LinksBatch(args) => {
            let mut options = links_batch::Options { repeats: args.repeats, ..links_batch::Options::default() };
            options.graph = links_batch::graph(args.scale);
            options.graph.devices_per_user = args.devices_per_user;
            options.timeout = Duration::from_secs(args.timeout);
            let (folder, _kept) = folder(&args.common)?;
            show(&links_batch::run(&options, &Programs::of_this_binary()?, &folder, &command).await?, &args.common)
        }
        Command::LinksLookup(args) => {
            let options = links_lookup::Options {
                degrees: args.degrees,
                devices: args.devices,
                seconds: args.seconds,
                repeats: args.repeats,
                rate: args.rate,
                ..links_lookup::Options::default()
            };
            let (folder, _kept) = folder(&args.common)?;
            show(&links_lookup::run(&options, &Programs::of_this_binary()?, &folder, &command).await?, &args.common)
        }
        Command::Isolation(args) => {
            let (folder, _kept) = folder(&args.common)?;
            show(&isolation::run(&args.options(), &Programs::of_this_binary()?, &folder, &command).await?, &args.common)
        }
        Command::LookupsDuringRun(args) => {
            let (folder, _kept) = folder(&args.common)?;
            show(&lookups_during_run::run(&args.options(), &Programs::of_this_binary()?, &folder, &command).await?, &args.common)
        }
        Command::Scan(args) => {
            let (folder, _kept) = folder(&args.common)?;
            show(&scan::run(&args.options(), &Programs::of_this_binary()?, &folder, &command).await?, &args.common)
        }
        Command::Sinks(args) => {
            let (folder, _kept) = folder(&args.common)?;
            show(&sinks::run(&args.options(), &Programs::of_this_binary()?, &folder, &command).await?, &args.common)
        }
        Command::Soak(args) => {
            let (folder, _kept) = folder(&args.common)?;
            show(&soak::run(&args.options(), &Programs::of_this_binary()?, &folder, &command).await?, &args.common)
        }
        Command::Start(args) => {
            let (folder, _kept) = folder(&args.common)?;
            show(&start::run(&args.options(), &Programs::of_this_binary()?, &folder, &command).await?, &args.common)
        }
        Command::ScanOnce { question } => {
            println!("{}", scan::once::answer(&question).await?);
            Ok(())
        }
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
    }
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
    fn a_command_is_told_without_the_place_of_its_json() {
        for words in ["scan --json a/b.json --keys 5", "scan --keys 5 --json=a/b.json", "scan --keys 5 --json"] {
            assert_eq!(super::said(words.split(' ').map(str::to_owned)), "bench scan --keys 5");
        }
    }
}
