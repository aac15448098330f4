//! Operands whose types PostgreSQL brings together and DataFusion does not: a text beside a BOOLEAN or an array, a
//! number beside an INTERVAL, and a DATE beside one with hours. And `^`, which is an exclusive or to DataFusion, and
//! binds less than `*` there.

use std::sync::Arc;

use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit, TimeUnit};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, ScalarUDF, cast};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use engine::functions::{interval_product, interval_quotient};
use types::{Error, Reason};

use super::array_text::array_value;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

#[derive(Debug)]
pub(super) struct OperandTypes;

impl ExprPlanner for OperandTypes {
    fn plan_binary_op(&self, operation: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let RawBinaryExpr { op, left, right } = operation;
        match op {
            BinaryOperator::Eq
            | BinaryOperator::NotEq
            | BinaryOperator::Lt
            | BinaryOperator::LtEq
            | BinaryOperator::Gt
            | BinaryOperator::GtEq => {
                let (of_left, of_right) = (value_beside(&left, &right, schema)?, value_beside(&right, &left, schema)?);
                let (left, right) = (of_left.unwrap_or(left), of_right.unwrap_or(right));
                Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }))
            }
            BinaryOperator::Multiply => {
                let product = match (is_interval(&left, schema), is_interval(&right, schema)) {
                    (true, false) => Some(product(left.clone(), right.clone())?),
                    (false, true) => Some(product(right.clone(), left.clone())?),
                    _ => None,
                };
                Ok(product.map_or(PlannerResult::Original(RawBinaryExpr { op, left, right }), PlannerResult::Planned))
            }
            BinaryOperator::BitwiseXor => {
                let message = "not supported: the operator ^, a power in PostgreSQL and an exclusive or in definitions: write power(a, b)";
                Err(Error::input(message).with_reason(Reason::NotSupported).into())
            }
            BinaryOperator::Divide if is_interval(&left, schema) => Ok(PlannerResult::Planned(scaled(interval_quotient(), left, right))),
            BinaryOperator::Plus | BinaryOperator::Minus => {
                let is_date = |expr: &Expr| matches!(expr.get_type(schema), Ok(DataType::Date32));
                let shifts_hours = |expr: &Expr| matches!(expr.get_type(schema), Ok(DataType::Interval(_))) && may_have_hours(expr);
                let (left, right) = match op {
                    _ if is_date(&left) && shifts_hours(&right) => (midnight(left), right),
                    BinaryOperator::Plus if is_date(&right) && shifts_hours(&left) => (left, midnight(right)),
                    _ => (left, right),
                };
                Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }))
            }
            _ => Ok(PlannerResult::Original(RawBinaryExpr { op, left, right })),
        }
    }
}

/// Returns the value that a text literal stands for next to the other operand. `None` where DataFusion converts it
/// itself.
fn value_beside(literal: &Expr, other: &Expr, schema: &DFSchema) -> types::Result<Option<Expr>> {
    let Expr::Literal(value, _) = literal else { return Ok(None) };
    let Some(Some(text)) = value.try_as_str() else { return Ok(None) };
    let value = match other.get_type(schema) {
        Ok(DataType::Boolean) => ScalarValue::Boolean(Some(truth(text)?)),
        Ok(DataType::List(item)) => array_value(text, item.data_type())?,
        _ => return Ok(None),
    };
    Ok(Some(Expr::Literal(value, None)))
}

/// Parses a BOOLEAN as PostgreSQL does: `true`, `yes`, `on`, `1` or the beginning of one of them, or their opposites.
pub(super) fn truth(text: &str) -> types::Result<bool> {
    let word = text.trim().to_lowercase();
    let begins = |whole: &str, fewest: usize| word.len() >= fewest && whole.starts_with(&word);
    if begins("true", 1) || begins("yes", 1) || begins("on", 2) || word == "1" {
        return Ok(true);
    }
    if begins("false", 1) || begins("no", 1) || begins("off", 2) || word == "0" {
        return Ok(false);
    }
    let shown: String = text.chars().take(60).collect();
    Err(Error::input(format!("found '{shown}' beside a BOOLEAN, expected 'true' or 'false'")).with_reason(Reason::InvalidText))
}

fn is_interval(expr: &Expr, schema: &DFSchema) -> bool {
    matches!(expr.get_type(schema), Ok(DataType::Interval(_) | DataType::Duration(_)))
}

fn midnight(date: Expr) -> Expr {
    cast(date, DataType::Timestamp(TimeUnit::Microsecond, None))
}

/// Whether an interval is more than days and months that are written as such.
fn may_have_hours(interval: &Expr) -> bool {
    match constant(interval, &INTERVAL) {
        Some(ScalarValue::IntervalMonthDayNano(Some(interval))) => interval.nanoseconds != 0,
        _ => true,
    }
}

fn product(interval: Expr, factor: Expr) -> types::Result<Expr> {
    let (Some(ScalarValue::IntervalMonthDayNano(Some(interval))), Some(ScalarValue::Int64(Some(factor)))) =
        (constant(&interval, &INTERVAL), constant(&factor, &DataType::Int64))
    else {
        return Ok(scaled(interval_product(), interval, factor));
    };
    let product = i32::try_from(factor)
        .ok()
        .and_then(|count| interval.checked_mul(IntervalMonthDayNano::new(count, count, factor)))
        .ok_or_else(|| Error::input("an interval is too large").with_reason(Reason::TimeOutOfRange))?;
    Ok(Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(product)), None))
}

fn scaled(function: ScalarUDF, interval: Expr, number: Expr) -> Expr {
    let operands = vec![cast(interval, INTERVAL), cast(number, DataType::Float64)];
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), operands))
}

/// The value of a literal of this type, or of one that is cast to it.
fn constant(expr: &Expr, data_type: &DataType) -> Option<ScalarValue> {
    match expr {
        Expr::Literal(value, _) if value.data_type() == *data_type => Some(value.clone()),
        Expr::Cast(cast) if cast.field.data_type() == data_type => match &*cast.expr {
            Expr::Literal(value, _) => value.cast_to(data_type).ok(),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truths_are_read_as_postgresql_reads_them() {
        for (text, expected) in
            [("true", true), (" T ", true), ("ye", true), ("on", true), ("1", true), ("F", false), ("of", false), ("n", false)]
        {
            assert_eq!(truth(text).unwrap(), expected, "{text}");
        }
        for wrong in ["", "o", "truth", "2", "ja"] {
            assert_eq!(truth(wrong).unwrap_err().reason(), Some(Reason::InvalidText), "{wrong}");
        }
    }
}
