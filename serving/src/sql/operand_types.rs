//! Operands whose types PostgreSQL unifies and DataFusion does not: a text with a BOOLEAN or an array, and a number
//! with an INTERVAL.

use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use types::{Error, Reason};

use super::array_text::array_value;

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
                    (true, false) => Some(product(&left, &right)?),
                    (false, true) => Some(product(&right, &left)?),
                    _ => None,
                };
                Ok(product.map_or(PlannerResult::Original(RawBinaryExpr { op, left, right }), PlannerResult::Planned))
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
fn truth(text: &str) -> types::Result<bool> {
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
    matches!(expr.get_type(schema), Ok(DataType::Interval(_)))
}

/// The product of an interval and an integer, both of them constants.
fn product(interval: &Expr, factor: &Expr) -> types::Result<Expr> {
    let (Some(ScalarValue::IntervalMonthDayNano(Some(interval))), Some(ScalarValue::Int64(Some(factor)))) =
        (constant(interval, &DataType::Interval(IntervalUnit::MonthDayNano)), constant(factor, &DataType::Int64))
    else {
        let expected = "expected an integer and an interval that are written as such; for a column n, write CAST(n || ' days' AS INTERVAL)";
        return Err(Error::input(format!("not supported: the product of an INTERVAL, {expected}")).with_reason(Reason::NotSupported));
    };
    let product = i32::try_from(factor)
        .ok()
        .and_then(|count| interval.checked_mul(IntervalMonthDayNano::new(count, count, factor)))
        .ok_or_else(|| Error::input("an interval is too large").with_reason(Reason::TimeOutOfRange))?;
    Ok(Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(product)), None))
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
