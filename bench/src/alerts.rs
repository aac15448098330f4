//! Measures an alert on silence: how soon after a device has been silent for long enough the record can be read, while
//! other devices go on reporting, and after a SIGKILL; an alert over a linked view: how soon after the event that
//! completes a ring; and what both cost in memory and processor time. One `basestream up` does all the work.

use std::path::Path;
use std::time::{Duration, Instant};

use types::Result;

use crate::Programs;
use crate::feed::Feed;
use crate::latencies::Latencies;
use crate::machine::Context;
use crate::measured_process::MeasuredProcess;
use crate::payments::{Project, Topic};
use crate::report::Report;

mod clock;
mod cost;
mod fleet;
mod linked;
mod reading;
mod rings;
mod table;
mod waiting;

use cost::{Cost, cost};
use fleet::{ALERT_TOPIC, Fleet, definitions};
use reading::Reader;
use waiting::{counted, until};

#[derive(Debug, Clone)]
pub struct Options {
    /// All devices. The ones that do not report while it is measured have been silent for long. 0: silence is not
    /// measured.
    pub keys: u64,
    /// Events per second, each of which resets a device's timer.
    pub rate: u64,
    /// After how many seconds a device is silent.
    pub silence: u64,
    /// Devices per second that fall silent.
    pub falling: u64,
    /// How long devices fall silent, and rings are completed, while it is measured.
    pub seconds: f64,
    /// Users of the graph that a linked view joins by their ids; 0: an alert over it is not measured.
    pub ring_nodes: u64,
    /// Events per second that arrive, and how many of them complete a ring.
    pub ring_rate: u64,
    pub rings: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { keys: 1_000_000, rate: 20_000, silence: 30, falling: 50, seconds: 60.0, ring_nodes: 100_000, ring_rate: 2_000, rings: 20 }
    }
}

/// The aim: the highest p99 in milliseconds.
const AIM_MS: f64 = 1_000.0;
/// The share of the silence after which a device reports again.
const REPORTS_AFTER: f64 = 0.7;

/// What happened while devices fell silent.
struct Stretch {
    what: &'static str,
    latencies: Latencies,
    arrived_per_second: f64,
    /// Without the time of a process that was killed.
    busy: Option<f64>,
}

/// Runs the benchmark, and checks that every device that fell silent or came into a ring, and no other, has one record
/// of it. The installations go to `folder`, one at a time.
pub async fn run(options: &Options, programs: &Programs, folder: &Path, command: &str) -> Result<Report> {
    let context = Context::begin(command, programs);
    let of_run = folder.join("project");
    let mut tables = Vec::new();
    if options.keys > 0 {
        let mut costs = vec![without_alert(options, programs, &of_run).await?];
        std::fs::remove_dir_all(&of_run)?;
        let (cost, stretches) = with_alert(options, programs, &of_run).await?;
        std::fs::remove_dir_all(&of_run)?;
        costs.push(cost);
        tables.extend([table::latencies(options, &stretches), table::costs(options, &costs)]);
    }
    if options.ring_nodes > 0 {
        let linked = linked::linked(options, programs, &of_run).await?;
        tables.extend([table::linked_latencies(options, &linked), table::linked_costs(options, &linked)]);
    }
    let question = "How soon after a device was silent for long enough, or came into a ring, is that readable, and what does it cost?";
    let question = question.to_owned();
    Ok(Report { benchmark: "alerts".into(), question, context: context.end(), tables })
}

async fn without_alert(options: &Options, programs: &Programs, folder: &Path) -> Result<Cost> {
    let fleet = Fleet::new(options);
    let (topic, project) = project(options, folder, &fleet, false).await?;
    let process = MeasuredProcess::up(programs, &project.config(), folder, &project.http).await?;
    let feed = Feed::start(topic.open().await?, fleet.reporting(&topic), options.rate).await?;
    counted(programs, &project, "SELECT count(*) AS found FROM device_health", options.keys).await?;
    let cost = cost(&process, options.seconds / 2.0, false).await;
    feed.stop().await?;
    process.stop().await?;
    Ok(cost)
}

async fn with_alert(options: &Options, programs: &Programs, folder: &Path) -> Result<(Cost, Vec<Stretch>)> {
    let fleet = Fleet::new(options);
    let (topic, project) = project(options, folder, &fleet, true).await?;
    let mut process = MeasuredProcess::up(programs, &project.config(), folder, &project.http).await?;
    let feed = Feed::start(topic.open().await?, fleet.reporting(&topic), options.rate).await?;
    let known = fleet.clone();
    let reader = Reader::start(topic.open().await?, ALERT_TOPIC, move |record, at| known.take(record, at));
    until("the devices that do not report are silent", || fleet.idle_have_begun()).await?;
    let cost = cost(&process, options.seconds / 2.0, true).await;

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

/// A project over a topic in which each device has one event.
async fn project(options: &Options, folder: &Path, fleet: &Fleet, has_alert: bool) -> Result<(Topic, Project)> {
    let topic = fleet.create_topic(&folder.join("log")).await?;
    let project = Project::of_present(folder, &topic, &definitions(&topic.name, options, has_alert)).await?;
    Ok((topic, project))
}
