//! How long lookups take, as a metric.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use metrics::Histogram;

/// The histograms of views. To find one by its label takes a part of the time of a lookup.
#[derive(Debug, Default)]
pub(crate) struct LookupTimes(RwLock<HashMap<Arc<str>, Histogram>>);

impl LookupTimes {
    /// The histograms of this many views are kept. Past that, all are dropped.
    const MOST: usize = 1_024;

    /// Measures the lookup of a view.
    pub(crate) fn record(&self, view: &Arc<str>, begun: Instant) {
        let seconds = begun.elapsed().as_secs_f64();
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).get(view).cloned();
        known.unwrap_or_else(|| self.kept(view)).record(seconds);
    }

    fn kept(&self, view: &Arc<str>) -> Histogram {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= Self::MOST {
            known.clear();
        }
        let histogram = || metrics::histogram!("basestream_serving_lookup_seconds", "view" => view.to_string());
        known.entry(view.clone()).or_insert_with(histogram).clone()
    }
}
