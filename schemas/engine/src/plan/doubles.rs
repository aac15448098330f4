//! Keeps DOUBLE next to DECIMAL a DOUBLE. Where the two are compared or combined into one value, DataFusion converts
//! both to DECIMAL(30,15), in which 1e15 does not fit and 1e-300 is 0. Literals with a point are decimals here, so any
//! `x > 0.5` would be affected.

use arrow::datatypes::{DataType, Decimal128Type, Decimal256Type, DecimalType};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, cast};
use datafusion::optimizer::AnalyzerRule;

use crate::plan::rewrite::each_expression;

/// Functions whose arguments have a common type: they return one of the arguments, or an array of them.
const OF_ONE_TYPE: [&str; 9] = ["coalesce", "greatest", "least", "nullif", "nvl", "nvl2", "make_array", "array_position", "array_has"];

/// Runs before DataFusion's own coercion.
#[derive(Debug)]
pub(super) struct DoublesStay;

impl AnalyzerRule for DoublesStay {
    fn name(&self) -> &str {
        "doubles_stay"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, &stay)
    }
}

fn stay(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let mut expr = expr;
    let changed = match &mut expr {
        Expr::BinaryExpr(both) if both.op.supports_propagation() => as_doubles(&mut [both.left.as_mut(), both.right.as_mut()], schema)?,
        Expr::Between(between) => as_doubles(&mut [between.expr.as_mut(), between.low.as_mut(), between.high.as_mut()], schema)?,
        Expr::InList(list) => {
            let mut all: Vec<&mut Expr> = std::iter::once(list.expr.as_mut()).chain(&mut list.list).collect();
            as_doubles(&mut all, schema)?
        }
        Expr::Case(case) => {
            let (mut compared, mut values): (Vec<&mut Expr>, Vec<&mut Expr>) =
                case.when_then_expr.iter_mut().map(|(when, then)| (when.as_mut(), then.as_mut())).unzip();
            compared.extend(case.expr.as_deref_mut());
            values.extend(case.else_expr.as_deref_mut());
            as_doubles(&mut compared, schema)? | as_doubles(&mut values, schema)?
        }
        Expr::ScalarFunction(call) if OF_ONE_TYPE.contains(&call.func.name()) => {
            let mut all: Vec<&mut Expr> = call.args.iter_mut().collect();
            as_doubles(&mut all, schema)?
        }
        _ => false,
    };
    Ok(if changed { Transformed::yes(expr) } else { Transformed::no(expr) })
}

/// If one expression is a DOUBLE or a REAL, casts the DECIMAL ones to DOUBLE. Returns whether anything changed.
fn as_doubles(all: &mut [&mut Expr], schema: &DFSchema) -> Result<bool> {
    let types: Vec<DataType> = all.iter().map(|expr| expr.get_type(schema).unwrap_or(DataType::Null)).collect();
    if !types.iter().any(DataType::is_floating) {
        return Ok(false);
    }
    let mut changed = false;
    for (expr, data_type) in all.iter_mut().zip(&types) {
        if matches!(data_type, DataType::Decimal128(..) | DataType::Decimal256(..)) {
            let decimal = std::mem::take(&mut **expr);
            **expr = as_double(decimal);
            changed = true;
        }
    }
    Ok(changed)
}

/// A decimal as a DOUBLE; of a literal, the one that its digits are.
pub(super) fn as_double(decimal: Expr) -> Expr {
    let text = match &decimal {
        Expr::Literal(ScalarValue::Decimal128(Some(value), precision, scale), _) => {
            Some(Decimal128Type::format_decimal(*value, *precision, *scale))
        }
        Expr::Literal(ScalarValue::Decimal256(Some(value), precision, scale), _) => {
            Some(Decimal256Type::format_decimal(*value, *precision, *scale))
        }
        _ => None,
    };
    match text.and_then(|text| text.parse().ok()) {
        Some(value) => Expr::Literal(ScalarValue::Float64(Some(value)), None),
        None => cast(decimal, DataType::Float64),
    }
}

#[cfg(test)]
mod tests;
