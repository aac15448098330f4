//! The gauges of an alert.

use metrics::Gauge;

/// It is 0 once this process runs the alert no more: another process, which may do so, reports the same.
#[derive(Debug)]
pub(super) struct AlertGauge(Gauge);

impl AlertGauge {
    pub(super) fn open_keys(alert: &str) -> Self {
        Self(metrics::gauge!("basestream_speed_alerts_open", "alert" => alert.to_owned()))
    }

    /// The bytes of its index of near edges.
    pub(super) fn index_bytes(alert: &str) -> Self {
        Self(metrics::gauge!("basestream_speed_alert_index_bytes", "alert" => alert.to_owned()))
    }

    pub(super) fn set(&self, value: usize) {
        self.0.set(value as f64);
    }
}

impl Drop for AlertGauge {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests;
