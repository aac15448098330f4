//! Measures what a hot key costs everybody else: `/healthz` and the lookups of another key, while clients ask a key of
//! a million events, and while its events arrive. Measures what the cache of rows is worth to those who ask it, and how
//! fast the speed layer takes events of which half are of one key.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use types::{Error, Result};

use crate::Programs;
use crate::asking::{self, Getting, Http, Stretches};
use crate::events::mix;
use crate::feed::Feed;
use crate::installed::Installed;
use crate::latencies::Latencies;
use crate::machine::Context;
use crate::measured_process::MeasuredProcess;
use crate::report::Report;

mod backlog;
mod listed;
mod table;
mod visits;

use visits::{Arriving, HOT, VIEW, Visits, other, row_of};

#[derive(Debug, Clone)]
pub struct Options {
    /// Events of the hot key, each of another visitor.
    pub hot_events: u64,
    /// Events of all other keys, and how many keys they are of.
    pub other_events: u64,
    pub keys: u64,
    /// Numbers of clients that ask the hot key, one after the other.
    pub clients: Vec<usize>,
    /// Events per second that arrive, half of them of the hot key, in the measurements with arriving events.
    pub rate: u64,
    /// Events of a backlog that the speed layer takes, half of them of one key; 0: not measured.
    pub backlog: u64,
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
            clients: vec![2, 4, 16, 32],
            rate: 2_000,
            backlog: 5_000_000,
            seconds: 5.0,
            repeats: 3,
        }
    }
}

/// The aims, in milliseconds.
const HEALTH_P99_MS: f64 = 5.0;
const HOT_P50_MS: f64 = 5.0;

/// Between two questions of those that are measured for what others cost them.
const PACE: Duration = Duration::from_millis(2);

/// What goes on meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meanwhile {
    Nothing,
    /// The hot key is asked by this many clients.
    Hot(usize),
    /// The same, while its events arrive.
    HotAndArriving(usize),
}

/// What was measured in one situation.
struct Outcome {
    meanwhile: Meanwhile,
    health: Vec<Latencies>,
    other: Vec<Latencies>,
    /// Empty in the situations without clients of the hot key.
    hot: Vec<Latencies>,
}

/// Runs the benchmark, and checks the hot key's answers. The installation goes to `folder`.
pub async fn run(options: &Options, programs: &Programs, folder: &Path, command: &str) -> Result<Report> {
    let context = Context::begin(command, programs);
    let visits = Visits { hot: options.hot_events, others: options.other_events, keys: options.keys };
    let installed = Installed::create(&folder.join("project"), &visits).await?;
    installed.archive(&visits).await?;
    installed.installation.run_view(VIEW, &|_| {}).await?;
    let up = MeasuredProcess::up(programs, &installed.config(), &installed.folder, &installed.http).await?;
    let mut arriving = Arriving { next: 0, keys: options.keys };

    let first = first_answer(&installed.http, options.hot_events)?;
    let most = options.clients.iter().copied().max().unwrap_or(1);
    let hot = options.clients.iter().map(|clients| Meanwhile::Hot(*clients));
    let situations = [Meanwhile::Nothing].into_iter().chain(hot).chain([Meanwhile::HotAndArriving(most)]);
    let mut outcomes = Vec::new();
    for meanwhile in situations {
        outcomes.push(measure(options, &installed, (meanwhile, &mut arriving)).await?);
    }
    up.stop().await?;

    let without_cache: [(&str, &OsStr); 1] = [("BASESTREAM__SERVING__ROW_CACHE", OsStr::new("0"))];
    let up = MeasuredProcess::up_with(programs, &installed.config(), &installed.folder, &installed.http, &without_cache).await?;
    let mut uncached = Vec::new();
    for meanwhile in [Meanwhile::Hot(most), Meanwhile::HotAndArriving(most)] {
        uncached.push(measure(options, &installed, (meanwhile, &mut arriving)).await?);
    }
    up.stop().await?;
    let backlogs = backlog::measure(options, programs, folder).await?;
    let question = "What does a hot key cost everybody else?".to_owned();
    let mut tables = vec![table::build(options, &outcomes, first), table::aims(&outcomes), table::cache(&outcomes, &uncached)];
    tables.extend(table::backlogs(&backlogs));
    Ok(Report { benchmark: "hot".into(), question, context: context.end(), tables })
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

async fn measure(options: &Options, installed: &Installed, (meanwhile, arriving): (Meanwhile, &mut Arriving)) -> Result<Outcome> {
    let (clients, rate) = match meanwhile {
        Meanwhile::Hot(clients) => (clients, 0),
        Meanwhile::HotAndArriving(clients) => (clients, options.rate),
        Meanwhile::Nothing => (0, 0),
    };
    let feed = match rate {
        0 => None,
        _ => Some(Feed::start(installed.installation.log.clone(), arriving.clone(), rate).await?),
    };
    let (address, keys) = (&installed.http, options.keys.max(1));
    let health = vec![Getting::connect(address, PACE, |_| "/healthz".to_owned())?];
    let other = vec![Getting::connect(address, PACE, move |nth| row_of(&other(mix(23, nth) % keys)))?];
    let hot = (0..clients).map(|_| Getting::connect(address, Duration::ZERO, |_| row_of(HOT))).collect::<Result<Vec<_>>>()?;
    let stretches = Stretches { seconds: options.seconds, repeats: options.repeats };
    let (health, other, hot) =
        tokio::try_join!(asking::ask(stretches, health), asking::ask(stretches, other), asking::ask(stretches, hot))?;
    if let Some(feed) = feed {
        listed::check_half_of_events(address).await?;
        arriving.next += feed.stop().await?;
    }
    Ok(Outcome { meanwhile, health, other, hot })
}
