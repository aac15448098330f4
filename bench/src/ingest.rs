//! Measures events per second through the speed layer: from a filled topic to committed checkpoints, by the real binary
//! in its own process.

use std::path::Path;
use std::time::Duration;

use types::{Error, Result};

use crate::Programs;
use crate::flink::Flink;
use crate::machine::Context;
use crate::payments::{Kept, MOST_AGGREGATES, MOST_EVENTS, Payments, Project, Source, Topic};
use crate::report::Report;

pub(crate) mod answer;
mod flink;
pub(crate) mod speed;
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
    /// Numbers of events, read from the first source, that show whether ingest is linear and its memory bounded. Empty:
    /// not measured.
    pub sizes: Vec<u64>,
    /// The time limit of one process.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            events: 2_000_000,
            keys: vec![100_000, 10_000_000],
            aggregates: vec![1, 5, 20],
            sources: vec!["embedded".into(), "kafka".into()],
            repeats: 3,
            sizes: vec![1_000_000, 2_000_000, 4_000_000],
            timeout: Duration::from_secs(600),
        }
    }
}

/// The aim: events per second with five aggregates and 100 thousand keys.
const AIM_PER_SECOND: f64 = 700_000.0;
const AIM_AGGREGATES: usize = 5;
const AIM_KEYS: u64 = 100_000;

/// Streams that declare only what the view reads, as a Flink job does: with and without the raw records.
const LESS: [Kept; 2] = [Kept { all_columns: false, raw: true }, Kept { all_columns: false, raw: false }];

/// A contender that reads a topic.
#[derive(Debug, Clone)]
enum Contender {
    Speed(Kept),
    /// Reads from Kafka, with five aggregates.
    Flink(Flink),
}

/// The measurements of one contender on one topic.
#[derive(Debug)]
struct Outcome {
    contender: Contender,
    source: Source,
    payments: Payments,
    aggregates: usize,
    measured: Vec<Measured>,
    /// Why it was given up.
    failure: Option<Error>,
}

/// What all contenders share.
struct Site<'a> {
    programs: &'a Programs,
    folder: &'a Path,
    repeats: usize,
    timeout: Duration,
}

/// Runs the benchmark and compares every answer with the truth. The data goes to `folder`.
pub async fn run(options: &Options, programs: &Programs, folder: &Path, command: &str) -> Result<Report> {
    check(options)?;
    let mut context = Context::begin(command, programs);
    let site = Site { programs, folder, repeats: options.repeats.max(1), timeout: options.timeout };
    let flink = Flink::installed();
    let (mut outcomes, mut sized, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    for name in &options.sources {
        let Some(source) = Source::named(name)? else {
            left_out.push(format!("{name} was left out: its services are not running (tests/services/up)"));
            continue;
        };
        let is_kafka = matches!(source, Source::Kafka(_));
        if is_kafka && flink.is_none() {
            left_out.push("Flink was left out: it is not installed (bench/peers/setup)".to_owned());
        }
        let of_speed = options.aggregates.iter().map(|aggregates| (Contender::Speed(Kept::EVERYTHING), *aggregates));
        let less = if options.aggregates.contains(&AIM_AGGREGATES) { &LESS[..] } else { &[] };
        let of_less = less.iter().map(|kept| (Contender::Speed(*kept), AIM_AGGREGATES));
        let peer = flink.clone().filter(|_| is_kafka).map(|flink| (Contender::Flink(flink), AIM_AGGREGATES));
        let contenders: Vec<(Contender, usize)> = of_speed.chain(of_less).chain(peer).collect();
        for keys in &options.keys {
            let payments = Payments { records: options.events, accounts: *keys };
            outcomes.extend(of_topic(&site, &source, payments, &contenders).await?);
        }
        let sizes = options.keys.iter().flat_map(|keys| options.sizes.iter().map(|size| (*size, *keys)));
        for (records, accounts) in sizes.filter(|_| Some(name) == options.sources.first()) {
            let payments = Payments { records, accounts };
            sized.extend(of_topic(&site, &source, payments, &[(Contender::Speed(Kept::EVERYTHING), AIM_AGGREGATES)]).await?);
        }
    }
    if outcomes.iter().any(|outcome| matches!(outcome.contender, Contender::Flink(_))) {
        context.versions.insert("flink".into(), Flink::version().into());
    }
    let mut tables = vec![table::build(options, &outcomes, left_out)];
    tables.extend(table::sizes(&sized));
    let question =
        "How many events per second become committed checkpoints (decoded, deduplicated, archived as Parquet and kept as states)?"
            .to_owned();
    Ok(Report { benchmark: "ingest".into(), question, context: context.end(), tables })
}

fn check(options: &Options) -> Result<()> {
    if let Some(most) = options.sizes.iter().chain([&options.events]).max().filter(|most| **most > MOST_EVENTS) {
        return Err(Error::input("the events do not fit into the view's window").with("found", most).with("at most", MOST_EVENTS));
    }
    if let Some(found) = options.aggregates.iter().find(|found| !(1..=MOST_AGGREGATES).contains(*found)) {
        return Err(Error::input("this number of aggregates is not supported")
            .with("found", found)
            .with("expected", format!("1 to {MOST_AGGREGATES}")));
    }
    if options.keys.is_empty() {
        return Err(Error::input("ingest needs the number of keys").with("option", "--keys"));
    }
    Ok(())
}

/// Fills a topic and has each contender read it repeatedly, in turns. A peer that fails once is not run again.
async fn of_topic(site: &Site<'_>, source: &Source, payments: Payments, contenders: &[(Contender, usize)]) -> Result<Vec<Outcome>> {
    let log = site.folder.join("log");
    let topic = source.fill(&log, payments).await?;
    let outcome = |(contender, aggregates): &(Contender, usize)| Outcome {
        contender: contender.clone(),
        source: source.clone(),
        payments,
        aggregates: *aggregates,
        measured: Vec::new(),
        failure: None,
    };
    let mut outcomes: Vec<Outcome> = contenders.iter().map(outcome).collect();
    for repeat in 1..=site.repeats {
        for outcome in outcomes.iter_mut().filter(|outcome| outcome.failure.is_none()) {
            one(site, &topic, outcome, repeat == 1).await?;
        }
    }
    topic.delete().await?;
    if log.exists() {
        std::fs::remove_dir_all(&log)?;
    }
    Ok(outcomes)
}

async fn one(site: &Site<'_>, topic: &Topic, outcome: &mut Outcome, is_first: bool) -> Result<()> {
    let folder = site.folder.join("project");
    match &outcome.contender {
        Contender::Speed(kept) => {
            let project = Project::create(&folder, topic, outcome.aggregates, *kept).await?;
            outcome.measured.push(speed::measure(site.programs, &project, topic, site.timeout).await?);
            answer::check(site.programs, &project, topic, outcome.aggregates).await?;
        }
        Contender::Flink(flink) => {
            let sums = if is_first { flink::sums(flink, &folder, topic, site.timeout).map(Some) } else { Ok(None) };
            if let Ok(Some(sums)) = &sums {
                sums.check(topic)?;
            }
            match sums.and_then(|_| flink::measure(flink, &folder, topic, site.timeout)) {
                Ok(measured) => outcome.measured.push(measured),
                Err(error) => {
                    eprintln!("Flink: {error}");
                    outcome.failure = Some(error);
                }
            }
        }
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
