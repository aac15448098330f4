//! Plans `array_agg(x ORDER BY ..)[n]` as an element of that array, in every session. DataFusion would turn it into
//! `nth_value(x, n ORDER BY ..)`, which ignores DISTINCT and leaves ties in any order, and whose states do not merge to
//! the value over all events.

use datafusion::common::{DFSchema, Result};
use datafusion::functions_nested::extract::array_element;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawFieldAccessExpr};
use datafusion::logical_expr::{Expr, GetFieldAccess};

/// Runs before DataFusion's own planners.
#[derive(Debug)]
pub(super) struct ElementsOfArrays;

impl ExprPlanner for ElementsOfArrays {
    fn plan_field_access(&self, access: RawFieldAccessExpr, _: &DFSchema) -> Result<PlannerResult<RawFieldAccessExpr>> {
        match access {
            RawFieldAccessExpr { field_access: GetFieldAccess::ListIndex { key }, expr: Expr::AggregateFunction(array) }
                if array.func.name() == "array_agg" =>
            {
                Ok(PlannerResult::Planned(array_element(Expr::AggregateFunction(array), *key)))
            }
            other => Ok(PlannerResult::Original(other)),
        }
    }
}
