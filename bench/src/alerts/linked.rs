//! Measures an alert over a linked view: how soon after the event that completes a ring its record can be read, and
//! what the alert costs.

use std::path::Path;
use std::time::{Duration, Instant};

use types::Result;

use super::Options;
use super::cost::{Cost, cost};
use super::reading::Reader;
use super::rings::{RING_TOPIC, Rings, definitions};
use super::waiting::{counted, until};
use crate::Programs;
use crate::feed::Feed;
use crate::latencies::Latencies;
use crate::measured_process::MeasuredProcess;
use crate::payments::Project;

/// How long rings are completed before the measurement starts, as a share of it.
const WARM_UP: f64 = 0.2;
const DEVICES: &str = "SELECT count(*) AS found FROM device_links";
const IN_RINGS: &str = "SELECT count(*) AS found FROM device_links WHERE linked_devices_7d >= 3";

/// What happened to the rings, and the costs without the alert and with it.
pub(super) struct LinkedAlert {
    pub(super) latencies: Latencies,
    pub(super) arrived_per_second: f64,
    pub(super) costs: [Cost; 2],
}

/// Checks that each ring, and nothing else, has one record.
pub(super) async fn linked(options: &Options, programs: &Programs, folder: &Path) -> Result<LinkedAlert> {
    let (without, ..) = measure(options, programs, folder, false).await?;
    std::fs::remove_dir_all(folder)?;
    let (with, latencies, arrived_per_second) = measure(options, programs, folder, true).await?;
    std::fs::remove_dir_all(folder)?;
    Ok(LinkedAlert { latencies, arrived_per_second, costs: [without, with] })
}

async fn measure(options: &Options, programs: &Programs, folder: &Path, has_alert: bool) -> Result<(Cost, Latencies, f64)> {
    let rings = Rings::new(options.ring_nodes)?;
    let topic = rings.create_topics(&folder.join("log")).await?;
    let project = Project::of_present(folder, &topic, &definitions(has_alert)).await?;
    let process = MeasuredProcess::up(programs, &project.config(), folder, &project.http).await?;
    counted(programs, &project, DEVICES, rings.users()).await?;
    let feed = Feed::start(topic.open().await?, rings.arriving(), options.ring_rate).await?;
    let reader = match has_alert {
        true => {
            let known = rings.clone();
            Some(Reader::start(topic.open().await?, RING_TOPIC, move |record, at| known.take(record, at)))
        }
        false => None,
    };
    let have_begun = || !has_alert || rings.all_have_begun();

    rings.complete(options.rings);
    tokio::time::sleep(Duration::from_secs_f64(options.seconds * WARM_UP)).await;
    rings.complete(0);
    until("every ring has a record", have_begun).await?;
    rings.take_latencies()?;

    let (began, appended) = (Instant::now(), feed.appended());
    rings.complete(options.rings);
    let cost = cost(&process, options.seconds, has_alert).await;
    rings.complete(0);
    let arrived_per_second = (feed.appended() - appended) as f64 / began.elapsed().as_secs_f64();
    until("every ring has a record", have_begun).await?;
    let latencies = rings.take_latencies()?;

    feed.stop().await?;
    // What the view says, without the alert.
    counted(programs, &project, IN_RINGS, rings.completed()).await?;
    process.stop().await?;
    if let Some(reader) = reader {
        reader.stop().await?;
        rings.check()?;
    }
    Ok((cost, latencies, arrived_per_second))
}
