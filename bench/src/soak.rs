//! Soaks one `basestream up`: events arrive at a constant rate while five views, one of them linked, run every minute.
//! What it uses and keeps is sampled, and fitted with a line after a warm-up: a process that may run for years is
//! level.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use types::{Error, Result};

use crate::Programs;
use crate::feed::Feed;
use crate::machine::Context;
use crate::measured_process::MeasuredProcess;
use crate::payments::{Arriving, Payments, Source};
use crate::report::Report;

mod plot;
mod sample;
mod site;
mod table;
mod trend;

use sample::{Samples, Watched};
use site::Site;

#[derive(Debug, Clone)]
pub struct Options {
    /// Events per second.
    pub rate: u64,
    pub keys: u64,
    pub minutes: f64,
    /// The first minutes, in which windows fill.
    pub warm_up_minutes: f64,
    /// Between two samples.
    pub sample_every: Duration,
    /// Where the plot goes, as SVG.
    pub plot: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self { rate: 20_000, keys: 100_000, minutes: 60.0, warm_up_minutes: 10.0, sample_every: Duration::from_secs(10), plot: None }
    }
}

/// The longest time until everything is counted after the last event.
const CATCH_UP: Duration = Duration::from_secs(300);

/// Runs the benchmark, and checks at the end that every event of the window is counted once. The installation goes to
/// `folder`.
pub async fn run(options: &Options, programs: &Programs, folder: &Path, command: &str) -> Result<Report> {
    if options.warm_up_minutes >= options.minutes {
        return Err(Error::input("the warm-up is not shorter than the soak").with("minutes", options.minutes));
    }
    let context = Context::begin(command, programs);
    let payments = Payments { records: u64::MAX, accounts: options.keys };
    let topic = Source::Embedded.empty(&folder.join("log"), payments).await?;
    let site = Site::create(folder, &topic).await?;
    let mut up = MeasuredProcess::up(programs, &site.config(), folder, &site.http).await?;
    let installation = site.open().await?;
    let feed = Feed::start(topic.open().await?, Arriving { topic: topic.clone(), next: 0 }, options.rate).await?;

    let (began, soak) = (Instant::now(), Duration::from_secs_f64(options.minutes * 60.0));
    let mut samples = Samples::default();
    while began.elapsed() < soak {
        tokio::time::sleep(options.sample_every).await;
        up.check()?;
        let watched = Watched { process: up.id(), folder, feed: &feed, installation: &installation };
        samples.take(began, watched).await?;
    }
    let appended = feed.stop().await?;
    let expected = site::expected(payments, appended);
    let began_to_wait = Instant::now();
    while site.counted().await? != expected {
        if began_to_wait.elapsed() > CATCH_UP {
            let found = site.counted().await?;
            return Err(Error::internal("the views count other events than arrived").with("found", found).with("expected", expected));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let used = up.stop().await?.used;
    let series = samples.series();
    if let Some(path) = &options.plot {
        plot::write(path, &series, options)?;
    }
    let question = "Is what one `up` uses and keeps level, while events arrive at a constant rate?".to_owned();
    let tables = vec![table::build(options, &series, appended, used)];
    Ok(Report { benchmark: "soak".into(), question, context: context.end(), tables })
}
