//! Fetching the buckets that no query has needed yet.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use types::{Error, ErrorKind, Result};

use super::buckets::CopiedBuckets;

/// How long to wait after a bucket that did not come.
const AFTER_A_FAILURE: Duration = Duration::from_secs(1);
/// How often the metric of missing buckets is set.
const REPORT_EVERY: Duration = Duration::from_millis(500);

/// Fetches every bucket, again and again where the storage does not answer, until all are there, the copy is dropped,
/// or one is damaged, which `damaged` hears.
pub(super) async fn fetch_all(buckets: Arc<CopiedBuckets>, damaged: Arc<Notify>, stop: CancellationToken) {
    let begun = Instant::now();
    let view = buckets.live.name.clone();
    let outcome = tokio::select! {
        () = stop.cancelled() => None,
        () = buckets.given_up.cancelled() => None,
        outcome = until_whole_or_damaged(&buckets) => Some(outcome),
        never = report_missing(&buckets) => match never {},
    };
    missing(&view).set(0.0);
    match outcome {
        Some(Ok(())) => info!(view = %view, seconds = begun.elapsed().as_secs_f64(), "all of a snapshot is copied"),
        Some(Err(error)) => {
            warn!(view = %view, %error, "a snapshot that is being copied is damaged");
            damaged.notify_one();
        }
        None => {}
    }
}

async fn until_whole_or_damaged(buckets: &Arc<CopiedBuckets>) -> Result<()> {
    loop {
        match buckets.fetch_all().await {
            Err(error) if error.kind() != ErrorKind::Corrupt => again_later(buckets, &error).await,
            outcome => return outcome,
        }
    }
}

async fn again_later(buckets: &CopiedBuckets, error: &Error) {
    warn!(view = %buckets.live.name, %error, "a bucket of a snapshot could not be copied; trying again");
    tokio::time::sleep(AFTER_A_FAILURE).await;
}

async fn report_missing(buckets: &CopiedBuckets) -> std::convert::Infallible {
    let gauge = missing(&buckets.live.name);
    loop {
        let (local, of) = buckets.local();
        gauge.set((of - local) as f64);
        tokio::time::sleep(REPORT_EVERY).await;
    }
}

fn missing(view: &str) -> metrics::Gauge {
    metrics::gauge!("basestream_serving_buckets_missing", "view" => view.to_owned())
}
