//! Which expressions a sink can compute: those of one event and its rows.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::Expr;
use types::{Error, Result};

use super::select_owner::SelectOwner;
use crate::functions::WITHIN;
use crate::plan::{asks_for_time, unstable_function};

/// Errors: `Input`, for a subquery, an aggregate, or a function that answers differently from call to call.
pub(super) fn check_expression(expr: &Expr) -> Result<()> {
    let mut problem = None;
    expr.apply(|expr| {
        problem = match expr {
            Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_) => Some(
                "a subquery is not supported in a sink: expected columns of the event and of views that are joined by their keys"
                    .to_owned(),
            ),
            Expr::ScalarFunction(function) if function.func.name() == WITHIN => {
                Some("within() belongs to the FILTER of an aggregate: expected a comparison with as_of()".to_owned())
            }
            Expr::AggregateFunction(_) | Expr::WindowFunction(_) => Some(SelectOwner::Sink.aggregates().message().to_owned()),
            _ if asks_for_time(expr) => None,
            _ => unstable_function(expr).map(|name| {
                format!(
                    "{name}() answers differently from call to call: expected a function of the event and its rows, or as_of() for the time"
                )
            }),
        };
        Ok(if problem.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    problem.map_or(Ok(()), |problem| Err(Error::input(problem)))
}
