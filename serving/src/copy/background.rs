//! Fetching the buckets that no query has needed yet.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use types::{Error, ErrorKind, Result, threads};

use super::buckets::{CopiedBuckets, fetch_tiers};

/// How long to wait after a bucket that did not come.
const AFTER_A_FAILURE: Duration = Duration::from_secs(1);
/// How often the metric of missing buckets is set.
const REPORT_EVERY: Duration = Duration::from_millis(500);

/// The tiers of a copy, until it is dropped.
pub(super) struct Fetching {
    pub(super) view: Arc<str>,
    pub(super) tiers: Vec<Arc<CopiedBuckets>>,
    pub(super) dropped: CancellationToken,
}

/// Fetches every bucket, again and again where the storage does not answer, until all are there, the copy is dropped,
/// or one is damaged, which `damaged` hears.
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
    loop {
        match fetch_tiers(&copy.tiers, &threads::RUNS).await {
            Err(error) if error.kind() != ErrorKind::Corrupt => again_later(&copy.view, &error).await,
            outcome => return outcome,
        }
    }
}

async fn again_later(view: &str, error: &Error) {
    warn!(view = %view, %error, "a bucket of a snapshot could not be copied; trying again");
    tokio::time::sleep(AFTER_A_FAILURE).await;
}

async fn report_missing(copy: &Fetching) -> std::convert::Infallible {
    let gauge = missing(&copy.view);
    loop {
        let missing: usize = copy.tiers.iter().map(|tier| tier.local()).map(|files| files.all - files.here).sum();
        gauge.set(missing as f64);
        tokio::time::sleep(REPORT_EVERY).await;
    }
}

fn missing(view: &str) -> metrics::Gauge {
    metrics::gauge!("basestream_serving_buckets_missing", "view" => view.to_owned())
}
