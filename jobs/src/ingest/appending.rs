//! Tries again: an append that the log does not take, and a position that is not saved.

use std::future::Future;
use std::time::{Duration, Instant};

use event_log::{Log, NewRecord};
use tracing::warn;
use types::{Error, ErrorKind, Result};

/// How long to wait before the second attempt, and at most before a later one.
const FIRST_WAIT: Duration = Duration::from_millis(10);
const LAST_WAIT: Duration = Duration::from_secs(5);

/// An append that was given up.
pub(super) struct Stopped {
    pub(super) error: Error,
    /// Which of the records are in the log.
    pub(super) in_log: Vec<bool>,
}

/// Appends all records. Those that the log does not take are tried again, for as long as `patience`; those that it took
/// are not sent again.
pub(super) async fn append_records(log: &dyn Log, topic: &str, records: &[NewRecord], patience: Duration) -> Result<(), Stopped> {
    let mut in_log = vec![false; records.len()];
    let (begun, mut wait) = (Instant::now(), FIRST_WAIT);
    loop {
        let missing: Vec<usize> = (0..records.len()).filter(|index| !in_log[*index]).collect();
        let outcomes = log.append_each(topic, missing.iter().map(|index| records[*index].clone()).collect()).await;
        let mut worst: Option<Error> = None;
        for (index, outcome) in missing.into_iter().zip(outcomes) {
            match outcome {
                Ok(_) => in_log[index] = true,
                Err(error) if worst.as_ref().is_none_or(|worst| worst.kind() == ErrorKind::Unavailable) => worst = Some(error),
                Err(_) => {}
            }
        }
        let Some(error) = worst else { return Ok(()) };
        if error.kind() != ErrorKind::Unavailable || begun.elapsed() >= patience {
            return Err(Stopped { error, in_log });
        }
        warn!(%error, "the log does not take records; trying again");
        sleep(&mut wait).await;
    }
}

/// Saves until it succeeds, or until the error is one that a retry cannot fix.
pub(super) async fn until_saved<F: Future<Output = Result<()>>>(save: impl Fn() -> F) -> Result<()> {
    let mut wait = FIRST_WAIT;
    loop {
        match save().await {
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                warn!(%error, "records are in the log and the catalog does not remember it yet; trying again, as \
                    ending now would send them twice");
                sleep(&mut wait).await;
            }
            outcome => return outcome,
        }
    }
}

async fn sleep(wait: &mut Duration) {
    tokio::time::sleep(*wait).await;
    *wait = (*wait * 2).min(LAST_WAIT);
}
