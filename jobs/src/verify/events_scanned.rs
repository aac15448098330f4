//! How many archived events a verification under way has read.

use std::sync::{Arc, Mutex, PoisonError};

use datafusion::physical_plan::ExecutionPlan;

/// Counts what the scans of the expected side read. An event that two queries read counts twice.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventsScanned(Arc<Mutex<Vec<Arc<dyn ExecutionPlan>>>>);

impl EventsScanned {
    /// Counts what the scans of this plan read from now on.
    pub(super) fn watch(&self, plan: &Arc<dyn ExecutionPlan>) {
        add_scans(plan, &mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn count(&self) -> u64 {
        let scans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        scans.iter().map(|scan| scan.metrics().and_then(|metrics| metrics.output_rows()).unwrap_or_default() as u64).sum()
    }
}

/// Adds the leaves of a plan. A whole plan would keep what its joins hold in memory.
fn add_scans(plan: &Arc<dyn ExecutionPlan>, scans: &mut Vec<Arc<dyn ExecutionPlan>>) {
    let inputs = plan.children();
    if inputs.is_empty() {
        scans.push(plan.clone());
    }
    for input in inputs {
        add_scans(input, scans);
    }
}
