//! Measures what events and keys cost in bytes stored, objects per hour and processor time, for several numbers of
//! both.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use types::Result;

use crate::Programs;
use crate::child::{self, Limits, Used};
use crate::ingest::answer;
use crate::ingest::speed::{self, Measured};
use crate::machine::Context;
use crate::payments::{Kept, Payments, Project, Source, VIEW};
use crate::report::Report;

mod stored;
mod table;

use stored::Stored;

#[derive(Debug, Clone)]
pub struct Options {
    pub events: Vec<u64>,
    /// The first is combined with every number of events, the others with the last.
    pub keys: Vec<u64>,
    /// The time limit of one process.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { events: vec![1_000_000, 2_000_000, 4_000_000], keys: vec![100_000, 1_000_000], timeout: Duration::from_secs(600) }
    }
}

const AGGREGATES: usize = 5;
const MEMORY: u64 = 14 << 30;

/// One combination of a number of events and a number of keys.
#[derive(Debug, Clone, Copy)]
struct Case {
    payments: Payments,
    keep_raw: bool,
}

struct Outcome {
    case: Case,
    speed: Measured,
    batch: Used,
    stored: Stored,
}

/// Runs the benchmark and compares every answer with the truth. The data goes to `folder`.
pub async fn run(options: &Options, programs: &Programs, folder: &Path, command: &str) -> Result<Report> {
    let context = Context::begin(command, programs);
    let mut outcomes = Vec::new();
    for case in cases(options) {
        outcomes.push(measure(options, programs, folder, case).await?);
    }
    let question =
        format!("What do events and keys cost, for a stream of payments and a view of {AGGREGATES} aggregates per account and minute?");
    let tables = vec![table::bytes(&outcomes), table::work(&outcomes)];
    Ok(Report { benchmark: "cost".into(), question, context: context.end(), tables })
}

/// Every number of events, then every further number of keys, then without the records' text.
fn cases(options: &Options) -> Vec<Case> {
    let case = |records: u64, accounts: u64, keep_raw| Case { payments: Payments { records, accounts }, keep_raw };
    let (Some(most), Some(keys)) = (options.events.last(), options.keys.first()) else { return Vec::new() };
    let over_events = options.events.iter().map(|events| case(*events, *keys, true));
    let over_keys = options.keys.iter().skip(1).map(|keys| case(*most, *keys, true));
    over_events.chain(over_keys).chain([case(*most, *keys, false)]).collect()
}

async fn measure(options: &Options, programs: &Programs, folder: &Path, case: Case) -> Result<Outcome> {
    let (log, folder) = (folder.join("log"), folder.join("project"));
    let topic = Source::Embedded.fill(&log, case.payments).await?;
    let project = Project::create(&folder, &topic, AGGREGATES, Kept { all_columns: true, raw: case.keep_raw }).await?;
    let speed = speed::measure(programs, &project, &topic, options.timeout).await?;
    let batch = batch_run(options, programs, &project)?;
    let stored = Stored::measure(&project, programs, &log).await?;
    answer::check(programs, &project, &topic, AGGREGATES).await?;
    std::fs::remove_dir_all(&folder)?;
    std::fs::remove_dir_all(&log)?;
    Ok(Outcome { case, speed, batch, stored })
}

fn batch_run(options: &Options, programs: &Programs, project: &Project) -> Result<Used> {
    let mut command = Command::new(&programs.basestream);
    command.args(["batch", "run", VIEW, "--full", "--json", "--config"]).arg(project.config());
    Ok(child::run(&mut command, &Limits { time: options.timeout, memory_bytes: MEMORY })?.used)
}
