//! `SELECT upper(a), count(*) FROM v GROUP BY a ORDER BY 1`: a position in ORDER BY that names an expression over the
//! keys of GROUP BY. DataFusion looks for a column with the name of the expression there, which the groups do not have.
//! Here the expression itself takes the place of its position.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, OrderBy, OrderByKind, Query, Select, SelectItem, SetExpr, Value, VisitorMut,
};
use definitions::syntax::SyntaxNode;

use super::names::resolved;
use super::params::inner_mut;

pub(super) fn as_expressions(statement: &mut Statement) {
    if let Some(statement) = inner_mut(statement) {
        let _ = statement.visit_mut(&mut SortedPositions);
    }
}

struct SortedPositions;

impl VisitorMut for SortedPositions {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let Query { body, order_by: Some(OrderBy { kind: OrderByKind::Expressions(sorts), .. }), .. } = query else {
            return ControlFlow::Continue(());
        };
        if let SetExpr::Select(select) = &**body
            && is_grouped(select)
        {
            let mut replaced = BTreeSet::new();
            sorts.retain_mut(|sort| {
                let Some(position) = position(&sort.expr) else { return true };
                let Some(expr) = expression_at(position, select) else { return true };
                // A second sort by the same changes nothing.
                if !replaced.insert(position) {
                    return false;
                }
                sort.expr = expr.clone();
                true
            });
        }
        ControlFlow::Continue(())
    }
}

/// Whether the SELECT has keys, and all of its groups are rows: of distinct rows, only the columns can be sorted by.
fn is_grouped(select: &Select) -> bool {
    let has_keys = !matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty());
    has_keys && select.distinct.is_none()
}

fn position(sort: &Expr) -> Option<usize> {
    match sort {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => digits.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

/// The expression without an alias at this position. `None` for a column, which is found by its name, for a constant,
/// which would be a position again, for an expression with a subquery, which would be computed twice, and for one that
/// names an alias of the SELECT, which it would be of in ORDER BY.
fn expression_at(position: usize, select: &Select) -> Option<&Expr> {
    if select.projection.iter().any(|item| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))) {
        return None;
    }
    let SelectItem::UnnamedExpr(expr) = select.projection.get(position.checked_sub(1)?)? else { return None };
    let stays = matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_));
    (!stays && !has_subquery(expr) && !names_alias(expr, select)).then_some(expr)
}

fn names_alias(expr: &Expr, select: &Select) -> bool {
    let is_alias = |name: &Ident| {
        let of_item = |item: &SelectItem| matches!(item, SelectItem::ExprWithAlias { alias, .. } if resolved(alias) == resolved(name));
        select.projection.iter().any(of_item)
    };
    let found = expr.visit_expressions(|expr| match expr {
        Expr::Identifier(name) if is_alias(name) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

fn has_subquery(expr: &Expr) -> bool {
    let found = expr.visit_expressions(|expr| match expr {
        Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParserBuilder;

    use super::*;

    fn rewritten(sql: &str) -> String {
        let mut statement = DFParserBuilder::new(sql).build().unwrap().parse_statement().unwrap();
        as_expressions(&mut statement);
        statement.to_string()
    }

    #[test]
    fn an_expression_over_groups_takes_the_place_of_its_position() {
        for (sql, expected) in [
            (
                "SELECT upper(a), count(*) FROM v GROUP BY a ORDER BY 2 DESC, 1",
                "SELECT upper(a), count(*) FROM v GROUP BY a ORDER BY count(*) DESC, upper(a)",
            ),
            (
                "SELECT upper(a), lower(a) FROM v GROUP BY a ORDER BY 1, 2, 1 DESC",
                "SELECT upper(a), lower(a) FROM v GROUP BY a ORDER BY upper(a), lower(a)",
            ),
            (
                "SELECT * FROM (SELECT b + 1 FROM v GROUP BY b ORDER BY 1 NULLS FIRST LIMIT 2) AS t",
                "SELECT * FROM (SELECT b + 1 FROM v GROUP BY b ORDER BY b + 1 NULLS FIRST LIMIT 2) AS t",
            ),
        ] {
            assert_eq!(rewritten(sql), expected);
        }
        for same in [
            "SELECT upper(a) FROM v ORDER BY 1",
            "SELECT a, v.b, upper(a) AS c FROM v GROUP BY a, v.b ORDER BY 1, 2, 3, 4",
            "SELECT DISTINCT upper(a) FROM v GROUP BY a ORDER BY 1",
            "SELECT (SELECT max(a) FROM v) FROM v GROUP BY a ORDER BY 1",
            "SELECT v.*, a + 1 FROM v GROUP BY a ORDER BY 1, 0",
            "SELECT 2, count(*) AS n FROM v GROUP BY a ORDER BY 1",
            "SELECT a / 100, count(*) AS A FROM v GROUP BY 1 ORDER BY 1",
        ] {
            assert_eq!(rewritten(same), same);
        }
    }
}
