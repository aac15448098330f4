//! How long the records of a backlog take, from the start of the process to the last one.

use std::path::Path;
use std::time::Instant;

use types::Result;

use super::reading::Reader;
use super::sending::Sent;
use crate::Programs;
use crate::child::Used;
use crate::measured_process::MeasuredProcess;
use crate::payments::{Project, Topic};

/// What was measured of a backlog.
pub(super) struct Backlog {
    pub(super) events: u64,
    pub(super) per_second: f64,
    pub(super) used: Used,
    pub(super) seconds: f64,
}

/// From the start of the process to the last record.
pub(super) async fn read_backlog(
    programs: &Programs,
    folder: &Path,
    project: &Project,
    topic: &Topic,
    sink_topic: &str,
) -> Result<Backlog> {
    let began = Instant::now();
    let process = MeasuredProcess::up(programs, &project.config(), folder, &project.http).await?;
    let mut reader = Reader::new(topic.open().await?, sink_topic, Sent::default());
    reader.read_until(topic.payments.truth().events).await?;
    let (seconds, used) = (began.elapsed().as_secs_f64(), process.used());
    process.stop().await?;
    reader.check()?;
    Ok(Backlog { events: topic.payments.records, per_second: reader.records() as f64 / seconds, used, seconds })
}
