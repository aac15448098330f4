//! Events of a view with many columns: one event for each key.

use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Float64Array, Int64Array, StringArray};
use types::tiles::Micros;
use types::{Error, Result};

use crate::events::{END, Events, mix, times};

const STREAM: &str = "readings";
pub(super) const VIEW: &str = "wide";
/// The view's value columns, in their order: the first counts the events.
const VALUES: [&str; 22] = [
    "count(*)",
    "max(ts)",
    "sum(big)",
    "min(big)",
    "max(big)",
    "sum(real)",
    "min(real)",
    "max(real)",
    "sum(amount)",
    "min(amount)",
    "max(amount)",
    "min(ts)",
    "max(word)",
    "min(word)",
    "sum(big + 1)",
    "max(big + 2)",
    "min(big + 3)",
    "sum(amount + 1)",
    "max(amount + 2)",
    "sum(real + 1)",
    "max(real + 2)",
    "min(real + 3)",
];
/// Between two events.
const APART: Micros = 1_000;

#[derive(Debug, Clone, Copy)]
pub(super) struct Wide {
    rows: u64,
    values: usize,
}

impl Wide {
    /// Errors: `Input` for more columns than there are, or none beside the key and the count.
    pub(super) fn new(rows: u64, columns: usize) -> Result<Wide> {
        let values = columns.saturating_sub(1);
        if !(1..=VALUES.len()).contains(&values) {
            return Err(Error::input(format!("found {columns} columns: expected 2 to {}", VALUES.len() + 1)));
        }
        Ok(Wide { rows, values })
    }
}

impl Events for Wide {
    fn files(&self) -> Vec<(String, String)> {
        let stream = format!(
            "CREATE STREAM {STREAM} (event_id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, key TEXT NOT NULL, big BIGINT NOT NULL,\n\
             real DOUBLE NOT NULL, amount DECIMAL(18,2) NOT NULL, word TEXT NOT NULL)\n\
             WITH (topic = '{STREAM}', format = 'json', event_time = 'ts', id = 'event_id', dedup_within = '10m', key = 'key', keep_raw = false);\n"
        );
        let values: Vec<String> = VALUES[..self.values].iter().enumerate().map(|(nth, value)| format!("{value} AS v{nth}")).collect();
        let view = format!("CREATE VIEW {VIEW} WITH (every = '1h') AS SELECT key, {} FROM {STREAM} GROUP BY key;\n", values.join(", "));
        vec![(format!("streams/{STREAM}.sql"), stream), (format!("views/{VIEW}.sql"), view)]
    }

    fn streams(&self) -> Vec<(&'static str, u64)> {
        vec![(STREAM, self.rows)]
    }

    fn time(&self, _: &str, number: u64) -> Micros {
        END - (self.rows - number) as Micros * APART
    }

    fn column(&self, _: &str, name: &str, numbers: &[u64]) -> Option<ArrayRef> {
        let hashes = numbers.iter().map(|number| mix(11, *number));
        Some(match name {
            "event_id" => Arc::new(StringArray::from_iter_values(numbers.iter().map(|number| format!("r{number:09}")))),
            "ts" => times(numbers.iter().map(|number| self.time(STREAM, *number))),
            "key" => Arc::new(StringArray::from_iter_values(numbers.iter().map(|number| format!("k{number:09}")))),
            "big" => Arc::new(Int64Array::from_iter_values(hashes.map(|hash| (hash >> 20) as i64))),
            "real" => Arc::new(Float64Array::from_iter_values(hashes.map(|hash| (hash >> 12) as f64 / 1e6))),
            "amount" => {
                let cents = Decimal128Array::from_iter_values(hashes.map(|hash| i128::from(hash % 10_000_000)));
                Arc::new(cents.with_precision_and_scale(18, 2).ok()?)
            }
            "word" => Arc::new(StringArray::from_iter_values(hashes.map(|hash| format!("word{}", hash % 10_000)))),
            _ => return None,
        })
    }
}
