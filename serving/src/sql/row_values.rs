//! Comparisons of rows: `(a, b) IN ((1, 2), (3, NULL))`, `(a, b) = (c, d)`, `<`, `IS NULL` and others, as comparisons
//! of their values. As in PostgreSQL they are NULL where a NULL may decide, and a row is NULL if all of its values are;
//! to DataFusion, a row with a NULL is a value that differs from others, and no row is NULL.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, UnaryOperator};
use types::{Error, Reason, Result};

use super::literals::{name_of, nested, plain_arguments};

/// Values of rows that are compared by `<` and the like: each is one level of nesting more.
const MOST_ORDERED: usize = 16;

/// What is written several times in what stands for a comparison of rows, and how often.
///
/// Errors: `Input` for rows of too many values.
pub(super) fn copied(expr: &Expr) -> Result<(&Expr, usize)> {
    match expr {
        Expr::InList { expr: row, list, .. } if values(row).is_some() => Ok((row, list.len())),
        Expr::BinaryOp { left, op: BinaryOperator::Lt | BinaryOperator::LtEq | BinaryOperator::Gt | BinaryOperator::GtEq, right } => {
            match (values(left), values(right)) {
                (Some(row), Some(_)) if row.len() > MOST_ORDERED => {
                    let message = format!("not supported: rows of more than {MOST_ORDERED} values in a comparison by their order");
                    Err(Error::input(message).with_reason(Reason::NotSupported))
                }
                (Some(_), Some(_)) => Ok((expr, 2)),
                _ => Ok((expr, 0)),
            }
        }
        _ => Ok((expr, 0)),
    }
}

/// What stands for a comparison of rows; `None` for any other expression.
pub(super) fn compared(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::InList { expr: row, list, negated } => {
            let row = values(row)?;
            let equalities = list.iter().map(|other| equality(&row, &values(other)?)).collect::<Option<Vec<_>>>()?;
            let found = joined(equalities, &BinaryOperator::Or)?;
            Some(if *negated { not(found) } else { found })
        }
        Expr::BinaryOp { left, op, right } => {
            let (row, other) = (values(left)?, values(right)?);
            match op {
                BinaryOperator::Eq => equality(&row, &other),
                BinaryOperator::NotEq => equality(&row, &other).map(not),
                BinaryOperator::Lt | BinaryOperator::LtEq => ordered(&row, &other, &BinaryOperator::Lt, op),
                BinaryOperator::Gt | BinaryOperator::GtEq => ordered(&row, &other, &BinaryOperator::Gt, op),
                _ => None,
            }
        }
        Expr::IsNull(row) => each(&values(row)?, Expr::IsNull),
        Expr::IsNotNull(row) => each(&values(row)?, Expr::IsNotNull),
        _ => None,
    }
}

fn values(row: &Expr) -> Option<Vec<&Expr>> {
    match row {
        Expr::Tuple(values) => Some(values.iter().collect()),
        Expr::Nested(row) => values(row),
        Expr::Function(call) if name_of(call).as_deref() == Some("row") => values_of_call(call),
        _ => None,
    }
}

/// The values of `ROW(a, b)`.
fn values_of_call(call: &Function) -> Option<Vec<&Expr>> {
    plain_arguments(call)?;
    let FunctionArguments::List(list) = &call.args else { return None };
    let values = list.args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value),
        _ => None,
    });
    values.collect()
}

fn equality(row: &[&Expr], other: &[&Expr]) -> Option<Expr> {
    if row.len() != other.len() {
        return None;
    }
    let equalities = row.iter().zip(other).map(|(one, other)| comparison(one, &BinaryOperator::Eq, other));
    joined(equalities.collect(), &BinaryOperator::And)
}

/// The first values that differ decide, by the operator `first`; the last ones by `last`.
fn ordered(row: &[&Expr], other: &[&Expr], first: &BinaryOperator, last: &BinaryOperator) -> Option<Expr> {
    if row.len() != other.len() {
        return None;
    }
    let mut pairs = row.iter().zip(other).rev();
    let (one, another) = pairs.next()?;
    let mut rest = comparison(one, last, another);
    for (one, another) in pairs {
        let are_equal = comparison(one, &BinaryOperator::Eq, another);
        let rest_decides = Expr::BinaryOp { left: Box::new(are_equal), op: BinaryOperator::And, right: nested(rest) };
        let decides = comparison(one, first, another);
        rest = Expr::BinaryOp { left: Box::new(decides), op: BinaryOperator::Or, right: nested(rest_decides) };
    }
    Some(*nested(rest))
}

/// A condition that holds for each of the values.
fn each(row: &[&Expr], condition: fn(Box<Expr>) -> Expr) -> Option<Expr> {
    joined(row.iter().map(|value| condition(Box::new((*value).clone()))).collect(), &BinaryOperator::And)
}

fn comparison(left: &Expr, op: &BinaryOperator, right: &Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left.clone()), op: op.clone(), right: Box::new(right.clone()) }
}

/// Joins conditions in pairs, and those again: a list of thousands is a dozen operators deep.
fn joined(mut conditions: Vec<Expr>, op: &BinaryOperator) -> Option<Expr> {
    while conditions.len() > 1 {
        let mut rest = conditions.into_iter();
        let mut pairs = Vec::new();
        while let Some(left) = rest.next() {
            pairs.push(match rest.next() {
                Some(right) => *nested(Expr::BinaryOp { left: Box::new(left), op: op.clone(), right: Box::new(right) }),
                None => left,
            });
        }
        conditions = pairs;
    }
    conditions.pop().map(|condition| if matches!(condition, Expr::Nested(_)) { condition } else { *nested(condition) })
}

fn not(condition: Expr) -> Expr {
    Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(condition) }
}
