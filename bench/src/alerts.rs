//! Measures an alert on silence: how soon after a device has been silent for long enough the record can be read, while
//! other devices go on reporting, and after a SIGKILL; and what the alert costs in memory and processor time.
//! One `basestream up` does all the work.

use std::path::Path;
use std::time::{Duration, Instant};

use types::{Error, Result};

use crate::Programs;
use crate::child::{self, Used};
use crate::feed::Feed;
use crate::latencies::Latencies;
use crate::machine::Context;
use crate::measured_process::MeasuredProcess;
use crate::payments::{Project, Topic};
use crate::report::Report;

mod fleet;
mod reading;
mod table;

use fleet::{Fleet, definitions};
use reading::Reader;

#[derive(Debug, Clone)]
pub struct Options {
    /// All devices. The ones that do not report while it is measured have been silent for long.
    pub keys: u64,
    /// Events per second, each of which resets a device's timer.
    pub rate: u64,
    /// After how many seconds a device is silent.
    pub silence: u64,
    /// Devices per second that fall silent.
    pub falling: u64,
    /// How long devices fall silent while it is measured.
    pub seconds: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { keys: 1_000_000, rate: 20_000, silence: 30, falling: 50, seconds: 60.0 }
    }
}

/// The aim: the highest p99 in milliseconds.
const AIM_MS: f64 = 1_000.0;
/// The share of the silence after which a device reports again.
const REPORTS_AFTER: f64 = 0.7;
/// The longest time to wait for something that has to happen.
const STALLED: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(20);

/// What happened while devices fell silent.
struct Stretch {
    what: &'static str,
    latencies: Latencies,
    arrived_per_second: f64,
    /// Without the time of a process that was killed.
    busy: Option<f64>,
}

/// What the process takes once all devices are known and those that do not report are silent.
struct Cost {
    has_alert: bool,
    own_bytes: u64,
    busy: f64,
}

/// Runs the benchmark, and checks that every device that fell silent, and no other, has one record of it. The
/// installations go to `folder`, one at a time.
pub async fn run(options: &Options, programs: &Programs, folder: &Path, command: &str) -> Result<Report> {
    let context = Context::begin(command, programs);
    let of_run = folder.join("project");
    let mut costs = vec![without_alert(options, programs, &of_run).await?];
    std::fs::remove_dir_all(&of_run)?;
    let (cost, stretches) = with_alert(options, programs, &of_run).await?;
    costs.push(cost);
    let question = "How soon after a device has been silent for long enough is that readable, and what does it cost?".to_owned();
    let tables = vec![table::latencies(options, &stretches), table::costs(options, &costs)];
    Ok(Report { benchmark: "alerts".into(), question, context: context.end(), tables })
}

async fn without_alert(options: &Options, programs: &Programs, folder: &Path) -> Result<Cost> {
    let fleet = Fleet::new(options);
    let (topic, project) = project(options, folder, &fleet, false).await?;
    let process = MeasuredProcess::up(programs, &project.config(), folder, &project.http).await?;
    let feed = Feed::start(topic.open().await?, fleet.reporting(&topic), options.rate).await?;
    counted(programs, &project, options.keys).await?;
    let cost = cost(&process, options, false).await;
    feed.stop().await?;
    process.stop().await?;
    Ok(cost)
}

async fn with_alert(options: &Options, programs: &Programs, folder: &Path) -> Result<(Cost, Vec<Stretch>)> {
    let fleet = Fleet::new(options);
    let (topic, project) = project(options, folder, &fleet, true).await?;
    let mut process = MeasuredProcess::up(programs, &project.config(), folder, &project.http).await?;
    let feed = Feed::start(topic.open().await?, fleet.reporting(&topic), options.rate).await?;
    let reader = Reader::start(topic.open().await?, fleet.clone());
    until("the devices that do not report are silent", || fleet.idle_have_begun()).await?;
    let cost = cost(&process, options, true).await;

    let mut stretches = Vec::new();
    let (used, began, appended) = (process.used(), Instant::now(), feed.appended());
    fleet.fall(options.falling);
    tokio::time::sleep(Duration::from_secs_f64(options.seconds)).await;
    fleet.fall(0);
    until("every device that fell silent has a record", || fleet.fallen_have_begun()).await?;
    let seconds = began.elapsed().as_secs_f64();
    let busy = Some(process.used().since(used).processor_s / seconds);
    let arrived_per_second = (feed.appended() - appended) as f64 / seconds;
    stretches.push(Stretch { what: "while others report", latencies: fleet.take_latencies()?, arrived_per_second, busy });

    let (began, appended) = (Instant::now(), feed.appended());
    fleet.fall(options.falling);
    tokio::time::sleep(Duration::from_secs_f64(options.seconds / 2.0)).await;
    // Dropping it is a SIGKILL.
    drop(process);
    process = MeasuredProcess::up(programs, &project.config(), folder, &project.http).await?;
    tokio::time::sleep(Duration::from_secs_f64(options.seconds / 2.0)).await;
    fleet.fall(0);
    until("every device that fell silent has a record", || fleet.fallen_have_begun()).await?;
    let arrived_per_second = (feed.appended() - appended) as f64 / began.elapsed().as_secs_f64();
    stretches.push(Stretch { what: "with a SIGKILL in the middle", latencies: fleet.take_latencies()?, arrived_per_second, busy: None });

    feed.stop().await?;
    process.stop().await?;
    reader.stop().await?;
    fleet.check()?;
    Ok((cost, stretches))
}

/// The memory at the end of a stretch, and the processors busy in it.
async fn cost(process: &MeasuredProcess, options: &Options, has_alert: bool) -> Cost {
    let (before, began): (Used, _) = (process.used(), Instant::now());
    tokio::time::sleep(Duration::from_secs_f64(options.seconds / 2.0)).await;
    let used = child::used_by(process.id()).unwrap_or_default();
    Cost { has_alert, own_bytes: used.own_peak_bytes, busy: used.since(before).processor_s / began.elapsed().as_secs_f64() }
}

/// Waits until a query counts the first event of every device.
async fn counted(programs: &Programs, project: &Project, keys: u64) -> Result<()> {
    let began = Instant::now();
    while project.query(programs, "SELECT count(*) AS devices FROM device_health")?["devices"].as_u64() != Some(keys) {
        stalled(began, "every device has an event that counts")?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

async fn until(what: &str, is_so: impl Fn() -> bool) -> Result<()> {
    let began = Instant::now();
    while !is_so() {
        stalled(began, what)?;
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

fn stalled(began: Instant, what: &str) -> Result<()> {
    match began.elapsed() > STALLED {
        true => Err(Error::unavailable(format!("it did not happen within {} s: {what}", STALLED.as_secs()))),
        false => Ok(()),
    }
}

/// A project over a topic in which each device has one event.
async fn project(options: &Options, folder: &Path, fleet: &Fleet, has_alert: bool) -> Result<(Topic, Project)> {
    let topic = fleet.create_topic(&folder.join("log")).await?;
    let project = Project::of_present(folder, &topic, &definitions(&topic.name, options, has_alert)).await?;
    Ok((topic, project))
}
