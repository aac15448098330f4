//! Refuses expressions that DataFusion plans but cannot compute on any row, or for which it computes other values than
//! PostgreSQL.

use arrow::compute::kernels::cast_utils::IntervalUnit;
use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator};
use types::sql_errors::MEMBER_OF_JSON;
use types::{Error, Reason, Result};

use crate::plan::written::{ColumnNames, sql_of};

/// Checks all expressions of a plan and of its subqueries, including those that a CASE guards.
///
/// Errors: `Input`, if one of them is an operator that cannot be computed, or a part of a difference of times that is
/// not what PostgreSQL returns.
pub fn check_supported(plan: &LogicalPlan) -> Result<()> {
    check_each(plan, check)
}

/// Checks each expression of a plan and of its subqueries, with the schema that it reads.
pub(super) fn check_each(plan: &LogicalPlan, check: impl Fn(&Expr, &DFSchema) -> Result<()>) -> Result<()> {
    let mut outcome = Ok(());
    plan.apply_with_subqueries(|node| {
        let schema = merge_schema(&node.inputs());
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                outcome = check(expr, &schema);
                Ok(if outcome.is_ok() { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
            })
        })
    })?;
    outcome
}

fn check(expr: &Expr, schema: &DFSchema) -> Result<()> {
    match expr {
        Expr::BinaryExpr(binary) if is_of_texts(binary, schema) => match binary.op {
            Operator::AtArrow | Operator::ArrowAt => {
                let expected = format!("expected an array on each side; of a JSON, {MEMBER_OF_JSON}");
                Err(unsupported(expr, &format!("{} compares arrays, and this is a text: {expected}", binary.op)))
            }
            Operator::AtAt => Err(unsupported(expr, "there is no text search: expected LIKE or regexp_like(x, 'pattern')")),
            _ => Ok(()),
        },
        other => check_part(other, schema),
    }
}

/// Checks a call of `date_part`. For a difference of times, DataFusion returns the whole difference in hours, minutes
/// or seconds; PostgreSQL returns only the part of it that makes up no full day, hour or minute.
pub(super) fn check_part(expr: &Expr, schema: &DFSchema) -> Result<()> {
    let Expr::ScalarFunction(call) = expr else { return Ok(()) };
    let [Expr::Literal(unit, _), difference] = call.args.as_slice() else { return Ok(()) };
    let unit = unit.try_as_str().flatten().and_then(|unit| unit.parse::<IntervalUnit>().ok());
    let is_of_difference = call.func.name() == "date_part" && matches!(difference.get_type(schema), Ok(DataType::Duration(_)));
    if !is_of_difference || !unit.is_some_and(is_less_than_a_day) {
        return Ok(());
    }
    let seconds = format!("date_part('epoch', {})", sql_of(difference, ColumnNames::Bare));
    Err(unsupported(expr, &format!("such a part of a difference of times is not that of PostgreSQL: expected {seconds}, its seconds")))
}

fn is_less_than_a_day(unit: IntervalUnit) -> bool {
    use IntervalUnit::{Hour, Microsecond, Millisecond, Minute, Nanosecond, Second};
    matches!(unit, Hour | Minute | Second | Millisecond | Microsecond | Nanosecond)
}

/// Whether a side is a text and neither side is an array. (Where a side is an array, the other one may be an array that
/// is written as a text.)
fn is_of_texts(binary: &BinaryExpr, schema: &DFSchema) -> bool {
    let (Ok(left), Ok(right)) = (binary.left.get_type(schema), binary.right.get_type(schema)) else { return false };
    (left.is_string() || right.is_string()) && !left.is_nested() && !right.is_nested()
}

fn unsupported(expr: &Expr, reason: &str) -> Error {
    Error::input(format!("{} cannot be computed: {reason}", sql_of(expr, ColumnNames::Bare))).with_reason(Reason::NotSupported)
}
