//! How many archived events a run under way has read.

use std::sync::{Arc, Mutex, PoisonError};

use datafusion::physical_plan::ExecutionPlan;

/// The archive's scan of a run.
#[derive(Default)]
pub(crate) struct EventsRead(Mutex<Option<Arc<dyn ExecutionPlan>>>);

impl EventsRead {
    /// Counts what the scans of this plan read from now on.
    pub(crate) fn watch(&self, plan: Arc<dyn ExecutionPlan>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(plan);
    }

    pub(crate) fn count(&self) -> i64 {
        let plan = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        plan.map_or(0, |plan| rows_read(&*plan) as i64)
    }
}

/// The rows that a plan's leaves have returned so far.
fn rows_read(plan: &dyn ExecutionPlan) -> usize {
    match plan.children()[..] {
        [] => plan.metrics().and_then(|metrics| metrics.output_rows()).unwrap_or_default(),
        ref inputs => inputs.iter().map(|input| rows_read(&***input)).sum(),
    }
}
