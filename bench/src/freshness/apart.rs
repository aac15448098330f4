//! Measures how soon an event counts on nodes apart from their worker: one `basestream speed` and several `basestream
//! serve`, each a process, while other events arrive; and what the nodes cost the worker.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use serde_json::Value;
use types::{Error, Result};

use super::counted::check;
use super::{AGGREGATES, PROBED, WARM_UP};
use crate::Programs;
use crate::asking::Stretches;
use crate::feed::Feed;
use crate::latencies::{self, Latencies};
use crate::machine::Context;
use crate::measured_process::MeasuredProcess;
use crate::payments::{Arriving, Kept, MOST_EVENTS, Payments, Project, STREAM, Source};
use crate::probe::{Http, Probe, Prober, Sink};
use crate::report::{Figure, Report, Table};
use crate::spread::Spread;

#[derive(Debug, Clone)]
pub struct Options {
    /// Events per second that arrive meanwhile.
    pub rates: Vec<u64>,
    pub keys: u64,
    /// Nodes that follow the worker.
    pub nodes: u64,
    /// How long each stretch of measuring lasts, and how many there are.
    pub seconds: f64,
    pub repeats: usize,
    /// Probes per second and node.
    pub probes: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { rates: vec![1_000, 20_000], keys: 100_000, nodes: 3, seconds: 20.0, repeats: 3, probes: 20.0 }
    }
}

/// The aim: the highest p99 in milliseconds, on each node.
const AIM_MS: f64 = 250.0;
const READY: Duration = Duration::from_secs(60);

/// What was measured at one rate.
struct Outcome {
    rate: u64,
    /// Of each node.
    nodes: Vec<Vec<Latencies>>,
    /// The share of a processor that the worker took: alone, and with its nodes.
    alone: f64,
    followed: f64,
}

struct Node {
    http: String,
    process: MeasuredProcess,
}

/// Runs the benchmark, and checks that every event is counted once at the end.
pub async fn run(options: &Options, programs: &Programs, folder: &Path, command: &str) -> Result<Report> {
    let context = Context::begin(command, programs);
    let mut outcomes = Vec::new();
    for rate in &options.rates {
        let of_rate = folder.join("project");
        outcomes.push(measure(options, programs, &of_rate, *rate).await?);
        std::fs::remove_dir_all(&of_rate)?;
    }
    let question = "How long after its acknowledgement do nodes apart from the worker count an event, and what do they cost it?".to_owned();
    let tables = vec![freshness(options, &outcomes), cost(options, &outcomes)];
    Ok(Report { benchmark: "freshness-apart".into(), question, context: context.end(), tables })
}

async fn measure(options: &Options, programs: &Programs, folder: &Path, rate: u64) -> Result<Outcome> {
    let payments = Payments { records: MOST_EVENTS / 2, accounts: options.keys };
    let topic = Source::Embedded.empty(&folder.join("log"), payments).await?;
    let project = Project::create(folder, &topic, AGGREGATES, Kept::EVERYTHING).await?;
    let offering = [("BASESTREAM__SPEED__FLIGHT", OsStr::new("127.0.0.1:0"))];
    let worker = MeasuredProcess::start_with(programs, "speed", &project.config(), folder, &offering)?;
    let feed = Feed::start(topic.open().await?, Arriving { topic: topic.clone(), next: 0 }, rate).await?;
    tokio::time::sleep(Duration::from_secs_f64(1.0 + options.seconds * WARM_UP)).await;
    let alone = busy(&worker, tokio::time::sleep(Duration::from_secs_f64(options.seconds))).await.1;

    let nodes = try_join_all((0..options.nodes).map(|number| node(programs, &project, folder, number))).await?;
    let mut probers = Vec::new();
    for (number, node) in nodes.iter().enumerate() {
        let (of, number) = (options.nodes, number as u64);
        let probe = move |nth: u64| {
            let payment = payments.probe(nth * of + number);
            Probe { sends: vec![(STREAM.to_owned(), payment.record())], key: payment.account() }
        };
        probers.push(Prober::new(Sink::Http, Http::new(&node.http, PROBED)?, probe));
    }
    let stretches = Stretches { seconds: options.seconds, repeats: options.repeats };
    let measuring = try_join_all(probers.iter_mut().map(|prober| prober.stretches(options.probes, stretches)));
    let (measured, followed) = busy(&worker, measuring).await;
    let measured = measured?;
    let probes = probers.iter().map(Prober::sent).sum();

    let appended = feed.stop().await?;
    let http = Http::new(&nodes[0].http, PROBED)?;
    check(&http, &project, programs, worker, &Payments { records: appended, ..payments }, probes).await?;
    for node in nodes {
        node.process.stop().await?;
    }
    topic.delete().await?;
    Ok(Outcome { rate, nodes: measured, alone, followed })
}

/// Starts a node that follows the worker.
async fn node(programs: &Programs, project: &Project, folder: &Path, number: u64) -> Result<Node> {
    let http = format!("127.0.0.1:{}", basestream_tests::process::free_port()?);
    let folder = folder.join(format!("node-{number}"));
    std::fs::create_dir_all(&folder)?;
    let process =
        MeasuredProcess::start_with(programs, "serve", &project.config(), &folder, &[("BASESTREAM__SERVING__HTTP", OsStr::new(&http))])?;
    let (began, ready) = (Instant::now(), format!("http://{http}/readyz"));
    while began.elapsed() < READY {
        if let Ok(answer) = reqwest::get(&ready).await
            && let Ok(state) = answer.json::<Value>().await
            && state["workers"].as_array().is_some_and(|workers| workers.iter().any(|worker| worker["followed"] == true))
        {
            return Ok(Node { http, process });
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Err(Error::unavailable("a node does not follow the worker").with("after s", READY.as_secs()))
}

/// Returns what some work gives, and the share of a processor that the worker took meanwhile.
async fn busy<T>(worker: &MeasuredProcess, work: impl Future<Output = T>) -> (T, f64) {
    let (before, began) = (worker.used(), Instant::now());
    let done = work.await;
    (done, worker.used().since(before).processor_s / began.elapsed().as_secs_f64())
}

fn freshness(options: &Options, outcomes: &[Outcome]) -> Table {
    let row = |(rate, number, stretches): (u64, usize, &Vec<Latencies>)| {
        let [probes, _, p50, p99, _, slowest] = latencies::figures(stretches);
        vec![
            Figure::text(format!("node {}", number + 1)),
            Figure::Count(rate),
            probes,
            p50,
            p99,
            latencies::aim(stretches, AIM_MS),
            slowest,
        ]
    };
    let of_nodes = |outcome: &Outcome| {
        let rate = outcome.rate;
        outcome.nodes.iter().enumerate().map(|(number, stretches)| row((rate, number, stretches))).collect::<Vec<_>>()
    };
    Table {
        title: "From acknowledged to counted, apart from the worker".into(),
        columns: ["asked", "events/s", "probes", "p50 ms", "p99 ms", "p99 aim ms", "slowest ms"].map(str::to_owned).to_vec(),
        rows: outcomes.iter().flat_map(of_nodes).collect(),
        notes: vec![
            format!("one `basestream speed`, {} `basestream serve`, each a process of one machine, on the embedded log", options.nodes),
            format!("{} events per second and node with a new key each; {} stretches of {} s", options.probes, options.repeats, options.seconds),
            "from the acknowledgement (HTTP 202) to the answer of the first lookup over HTTP that counts the event, on the node that took it".to_owned(),
            "checked at the end: every event is counted exactly once".to_owned(),
        ],
    }
}

fn cost(options: &Options, outcomes: &[Outcome]) -> Table {
    let row = |outcome: &Outcome| {
        let per_node = (outcome.followed - outcome.alone) / options.nodes.max(1) as f64;
        let ratio = |value: f64| Figure::ratio(Spread::from_values([value]));
        vec![Figure::Count(outcome.rate), ratio(outcome.alone), ratio(outcome.followed), ratio(per_node)]
    };
    Table {
        title: "What nodes cost their worker".into(),
        columns: ["events/s", "processors busy alone", "with its nodes", "more per node"].map(str::to_owned).to_vec(),
        rows: outcomes.iter().map(row).collect(),
        notes: vec![format!("of the process of the worker, alone and with {} nodes", options.nodes)],
    }
}
