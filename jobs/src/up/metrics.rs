//! The metrics recorder of the process, installed once, on first use, and its upkeep.

use std::sync::OnceLock;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::parts::{Parts, Stage};
use super::process;

/// Histogram buckets of every duration, in seconds: from a lookup to a long batch run.
const SECONDS: [f64; 14] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 60.0, 600.0];
const UPKEEP: Duration = Duration::from_secs(5);

/// Returns the handle that renders the metrics of this process. `None` if the host program has its own recorder, which
/// shows them then.
pub fn recorder() -> Option<PrometheusHandle> {
    static RECORDER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    RECORDER.get_or_init(install).clone()
}

fn install() -> Option<PrometheusHandle> {
    let builder = PrometheusBuilder::new().set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS);
    match builder.map(PrometheusBuilder::install_recorder) {
        Ok(Ok(handle)) => Some(handle),
        Ok(Err(error)) => {
            warn!(%error, "metrics go to a recorder that was installed earlier; /metrics stays empty");
            None
        }
        Err(error) => {
            warn!(%error, "metrics are not recorded");
            None
        }
    }
}

/// Starts the recorder and its upkeep, before any other part: metrics recorded before the recorder exists are lost.
pub(super) fn start(parts: &mut Parts) -> Option<PrometheusHandle> {
    let recorder = recorder();
    let kept = recorder.clone();
    parts.start(Stage::Health, "metrics", |stop| async move {
        upkeep(kept, stop).await;
        Ok(())
    });
    recorder
}

/// Keeps the recorder's memory bounded, and the gauges of the process current, until `stop` is cancelled.
async fn upkeep(recorder: Option<PrometheusHandle>, stop: CancellationToken) {
    process::show_build();
    loop {
        process::show_usage();
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(UPKEEP) => {}
        }
        if let Some(recorder) = &recorder {
            recorder.run_upkeep();
        }
    }
}
