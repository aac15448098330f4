//! Runs `basestream speed` once over a filled topic, from taking the first partition over to the last checkpoint.

use std::time::Duration;

use chrono::{DateTime, Utc};
use types::Result;

use crate::Programs;
use crate::child::Used;
use crate::measured_process::{Ended, Line, MeasuredProcess};
use crate::payments::{Project, Topic};

/// Messages in the speed layer's log.
const BEGUN: &str = "partitions taken over";
const COMMITTED: &str = "checkpoint committed";

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Measured {
    pub(crate) seconds: f64,
    pub(crate) events_per_second: f64,
    pub(crate) processor_s_per_million: f64,
    pub(crate) peak_bytes: f64,
    pub(crate) checkpoints: u64,
    /// The time of all checkpoints, each from its first file to the commit.
    pub(crate) checkpoints_s: f64,
}

pub(crate) async fn measure(programs: &Programs, project: &Project, topic: &Topic, limit: Duration) -> Result<Measured> {
    let mut process = MeasuredProcess::start(programs, "speed", &project.config(), &project.folder)?;
    let begun = process.wait_for(BEGUN, limit).await?;
    let quiet = process.wait_until_quiet(limit).await?;
    let ended = process.stop().await?;
    let committed = committed(&ended.lines);
    let seconds = worked(begun.timestamp, quiet, &ended, &committed);
    let Used { processor_s, peak_bytes, .. } = ended.used;
    let records = topic.payments.records as f64;
    Ok(Measured {
        seconds,
        events_per_second: records / seconds,
        processor_s_per_million: processor_s * 1e6 / records,
        peak_bytes: peak_bytes as f64,
        checkpoints: committed.len() as u64,
        checkpoints_s: ended.lines.iter().filter_map(|line| line.fields.seconds).sum(),
    })
}

fn committed(lines: &[Line]) -> Vec<DateTime<Utc>> {
    lines.iter().filter(|line| line.fields.message == COMMITTED).map(|line| line.timestamp).collect()
}

/// The time from taking over to the last commit. If the last commit waited for its interval until the process was asked
/// to stop, the wait does not count, because there was nothing to do.
fn worked(begun: DateTime<Utc>, quiet: DateTime<Utc>, ended: &Ended, committed: &[DateTime<Utc>]) -> f64 {
    let seconds = |from: DateTime<Utc>, to: DateTime<Utc>| (to - from).num_microseconds().unwrap_or_default() as f64 / 1e6;
    match committed.last() {
        Some(last) if *last > ended.signalled_at => seconds(begun, quiet) + seconds(ended.signalled_at, *last),
        Some(last) => seconds(begun, *last),
        None => seconds(begun, quiet),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_in_which_nothing_was_to_do_does_not_count() {
        let at = |millis: i64| DateTime::from_timestamp_millis(millis).unwrap();
        let ended = Ended { used: Used::default(), signalled_at: at(4_000), lines: Vec::new() };
        assert_eq!(worked(at(1_000), at(3_000), &ended, &[at(2_000), at(4_500)]), 2.5);
        assert_eq!(worked(at(1_000), at(3_000), &ended, &[at(2_000), at(2_990)]), 1.99);
    }
}
