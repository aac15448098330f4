//! Rejects expressions that always fail or are not deterministic: a text compared with a number, a division by a
//! constant zero, an invalid pattern, a function of the clock.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::Schema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, Volatility};
use datafusion::optimizer::Optimizer;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::simplify_expressions::{ExprSimplifier, SimplifyExpressions};
use datafusion::physical_expr::create_physical_expr;
use datafusion::prelude::SessionContext;
use types::{Error, Result};

use crate::checked::checked_physical;
use crate::plan::written::{ColumnNames, sql_of};
use constant_arguments::check_constant_arguments;

mod constant_arguments;

/// The name of a function that does not always return the same value for the same arguments.
pub(crate) fn unstable_function(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::ScalarFunction(function) if function.func.signature().volatility != Volatility::Immutable => Some(function.func.name()),
        _ => None,
    }
}

/// Simplifies an expression before it is planned. Some functions (coalesce, nvl) exist only for the simplifier, which
/// rewrites them to CASE. An expression that cannot be simplified is returned as it is, and fails when it is evaluated.
pub(crate) fn simplify_or_keep(expr: Expr, schema: &DFSchema) -> Expr {
    simplified(&expr, schema).unwrap_or(expr)
}

/// Simplifies the plan of what is computed for each event. The rules that move predicates are left out, because WHERE
/// guards the expressions above it.
pub(crate) fn simplified_events(prepare: &LogicalPlan, session: &SessionContext) -> DataFusionResult<LogicalPlan> {
    let rules = Optimizer::with_rules(vec![Arc::new(SimplifyExpressions::new()), Arc::new(OptimizeProjections::new())]);
    rules.optimize(prepare.clone(), &session.state(), |_, _| {})
}

/// Checks the expressions of an analysed plan.
///
/// Errors: `Input`, if one of them fails on every row that reaches it.
pub(crate) fn check_expressions(plan: &LogicalPlan) -> Result<()> {
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
        Err(error) if !matches!(error.find_root(), DataFusionError::ArrowError(..)) => Err(root_cause(error)),
        _ => Ok(()),
    }
}

/// Checks the constants, and the constant arguments, that are evaluated for every row: all but those in a branch of a
/// CASE, or behind an AND or OR that its left side already decides.
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

fn is_of_constants(expr: &Expr) -> bool {
    let is_computed = match expr {
        Expr::Literal(..) => return true,
        Expr::ScalarFunction(_) => unstable_function(expr).is_none(),
        Expr::BinaryExpr(_) | Expr::Cast(_) | Expr::TryCast(_) | Expr::Negative(_) | Expr::Not(_) | Expr::Like(_) => true,
        Expr::Between(_) | Expr::InList(_) | Expr::Case(_) | Expr::IsNull(_) | Expr::IsNotNull(_) => true,
        _ => false,
    };
    let mut are_constants = is_computed;
    let visited = expr.apply_children(|child| {
        are_constants = are_constants && is_of_constants(child);
        Ok(if are_constants { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    visited.is_ok() && are_constants
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

fn evaluate_constant(constant: &Expr) -> DataFusionResult<ScalarValue> {
    let no_columns = RecordBatchOptions::new().with_row_count(Some(1));
    let row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &no_columns)?;
    let compute = |constant: &Expr| {
        let physical = checked_physical(constant, &DFSchema::empty())?;
        ScalarValue::try_from_array(&physical.evaluate(&row)?.into_array(1)?, 0)
    };
    compute(constant).or_else(|error| match error.find_root() {
        // The simplifier would wrap around.
        DataFusionError::ArrowError(..) => Err(error),
        // Functions such as coalesce exist only for the simplifier.
        _ => simplified(constant, &DFSchema::empty()).and_then(|constant| compute(&constant)).map_err(|_| error),
    })
}

fn simplified(expr: &Expr, schema: &DFSchema) -> DataFusionResult<Expr> {
    let context = SimplifyContext::builder().with_schema(Arc::new(schema.clone())).build();
    ExprSimplifier::new(context).simplify(expr.clone())
}

fn refused(constant: &Expr, error: DataFusionError) -> Error {
    let error = root_cause(error);
    match constant {
        // The message of a cast names both types.
        Expr::Cast(_) => error,
        _ => Error::input(format!("{} cannot be computed: {}", sql_of(constant, ColumnNames::Bare), error.message())),
    }
}

/// The cause of an error on one line, without the names of the rules that found it.
fn root_cause(error: DataFusionError) -> Error {
    let DataFusionError::External(found) = error.find_root() else { return error.into() };
    Error::input(found.to_string().split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests;
