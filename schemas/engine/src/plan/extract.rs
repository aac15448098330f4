//! Plans `extract(second FROM ts)` as a call of our `date_part`, in every session. DataFusion would call its own.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult};

use crate::functions::date_part;

/// Runs before DataFusion's own planners.
#[derive(Debug)]
pub(super) struct PartsAreExtracted;

impl ExprPlanner for PartsAreExtracted {
    fn plan_extract(&self, arguments: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(date_part()), arguments))))
    }
}
