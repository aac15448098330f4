//! Comparisons of rows: `(a, b) IN ((1, 2), (3, NULL))`, `(a, b) = (c, d)` and `<>`, as comparisons of their values. As
//! in PostgreSQL they are NULL where a NULL may decide; to DataFusion, a row with a NULL is a value that differs from
//! others.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator};

use super::literals::nested;

/// What stands for a comparison of rows; `None` for any other expression.
pub(super) fn compared(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::InList { expr: row, list, negated } => {
            let row = values(row)?;
            let equalities = list.iter().map(|other| equality(row, values(other)?)).collect::<Option<Vec<_>>>()?;
            let found = joined(equalities, &BinaryOperator::Or)?;
            Some(if *negated { not(found) } else { found })
        }
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => equality(values(left)?, values(right)?),
        Expr::BinaryOp { left, op: BinaryOperator::NotEq, right } => equality(values(left)?, values(right)?).map(not),
        _ => None,
    }
}

fn values(row: &Expr) -> Option<&[Expr]> {
    match row {
        Expr::Tuple(values) => Some(values),
        Expr::Nested(row) => values(row),
        _ => None,
    }
}

fn equality(row: &[Expr], other: &[Expr]) -> Option<Expr> {
    if row.len() != other.len() {
        return None;
    }
    let equal = |(one, other): (&Expr, &Expr)| Expr::BinaryOp {
        left: Box::new(one.clone()),
        op: BinaryOperator::Eq,
        right: Box::new(other.clone()),
    };
    joined(row.iter().zip(other).map(equal).collect(), &BinaryOperator::And)
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
