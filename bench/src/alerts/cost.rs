//! What a process takes while events arrive.

use std::time::{Duration, Instant};

use crate::child::{self, Used};
use crate::measured_process::MeasuredProcess;

/// What the process takes once its first events are counted.
pub(super) struct Cost {
    pub(super) has_alert: bool,
    pub(super) own_bytes: u64,
    pub(super) busy: f64,
}

/// The memory at the end of a stretch, and the processors busy in it.
pub(super) async fn cost(process: &MeasuredProcess, seconds: f64, has_alert: bool) -> Cost {
    let (before, began): (Used, _) = (process.used(), Instant::now());
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    let used = child::used_by(process.id()).unwrap_or_default();
    Cost { has_alert, own_bytes: used.own_peak_bytes, busy: used.since(before).processor_s / began.elapsed().as_secs_f64() }
}
