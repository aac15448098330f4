//! `SELECT DISTINCT .. LIMIT` over rows that are in order, such as those of a window function.
//!
//! DataFusion gives the limit to the DISTINCT, which ends once it has that many rows. It plans this before it knows the
//! order of the rows. If they turn out to be ordered, the DISTINCT is mistaken for one below an ORDER BY when it runs,
//! and fails because it has no direction (DataFusion 55). Without the limit, the DISTINCT reads all rows and the LIMIT
//! above it takes those that it needs.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

#[derive(Debug)]
pub(crate) struct OrderedDistinctHasNoLimit;

impl PhysicalOptimizerRule for OrderedDistinctHasNoLimit {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let without_limit = |plan: Arc<dyn ExecutionPlan>| {
            let distinct = plan.downcast_ref::<AggregateExec>().filter(|distinct| lacks_direction(distinct));
            let without = distinct.map(|distinct| Arc::new(distinct.with_new_limit_options(None)));
            Ok(match without {
                Some(without) => Transformed::yes(without as Arc<dyn ExecutionPlan>),
                None => Transformed::no(plan),
            })
        };
        plan.transform_up(without_limit).data()
    }

    fn name(&self) -> &str {
        "ordered_distinct_has_no_limit"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn lacks_direction(distinct: &AggregateExec) -> bool {
    let has_limit = distinct.limit_options().is_some_and(|limit| limit.descending().is_none());
    has_limit && !distinct.is_unordered_unfiltered_group_by_distinct() && distinct.get_minmax_desc().is_none()
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::plan::asking_session_builder;

    #[tokio::test]
    async fn distinct_rows_of_a_window_function_have_a_limit() {
        let session = SessionContext::new_with_state(asking_session_builder().build());
        let events = "(VALUES ('a', 1), ('a', 2), ('b', 3), ('c', 4)) AS events(k, x)";
        let sql = format!("SELECT DISTINCT k, count(*) OVER (PARTITION BY k) AS n FROM {events} LIMIT 2");
        let rows = session.sql(&sql).await.unwrap().collect().await.unwrap();
        assert_eq!(rows.iter().map(|batch| batch.num_rows()).sum::<usize>(), 2);
    }
}
