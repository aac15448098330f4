//! Computes the whole answer of a linked view over all events: by plain SQL in a peer, by plain SQL here, and by a
//! batch run.

use std::path::Path;
use std::time::Duration;

use arrow::datatypes::DataType;
use types::Result;

use crate::Programs;
use crate::child::Limits;
use crate::contest::table::{of_limit, own_peak};
use crate::contest::{self, Contender, How, Outcome, Shape, Site, Step};
use crate::events::Events;
use crate::graph::{Graph, Stream};
use crate::installed::{Installed, plain_files, plain_parquet};
use crate::machine::Context;
use crate::report::{Report, Table, at_most};
use crate::view::{Dialect, VALUES, VIEW, Windows, edges_select, plain_select};

const STEPS: [Step; 3] = [("edges", "the states are written"), ("join", "the join is written"), ("publishing", "run published")];
/// The aim: a run's private memory relative to its limit.
const MOST_OF_LIMIT: f64 = 1.0;

#[derive(Debug, Clone)]
pub struct Options {
    pub graph: Graph,
    pub repeats: usize,
    /// Threads of the peers.
    pub threads: usize,
    /// The default memory limit of the peers' engines, and the limit of their processes.
    pub peer_memory_bytes: u64,
    pub process_memory_bytes: u64,
    /// The time limit of a process.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            graph: graph(1.0),
            repeats: 3,
            threads: 2,
            peer_memory_bytes: 10 << 30,
            process_memory_bytes: 14 << 30,
            timeout: Duration::from_secs(600),
        }
    }
}

/// 2 million accounts and 20 million logins of 1 million users on 500 thousand devices, mildly skewed, times `scale`.
pub fn graph(scale: f64) -> Graph {
    let scaled = |count: u64| ((count as f64 * scale) as u64).max(1);
    Graph {
        seed: 5,
        users: scaled(1_000_000),
        devices: scaled(500_000),
        accounts: scaled(2_000_000),
        logins: scaled(20_000_000),
        skew: 1.3,
        devices_per_user: 0,
        account_days: 400,
        login_days: 40,
    }
}

/// Runs the benchmark and compares all answers with each other. The data goes to `folder`.
pub async fn run(options: &Options, programs: &Programs, folder: &Path, command: &str) -> Result<Report> {
    let context = Context::begin(command, programs);
    let parquet = folder.join("parquet");
    plain_parquet(&options.graph, &parquet).await?;
    let installed = Installed::create(&folder.join("project"), &options.graph).await?;
    installed.archive(&options.graph).await?;
    let installed = installed.close().await?;
    let table = |stream: Stream| (stream.name().to_owned(), plain_files(stream.name(), &parquet));
    let shape = Shape { key: "device_id".into(), values: VALUES.map(|name| (name.to_owned(), DataType::Int64)).to_vec() };
    let site = Site {
        programs,
        installed: &installed,
        tables: Stream::BOTH.map(table).into(),
        folder,
        view: VIEW,
        answered_by: &format!("{VIEW}__batch"),
        shape: &shape,
        steps: &STEPS,
        threads: options.threads,
        limits: Limits { time: options.timeout, memory_bytes: options.process_memory_bytes },
    };
    let outcomes = contest::measure(&site, contenders(options, programs.python.is_some()), options.repeats).await?;
    let question = format!(
        "How long does it take to compute the whole answer of a linked view, over {} accounts and {} logins of {} users on {} devices?",
        options.graph.accounts, options.graph.logins, options.graph.users, options.graph.devices
    );
    let mut whole = contest::table::build(&site, options.repeats, &outcomes);
    add_aim(&mut whole, &outcomes);
    let tables = [whole].into_iter().chain(contest::table::parts(&site, &outcomes)).collect();
    Ok(Report { benchmark: "links-batch".into(), question, context: context.end(), tables })
}

/// All installed contenders. A second run carries the join's rows over.
fn contenders(options: &Options, duckdb: bool) -> Vec<Contender> {
    let windows = Windows::at(options.graph.newest());
    let peers = options.peer_memory_bytes;
    let mut all = Vec::new();
    if duckdb {
        let plain = How::DuckDb(plain_select(&windows, Dialect::DuckDb));
        all.push(Contender::new("DuckDB, plain SQL", plain.clone(), peers));
        all.push(Contender::new("DuckDB, plain SQL", plain, 1 << 30));
        all.push(Contender::new("DuckDB, edges deduplicated by hand", How::DuckDb(edges_select(&windows)), peers));
    }
    let plain = How::PlainSelect(plain_select(&windows, Dialect::DataFusion));
    all.push(Contender::new("DataFusion, plain SQL over the archive", plain, peers));
    all.push(Contender::new("basestream batch run", How::BatchRun, 1 << 30));
    all.push(Contender::new("basestream batch run", How::BatchRun, 4 << 30));
    all.push(Contender::new("basestream batch run, second run with nothing new", How::BatchAgain, 4 << 30));
    all
}

/// Adds a column: whether runs stay within their limit. The edge files that they map belong to the page cache.
fn add_aim(table: &mut Table, outcomes: &[Outcome]) {
    table.columns.push(format!("own peak / limit, aim {MOST_OF_LIMIT:.1}"));
    for (row, outcome) in table.rows.iter_mut().zip(outcomes) {
        let own = own_peak(outcome).filter(|_| outcome.contender.is_run());
        row.push(at_most(of_limit(own, outcome), MOST_OF_LIMIT));
    }
}
