//! Finds names in GROUP BY that DataFusion reads as the position of a column: it replaces an alias by its expression,
//! and takes a whole number there for a position. `SELECT 2 AS two, device .. GROUP BY two` would group by the device.

use std::ops::ControlFlow;

use datafusion::sql::planner::IdentNormalizer;
use datafusion::sql::sqlparser::ast::{CastKind, DataType, Expr, GroupByExpr, Ident, Select, SelectItem, UnaryOperator, Value, VisitorMut};
use definitions::syntax::SyntaxNode;

/// A name in GROUP BY that is an alias of a whole number.
pub(super) struct NumberedKey {
    /// As written in GROUP BY.
    pub(super) name: Ident,
    pub(super) number: i64,
    /// The index of the number among the items of the SELECT.
    item: usize,
}

impl NumberedKey {
    /// Whether the number is also its own position, so that the name means the number anyway.
    pub(super) fn is_own_position(&self) -> bool {
        usize::try_from(self.number).is_ok_and(|position| position == self.item + 1)
    }
}

pub(super) fn numbered_keys(select: &Select) -> Vec<NumberedKey> {
    let GroupByExpr::Expressions(keys, _) = &select.group_by else { return Vec::new() };
    let named = |alias: &Ident| keys.iter().filter_map(name_of).find(|name| resolved(name) == resolved(alias)).cloned();
    let key = |(item, selected): (usize, &SelectItem)| match selected {
        SelectItem::ExprWithAlias { expr, alias } => Some(NumberedKey { number: whole_number(expr)?, name: named(alias)?, item }),
        _ => None,
    };
    select.projection.iter().enumerate().filter_map(key).collect()
}

/// Makes each name in a GROUP BY of a statement that is the alias of a number mean that number. A column of the same
/// name takes precedence, as it does in DataFusion.
pub fn keep_numbered_keys(node: &mut impl SyntaxNode) {
    let _ = node.visit_mut(&mut NumbersAreNoPositions);
}

struct NumbersAreNoPositions;

impl VisitorMut for NumbersAreNoPositions {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for key in numbered_keys(select) {
            if let Some(SelectItem::ExprWithAlias { expr, .. }) = select.projection.get_mut(key.item) {
                let number = std::mem::replace(expr, Expr::Identifier(Ident::new("")));
                let data_type = DataType::BigInt(None);
                *expr = Expr::Cast { kind: CastKind::Cast, expr: Box::new(number), data_type, array: false, format: None };
            }
        }
        ControlFlow::Continue(())
    }
}

fn name_of(key: &Expr) -> Option<&Ident> {
    match key {
        Expr::Nested(key) => name_of(key),
        Expr::Identifier(name) => Some(name),
        _ => None,
    }
}

fn whole_number(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Nested(expr) => whole_number(expr),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => whole_number(expr)?.checked_neg(),
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => digits.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

/// A name as SQL resolves it: in lower case unless it is quoted.
fn resolved(name: &Ident) -> String {
    IdentNormalizer::default().normalize(name.clone())
}

#[cfg(test)]
mod tests;
