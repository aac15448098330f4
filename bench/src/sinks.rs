//! Measures a sink, on the embedded log and on Kafka: how soon the record of an event can be read after the event was
//! appended, at a given rate, and how many events per second have their records while a backlog is read; both also
//! beside Flink SQL on Kafka; and how soon one event is scored over HTTP. One `basestream up` does all the work.

use std::path::Path;
use std::time::Duration;

use types::{Error, Result};

use crate::Programs;
use crate::flink::Flink;
use crate::machine::Context;
use crate::measured_process::MeasuredProcess;
use crate::payments::{MOST_EVENTS, Payments, Source};
use crate::report::Report;

mod at_rate;
mod backlog;
mod definitions;
mod peer;
mod project;
mod reading;
mod scoring;
mod sending;
mod table;
mod tail;
mod values;

use at_rate::{AtRate, Timing, send_and_read};
use backlog::{Backlog, read_backlog};
use definitions::{MOST_VIEWS, joined};
use peer::PeerOutcome;
use project::{Filled, SinkProject};
use tail::{Origin, Tail};

#[derive(Debug, Clone)]
pub struct Options {
    /// Events per second that arrive while latencies are measured.
    pub rates: Vec<u64>,
    /// Events of the backlog; 0: not measured.
    pub events: u64,
    /// `embedded`, `kafka`: where these are measured.
    pub sources: Vec<String>,
    /// The same beside Flink: events per second, and events of the backlog; none and 0: not measured.
    pub peer_rates: Vec<u64>,
    pub peer_events: u64,
    /// Seconds between checkpoints, of basestream and of Flink's exactly-once sink.
    pub checkpoints: Vec<u64>,
    /// Where Flink keeps its state if it writes checkpoints: `rocksdb`, with incremental checkpoints, or `hashmap`.
    pub flink_state: String,
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
            sources: vec!["embedded".into(), "kafka".into()],
            peer_rates: vec![1_000, 20_000],
            peer_events: 1_000_000,
            checkpoints: vec![1, DEFAULT_CHECKPOINT_S],
            flink_state: "rocksdb".into(),
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
/// Seconds between checkpoints unless it is set otherwise.
const DEFAULT_CHECKPOINT_S: u64 = 10;
/// How long events arrive before the measurement starts, as a share of a stretch.
const WARM_UP: f64 = 0.2;
/// The longest time in which no record comes, while there are events without one.
const STALLED: Duration = Duration::from_secs(120);

/// What was measured on the logs.
#[derive(Default)]
struct OnLogs {
    at_rates: Vec<(Source, AtRate)>,
    backlogs: Vec<(Source, Backlog)>,
    /// Which logs were left out, and why.
    left_out: Vec<String>,
}

/// Runs the benchmark, and checks that every accepted event has one record in the end, in the order of its partition.
/// The installations go to `folder`, one at a time.
pub async fn run(options: &Options, programs: &Programs, folder: &Path, command: &str) -> Result<Report> {
    check(options)?;
    let mut context = Context::begin(command, programs);
    let of_run = folder.join("project");
    let on_logs = on_logs(options, programs, &of_run).await?;
    let mut scored = Vec::new();
    if options.scored > 0 {
        for beside in [0, options.rates.iter().copied().max().unwrap_or_default()] {
            let _ = std::fs::remove_dir_all(&of_run);
            scored.extend(scoring::scored(options, programs, &of_run, options.scored, beside).await?);
        }
    }
    let _ = std::fs::remove_dir_all(&of_run);
    let beside = match options.peer_events > 0 || !options.peer_rates.is_empty() {
        true => Some(peer::beside(options, programs, &of_run).await?),
        false => None,
    };
    if matches!(beside, Some(PeerOutcome::Measured(_))) {
        context.versions.insert("flink".into(), Flink::version().into());
    }
    let question = "How soon is the record of an event readable after the event was appended, and how many are made per second?".to_owned();
    let mut tables = vec![table::latencies(options, &on_logs), table::backlog(options, &on_logs), table::scored(options, &scored)];
    tables.extend(beside.iter().flat_map(|beside| table::beside(options, beside)));
    Ok(Report { benchmark: "sinks".into(), question, context: context.end(), tables })
}

fn check(options: &Options) -> Result<()> {
    if !(1..=MOST_VIEWS).contains(&options.views) {
        let expected = format!("1 to {MOST_VIEWS}");
        return Err(Error::input("a sink cannot join this number of views").with("found", options.views).with("expected", expected));
    }
    if !["rocksdb", "hashmap"].contains(&options.flink_state.as_str()) {
        let error = Error::input("Flink has no such state backend").with("found", &options.flink_state);
        return Err(error.with("expected", "rocksdb or hashmap"));
    }
    Ok(())
}

async fn on_logs(options: &Options, programs: &Programs, folder: &Path) -> Result<OnLogs> {
    let mut on_logs = OnLogs::default();
    for name in &options.sources {
        let Some(source) = Source::named(name)? else {
            on_logs.left_out.push(format!("{name} was left out: its services are not running (tests/services/up)"));
            continue;
        };
        for rate in &options.rates {
            on_logs.at_rates.push((source.clone(), at_rate(options, programs, (folder, &source), *rate).await?));
            std::fs::remove_dir_all(folder)?;
        }
        if options.events > 0 {
            on_logs.backlogs.push((source.clone(), backlog(options, programs, (folder, &source)).await?));
            std::fs::remove_dir_all(folder)?;
        }
    }
    Ok(on_logs)
}

async fn at_rate(options: &Options, programs: &Programs, (folder, source): (&Path, &Source), rate: u64) -> Result<AtRate> {
    let payments = Payments { records: MOST_EVENTS, accounts: options.keys };
    let site = SinkProject::create(source, folder, payments, Filled::No, &joined(options.views)).await?;
    let process = MeasuredProcess::up(programs, &site.project.config(), folder, &site.project.http).await?;
    let stretch = Duration::from_secs_f64(options.seconds);
    let timing = Timing { warm_up: stretch.mul_f64(WARM_UP), stretch, repeats: options.repeats };
    let tail = Tail::begin(&site.records, Origin::Header).await?;
    let (measured, _) = send_and_read(&site.topic, tail, (rate, timing), |payments| payments.truth().events, || process.used()).await?;
    process.stop().await?;
    site.delete_topics().await?;
    Ok(measured)
}

async fn backlog(options: &Options, programs: &Programs, (folder, source): (&Path, &Source)) -> Result<Backlog> {
    let payments = Payments { records: options.events, accounts: options.keys };
    let site = SinkProject::create(source, folder, payments, Filled::Yes, &joined(options.views)).await?;
    let backlog = read_backlog(programs, folder, &site, &[]).await?;
    site.delete_topics().await?;
    Ok(backlog)
}
