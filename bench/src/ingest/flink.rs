//! Has the peer compute the same aggregates: Flink SQL on the same Kafka topic.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use types::{Error, Result};

use super::speed::Measured;
use crate::flink::{Flink, Reported};
use crate::payments::Topic;

/// The faster of Flink's two ways to aggregate per key and minute: windows, not updating groups.
const AGGREGATION: &str = "window";

/// Sums over all keys and minutes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Sums {
    events: u64,
    amount: String,
}

impl Sums {
    /// Compares the sums with those of all records: Flink does not drop duplicates.
    pub(super) fn check(&self, topic: &Topic) -> Result<()> {
        let amount = super::answer::amount_text(topic.payments.truth().cents_with_duplicates);
        let expected = Sums { events: topic.payments.records, amount };
        if *self == expected {
            return Ok(());
        }
        let reported = |sums: &Sums| format!("{} events, {}", sums.events, sums.amount);
        Err(Error::internal("Flink gave a wrong answer").with("found", reported(self)).with("expected", reported(&expected)))
    }
}

pub(super) fn measure(flink: &Flink, folder: &Path, topic: &Topic, limit: Duration) -> Result<Measured> {
    let job = json!({ "kind": "aggregate", "aggregation": AGGREGATION });
    let reported: Reported = flink.run(folder, topic, &job, limit)?;
    let records = topic.payments.records as f64;
    Ok(Measured {
        seconds: reported.seconds,
        events_per_second: records / reported.seconds.max(1e-9),
        processor_s_per_million: reported.processor_s * 1e6 / records,
        peak_bytes: reported.peak_bytes,
        checkpoints: 0,
        checkpoints_s: 0.0,
    })
}

/// Computes the sums in a separate run, because the measured run discards its results.
pub(super) fn sums(flink: &Flink, folder: &Path, topic: &Topic, limit: Duration) -> Result<Sums> {
    flink.run(folder, topic, &json!({ "kind": "sums", "aggregation": AGGREGATION }), limit)
}
