//! Measures what batch runs cost lookups in the same process: random keys of a view over windows, asked of one `up`
//! that is idle, and of the same one while runs of that view follow one another.

use std::path::Path;
use std::time::{Duration, Instant};

use catalog::{RunRecord, RunStatus};
use types::tiles::Micros;
use types::{Error, Result};

use crate::Programs;
use crate::asking::{self, Getting, Stretches};
use crate::installed::Installed;
use crate::latencies::Latencies;
use crate::machine::Context;
use crate::measured_process::MeasuredProcess;
use crate::purchases::question::row_path;
use crate::purchases::{Purchases, VIEW, account_text};
use crate::report::Report;
use crate::runs::Runs;

mod table;

#[derive(Debug, Clone)]
pub struct Options {
    pub purchases: Purchases,
    /// Clients that look keys up. One more asks `/healthz`.
    pub clients: usize,
    /// How long each stretch of measuring lasts, and how many there are.
    pub seconds: f64,
    pub repeats: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { purchases: Purchases::with_size(5_000_000, 200_000), clients: 1, seconds: 10.0, repeats: 3 }
    }
}

/// The aims: a lookup's p99 during runs to that of the idle process, and the p99 of `/healthz` during runs.
const MOST_TO_IDLE: f64 = 5.0;
const HEALTH_P99_MS: f64 = 5.0;

/// What each client waits after an answer, so that the lookups themselves leave the processors idle.
const PACE: Duration = Duration::from_millis(2);
/// The longest time until the first run begins, and between two looks whether it has.
const BEGIN: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);
/// More than any measurement has.
const MOST_RUNS: usize = 100_000;

/// What was asked in one situation.
struct Measured {
    lookups: Vec<Latencies>,
    health: Vec<Latencies>,
}

/// The batch runs during a measurement.
#[derive(Debug, PartialEq)]
struct Active {
    runs: u64,
    /// The share of the time during which one of them was active.
    share: f64,
}

/// Runs the benchmark. The installation goes to `folder`.
pub async fn run(options: &Options, programs: &Programs, folder: &Path, command: &str) -> Result<Report> {
    let context = Context::begin(command, programs);
    let installed = Installed::create(&folder.join("project"), &options.purchases).await?;
    installed.archive(&options.purchases).await?;
    let first = installed.installation.run_view(VIEW, &|_| {}).await?;
    let up = MeasuredProcess::up(programs, &installed.config(), &installed.folder, &installed.http).await?;

    let idle = measure(options, &installed.http).await?;
    let runs = Runs::start_in(&installed.http, VIEW);
    wait_for_a_run(&installed, &first).await?;
    let began = jobs::now();
    let busy = measure(options, &installed.http).await?;
    let ended = jobs::now();
    tokio::task::spawn_blocking(|| runs.finish()).await??;
    let active = Active::between(&installed.installation.catalog.runs(Some(VIEW), MOST_RUNS).await?, began, ended)?;
    up.stop().await?;
    installed.installation.close().await;
    let question = "What do batch runs in the same process cost lookups of random keys?".to_owned();
    let tables = vec![table::build(options, &idle, &busy, &active), table::aims(&idle, &busy)];
    Ok(Report { benchmark: "lookups-during-run".into(), question, context: context.end(), tables })
}

async fn measure(options: &Options, address: &str) -> Result<Measured> {
    let client = |_| {
        let purchases = options.purchases.clone();
        Getting::connect(address, PACE, move |nth| row_path(VIEW, &account_text(purchases.account(nth))))
    };
    let lookups = (0..options.clients.max(1)).map(client).collect::<Result<Vec<_>>>()?;
    let health = vec![Getting::connect(address, PACE, |_| "/healthz".to_owned())?];
    let stretches = Stretches { seconds: options.seconds, repeats: options.repeats };
    let (lookups, health) = tokio::try_join!(asking::ask(stretches, lookups), asking::ask(stretches, health))?;
    Ok(Measured { lookups, health })
}

/// Waits until a run after `first` has begun.
async fn wait_for_a_run(installed: &Installed, first: &RunRecord) -> Result<()> {
    let began = Instant::now();
    loop {
        let runs = installed.installation.catalog.runs(Some(VIEW), MOST_RUNS).await?;
        if runs.iter().any(|run| run.id != first.id && run.started_at.is_some()) {
            return Ok(());
        }
        if began.elapsed() > BEGIN {
            return Err(Error::unavailable("no batch run began").with("waited s", BEGIN.as_secs()));
        }
        tokio::time::sleep(LOOK).await;
    }
}

impl Active {
    /// Errors if a run failed.
    fn between(records: &[RunRecord], began: Micros, ended: Micros) -> Result<Active> {
        let (mut runs, mut active) = (0, 0);
        for run in records {
            let Some(from) = run.started_at.map(|started| started.max(began)) else { continue };
            let to = run.ended_at.unwrap_or(ended).min(ended);
            if from >= to {
                continue;
            }
            if run.status == RunStatus::Failed {
                return Err(Error::internal("a batch run failed").with("error", run.error.as_deref().unwrap_or_default()));
            }
            runs += 1;
            active += to - from;
        }
        Ok(Active { runs, share: active as f64 / (ended - began) as f64 })
    }
}

#[cfg(test)]
mod tests;
