//! Fetching the buckets that no query has needed yet.

use std::sync::Arc;
use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use types::outage::Attempts;
use types::{ErrorKind, Result, threads};

use super::buckets::{CopiedBuckets, fetch_tiers};

/// The pause after the first failure, and after many of them. Up to the same time is added at random.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LAST_WAIT: Duration = Duration::from_secs(15);
/// Failures are logged as warnings at most this often.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// How often the metric of missing buckets is set.
const REPORT_EVERY: Duration = Duration::from_millis(500);

/// The tiers of a copy, until it is dropped.
pub(super) struct Fetching {
    pub(super) view: Arc<str>,
    pub(super) tiers: Vec<Arc<CopiedBuckets>>,
    pub(super) fetches: Attempts,
    pub(super) dropped: CancellationToken,
}

/// When the missing buckets are fetched again, and which failures are logged as warnings.
struct CopyRetries {
    waits: ExponentialBackoff,
    warned_at: Option<Instant>,
}

/// Fetches every bucket, again and again where the storage does not answer, until all are there, the copy is dropped,
/// or one is damaged or missing, which `damaged` hears.
pub(super) async fn fetch_all(copy: Fetching, damaged: Arc<Notify>, stop: CancellationToken) {
    let begun = Instant::now();
    let outcome = tokio::select! {
        () = stop.cancelled() => None,
        () = copy.dropped.cancelled() => None,
        outcome = until_whole_or_damaged(&copy) => Some(outcome),
        never = report_missing(&copy) => match never {},
    };
    missing(&copy.view).set(0.0);
    let view = &copy.view;
    match outcome {
        Some(Ok(())) => info!(view = %view, seconds = begun.elapsed().as_secs_f64(), "all of a snapshot is copied"),
        Some(Err(error)) => {
            warn!(view = %view, %error, "a snapshot that is being copied is damaged");
            damaged.notify_one();
        }
        None => {}
    }
}

async fn until_whole_or_damaged(copy: &Fetching) -> Result<()> {
    let mut retries = CopyRetries::new();
    loop {
        let missing_before = copy.missing();
        let fetched = fetch_tiers(&copy.tiers, &threads::RUNS).await;
        copy.fetches.note(&fetched);
        let error = match fetched {
            Err(error) if error.kind() != ErrorKind::Corrupt => error,
            outcome => return outcome,
        };
        if copy.missing() < missing_before {
            retries.begin_again();
        }
        let (view, wait) = (&copy.view, retries.next_wait());
        match retries.is_to_be_warned_of(Instant::now()) {
            true => warn!(view = %view, %error, ?wait, "a bucket of a snapshot could not be copied; trying again"),
            false => debug!(view = %view, %error, ?wait, "a bucket of a snapshot could not be copied; trying again"),
        }
        tokio::time::sleep(wait).await;
    }
}

async fn report_missing(copy: &Fetching) -> std::convert::Infallible {
    let gauge = missing(&copy.view);
    loop {
        gauge.set(copy.missing() as f64);
        tokio::time::sleep(REPORT_EVERY).await;
    }
}

fn missing(view: &str) -> metrics::Gauge {
    metrics::gauge!("basestream_serving_buckets_missing", "view" => view.to_owned())
}

impl Fetching {
    fn missing(&self) -> usize {
        self.tiers.iter().map(|tier| tier.local()).map(|files| files.all - files.here).sum()
    }
}

impl CopyRetries {
    fn new() -> Self {
        Self { waits: waits(), warned_at: None }
    }

    /// The storage answered in between.
    fn begin_again(&mut self) {
        self.waits = waits();
    }

    fn next_wait(&mut self) -> Duration {
        self.waits.next().unwrap_or(LAST_WAIT)
    }

    fn is_to_be_warned_of(&mut self, now: Instant) -> bool {
        let is_due = self.warned_at.is_none_or(|at| now.saturating_duration_since(at) >= WARN_EVERY);
        if is_due {
            self.warned_at = Some(now);
        }
        is_due
    }
}

fn waits() -> ExponentialBackoff {
    ExponentialBuilder::default().with_min_delay(FIRST_WAIT).with_max_delay(LAST_WAIT).without_max_times().with_jitter().build()
}

#[cfg(test)]
mod tests;
