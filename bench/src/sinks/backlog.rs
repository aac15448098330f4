//! How long the records of a backlog take, from the start of the process to the last one.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Instant;

use types::Result;

use super::project::SinkProject;
use super::reading::Reader;
use super::sending::Sent;
use super::tail::{Origin, Tail};
use crate::Programs;
use crate::child::Used;
use crate::measured_process::MeasuredProcess;

/// What was measured of a backlog.
pub(super) struct Backlog {
    pub(super) events: u64,
    pub(super) per_second: f64,
    pub(super) used: Used,
    pub(super) seconds: f64,
}

/// From the start of the process, with these environment variables, to the last record.
pub(super) async fn read_backlog(programs: &Programs, folder: &Path, site: &SinkProject, variables: &[(&str, &OsStr)]) -> Result<Backlog> {
    let began = Instant::now();
    let process = MeasuredProcess::up_with(programs, &site.project.config(), folder, &site.project.http, variables).await?;
    let mut reader = Reader::new(Tail::begin(&site.records, Origin::Header).await?, Sent::default());
    reader.read_until(site.topic.payments.truth().events).await?;
    let (seconds, used) = (began.elapsed().as_secs_f64(), process.used());
    process.stop().await?;
    reader.check()?;
    Ok(Backlog { events: site.topic.payments.records, per_second: reader.records() as f64 / seconds, used, seconds })
}
