//! ORDER BY over a subquery with LIMIT and OFFSET.
//!
//! DataFusion gives the sort above the limit the number of its rows, and forgets those that it skips: of `LIMIT 4
//! OFFSET 3` one row is left (DataFusion 55, apache/datafusion issue 24958). A limit that only skips, over one that
//! only ends, is not confused.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::limit::GlobalLimitExec;

/// The rule of DataFusion that moves sorts.
const MOVES_SORTS: &str = "EnsureRequirements";

type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// DataFusion's rules, with the one that splits limits before the one that moves sorts.
pub(super) fn physical_rules() -> Vec<Rule> {
    let mut rules = PhysicalOptimizer::new().rules;
    let at = rules.iter().position(|rule| rule.name() == MOVES_SORTS).unwrap_or_default();
    rules.insert(at, Arc::new(SkipsAndEndsApart));
    rules
}

#[derive(Debug)]
struct SkipsAndEndsApart;

impl PhysicalOptimizerRule for SkipsAndEndsApart {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let apart = |plan: Arc<dyn ExecutionPlan>| {
            let limit = plan.downcast_ref::<GlobalLimitExec>().filter(|limit| limit.skip() > 0);
            let Some((limit, fetch)) = limit.and_then(|limit| Some((limit, limit.fetch()?))) else { return Ok(Transformed::no(plan)) };
            let ends = GlobalLimitExec::new(limit.input().clone(), 0, Some(limit.skip().saturating_add(fetch)));
            let skips: Arc<dyn ExecutionPlan> = Arc::new(GlobalLimitExec::new(Arc::new(ends), limit.skip(), None));
            Ok(Transformed::yes(skips))
        };
        plan.transform_up(apart).data()
    }

    fn name(&self) -> &str {
        "skips_and_ends_apart"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, RecordBatch};
    use datafusion::datasource::MemTable;
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::plan::session_builder;

    #[test]
    fn the_rule_that_moves_sorts_is_there() {
        assert!(PhysicalOptimizer::new().rules.iter().any(|rule| rule.name() == MOVES_SORTS), "it has another name now");
    }

    #[tokio::test]
    async fn rows_after_an_offset_are_all_sorted() {
        let session = SessionContext::new_with_state(session_builder().build());
        let part = |from: i64| RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from_iter_values(from..from + 50)) as _)]).unwrap();
        let table = MemTable::try_new(part(0).schema(), vec![vec![part(0)], vec![part(50)]]).unwrap();
        session.register_table("t", Arc::new(table)).unwrap();
        for (sql, expected) in [
            ("SELECT * FROM (SELECT n FROM t LIMIT 4 OFFSET 3) x ORDER BY n", 4),
            ("SELECT * FROM (SELECT n FROM t LIMIT 10 OFFSET 95) x ORDER BY n DESC", 5),
            ("SELECT * FROM (SELECT n, count(*) AS c FROM t GROUP BY n LIMIT 5 OFFSET 3) x ORDER BY c", 5),
            ("SELECT row_number() OVER (ORDER BY n) AS r FROM (SELECT n FROM t LIMIT 40 OFFSET 30) x", 40),
            ("SELECT unnest(array_agg(n ORDER BY n)) AS a FROM (SELECT n FROM t LIMIT 40 OFFSET 30) x", 40),
            ("SELECT n FROM (SELECT n FROM t ORDER BY n LIMIT 6 OFFSET 2) x ORDER BY n DESC LIMIT 3 OFFSET 1", 3),
            ("SELECT n FROM t ORDER BY n LIMIT 7 OFFSET 98", 2),
        ] {
            let rows = session.sql(sql).await.unwrap().collect().await.unwrap();
            assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), expected, "{sql}");
        }
    }
}
