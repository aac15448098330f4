//! Compares a full recompute of a view with plain SQL over the same events.

use std::path::Path;
use std::time::Duration;

use types::Result;

use crate::Programs;
use crate::child::Limits;
use crate::contest::{self, Contender, How, Site, Step};
use crate::installed::{Installed, plain_files, plain_parquet};
use crate::machine::Context;
use crate::purchases::{Purchases, STREAM, VIEW, expressions, question};
use crate::report::Report;
use crate::view::Dialect;

mod aims;

#[derive(Debug, Clone)]
pub struct Options {
    pub purchases: Purchases,
    pub repeats: usize,
    /// Threads of the peers.
    pub threads: usize,
    /// Memory limit of the peers' engines where no other is given, and of their processes.
    pub peer_memory_bytes: u64,
    pub process_memory_bytes: u64,
    /// The time limit of a process.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            purchases: Purchases::with_size(20_000_000, 1_000_000),
            repeats: 3,
            threads: 2,
            peer_memory_bytes: 14 << 30,
            process_memory_bytes: 18 << 30,
            timeout: Duration::from_secs(600),
        }
    }
}

const STEPS: [Step; 2] = [("states", "the states are written"), ("publishing", "run published")];

/// Runs the benchmark and compares all answers with each other. The data goes to `folder`.
pub async fn run(options: &Options, programs: &Programs, folder: &Path, command: &str) -> Result<Report> {
    let context = Context::begin(command, programs);
    let purchases = &options.purchases;
    let parquet = folder.join("parquet");
    plain_parquet(purchases, &parquet).await?;
    let installed = Installed::create(&folder.join("project"), purchases).await?;
    installed.archive(purchases).await?;
    let installed = installed.close().await?;
    let shape = question::shape(purchases);
    let site = Site {
        programs,
        installed: &installed,
        tables: [(STREAM.to_owned(), plain_files(STREAM, &parquet))].into(),
        folder,
        view: VIEW,
        answered_by: VIEW,
        shape: &shape,
        steps: &STEPS,
        threads: options.threads,
        limits: Limits { time: options.timeout, memory_bytes: options.process_memory_bytes },
    };
    let outcomes = contest::measure(&site, contenders(options, programs), options.repeats).await?;
    let windows: Vec<&str> = purchases.windows().iter().map(|window| window.text).collect();
    let aggregates = purchases.aggregates.map(|(_, aggregate)| aggregate).join(", ");
    let question = format!(
        "How long does a full recompute of {aggregates} over windows of {} take, for {} events of {} keys?",
        windows.join(", "),
        purchases.events,
        purchases.accounts
    );
    let mut table = contest::table::build(&site, options.repeats, &outcomes);
    aims::add(&mut table, &outcomes);
    let tables = [table].into_iter().chain(contest::table::parts(&site, &outcomes)).collect();
    Ok(Report { benchmark: "batch".into(), question, context: context.end(), tables })
}

/// All installed contenders.
fn contenders(options: &Options, programs: &Programs) -> Vec<Contender> {
    let purchases = &options.purchases;
    let memory = [options.peer_memory_bytes, SMALL];
    let mut all = Vec::new();
    if programs.python.is_some() {
        let plain = ("DuckDB, plain SQL", question::plain_select(purchases, Dialect::DuckDb));
        let by_hand = question::select_by_merchant(purchases).map(|sql| ("DuckDB, distinct merchants by hand", sql));
        let by_states = (DUCKDB_STATES, question::select_by_states(purchases));
        for (name, sql) in [plain].into_iter().chain(by_hand).chain([by_states]) {
            all.extend(memory.map(|bytes| Contender::new(name, How::DuckDb(sql.clone()), bytes)));
        }
    }
    if programs.polars_version().is_some() {
        all.push(Contender::new("Polars, streaming", How::Polars(expressions::for_purchases(purchases)), options.peer_memory_bytes));
    }
    let plain = How::PlainSelect(question::plain_select(purchases, Dialect::DataFusion));
    all.push(Contender::new("DataFusion, plain SQL over the archive", plain, options.peer_memory_bytes));
    all.extend([4 << 30, SMALL].map(|bytes| Contender::new("basestream batch run", How::BatchRun, bytes)));
    all
}

/// The contender that builds the states that a batch run keeps.
const DUCKDB_STATES: &str = "DuckDB, building the same states first";

/// The smallest memory limit.
const SMALL: u64 = 1 << 30;
