//! Measures a sink: how soon the record of an event can be read after the event was appended, at a given rate, how many
//! events per second have their records while a backlog is read, also beside Flink SQL on Kafka, and how soon one event
//! is scored over HTTP. One `basestream up` does all the work.

use std::path::Path;
use std::time::{Duration, Instant};

use types::{Error, Result};

use crate::Programs;
use crate::child::Used;
use crate::flink::Flink;
use crate::latencies::Latencies;
use crate::machine::Context;
use crate::measured_process::MeasuredProcess;
use crate::payments::{MOST_EVENTS, Payments};
use crate::report::Report;

mod backlog;
mod definitions;
mod peer;
mod project;
mod reading;
mod scoring;
mod sending;
mod table;

use backlog::{Backlog, read_backlog};
use definitions::{MOST_VIEWS, SINK_TOPIC};
use project::{Filled, project};
use reading::Reader;
use sending::{Sender, Sent};

#[derive(Debug, Clone)]
pub struct Options {
    /// Events per second that arrive while latencies are measured.
    pub rates: Vec<u64>,
    /// Events of the backlog.
    pub events: u64,
    /// Events of the backlog that Flink reads too; 0: not measured.
    pub peer_events: u64,
    /// Events per second that are scored over HTTP; 0: not measured.
    pub scored: u64,
    pub keys: u64,
    /// How many views the sink joins: by account, by merchant, and accounts that are linked by a device.
    pub views: usize,
    /// How long each stretch of measuring lasts, and how many there are.
    pub seconds: f64,
    pub repeats: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rates: vec![1_000, 20_000],
            events: 1_000_000,
            peer_events: 1_000_000,
            scored: 1_000,
            keys: 100_000,
            views: MOST_VIEWS,
            seconds: 20.0,
            repeats: 3,
        }
    }
}

/// The aims: the highest p99 in milliseconds, and the least records per second.
const AIM_MS: f64 = 50.0;
const AIM_PER_SECOND: f64 = 50_000.0;
const AIM_SCORED_MS: f64 = 5.0;
/// How long events arrive before the measurement starts, as a share of a stretch.
const WARM_UP: f64 = 0.2;
/// The longest time in which no record comes, while there are events without one.
const STALLED: Duration = Duration::from_secs(120);

/// What was measured at one rate.
struct AtRate {
    rate: u64,
    stretches: Vec<Latencies>,
    arrived_per_second: f64,
    used: Used,
    seconds: f64,
}

/// Runs the benchmark, and checks that every accepted event has one record in the end, in the order of its partition.
/// The installations go to `folder`, one at a time.
pub async fn run(options: &Options, programs: &Programs, folder: &Path, command: &str) -> Result<Report> {
    if !(1..=MOST_VIEWS).contains(&options.views) {
        let expected = format!("1 to {MOST_VIEWS}");
        return Err(Error::input("a sink cannot join this number of views").with("found", options.views).with("expected", expected));
    }
    let mut context = Context::begin(command, programs);
    let of_run = folder.join("project");
    let mut at_rates = Vec::new();
    for rate in &options.rates {
        at_rates.push(at_rate(options, programs, &of_run, *rate).await?);
        std::fs::remove_dir_all(&of_run)?;
    }
    let backlog = match options.events {
        0 => None,
        _ => Some(backlog(options, programs, &of_run).await?),
    };
    let mut scored = Vec::new();
    if options.scored > 0 {
        for beside in [0, options.rates.iter().copied().max().unwrap_or_default()] {
            let _ = std::fs::remove_dir_all(&of_run);
            scored.extend(scoring::scored(options, programs, &of_run, options.scored, beside).await?);
        }
    }
    let _ = std::fs::remove_dir_all(&of_run);
    let beside = match options.peer_events {
        0 => None,
        _ => Some(peer::beside(options, programs, &of_run).await?),
    };
    if beside.as_ref().is_some_and(|beside| beside.of_flink().is_some()) {
        context.versions.insert("flink".into(), Flink::version().into());
    }
    let question = "How soon is the record of an event readable after the event was appended, and how many are made per second?".to_owned();
    let mut tables = vec![table::latencies(options, &at_rates), table::backlog(options, backlog.as_ref()), table::scored(options, &scored)];
    tables.extend(beside.map(|beside| table::beside(options, &beside)));
    Ok(Report { benchmark: "sinks".into(), question, context: context.end(), tables })
}

async fn at_rate(options: &Options, programs: &Programs, folder: &Path, rate: u64) -> Result<AtRate> {
    let payments = Payments { records: MOST_EVENTS, accounts: options.keys };
    let (topic, project) = project(options.views, folder, payments, Filled::No).await?;
    let process = MeasuredProcess::up(programs, &project.config(), folder, &project.http).await?;
    let sent = Sent::default();
    let sender = Sender::start(&topic, sent.clone(), rate).await?;
    let mut reader = Reader::new(topic.open().await?, SINK_TOPIC, sent);
    reader.read_for(Duration::from_secs_f64(options.seconds * WARM_UP)).await?;
    let (used_before, began, arrived) = (process.used(), Instant::now(), sender.appended());
    let mut stretches = Vec::with_capacity(options.repeats);
    for _ in 0..options.repeats {
        stretches.push(reader.read_for(Duration::from_secs_f64(options.seconds)).await?);
    }
    let (seconds, used) = (began.elapsed().as_secs_f64(), process.used().since(used_before));
    let arrived_per_second = (sender.appended() - arrived) as f64 / seconds;
    let appended = sender.stop().await?;
    reader.read_until(Payments { records: appended, ..payments }.truth().events).await?;
    process.stop().await?;
    reader.check()?;
    Ok(AtRate { rate, stretches, arrived_per_second, used, seconds })
}

async fn backlog(options: &Options, programs: &Programs, folder: &Path) -> Result<Backlog> {
    let payments = Payments { records: options.events, accounts: options.keys };
    let (topic, project) = project(options.views, folder, payments, Filled::Yes).await?;
    read_backlog(programs, folder, &project, &topic, SINK_TOPIC).await
}
