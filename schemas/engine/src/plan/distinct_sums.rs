//! A sum beside one `count(DISTINCT x)`.
//!
//! DataFusion 55 computes both by two GROUP BYs: one by the keys and x, and above it one by the keys alone. The sum
//! becomes a sum of sums, which has ten digits more if it is of decimals. The plan promised the type of a sum, so here
//! it is cast to that type.

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::expr_rewriter::coerce_plan_expr_for_schema;
use datafusion::optimizer::single_distinct_to_groupby::SingleDistinctToGroupBy;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// Takes the place of DataFusion's rule of the same name.
#[derive(Debug, Default)]
pub(crate) struct SumsKeepTheirTypes(SingleDistinctToGroupBy);

impl OptimizerRule for SumsKeepTheirTypes {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let promised = plan.schema().clone();
        let rewritten = self.0.rewrite(plan, config)?;
        match rewritten.transformed {
            true => rewritten.map_data(|plan| coerce_plan_expr_for_schema(plan, &promised)),
            false => Ok(rewritten),
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::util::pretty::pretty_format_batches;
    use datafusion::prelude::SessionContext;

    use crate::plan::asking_session_builder;

    #[tokio::test]
    async fn a_sum_of_decimals_beside_a_distinct_count_has_the_type_that_was_promised() {
        let session = SessionContext::new_with_state(asking_session_builder().build());
        let events = "(VALUES ('a', 1.50, 1), ('a', 2.25, 1), ('a', 4.00, 2), ('b', 8.00, 2)) AS events(k, amount, n)";
        let sql = format!("SELECT k, sum(amount) AS amount, count(DISTINCT n) AS numbers FROM {events} GROUP BY k ORDER BY k");
        let frame = session.sql(&sql).await.unwrap();
        let promised = frame.schema().field(1).data_type().clone();
        let optimized = frame.clone().into_optimized_plan().unwrap().display_indent().to_string();
        assert_eq!(optimized.matches("Aggregate: ").count(), 2, "{optimized}");
        let rows = frame.collect().await.unwrap();
        assert!(rows.iter().all(|batch| *batch.schema().field(1).data_type() == promised), "{promised}: {rows:?}");
        let shown = pretty_format_batches(&rows).unwrap().to_string();
        let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).filter(|cell| !cell.is_empty()).collect::<Vec<_>>();
        let lines: Vec<_> = shown.lines().map(cells).collect();
        assert!(lines.contains(&["a", "7.75", "2"].map(String::from).to_vec()), "{shown}");
    }
}
