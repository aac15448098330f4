//! Keeps the digits of a division with a decimal, in every session: a view, a query, `verify`. DataFusion divides
//! decimals with four digits more than the dividend has. Integers divided by integers stay integers, and a DOUBLE on
//! either side makes the quotient a DOUBLE.

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, binary_expr, cast};
use datafusion::optimizer::AnalyzerRule;

use crate::functions::decimals::{DecimalOperator, QUOTIENT, operand_scale};
use crate::plan::rewrite::each_expression;

/// Runs after [`DoublesStay`](super::doubles::DoublesStay), before DataFusion's own coercion.
#[derive(Debug)]
pub(super) struct QuotientsKeepDigits;

impl AnalyzerRule for QuotientsKeepDigits {
    fn name(&self) -> &str {
        "quotients_keep_digits"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, &keep_digits)
    }
}

fn keep_digits(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = &expr else { return Ok(Transformed::no(expr)) };
    let (Ok(left_type), Ok(right_type)) = (left.get_type(schema), right.get_type(schema)) else { return Ok(Transformed::no(expr)) };
    let Some(operator) = operator(*op, &left_type, &right_type) else { return Ok(Transformed::no(expr)) };
    let (Some(left), Some(right)) = (operand(left, &left_type), operand(right, &right_type)) else { return Ok(Transformed::no(expr)) };
    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(operator.function(), vec![left, right]))))
}

/// Returns what replaces DataFusion's operator on these types. Its product of a quotient and another decimal has more
/// digits after the point than fit a decimal.
fn operator(operator: Operator, left: &DataType, right: &DataType) -> Option<DecimalOperator> {
    let is_wide = |of: &DataType| matches!(of, DataType::Decimal256(..));
    match operator {
        Operator::Divide if left.is_decimal() || right.is_decimal() => Some(DecimalOperator::Divide),
        Operator::Multiply if is_wide(left) || is_wide(right) => Some(DecimalOperator::Multiply),
        _ => None,
    }
}

/// Returns an integer as a decimal, and a decimal with at most 38 digits after the point. `None` for other types.
fn operand(expr: &Expr, data_type: &DataType) -> Option<Expr> {
    let converted = match data_type {
        DataType::Int8 | DataType::UInt8 => DataType::Decimal128(3, 0),
        DataType::Int16 | DataType::UInt16 => DataType::Decimal128(5, 0),
        DataType::Int32 | DataType::UInt32 => DataType::Decimal128(10, 0),
        DataType::Int64 | DataType::UInt64 => DataType::Decimal128(20, 0),
        DataType::Decimal256(_, scale) if *scale >= 0 && operand_scale(data_type).is_none() => QUOTIENT,
        _ => return operand_scale(data_type).map(|_| expr.clone()),
    };
    Some(cast(expr.clone(), converted))
}

/// The addition to the stamp for states that depend on a division with a decimal. Earlier releases kept other digits.
pub(super) const STAMP: &str = "; decimal division/2";

/// Whether an expression divides with a decimal.
pub(super) fn divides(expr: &Expr) -> bool {
    let is_division = |expr: &Expr| matches!(as_operator(expr), Some(BinaryExpr { op: Operator::Divide, .. }));
    expr.exists(|expr| Ok(is_division(expr))).unwrap_or(false)
}

/// Returns the expression as the user wrote it.
pub(super) fn written(expr: Expr) -> Expr {
    match as_operator(&expr) {
        Some(BinaryExpr { left, op, right }) => binary_expr(*left, op, *right),
        None => expr,
    }
}

/// Returns the operator that a call of one of our functions stands for, with its operands.
pub(super) fn as_operator(expr: &Expr) -> Option<BinaryExpr> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = expr else { return None };
    let operator = DecimalOperator::from_function(func)?;
    let [left, right] = args.as_slice() else { return None };
    Some(BinaryExpr::new(Box::new(left.clone()), operator.operator(), Box::new(right.clone())))
}

#[cfg(test)]
mod tests;
