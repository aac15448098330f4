//! `x = ANY (items)` is NULL where the array has a NULL and not the value. DataFusion's is false there, but its `<>
//! ALL` is PostgreSQL's: among columns, `x = ANY (items)` becomes `NOT (x <> ALL (items))`, and `NOT (x = ANY (items))`
//! becomes `x <> ALL (items)` everywhere. In conditions without a NOT, false and NULL are the same, and a key that is
//! found so is looked up.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, GroupByExpr, Ident, OrderBy, OrderByKind, Query, Select, SelectItem, UnaryOperator, VisitorMut,
};
use definitions::syntax::SyntaxNode;
use types::Result;

use super::literals::{nested, taken, text_of};
use super::params::inner_mut;

pub(super) fn rewrite(statement: &mut Statement) -> Result<()> {
    let Some(statement) = inner_mut(statement) else { return Ok(()) };
    let mut among_columns = AmongColumns { outcome: Ok(()) };
    let _ = statement.visit_mut(&mut among_columns);
    among_columns.outcome?;
    statement.visit_expressions_mut(|expr| {
        if let Expr::UnaryOp { op: UnaryOperator::Not, expr: operand } = &*expr
            && let Some(opposite) = opposite(operand)
        {
            *expr = opposite;
        }
        Ok(())
    })
}

/// Rewrites the columns of each SELECT, its keys, and what its rows are sorted by.
struct AmongColumns {
    outcome: Result<()>,
}

impl VisitorMut for AmongColumns {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(OrderBy { kind: OrderByKind::Expressions(sorts), .. }) = &mut query.order_by {
            for sort in sorts {
                self.rewrite(&mut sort.expr);
            }
        }
        self.next()
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
            for key in keys {
                self.rewrite(key);
            }
        }
        for item in &mut select.projection {
            match item {
                SelectItem::ExprWithAlias { expr, .. } => self.rewrite(expr),
                SelectItem::UnnamedExpr(expr) if has_any(expr) => {
                    let name = expr.to_string();
                    self.rewrite(expr);
                    *item = SelectItem::ExprWithAlias { expr: taken(expr), alias: Ident::with_quote('"', name) };
                }
                _ => {}
            }
        }
        self.next()
    }
}

impl AmongColumns {
    fn rewrite(&mut self, expr: &mut Expr) {
        let rewritten = expr.visit_expressions_mut(|expr| {
            if let Some(opposite) = opposite(expr) {
                let is_any = Expr::UnaryOp { op: UnaryOperator::Not, expr: nested(opposite) };
                *expr = *nested(is_any);
            }
            Ok(())
        });
        if rewritten.is_err() {
            self.outcome = rewritten;
        }
    }

    fn next(&self) -> ControlFlow<()> {
        if self.outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

fn has_any(expr: &Expr) -> bool {
    let found = expr.visit_expressions(|expr| if opposite(expr).is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) });
    found.is_break()
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
        ] {
            assert_eq!(rewritten(same), same);
        }
    }
}
