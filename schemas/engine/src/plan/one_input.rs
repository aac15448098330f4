//! Repartitioning that never waits for itself once it spills.
//!
//! Without memory for a batch, a `RepartitionExec` writes it to a file and tells the reader to read one batch from
//! there. Two inputs that spill at the same time write to two files, of which the reader reads the older. Where the
//! batch is in the other one, it waits; once all outputs wait or are full, so do the inputs, and the query never ends
//! (DataFusion 55, apache/datafusion issue 24883). With one input, batches are read in the order in which they were
//! written. What computes the inputs still runs in parallel.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

#[derive(Debug)]
pub(crate) struct OneInputSpills;

impl PhysicalOptimizerRule for OneInputSpills {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let with_one_input = |plan: Arc<dyn ExecutionPlan>| {
            let Some(repartition) = plan.downcast_ref::<RepartitionExec>().filter(|repartition| inputs_share_files(repartition)) else {
                return Ok(Transformed::no(plan));
            };
            let input = Arc::new(CoalescePartitionsExec::new(repartition.input().clone()));
            Ok(Transformed::yes(Arc::new(RepartitionExec::try_new(input, repartition.partitioning().clone())?)))
        };
        plan.transform_up(with_one_input).data()
    }

    fn name(&self) -> &str {
        "one_input_spills"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Where the order of the inputs is kept, each has files of its own.
fn inputs_share_files(repartition: &RepartitionExec) -> bool {
    !repartition.preserve_order() && repartition.input().output_partitioning().partition_count() > 1
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use arrow::array::{Int64Array, RecordBatch, StringArray};
    use datafusion::common::tree_node::TreeNodeRecursion;
    use datafusion::datasource::MemTable;
    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use datafusion::execution::session_state::SessionStateBuilder;
    use datafusion::prelude::{DataFrame, SessionContext};

    use super::*;
    use crate::plan::{asking_session_builder, session_builder, session_config};

    /// The aggregates have room in this, what waits for them has not.
    const MEMORY_BYTES: usize = 3_500_000;
    const BATCH_ROWS: usize = 256;
    /// Without the rule, one of about 10 hangs: how the inputs take turns is not the same in each.
    const ATTEMPTS: usize = 60;
    const BATCHES: i64 = 40;
    const ROWS_PER_BATCH: i64 = 1000;
    const GROUPS: i64 = 1000;
    /// The query takes less than a second.
    const HANGS: Duration = Duration::from_secs(60);

    fn events() -> MemTable {
        let batch = |number: i64| {
            let rows = number * ROWS_PER_BATCH..(number + 1) * ROWS_PER_BATCH;
            let groups = Int64Array::from_iter_values(rows.clone().map(|row| row % GROUPS));
            let traces = StringArray::from_iter_values(rows.map(|row| format!("trace {row:0>32}")));
            RecordBatch::try_from_iter([("g", Arc::new(groups) as _), ("trace", Arc::new(traces) as _)]).unwrap()
        };
        let (even, odd): (Vec<i64>, Vec<i64>) = (0..BATCHES).partition(|number| number % 2 == 0);
        let partitions: Vec<Vec<RecordBatch>> = [even, odd].map(|numbers| numbers.into_iter().map(batch).collect()).into();
        MemTable::try_new(partitions[0][0].schema(), partitions).unwrap()
    }

    async fn traces_of_groups(builder: SessionStateBuilder) -> DataFrame {
        let session = SessionContext::new_with_state(builder.build());
        session.register_table("events", Arc::new(events())).unwrap();
        session.sql("SELECT g, count(DISTINCT trace) AS traces FROM events GROUP BY g").await.unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_query_that_spills_its_repartitions_ends() {
        for attempt in 0..ATTEMPTS {
            let memory = Arc::new(GreedyMemoryPool::new(MEMORY_BYTES));
            let runtime = RuntimeEnvBuilder::new().with_memory_pool(memory).build_arc().unwrap();
            let config = session_config().with_batch_size(BATCH_ROWS);
            let query = traces_of_groups(asking_session_builder().with_config(config).with_runtime_env(runtime)).await;
            let rows = tokio::time::timeout(HANGS, query.collect()).await.unwrap_or_else(|_| panic!("attempt {attempt} hangs"));
            // An attempt may end with an error: the aggregates compete for the memory.
            if let Ok(rows) = rows {
                assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>() as i64, GROUPS);
            }
        }
    }

    #[tokio::test]
    async fn repartitions_of_all_sessions_have_one_input() {
        for builder in [session_builder(), asking_session_builder()] {
            let query = traces_of_groups(builder).await;
            let (mut repartitions, plan) = (0, query.create_physical_plan().await.unwrap());
            plan.apply(|node| {
                if let Some(repartition) = node.downcast_ref::<RepartitionExec>() {
                    assert!(!inputs_share_files(repartition), "{repartition:?}");
                    repartitions += 1;
                }
                Ok(TreeNodeRecursion::Continue)
            })
            .unwrap();
            assert!(repartitions > 0);
        }
    }
}
