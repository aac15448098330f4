//! The whole answer of a linked view over all events: by plain SQL elsewhere, by plain SQL here, and by a batch run.

use std::path::Path;
use std::time::Duration;

use schemas::Result;

use crate::Programs;
use crate::child::Limits;
use crate::graph::{Graph, Stream};
use crate::installed::{Installed, plain_parquet};
use crate::machine::Context;
use crate::report::Report;
use crate::view::Windows;

mod answer;
mod contender;
mod parts;
pub mod plain;
mod table;

use contender::{Contender, Site};

#[derive(Debug, Clone)]
pub struct Options {
    pub graph: Graph,
    pub repeats: usize,
    /// Of the peers.
    pub threads: usize,
    /// What peers may hold where nothing else is said, and what their processes may take.
    pub peer_memory_bytes: u64,
    pub process_memory_bytes: u64,
    /// How long a process may take.
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

/// Measures; all answers are held against each other. `folder` takes the data.
pub async fn run(options: &Options, programs: &Programs, folder: &Path, command: &str) -> Result<Report> {
    let context = Context::begin(command, programs);
    let parquet = folder.join("parquet");
    plain_parquet(&options.graph, &parquet).await?;
    let installed = Installed::create(&folder.join("project")).await?;
    installed.archive(&options.graph).await?;
    let installed = installed.close().await?;
    let site = Site {
        programs,
        installed: &installed,
        parquet: &parquet,
        folder,
        windows: Windows::at(options.graph.newest()),
        threads: options.threads,
        limits: Limits { time: options.timeout, memory_bytes: options.process_memory_bytes },
    };
    let contenders = Contender::all(options.peer_memory_bytes, programs.python.is_some());
    let outcomes = contender::measure(&site, &contenders, options.repeats).await;
    answer::compare_all(&outcomes)?;
    let question = format!(
        "How long does the whole answer of a linked view take, over {} accounts and {} logins of {} users on {} devices?",
        options.graph.accounts, options.graph.logins, options.graph.users, options.graph.devices
    );
    let mut tables = vec![table::of(options, &outcomes)];
    tables.extend(table::parts(&outcomes));
    Ok(Report { benchmark: "links-batch".into(), question, context: context.end(), tables })
}

/// All of a stream's plain Parquet files.
fn files_of(stream: Stream, parquet: &Path) -> String {
    format!("{}/{}-*.parquet", parquet.display(), stream.name())
}
