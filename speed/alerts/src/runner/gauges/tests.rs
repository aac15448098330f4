use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

#[test]
fn a_process_that_no_longer_runs_an_alert_reports_nothing_of_it() {
    let exported = Arc::new(AtomicU64::new(0));
    let value = || f64::from_bits(exported.load(Ordering::Relaxed));
    let gauge = AlertGauge(Gauge::from_arc(exported.clone()));
    gauge.set(3);
    assert_eq!(value(), 3.0);
    drop(gauge);
    assert_eq!(value(), 0.0);
}
