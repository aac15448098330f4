//! Casts as in PostgreSQL, in every session: a number becomes the nearest integer (`2.7::int` is 3), and a value the
//! text that PostgreSQL has for it. DataFusion's casts cut the fraction off.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;

use crate::functions::value_texts::{VALUE_TEXT, has_own_text, value_text};
use crate::functions::{ROUND, is_part_of_postgresql, round};
use crate::plan::rewrite::each_expression;

/// Functions that join the texts of all their arguments.
const OF_TEXTS: [&str; 2] = ["concat", "concat_ws"];

/// Runs before DataFusion's own coercion: the casts are those that are written.
#[derive(Debug)]
pub(super) struct CastsOfPostgresql;

impl AnalyzerRule for CastsOfPostgresql {
    fn name(&self) -> &str {
        "casts_of_postgresql"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, &|expr, schema| Ok(changed(expr, schema)))
    }
}

fn changed(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let is = |operand: &Expr, fits: &dyn Fn(&DataType) -> bool| operand.get_type(schema).is_ok_and(|of| fits(&of));
    let has_fraction = |operand: &Expr| is(operand, &|of: &DataType| of.is_floating() || of.is_decimal());
    match expr {
        Expr::Cast(Cast { expr, field }) if field.data_type().is_integer() && has_fraction(&expr) => {
            Transformed::yes(Expr::Cast(Cast { expr: Box::new(call(round(), *expr)), field }))
        }
        Expr::TryCast(TryCast { expr, field }) if field.data_type().is_integer() && has_fraction(&expr) => {
            Transformed::yes(Expr::TryCast(TryCast { expr: Box::new(call(round(), *expr)), field }))
        }
        Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field })
            if *field.data_type() == DataType::Utf8 && is(&expr, &has_own_text) =>
        {
            Transformed::yes(call(value_text(), *expr))
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) => {
            let beside_text = |one: &Expr, other: &Expr| {
                is(other, &DataType::is_string) && is(one, &|of: &DataType| of.is_floating() || matches!(of, DataType::Interval(_)))
            };
            let (of_left, of_right) = (beside_text(&left, &right), beside_text(&right, &left));
            let as_text = |side: Box<Expr>, changes: bool| if changes { Box::new(call(value_text(), *side)) } else { side };
            let both = BinaryExpr { left: as_text(left, of_left), op: Operator::StringConcat, right: as_text(right, of_right) };
            Transformed::new_transformed(Expr::BinaryExpr(both), of_left || of_right)
        }
        Expr::ScalarFunction(ScalarFunction { func, mut args }) if OF_TEXTS.contains(&func.name()) => {
            let mut changes = false;
            for argument in &mut args {
                if is(argument, &|of: &DataType| of.is_floating() || matches!(of, DataType::Boolean | DataType::Interval(_))) {
                    *argument = call(value_text(), std::mem::take(argument));
                    changes = true;
                }
            }
            Transformed::new_transformed(Expr::ScalarFunction(ScalarFunction { func, args }), changes)
        }
        other => Transformed::no(other),
    }
}

/// The addition to the stamp for states that depend on a cast, a rounding or a part of a time that is PostgreSQL's.
/// Earlier releases kept DataFusion's.
pub(super) const STAMP: &str = "; values of PostgreSQL/1";

/// Whether an expression has a value that was DataFusion's in earlier releases.
pub(super) fn has_postgresql_values(expr: &Expr) -> bool {
    let is_such = |expr: &Expr| match expr {
        Expr::ScalarFunction(call) => matches!(call.func.name(), ROUND | VALUE_TEXT) || is_part_of_postgresql(call),
        _ => false,
    };
    expr.exists(|expr| Ok(is_such(expr))).unwrap_or(false)
}

/// Returns the expression as the user wrote it, but for the cast.
pub(super) fn written(expr: Expr) -> Expr {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, mut args }) if func.name() == VALUE_TEXT && args.len() == 1 => args.remove(0),
        other => other,
    }
}

fn call(function: ScalarUDF, operand: Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), vec![operand]))
}

#[cfg(test)]
mod tests;
