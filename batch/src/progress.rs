//! Counts the archived events that a run under way has read.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::physical_plan::ExecutionPlan;

/// The present archive scan of a run, and the number of events that it read otherwise.
#[derive(Default)]
pub(crate) struct EventsRead {
    scan: Mutex<Option<Arc<dyn ExecutionPlan>>>,
    others: AtomicUsize,
}

impl EventsRead {
    /// Counts the rows that the scans of this plan read from now on.
    pub(crate) fn watch(&self, plan: Arc<dyn ExecutionPlan>) {
        let mut scan = self.scan.lock().unwrap_or_else(PoisonError::into_inner);
        let read = scan.replace(plan).map_or(0, |before| rows_read(&*before));
        self.add(read);
    }

    /// Counts events that were not read by a scan.
    pub(crate) fn add(&self, events: usize) {
        self.others.fetch_add(events, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> i64 {
        let scan = self.scan.lock().unwrap_or_else(PoisonError::into_inner);
        let scanned = scan.as_ref().map_or(0, |plan| rows_read(&**plan));
        (scanned + self.others.load(Ordering::Relaxed)) as i64
    }
}

/// The rows that a plan's leaves have returned so far.
fn rows_read(plan: &dyn ExecutionPlan) -> usize {
    match plan.children()[..] {
        [] => plan.metrics().and_then(|metrics| metrics.output_rows()).unwrap_or_default(),
        ref inputs => inputs.iter().map(|input| rows_read(&***input)).sum(),
    }
}
