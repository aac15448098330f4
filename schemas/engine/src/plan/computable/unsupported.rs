//! Refuses what DataFusion plans and cannot compute on any row.

use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator};
use types::sql_errors::MEMBER_OF_JSON;
use types::{Error, Reason, Result};

use crate::plan::written::{ColumnNames, sql_of};

/// Checks all expressions of a plan and of its subqueries, also those that a CASE guards.
///
/// Errors: `Input`, if one of them is an operator that cannot be computed.
pub fn check_supported(plan: &LogicalPlan) -> Result<()> {
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
        _ => Ok(()),
    }
}

/// Whether a side is a text, and none is an array: such an array may be written as a text.
fn is_of_texts(binary: &BinaryExpr, schema: &DFSchema) -> bool {
    let (Ok(left), Ok(right)) = (binary.left.get_type(schema), binary.right.get_type(schema)) else { return false };
    (left.is_string() || right.is_string()) && !left.is_nested() && !right.is_nested()
}

fn unsupported(expr: &Expr, reason: &str) -> Error {
    Error::input(format!("{} cannot be computed: {reason}", sql_of(expr, ColumnNames::Bare))).with_reason(Reason::NotSupported)
}
