//! Measures what a hot key and a batch run cost everybody else: `/healthz` and the lookups of another key, while clients
//! ask a key of a million events, while its events arrive, and while batch runs in the same process.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use types::{Error, Result};

use crate::Programs;
use crate::asking::Http;
use crate::feed::Feed;
use crate::installed::Installed;
use crate::latencies::Latencies;
use crate::layer::Layer;
use crate::machine::Context;
use crate::report::Report;

mod table;
mod visits;

use visits::{Arriving, HOT, VIEW, Visits, other};

#[derive(Debug, Clone)]
pub struct Options {
    /// Events of the hot key, each of another visitor.
    pub hot_events: u64,
    /// Events of all other keys, and how many keys they are of.
    pub other_events: u64,
    pub keys: u64,
    /// Numbers of clients that ask the hot key, one after the other.
    pub clients: Vec<usize>,
    /// Events per second that arrive for the hot key, in the measurement with arriving events.
    pub rate: u64,
    /// How long each stretch of measuring lasts, and how many there are.
    pub seconds: f64,
    pub repeats: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            hot_events: 2_500_000,
            other_events: 2_500_000,
            keys: 100_000,
            clients: vec![2, 4, 16],
            rate: 1_000,
            seconds: 5.0,
            repeats: 3,
        }
    }
}

/// The aims, in milliseconds and as a ratio.
const HEALTH_P99_MS: f64 = 5.0;
const HOT_P50_MS: f64 = 5.0;
const RUN_TO_IDLE: f64 = 5.0;

/// Between two questions of those that are measured for what others cost them.
const PACE: Duration = Duration::from_millis(2);
/// Between two looks whether a run has ended.
const LOOK: Duration = Duration::from_millis(200);

/// What goes on meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meanwhile {
    Nothing,
    /// The hot key is asked by this many clients.
    Hot(usize),
    /// The same, while its events arrive.
    HotAndArriving(usize),
    /// Batch runs, one after the other, in the process that answers.
    Runs,
}

/// What was measured in one situation.
struct Outcome {
    meanwhile: Meanwhile,
    health: Vec<Latencies>,
    other: Vec<Latencies>,
    /// Empty in the situations without clients of the hot key.
    hot: Vec<Latencies>,
    runs: u64,
}

/// Runs the benchmark, and checks the hot key's answers. The installation goes to `folder`.
pub async fn run(options: &Options, programs: &Programs, folder: &Path, command: &str) -> Result<Report> {
    let context = Context::begin(command, programs);
    let visits = Visits { hot: options.hot_events, others: options.other_events, keys: options.keys };
    let installed = Installed::create(&folder.join("project"), &visits).await?;
    installed.archive(&visits).await?;
    installed.installation.run_view(VIEW, &|_| {}).await?;
    let up = Layer::up(programs, &installed.config(), &installed.folder, &installed.http).await?;

    let first = first_answer(&installed.http, options.hot_events)?;
    let most = options.clients.iter().copied().max().unwrap_or(1);
    let hot = options.clients.iter().map(|clients| Meanwhile::Hot(*clients));
    let situations = [Meanwhile::Nothing].into_iter().chain(hot).chain([Meanwhile::HotAndArriving(most), Meanwhile::Runs]);
    let mut outcomes = Vec::new();
    for meanwhile in situations {
        outcomes.push(measure(options, &installed, meanwhile).await?);
    }
    up.stop().await?;
    let question = "What do a hot key and a batch run cost everybody else?".to_owned();
    let tables = vec![table::build(options, &outcomes, first), table::aims(&outcomes)];
    Ok(Report { benchmark: "hot".into(), question, context: context.end(), tables })
}

fn row_of(key: &str) -> String {
    format!("/v1/views/{VIEW}/row?shop_id={key}")
}

/// How long the hot key's first answer takes, which merges all of its visitors.
fn first_answer(address: &str, expected: u64) -> Result<Duration> {
    let began = Instant::now();
    let row = asked(&mut Http::connect(address)?, HOT)?;
    let took = began.elapsed();
    let visitors = row["visitors"].as_u64();
    match visitors == Some(expected) {
        true => Ok(took),
        false => Err(Error::internal("the hot key is counted otherwise").with("found", &row).with("expected", expected)),
    }
}

fn asked(http: &mut Http, key: &str) -> Result<Value> {
    let answer: Value = serde_json::from_slice(http.get(&row_of(key))?).map_err(|error| Error::internal(error.to_string()))?;
    Ok(answer["row"].clone())
}

async fn measure(options: &Options, installed: &Installed, meanwhile: Meanwhile) -> Result<Outcome> {
    let (clients, rate) = match meanwhile {
        Meanwhile::Hot(clients) => (clients, 0),
        Meanwhile::HotAndArriving(clients) => (clients, options.rate),
        Meanwhile::Nothing | Meanwhile::Runs => (0, 0),
    };
    let feed = match rate {
        0 => None,
        _ => Some(Feed::start(installed.installation.log.clone(), Arriving { next: 0 }, rate).await?),
    };
    let runs = (meanwhile == Meanwhile::Runs).then(|| Runs::start(&installed.http));
    let hot = (0..clients).map(|_| Asking { address: installed.http.clone(), paths: vec![row_of(HOT)], pace: Duration::ZERO });
    let others = (0..options.keys.min(1_000)).map(|nth| row_of(&other(nth * options.keys / options.keys.clamp(1, 1_000)))).collect();
    let others = Asking { address: installed.http.clone(), paths: others, pace: PACE };
    let health = Asking { address: installed.http.clone(), paths: vec!["/healthz".into()], pace: PACE };
    let mut asking = vec![health, others];
    asking.extend(hot);
    let (seconds, repeats) = (options.seconds, options.repeats);
    let measured = tokio::task::spawn_blocking(move || ask_all(asking, seconds, repeats)).await??;
    let runs = runs.map_or(Ok(0), Runs::finish)?;
    if let Some(feed) = feed {
        feed.stop().await?;
    }
    let mut measured = measured.into_iter();
    let (health, other) = (measured.next().unwrap_or_default(), measured.next().unwrap_or_default());
    let mut hot = measured.next().unwrap_or_default();
    for of_client in measured {
        for (together, one) in hot.iter_mut().zip(&of_client) {
            together.add_all(one)?;
        }
    }
    Ok(Outcome { meanwhile, health, other, hot, runs })
}

/// One client that asks these paths in turns, and waits this long after each answer.
struct Asking {
    address: String,
    paths: Vec<String>,
    pace: Duration,
}

/// What each client measured, in stretches that begin and end together.
fn ask_all(asking: Vec<Asking>, seconds: f64, repeats: usize) -> Result<Vec<Vec<Latencies>>> {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let clients: Vec<_> = asking.iter().map(|asking| scope.spawn(move || asking.stretches(began, seconds, repeats))).collect();
        clients.into_iter().map(|client| client.join().unwrap_or_else(|_| Err(Error::internal("a client panicked")))).collect()
    })
}

impl Asking {
    fn stretches(&self, began: Instant, seconds: f64, repeats: usize) -> Result<Vec<Latencies>> {
        let mut http = Http::connect(&self.address)?;
        let mut paths = self.paths.iter().cycle();
        let mut measured = Vec::new();
        for stretch in 0..repeats.max(1) {
            let until = began + Duration::from_secs_f64(seconds * (stretch + 1) as f64);
            let mut latencies = Latencies::begin()?;
            loop {
                let asked = Instant::now();
                http.get(paths.next().map_or("/healthz", String::as_str))?;
                latencies.add(asked.elapsed());
                if Instant::now() >= until {
                    break;
                }
                std::thread::sleep(self.pace);
            }
            measured.push(latencies);
        }
        Ok(measured)
    }
}

/// Asks for one batch run after the other.
struct Runs {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Result<u64>>,
}

impl Runs {
    fn start(address: &str) -> Runs {
        let (stop, address) = (Arc::new(AtomicBool::new(false)), address.to_owned());
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut http = Http::connect(&address)?;
            let mut last = String::new();
            let mut runs = 0;
            while !stopped.load(Ordering::Relaxed) {
                // A run that waits already is answered again: each new name is a run more.
                let asked: Value = serde_json::from_slice(http.post(&format!("/v1/views/{VIEW}/runs"), "")?)
                    .map_err(|error| Error::internal(error.to_string()))?;
                let run = asked["run"].to_string();
                if run != last {
                    (last, runs) = (run, runs + 1);
                }
                std::thread::sleep(LOOK);
            }
            Ok(runs)
        });
        Runs { stop, thread }
    }

    /// Stops, and returns how many runs were asked for.
    fn finish(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| Err(Error::internal("what asks for runs panicked")))
    }
}
