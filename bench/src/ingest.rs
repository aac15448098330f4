//! Events a second through the speed layer: from a filled topic to committed checkpoints, by the real binary in its own process.

use std::path::Path;
use std::time::Duration;

use schemas::{Error, Result};

use crate::Programs;
use crate::machine::Context;
use crate::payments::{MOST_AGGREGATES, MOST_EVENTS, Payments, Project, Source, Topic};
use crate::report::Report;

mod answer;
mod speed;
mod table;

use speed::Measured;

#[derive(Debug, Clone)]
pub struct Options {
    pub events: u64,
    pub keys: Vec<u64>,
    pub aggregates: Vec<usize>,
    /// `embedded`, `kafka`.
    pub sources: Vec<String>,
    pub repeats: usize,
    /// Numbers of events at which it is shown that ingest is linear; none leaves it out.
    pub sizes: Vec<u64>,
    /// How long one process may take.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            events: 4_000_000,
            keys: vec![100_000, 10_000_000],
            aggregates: vec![1, 5, 20],
            sources: vec!["embedded".into(), "kafka".into()],
            repeats: 3,
            sizes: vec![1_000_000, 2_000_000, 4_000_000],
            timeout: Duration::from_secs(600),
        }
    }
}

/// The aim: events a second at five aggregates and 100 thousand keys.
const AIM_PER_SECOND: f64 = 700_000.0;
const AIM_AGGREGATES: usize = 5;
const AIM_KEYS: u64 = 100_000;

/// What was measured of one topic and one number of aggregates.
#[derive(Debug)]
struct Outcome {
    source: Source,
    payments: Payments,
    aggregates: usize,
    measured: Vec<Measured>,
}

/// Measures; every answer is held against the truth. `folder` takes the data.
pub async fn run(options: &Options, programs: &Programs, folder: &Path, command: &str) -> Result<Report> {
    check(options)?;
    let context = Context::begin(command, programs);
    let (mut outcomes, mut sized, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    for name in &options.sources {
        let Some(source) = Source::named(name)? else {
            left_out.push(format!("{name} was left out: no services are there (tests/services/up)"));
            continue;
        };
        for keys in &options.keys {
            let payments = Payments { records: options.events, accounts: *keys };
            outcomes.extend(of_topic(options, programs, folder, &source, payments, &options.aggregates).await?);
        }
        for size in &options.sizes {
            let payments = Payments { records: *size, accounts: options.keys[0] };
            sized.extend(of_topic(options, programs, folder, &source, payments, &[AIM_AGGREGATES]).await?);
        }
    }
    let mut tables = vec![table::of(options, &outcomes, left_out)];
    tables.extend(table::sizes(&sized));
    let question =
        "How many events a second become committed checkpoints: decoded, deduplicated, archived as Parquet, as states?".to_owned();
    Ok(Report { benchmark: "ingest".into(), question, context: context.end(), tables })
}

fn check(options: &Options) -> Result<()> {
    if let Some(most) = options.sizes.iter().chain([&options.events]).max().filter(|most| **most > MOST_EVENTS) {
        return Err(Error::input("the events do not fit into the view's window").with("found", most).with("at most", MOST_EVENTS));
    }
    if let Some(found) = options.aggregates.iter().find(|found| !(1..=MOST_AGGREGATES).contains(*found)) {
        return Err(Error::input("no such number of aggregates").with("found", found).with("expected", format!("1 to {MOST_AGGREGATES}")));
    }
    if options.keys.is_empty() {
        return Err(Error::input("ingest needs a number of keys").with("option", "--keys"));
    }
    Ok(())
}

/// Fills a topic and has it read so many times, in turns.
async fn of_topic(
    options: &Options,
    programs: &Programs,
    folder: &Path,
    source: &Source,
    payments: Payments,
    aggregates: &[usize],
) -> Result<Vec<Outcome>> {
    let log = folder.join("log");
    let topic = source.fill(&log, payments).await?;
    let outcome = |aggregates: &usize| Outcome { source: source.clone(), payments, aggregates: *aggregates, measured: Vec::new() };
    let mut outcomes: Vec<Outcome> = aggregates.iter().map(outcome).collect();
    for _ in 0..options.repeats.max(1) {
        for outcome in &mut outcomes {
            let project = folder.join("project");
            outcome.measured.push(one(options, programs, &project, &topic, outcome.aggregates).await?);
            std::fs::remove_dir_all(&project)?;
        }
    }
    topic.delete().await?;
    if log.exists() {
        std::fs::remove_dir_all(&log)?;
    }
    Ok(outcomes)
}

async fn one(options: &Options, programs: &Programs, folder: &Path, topic: &Topic, aggregates: usize) -> Result<Measured> {
    let project = Project::create(folder, topic, aggregates, "").await?;
    let measured = speed::measure(programs, &project, topic, options.timeout).await?;
    answer::check(programs, &project, topic, aggregates).await?;
    Ok(measured)
}
