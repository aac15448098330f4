//! How long lookups take, as a metric.

use std::time::Instant;

/// Measures the lookup of a view.
pub(super) fn record(view: String, begun: Instant) {
    metrics::histogram!("basestream_serving_lookup_seconds", "view" => view).record(begun.elapsed().as_secs_f64());
}
