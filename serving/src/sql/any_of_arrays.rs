//! `x = ANY (items)` is NULL where the array has a NULL and not the value. DataFusion's is false there, but its `<>
//! ALL` is PostgreSQL's: `x = ANY (items)` becomes `NOT (x <> ALL (items))`, and `NOT (x = ANY (items))` becomes `x <>
//! ALL (items)`. It stays where false and NULL are the same, which is in WHERE, alone or joined to others by AND and
//! OR: a key that is found so is looked up.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Distinct, Expr, GroupByExpr, Ident, OrderBy, OrderByKind, Query, Select, SelectItem, UnaryOperator, VisitorMut,
};
use definitions::syntax::SyntaxNode;
use types::Result;

use super::literals::{nested, taken, text_of};
use super::params::inner_mut;

pub(super) fn rewrite(statement: &mut Statement) -> Result<()> {
    let Some(statement) = inner_mut(statement) else { return Ok(()) };
    let _ = statement.visit_mut(&mut InSelects);
    // In the conditions of joins, too.
    statement.visit_expressions_mut(|expr| {
        if let Expr::UnaryOp { op: UnaryOperator::Not, expr: operand } = &*expr
            && let Some(opposite) = opposite(operand)
        {
            *expr = opposite;
        }
        Ok(())
    })
}

/// Rewrites the clauses of each SELECT, and what its rows are sorted by.
struct InSelects;

impl VisitorMut for InSelects {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(OrderBy { kind: OrderByKind::Expressions(sorts), .. }) = &mut query.order_by {
            sorts.iter_mut().for_each(|sort| rewrite_value(&mut sort.expr));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if let Some(Distinct::On(keys)) = &mut select.distinct {
            keys.iter_mut().for_each(rewrite_value);
        }
        if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
            keys.iter_mut().for_each(rewrite_value);
        }
        [&mut select.having, &mut select.qualify].into_iter().flatten().for_each(rewrite_value);
        if let Some(condition) = &mut select.selection {
            rewrite_condition(condition);
        }
        for item in &mut select.projection {
            match item {
                SelectItem::ExprWithAlias { expr, .. } => rewrite_value(expr),
                SelectItem::UnnamedExpr(expr) => {
                    let name = expr.to_string();
                    let mut comparisons = OfThisSelect::default();
                    let _ = expr.visit_mut(&mut comparisons);
                    if comparisons.found {
                        *item = SelectItem::ExprWithAlias { expr: taken(expr), alias: Ident::with_quote('"', name) };
                    }
                }
                _ => {}
            }
        }
        ControlFlow::Continue(())
    }
}

/// A condition that a row has to meet.
fn rewrite_condition(condition: &mut Expr) {
    match condition {
        Expr::Nested(condition) => rewrite_condition(condition),
        Expr::BinaryOp { left, op: BinaryOperator::And | BinaryOperator::Or, right } => {
            rewrite_condition(left);
            rewrite_condition(right);
        }
        Expr::AnyOp { left, right, .. } => [left, right].into_iter().for_each(|operand| rewrite_value(operand)),
        Expr::UnaryOp { op: UnaryOperator::Not, expr } if opposite(expr).is_some() => {}
        value => rewrite_value(value),
    }
}

/// An expression whose value is shown or computed with.
fn rewrite_value(expr: &mut Expr) {
    let _ = expr.visit_mut(&mut OfThisSelect::default());
}

/// Rewrites the comparisons of an expression, but for those in its subqueries.
#[derive(Default)]
struct OfThisSelect {
    queries: usize,
    found: bool,
}

impl VisitorMut for OfThisSelect {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.queries == 0
            && let Some(opposite) = opposite(expr)
        {
            self.found = true;
            *expr = *nested(Expr::UnaryOp { op: UnaryOperator::Not, expr: nested(opposite) });
        }
        ControlFlow::Continue(())
    }
}

/// The opposite of a comparison with ANY of an array, as one with ALL; `None` of any other expression.
fn opposite(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Nested(expr) => opposite(expr),
        Expr::AnyOp { left, compare_op, right, is_some: _ } if !is_read_otherwise(right) => {
            let compare_op = match compare_op {
                BinaryOperator::Eq => BinaryOperator::NotEq,
                BinaryOperator::NotEq => BinaryOperator::Eq,
                BinaryOperator::Lt => BinaryOperator::GtEq,
                BinaryOperator::LtEq => BinaryOperator::Gt,
                BinaryOperator::Gt => BinaryOperator::LtEq,
                BinaryOperator::GtEq => BinaryOperator::Lt,
                _ => return None,
            };
            Some(Expr::AllOp { left: left.clone(), compare_op, right: right.clone() })
        }
        _ => None,
    }
}

/// Whether it is a subquery, or an array as a text.
fn is_read_otherwise(operand: &Expr) -> bool {
    match operand {
        Expr::Nested(operand) => is_read_otherwise(operand),
        Expr::Subquery(_) => true,
        other => text_of(other).is_some(),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParserBuilder;

    use super::*;

    fn rewritten(sql: &str) -> String {
        let mut statement = DFParserBuilder::new(sql).build().unwrap().parse_statement().unwrap();
        rewrite(&mut statement).unwrap();
        statement.to_string()
    }

    #[test]
    fn what_is_false_where_it_should_be_null_is_a_comparison_with_all() {
        for (sql, expected) in [
            ("SELECT 1 FROM v WHERE NOT a = ANY(b)", "SELECT 1 FROM v WHERE a <> ALL(b)"),
            ("SELECT 1 FROM v WHERE NOT (a < ANY(b)) OR c", "SELECT 1 FROM v WHERE a >= ALL(b) OR c"),
            ("SELECT 1 FROM v WHERE (a = ANY(b)) IS NULL", "SELECT 1 FROM v WHERE ((NOT (a <> ALL(b)))) IS NULL"),
            (
                "SELECT 1 FROM v WHERE NOT (a = ANY(b) AND c) OR (c = ANY(d))",
                "SELECT 1 FROM v WHERE NOT ((NOT (a <> ALL(b))) AND c) OR (c = ANY(d))",
            ),
            (
                "SELECT a = ANY(b) AS c, count(*) FROM v GROUP BY a = ANY(b) HAVING a = ANY(b)",
                "SELECT (NOT (a <> ALL(b))) AS c, count(*) FROM v GROUP BY (NOT (a <> ALL(b))) HAVING (NOT (a <> ALL(b)))",
            ),
            ("SELECT a = ANY(b) FROM v", "SELECT (NOT (a <> ALL(b))) AS \"a = ANY(b)\" FROM v"),
            (
                "SELECT count(a > ANY(b)) AS c FROM v ORDER BY a <> ANY(b)",
                "SELECT count((NOT (a <= ALL(b)))) AS c FROM v ORDER BY (NOT (a = ALL(b)))",
            ),
            (
                "SELECT 1 FROM v WHERE EXISTS (SELECT a = ANY(b) AS c FROM w GROUP BY a = ANY(b))",
                "SELECT 1 FROM v WHERE EXISTS (SELECT (NOT (a <> ALL(b))) AS c FROM w GROUP BY (NOT (a <> ALL(b))))",
            ),
        ] {
            assert_eq!(rewritten(sql), expected);
        }
        for same in [
            "SELECT a FROM v WHERE a = ANY($1) AND b < ANY(c)",
            "SELECT a FROM v WHERE NOT a = ANY('{x}')",
            "SELECT a FROM v WHERE NOT a = ANY(SELECT b FROM w)",
            "SELECT a <> ALL(b) FROM v",
            "SELECT EXISTS (SELECT 1 FROM v WHERE a = ANY($1)), (SELECT b FROM v WHERE a = ANY($1))",
        ] {
            assert_eq!(rewritten(same), same);
        }
    }
}
