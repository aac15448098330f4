//! The gauge of an alert's open keys.

use metrics::Gauge;

/// It is 0 once this process runs the alert no more: another process, which may do so, counts the same keys.
#[derive(Debug)]
pub(super) struct OpenKeysGauge(Gauge);

impl OpenKeysGauge {
    pub(super) fn new(alert: &str) -> Self {
        Self(metrics::gauge!("basestream_speed_alerts_open", "alert" => alert.to_owned()))
    }

    pub(super) fn set(&self, keys: usize) {
        self.0.set(keys as f64);
    }
}

impl Drop for OpenKeysGauge {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests;
