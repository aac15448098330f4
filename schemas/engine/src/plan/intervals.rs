//! Compares intervals by their length, in every session. DataFusion compares a difference of times with an interval
//! part by part, as months, days and nanoseconds, so that 25 hours are not more than a day. It also computes the
//! seconds of a difference of times (`date_part('epoch', a - b)`), whose fraction DataFusion drops.

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue, plan_err};
use datafusion::functions::expr_fn::date_part;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, lit};
use datafusion::optimizer::AnalyzerRule;

use crate::functions::intervals::{LENGTH_FUNCTION, SECONDS_FUNCTION, length, seconds};
use crate::plan::rewrite::{compared, each_expression};

/// Functions that compare their arguments and return one of them.
const COMPARING: [&str; 3] = ["greatest", "least", "nullif"];

/// Runs before DataFusion's own coercion.
#[derive(Debug)]
pub(super) struct IntervalsHaveLengths;

impl AnalyzerRule for IntervalsHaveLengths {
    fn name(&self) -> &str {
        "intervals_have_lengths"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, &compare_lengths)
    }
}

fn compare_lengths(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let mut expr = expr;
    let changed = match &mut expr {
        Expr::ScalarFunction(call) if is_epoch_of_difference(call, schema) => {
            *call = ScalarFunction::new_udf(seconds(), call.args.split_off(1));
            true
        }
        Expr::ScalarFunction(call) if COMPARING.contains(&call.func.name()) && call.args.iter().any(|arg| is_interval(arg, schema)) => {
            return plan_err!(
                "{}() does not compare intervals: expected CASE WHEN a > b THEN a ELSE b END, or differences of times alone",
                call.func.name()
            );
        }
        other => as_lengths(&mut compared(other), schema),
    };
    Ok(if changed { Transformed::yes(expr) } else { Transformed::no(expr) })
}

/// If one expression is an INTERVAL, replaces those that are intervals or differences of times by their lengths.
/// Returns whether anything changed.
fn as_lengths(all: &mut [&mut Expr], schema: &DFSchema) -> bool {
    if !all.iter().any(|expr| is_interval(expr, schema)) {
        return false;
    }
    for expr in all.iter_mut() {
        if let Ok(DataType::Interval(_) | DataType::Duration(_) | DataType::Null) = expr.get_type(schema) {
            let interval = std::mem::take(&mut **expr);
            **expr = Expr::ScalarFunction(ScalarFunction::new_udf(length(), vec![interval]));
        }
    }
    true
}

fn is_epoch_of_difference(call: &ScalarFunction, schema: &DFSchema) -> bool {
    let [Expr::Literal(ScalarValue::Utf8(Some(part)), _), difference] = call.args.as_slice() else { return false };
    call.func.name() == "date_part"
        && part.eq_ignore_ascii_case("epoch")
        && matches!(difference.get_type(schema), Ok(DataType::Duration(_)))
}

/// The addition to the stamp for states that depend on a comparison of intervals. Earlier releases compared them part
/// by part.
pub(super) const STAMP: &str = "; intervals by length/1";

/// Whether an expression compares intervals.
pub(super) fn compares(expr: &Expr) -> bool {
    calls(expr, LENGTH_FUNCTION)
}

/// The addition to the stamp for states that depend on the seconds between two times. Earlier releases dropped their
/// fraction.
pub(super) const SECONDS_STAMP: &str = "; seconds with fractions/1";

/// Whether an expression takes the seconds between two times.
pub(super) fn takes_seconds(expr: &Expr) -> bool {
    calls(expr, SECONDS_FUNCTION)
}

fn calls(expr: &Expr, function: &str) -> bool {
    let is_call = |expr: &Expr| matches!(expr, Expr::ScalarFunction(call) if call.func.name() == function);
    expr.exists(|expr| Ok(is_call(expr))).unwrap_or(false)
}

/// Returns the expression as the user wrote it.
pub(super) fn written(expr: Expr) -> Expr {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, mut args }) if func.name() == LENGTH_FUNCTION && args.len() == 1 => args.remove(0),
        Expr::ScalarFunction(ScalarFunction { func, mut args }) if func.name() == SECONDS_FUNCTION && args.len() == 1 => {
            date_part(lit("epoch"), args.remove(0))
        }
        other => other,
    }
}

fn is_interval(expr: &Expr, schema: &DFSchema) -> bool {
    matches!(expr.get_type(schema), Ok(DataType::Interval(_)))
}

#[cfg(test)]
mod tests;
