//! The operator that evaluates a view's [`PerEvent`].

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PhysicalExpr, PlanProperties};
use definitions::OnError;
use futures::{StreamExt, future};

use crate::states::per_event::PerEvent;
use types::failures::{Failure, Failures};

/// Collects the failures of several threads.
#[derive(Debug, Clone, Default)]
pub struct FailureSink(Arc<Mutex<Failures>>);

impl FailureSink {
    /// Adds a failure.
    pub fn push(&self, failure: Failure) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
    }

    /// Returns what was collected, and starts over.
    pub fn take(&self) -> Failures {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Evaluates a view's [`PerEvent`] over the events of its input. It declares no order of its rows: an aggregation over
/// ordered input emits its groups a batch at a time and moves all remaining groups up each time.
pub(super) struct PerEventExec {
    input: Arc<dyn ExecutionPlan>,
    per_event: Arc<PerEvent>,
    on_error: OnError,
    failures: FailureSink,
    properties: Arc<PlanProperties>,
}

impl PerEventExec {
    pub(super) fn new(input: Arc<dyn ExecutionPlan>, per_event: Arc<PerEvent>, on_error: OnError, failures: FailureSink) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(per_event.output().clone()),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self { input, per_event, on_error, failures, properties: Arc::new(properties) }
    }
}

impl fmt::Debug for PerEventExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PerEventExec")
    }
}

impl DisplayAs for PerEventExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PerEventExec: stream={}", self.per_event.stream.name)
    }
}

impl ExecutionPlan for PerEventExec {
    fn name(&self) -> &str {
        "PerEventExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(&self, _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.pop().ok_or_else(|| DataFusionError::Internal("PerEventExec lost its input".into()))?;
        Ok(Arc::new(Self::new(input, self.per_event.clone(), self.on_error, self.failures.clone())))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let events = self.input.execute(partition, context)?;
        let (per_event, on_error, failures) = (self.per_event.clone(), self.on_error, self.failures.clone());
        let made = events.map(move |batch| {
            let mut first = None;
            let batch = per_event.evaluate(&batch?, &mut |failure: Failure| match on_error {
                OnError::Skip => failures.push(failure),
                OnError::Refuse => drop(first.get_or_insert(failure)),
            })?;
            match first {
                Some(failure) => Err(DataFusionError::Execution(failure.to_string())),
                None => Ok(batch),
            }
        });
        let filled = made.filter(|batch| future::ready(!batch.as_ref().is_ok_and(|batch| batch.num_rows() == 0)));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.per_event.output().clone(), filled)))
    }
}
