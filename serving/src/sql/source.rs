//! A leaf of a physical plan: a source of batches with a name, which EXPLAIN shows.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PhysicalExpr, PlanProperties, StatisticsArgs};
use futures::TryStreamExt;
use futures::stream::BoxStream;
use types::Result;

use arrow::array::RecordBatch;

/// Starts to read.
pub(super) type Open = Arc<dyn Fn(Arc<TaskContext>) -> BoxStream<'static, Result<RecordBatch>> + Send + Sync>;

/// One partition of batches from `open`.
#[derive(Clone)]
pub(super) struct SourceExec {
    name: &'static str,
    detail: String,
    properties: Arc<PlanProperties>,
    schema: SchemaRef,
    /// For a source that is read quickly: about how many rows it has.
    light_rows: Option<usize>,
    open: Open,
}

impl SourceExec {
    pub(super) fn new(name: &'static str, detail: String, schema: SchemaRef, open: Open) -> Arc<Self> {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Arc::new(Self { name, detail, properties: Arc::new(properties), schema, light_rows: None, open })
    }

    /// Marks a source that has about this many rows and is read quickly.
    pub(super) fn light(self: Arc<Self>, rows: usize) -> Arc<Self> {
        Arc::new(Self { light_rows: Some(rows), ..Arc::unwrap_or_clone(self) })
    }

    pub(super) fn is_light(&self) -> bool {
        self.light_rows.is_some()
    }
}

impl fmt::Debug for SourceExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.detail)
    }
}

impl DisplayAs for SourceExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.detail)
    }
}

impl ExecutionPlan for SourceExec {
    fn name(&self) -> &str {
        self.name
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DataFusionResult<TreeNodeRecursion>,
    ) -> DataFusionResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    /// Reports the number of rows: otherwise the planner would give each partition of a filter's input a task of its
    /// own.
    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], _: &StatisticsArgs) -> DataFusionResult<Arc<Statistics>> {
        let rows = self.light_rows.map_or(Precision::Absent, Precision::Inexact);
        Ok(Arc::new(Statistics::new_unknown(&self.schema).with_num_rows(rows)))
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> DataFusionResult<SendableRecordBatchStream> {
        let batches = (self.open)(context).map_err(Into::into);
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches)))
    }
}
