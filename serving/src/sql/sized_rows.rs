//! Counts the rows that a SELECT computes as the query's memory, a batch at a time. DataFusion counts what its
//! operators keep, and not what they pass on: each of twenty SELECTs around one another could double a text.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties};
use futures::StreamExt;

/// Fewer bytes are not looked at more closely: they may be part of larger ones that something else holds.
const SMALL_BYTES: usize = 1 << 20;

/// Counts the rows of each SELECT in the plan.
pub(super) fn sized(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let sized = plan.transform_up(|node| match node.is::<ProjectionExec>() {
        true => Ok(Transformed::yes(Arc::new(SizedRowsExec(node)) as Arc<dyn ExecutionPlan>)),
        false => Ok(Transformed::no(node)),
    })?;
    Ok(sized.data)
}

/// Reserves memory for the batch that its input computed last.
#[derive(Debug)]
struct SizedRowsExec(Arc<dyn ExecutionPlan>);

impl DisplayAs for SizedRowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SizedRowsExec")
    }
}

impl ExecutionPlan for SizedRowsExec {
    fn name(&self) -> &str {
        "SizedRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.0.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.0]
    }

    fn apply_expressions(&self, _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.pop().ok_or_else(|| DataFusionError::Internal("SizedRowsExec lost its input".into()))?;
        Ok(Arc::new(Self(input)))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let computed = self.0.execute(partition, Arc::clone(&context))?;
        let (schema, reserved) = (self.0.schema(), MemoryConsumer::new("rows").register(context.memory_pool()));
        let counted = computed.map(move |batch| {
            let batch = batch?;
            reserved.try_resize(bytes_of(&batch)?)?;
            Ok(batch)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, counted)))
    }
}

/// The bytes of a batch that has many, without those of the arrays that it is a part of.
fn bytes_of(batch: &RecordBatch) -> Result<usize> {
    if batch.get_array_memory_size() < SMALL_BYTES {
        return Ok(0);
    }
    batch.columns().iter().try_fold(0, |bytes, column| Ok(bytes + column.to_data().get_slice_memory_size()?))
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use datafusion::physical_plan::collect;
    use datafusion::prelude::{SessionConfig, SessionContext};

    use super::*;

    /// As many SELECTs as make a text of 64 KiB 2 to the power of `doublings` times as long.
    async fn longest(doublings: usize) -> Result<usize> {
        let pool = Arc::new(GreedyMemoryPool::new(64 << 20));
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc()?;
        let session = SessionContext::new_with_config_rt(SessionConfig::new().with_target_partitions(1), runtime);
        let mut sql = "SELECT repeat('x', 65536 + CAST(random() AS INT)) AS s".to_owned();
        for level in 0..doublings {
            sql = format!("SELECT s || s AS s FROM ({sql}) AS level_{level}");
        }
        let plan = session.sql(&sql).await?.create_physical_plan().await?;
        let rows = collect(sized(plan)?, session.task_ctx()).await?;
        Ok(rows[0].column(0).to_data().get_slice_memory_size()?)
    }

    #[tokio::test]
    async fn a_text_that_each_select_doubles_is_within_the_memory_of_the_query() {
        assert!(longest(8).await.unwrap() > 16 << 20);
        let refused = longest(12).await.unwrap_err();
        assert!(matches!(refused.find_root(), DataFusionError::ResourcesExhausted(_)), "{refused}");
    }
}
