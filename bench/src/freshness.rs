//! Measures how soon an event counts: from its acknowledgement to the first lookup that includes it, in one `basestream
//! up`, while others arrive; and while a view is built over existing history.

use std::path::Path;
use std::time::{Duration, Instant};

use types::Result;

use crate::Programs;
use crate::asking::Stretches;
use crate::child::Used;
use crate::feed::Feed;
use crate::latencies::Latencies;
use crate::machine::Context;
use crate::measured_process::MeasuredProcess;
use crate::payments::{Arriving, Kept, MOST_EVENTS, Payments, Project, STREAM, Source, VIEW};
use crate::probe::{Http, Probe, ProbedValue, Prober, Sink};
use crate::report::Report;

pub mod apart;
mod building;
mod counted;
mod table;

use counted::check;

#[derive(Debug, Clone)]
pub struct Options {
    /// Events per second that arrive meanwhile.
    pub rates: Vec<u64>,
    pub keys: u64,
    /// `embedded`, `kafka`.
    pub sources: Vec<String>,
    /// How long each stretch of measuring lasts, and how many there are.
    pub seconds: f64,
    pub repeats: usize,
    /// Probes per second.
    pub probes: f64,
    /// Events of the history over which views are built; 0 skips it.
    pub building_events: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rates: vec![1_000, 50_000],
            keys: 100_000,
            sources: vec!["embedded".into(), "kafka".into()],
            seconds: 20.0,
            repeats: 3,
            probes: 50.0,
            building_events: 10_000_000,
        }
    }
}

/// The aim: the highest p99, in milliseconds.
const AIM_MS: f64 = 250.0;
const AGGREGATES: usize = 5;
const PROBED: ProbedValue = ProbedValue { view: VIEW, key: "account_id", value: "events_1h" };
/// How long events arrive before the measurement starts, as a share of a stretch.
const WARM_UP: f64 = 0.2;

/// What was measured at one rate.
struct Outcome {
    source: Source,
    rate: u64,
    stretches: Vec<Latencies>,
    arrived_per_second: f64,
    counted_per_second: f64,
    used: Used,
    seconds: f64,
}

/// Runs the benchmark, and checks that every event is counted once at the end. The installations go to `folder`, one at
/// a time.
pub async fn run(options: &Options, programs: &Programs, folder: &Path, command: &str) -> Result<Report> {
    let context = Context::begin(command, programs);
    let (mut outcomes, mut left_out) = (Vec::new(), Vec::new());
    for name in &options.sources {
        let Some(source) = Source::named(name)? else {
            left_out.push(format!("{name} was left out: its services are not running (tests/services/up)"));
            continue;
        };
        for rate in &options.rates {
            let of_rate = folder.join("project");
            outcomes.push(measure(options, programs, &of_rate, &source, *rate).await?);
            std::fs::remove_dir_all(&of_rate)?;
        }
    }
    let question = "How long after its acknowledgement does a lookup count an event?".to_owned();
    let mut tables = vec![table::build(options, &outcomes, left_out)];
    if options.building_events > 0 && !options.rates.is_empty() {
        let of_building = folder.join("building");
        tables.push(building::measured(options, programs, &of_building).await?);
        std::fs::remove_dir_all(&of_building)?;
    }
    Ok(Report { benchmark: "freshness".into(), question, context: context.end(), tables })
}

async fn measure(options: &Options, programs: &Programs, folder: &Path, source: &Source, rate: u64) -> Result<Outcome> {
    let payments = Payments { records: MOST_EVENTS / 2, accounts: options.keys };
    let topic = source.empty(&folder.join("log"), payments).await?;
    let project = Project::create(folder, &topic, AGGREGATES, Kept::EVERYTHING).await?;
    let process = MeasuredProcess::up(programs, &project.config(), folder, &project.http).await?;
    let http = Http::new(&project.http, PROBED)?;
    let (sink, to) = match source {
        Source::Embedded => (Sink::Http, STREAM.to_owned()),
        Source::Kafka(_) => (Sink::Log(topic.open().await?), topic.name.clone()),
    };
    let mut prober = Prober::new(sink, http.clone(), move |nth| {
        let payment = payments.probe(nth);
        Probe { sends: vec![(to.clone(), payment.record())], key: payment.account() }
    });
    let feed = Feed::start(topic.open().await?, Arriving { topic: topic.clone(), next: 0 }, rate).await?;
    tokio::time::sleep(Duration::from_secs_f64(options.seconds * WARM_UP)).await;

    let (used_before, began) = (process.used(), Instant::now());
    let (arrived, counted) = (feed.appended(), http.counted().await?);
    let stretches = prober.stretches(options.probes, Stretches { seconds: options.seconds, repeats: options.repeats }).await?;
    let seconds = began.elapsed().as_secs_f64();
    let (arrived, counted) = (feed.appended() - arrived, http.counted().await?.saturating_sub(counted));
    let used = process.used().since(used_before);

    let appended = feed.stop().await?;
    check(&http, &project, programs, process, &Payments { records: appended, ..payments }, prober.sent()).await?;
    topic.delete().await?;
    let per_second = |events: u64| events as f64 / seconds;
    let (arrived_per_second, counted_per_second) = (per_second(arrived), per_second(counted));
    Ok(Outcome { source: source.clone(), rate, stretches, arrived_per_second, counted_per_second, used, seconds })
}
