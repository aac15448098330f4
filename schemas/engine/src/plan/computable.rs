//! Refuses expressions that always fail or are not deterministic: a text compared with a number, a division by a
//! constant zero, an invalid pattern, a function of the clock.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};
use datafusion::optimizer::Optimizer;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::physical_expr::create_physical_expr;
use datafusion::prelude::SessionContext;
use types::{Error, Result};

use causes::{refused, root_cause};
use constant_arguments::check_constant_arguments;
use constants::{evaluate_constant, is_of_constants};
use simplify::simplified;
use time_patterns::check_time_patterns;

mod causes;
mod constant_arguments;
mod constants;
mod simplify;
mod time_patterns;
mod unsupported;

pub(crate) use constants::unstable_function;
pub(crate) use simplify::simplify_or_keep;
pub use unsupported::check_supported;

/// Simplifies the plan of what is computed for each event. The rules that move predicates are left out, because WHERE
/// guards the expressions above it.
pub(crate) fn simplified_events(prepare: &LogicalPlan, session: &SessionContext) -> DataFusionResult<LogicalPlan> {
    let rules = Optimizer::with_rules(vec![Arc::new(SimplifyExpressions::new()), Arc::new(OptimizeProjections::new())]);
    rules.optimize(prepare.clone(), &session.state(), |_, _| {})
}

/// Checks the expressions of an analysed plan.
///
/// Errors: `Input`, if one of them fails on every row that reaches it, and for PostgreSQL's patterns of times.
pub(crate) fn check_expressions(plan: &LogicalPlan) -> Result<()> {
    check_supported(plan)?;
    check_time_patterns(plan)?;
    let mut outcome = Ok(());
    plan.apply(|node| {
        let inputs = node.inputs();
        let schema = if let [input] = inputs.as_slice() { input.schema() } else { node.schema() };
        outcome = node.expressions().iter().try_for_each(|expr| check(expr, schema));
        Ok(if outcome.is_ok() { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    outcome
}

/// Checks that what is computed for each event can be planned in the way the layers plan it.
///
/// Errors: `Input`, if it cannot.
pub(super) fn check_events(prepare: &LogicalPlan, session: &SessionContext) -> Result<()> {
    let checked = simplified_events(prepare, session).and_then(|simplified| {
        simplified.apply(|node| {
            if let [input] = node.inputs().as_slice() {
                for expr in node.expressions() {
                    create_physical_expr(&expr, input.schema(), &ExecutionProps::new(), &PhysicalPlanningContext::default())?;
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })
    });
    checked.map(|_| ()).map_err(root_cause)
}

fn check(expr: &Expr, schema: &DFSchema) -> Result<()> {
    check_evaluated(expr, schema)?;
    match simplified(expr, schema) {
        // A guarded constant: the simplifier evaluates it all the same.
        Err(error) if !matches!(Error::datafusion_root(&error), DataFusionError::ArrowError(..)) => Err(root_cause(error)),
        _ => Ok(()),
    }
}

/// Checks the constants, and the constant arguments, that are evaluated for every row: all except those in a branch of
/// a CASE, or behind an AND or OR that its left side decides.
fn check_evaluated(expr: &Expr, schema: &DFSchema) -> Result<()> {
    if is_constant(expr) {
        return evaluate_constant(expr).map(|_| ()).map_err(|error| refused(expr, error));
    }
    match expr {
        Expr::Case(case) => {
            let first = case.when_then_expr.first().map(|(when, _)| when);
            return case.expr.iter().chain(first).try_for_each(|part| check_evaluated(part, schema));
        }
        Expr::BinaryExpr(binary) if is_decided(binary) => return Ok(()),
        _ => {}
    }
    check_constant_arguments(expr, schema)?;
    let mut outcome = Ok(());
    expr.apply_children(|child| {
        outcome = check_evaluated(child, schema);
        Ok(if outcome.is_ok() { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    outcome
}

/// Whether an expression is computed from constants alone, and is not a literal itself.
fn is_constant(expr: &Expr) -> bool {
    !matches!(expr, Expr::Literal(..)) && is_of_constants(expr)
}

/// Whether the left side alone decides an AND or OR.
fn is_decided(binary: &BinaryExpr) -> bool {
    let deciding = match binary.op {
        Operator::And => false,
        Operator::Or => true,
        _ => return false,
    };
    is_of_constants(&binary.left) && evaluate_constant(&binary.left).is_ok_and(|value| value == ScalarValue::Boolean(Some(deciding)))
}

#[cfg(test)]
mod tests;
