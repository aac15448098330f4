//! Reads a backlog on Kafka, and has Flink SQL read the same one: own aggregates by OVER windows, a verdict, and one
//! record for each event in another topic.

use std::path::Path;
use std::time::Duration;

use event_log::TopicPartition;
use serde_json::json;
use types::{Error, Result};

use super::Options;
use super::backlog::{Backlog, read_backlog};
use super::definitions::joined_as_in_flink;
use super::project::project_over;
use crate::Programs;
use crate::child::Used;
use crate::flink::{Flink, Reported};
use crate::payments::{Payments, Source, Topic};

const SOURCE: &str = "kafka";
const TIMEOUT: Duration = Duration::from_secs(900);
const AT_ONCE: usize = 20_000;

/// What each of the two measured, in turns; or why it was left out.
pub(super) enum Beside {
    Measured { own: Vec<Backlog>, flink: Vec<Backlog> },
    LeftOut(&'static str),
}

impl Beside {
    /// `None` if nothing was measured.
    pub(super) fn of_flink(&self) -> Option<&[Backlog]> {
        match self {
            Beside::Measured { flink, .. } => Some(flink),
            Beside::LeftOut(_) => None,
        }
    }
}

/// Checks that each has one record for every event; Flink, which drops no duplicates, for every record.
pub(super) async fn beside(options: &Options, programs: &Programs, folder: &Path) -> Result<Beside> {
    let Some(flink) = Flink::installed() else {
        return Ok(Beside::LeftOut("Flink is not installed (bench/peers/setup)"));
    };
    let Some(source) = Source::named(SOURCE)? else {
        return Ok(Beside::LeftOut("Kafka is not running (tests/services/up)"));
    };
    let topic = source.fill(folder, Payments { records: options.peer_events, accounts: options.keys }).await?;
    let (mut own, mut of_flink) = (Vec::new(), Vec::new());
    for turn in 0..options.repeats.max(1) {
        own.push(own_backlog(programs, folder, &topic, turn).await?);
        of_flink.push(backlog_of_flink(&flink, folder, &topic, turn).await?);
    }
    topic.delete().await?;
    Ok(Beside::Measured { own, flink: of_flink })
}

async fn own_backlog(programs: &Programs, folder: &Path, topic: &Topic, turn: usize) -> Result<Backlog> {
    let folder = folder.join("own");
    let records = records_of(topic, &format!("own-{turn}"));
    let project = project_over(&folder, topic, &records.name, &joined_as_in_flink()).await?;
    let backlog = read_backlog(programs, &folder, &project, topic, &records.name).await?;
    std::fs::remove_dir_all(&folder)?;
    records.delete().await?;
    Ok(backlog)
}

async fn backlog_of_flink(flink: &Flink, folder: &Path, topic: &Topic, turn: usize) -> Result<Backlog> {
    let folder = folder.join("flink");
    let records = records_of(topic, &format!("flink-{turn}"));
    records.open().await?.create_topic(&records.name, crate::payments::PARTITIONS).await?;
    let job = json!({ "kind": "decide", "into": &records.name });
    let Reported { seconds, processor_s, peak_bytes } = flink.run(&folder, topic, &job, TIMEOUT)?;
    let (found, expected) = (count(&records).await?, topic.payments.records);
    if found != expected {
        return Err(Error::internal("Flink put out another number of records").with("found", found).with("expected", expected));
    }
    std::fs::remove_dir_all(&folder)?;
    records.delete().await?;
    let used = Used { processor_s, peak_bytes: peak_bytes as u64, ..Used::default() };
    Ok(Backlog { events: expected, per_second: found as f64 / seconds, used, seconds })
}

/// The topic of the records.
fn records_of(topic: &Topic, whose: &str) -> Topic {
    Topic { name: format!("{}-{whose}", topic.name), ..topic.clone() }
}

async fn count(topic: &Topic) -> Result<u64> {
    let (log, mut found) = (topic.open().await?, 0);
    for bounds in log.bounds(&topic.name).await? {
        let source = TopicPartition { topic: topic.name.as_str().into(), partition: bounds.partition };
        let mut position = bounds.begin;
        while position < bounds.end {
            let fetched = log.read(&source, position, AT_ONCE).await?;
            found += fetched.records.len() as u64;
            position = fetched.position;
        }
    }
    Ok(found)
}
