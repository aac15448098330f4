//! Which comparisons of a condition change at most once as time passes.
//!
//! A term goes with the time, against it, or neither. `as_of()` goes with it; sums and differences with terms that do
//! not ask for the time, casts between types of time, and `date_trunc` keep that. A comparison of two terms that never
//! go the same way changes at most once. AND, OR and NOT of such comparisons change only where one of them does.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator};
use types::{Error, Result};

use crate::functions::intervals::{LENGTH_FUNCTION, SECONDS_FUNCTION};
use crate::plan::{ColumnNames, asks_for_time, sql_of};

/// How the value of a term changes as time passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Monotonicity {
    Constant,
    /// It never becomes smaller.
    Increasing,
    /// It never becomes greater.
    Decreasing,
}

impl Monotonicity {
    fn reversed(self) -> Monotonicity {
        match self {
            Monotonicity::Constant => Monotonicity::Constant,
            Monotonicity::Increasing => Monotonicity::Decreasing,
            Monotonicity::Decreasing => Monotonicity::Increasing,
        }
    }

    /// The monotonicity of a sum.
    fn and(self, other: Monotonicity) -> Option<Monotonicity> {
        match (self, other) {
            (term, Monotonicity::Constant) | (Monotonicity::Constant, term) => Some(term),
            (term, other) => (term == other).then_some(term),
        }
    }
}

/// Returns the comparisons of a condition that ask for the time, each of which changes at most once.
///
/// Errors: a part of the condition asks for the time in another way.
pub(super) fn comparisons(condition: &Expr, schema: &DFSchema) -> Result<Vec<Expr>> {
    let mut found = Vec::new();
    collect(condition, schema, &mut found)?;
    Ok(found)
}

fn collect(condition: &Expr, schema: &DFSchema, found: &mut Vec<Expr>) -> Result<()> {
    if !mentions_time(condition) {
        return Ok(());
    }
    match condition {
        Expr::Alias(alias) => collect(&alias.expr, schema, found),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And | Operator::Or, right }) => {
            collect(left, schema, found)?;
            collect(right, schema, found)
        }
        Expr::Not(inner)
        | Expr::IsTrue(inner)
        | Expr::IsFalse(inner)
        | Expr::IsUnknown(inner)
        | Expr::IsNotTrue(inner)
        | Expr::IsNotFalse(inner)
        | Expr::IsNotUnknown(inner) => collect(inner, schema, found),
        // Whether a term is NULL does not depend on the time.
        Expr::IsNull(term) | Expr::IsNotNull(term) if monotonicity(term, schema).is_some() => Ok(()),
        Expr::Between(between) => {
            compared(condition, (&between.expr, Operator::GtEq, &between.low), schema, found)?;
            compared(condition, (&between.expr, Operator::LtEq, &between.high), schema, found)
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::Gt | Operator::GtEq | Operator::Lt | Operator::LtEq => compared(condition, (left, *op, right), schema, found),
            // It begins to hold where one of the two begins, and ceases where the other one ceases.
            Operator::Eq | Operator::NotEq | Operator::IsDistinctFrom | Operator::IsNotDistinctFrom => {
                compared(condition, (left, Operator::GtEq, right), schema, found)?;
                compared(condition, (left, Operator::LtEq, right), schema, found)
            }
            _ => Err(refused(condition)),
        },
        _ => Err(refused(condition)),
    }
}

/// Adds one comparison of a condition, unless it does not ask for the time.
fn compared(condition: &Expr, (left, op, right): (&Expr, Operator, &Expr), schema: &DFSchema, found: &mut Vec<Expr>) -> Result<()> {
    let comparison = Expr::BinaryExpr(BinaryExpr::new(Box::new(left.clone()), op, Box::new(right.clone())));
    if !mentions_time(&comparison) {
        return Ok(());
    }
    if has_months(left, schema) || has_months(right, schema) {
        return Err(refused(condition));
    }
    let sides = monotonicity(left, schema).zip(monotonicity(right, schema));
    match sides.and_then(|(left, right)| left.and(right.reversed())) {
        Some(_) => {
            found.push(comparison);
            Ok(())
        }
        None => Err(refused(condition)),
    }
}

fn refused(condition: &Expr) -> Error {
    Error::input(format!(
        "the time at which {} becomes true cannot be computed: expected as_of() in a comparison such as as_of() - last_seen > INTERVAL '30 minutes'",
        sql_of(condition, ColumnNames::Bare)
    ))
}

fn mentions_time(expr: &Expr) -> bool {
    expr.exists(|expr| Ok(asks_for_time(expr))).unwrap_or(true)
}

/// The monotonicity of a term; `None` if that is not known.
fn monotonicity(term: &Expr, schema: &DFSchema) -> Option<Monotonicity> {
    if asks_for_time(term) {
        return Some(Monotonicity::Increasing);
    }
    if !mentions_time(term) {
        return Some(Monotonicity::Constant);
    }
    match term {
        Expr::Alias(alias) => monotonicity(&alias.expr, schema),
        Expr::Negative(inner) => monotonicity(inner, schema).map(Monotonicity::reversed),
        Expr::Cast(cast) => {
            let from = cast.expr.get_type(schema).ok()?;
            let to = term.get_type(schema).ok()?;
            (is_ordered(&from) && is_ordered(&to)).then(|| monotonicity(&cast.expr, schema)).flatten()
        }
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Plus | Operator::Minus), right }) => {
            if has_months(left, schema) || has_months(right, schema) {
                return None;
            }
            let right = monotonicity(right, schema)?;
            monotonicity(left, schema)?.and(if *op == Operator::Plus { right } else { right.reversed() })
        }
        // A comparison with an interval is one of lengths, and the seconds between two times are one of them.
        Expr::ScalarFunction(call) if matches!(call.func.name(), LENGTH_FUNCTION | SECONDS_FUNCTION) => {
            monotonicity(call.args.first()?, schema)
        }
        // A cast to an integer rounds.
        Expr::ScalarFunction(call) if call.args.len() == 1 && matches!(call.func.name(), "round" | "trunc" | "floor" | "ceil") => {
            monotonicity(&call.args[0], schema)
        }
        Expr::ScalarFunction(call) if matches!(call.func.name(), "date_trunc" | "date_part") => {
            let [Expr::Literal(ScalarValue::Utf8(Some(part)), _), of] = call.args.as_slice() else { return None };
            let keeps = call.func.name() == "date_trunc" || part.eq_ignore_ascii_case("epoch");
            keeps.then(|| monotonicity(of, schema)).flatten()
        }
        _ => None,
    }
}

/// Types of time, between which a cast keeps the order, and numbers.
fn is_ordered(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(..) | DataType::Date32 | DataType::Duration(_) | DataType::Interval(_))
        || data_type.is_numeric()
}

/// A month has 28 to 31 days: the day before a month's end and that end, less a month, may be the same day.
fn has_months(term: &Expr, schema: &DFSchema) -> bool {
    match term {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(interval)), _) => interval.months != 0,
        Expr::Literal(ScalarValue::IntervalDayTime(Some(_)), _) => false,
        _ => !mentions_time(term) && matches!(term.get_type(schema), Ok(DataType::Interval(_)) | Err(_)),
    }
}
