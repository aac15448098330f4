//! Names the cast of a column like the column. As in PostgreSQL, `SELECT ts::date .. ORDER BY ts` sorts by the date,
//! and `SELECT ts FROM (SELECT ts::date ..)` returns the date. In DataFusion, ORDER BY would name the table's column,
//! and the subquery's column would be called `t.ts`.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, Ident, OrderBy, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, Value, VisitorMut,
};
use definitions::syntax::SyntaxNode;

use super::column_names::ColumnPath;
use super::names::resolved;
use super::params::inner_mut;

/// Gives casts in subqueries their names, and replaces the names of other casts in ORDER BY by the casts.
pub(super) fn name_casts(statement: &mut Statement) {
    if let Some(statement) = inner_mut(statement) {
        let _ = statement.visit_mut(&mut CastNames { depth: 0 });
    }
}

struct CastNames {
    /// How many queries enclose the visited one.
    depth: usize,
}

impl VisitorMut for CastNames {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let is_outermost = self.depth == 0;
        self.depth += 1;
        let Query { body, order_by, .. } = query;
        let SetExpr::Select(select) = &mut **body else { return ControlFlow::Continue(()) };
        let sorts: &mut [OrderByExpr] = match order_by {
            Some(OrderBy { kind: OrderByKind::Expressions(sorts), .. }) => &mut sorts[..],
            _ => &mut [],
        };
        if !is_outermost && !refers_to_tables(select, sorts) {
            name_each(select);
            return ControlFlow::Continue(());
        }
        for sort in sorts {
            if let Expr::Identifier(name) = &sort.expr
                && let Some(cast) = sorted_cast(&resolved(name), select)
            {
                sort.expr = cast;
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }
}

/// Whether HAVING, QUALIFY or ORDER BY may name a column of a table, where DataFusion would take one of the SELECT
/// first.
fn refers_to_tables(select: &Select, sorts: &[OrderByExpr]) -> bool {
    let is_of_select = |sort: &OrderByExpr| matches!(sort.expr, Expr::Identifier(_) | Expr::Value(_));
    select.having.is_some() || select.qualify.is_some() || !sorts.iter().all(is_of_select)
}

fn name_each(select: &mut Select) {
    for index in 0..select.projection.len() {
        let SelectItem::UnnamedExpr(expr) = &select.projection[index] else { continue };
        let Some(name) = ColumnPath::from_expr(expr).and_then(|mut column| column.parts.pop()) else { continue };
        if cast_called(&name, select).is_none() {
            continue;
        }
        if let SelectItem::UnnamedExpr(expr) = &mut select.projection[index] {
            // A copy of a deep expression takes much of the stack.
            let expr = std::mem::replace(expr, Expr::Identifier(Ident::new("")));
            select.projection[index] = SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', name) };
        }
    }
}

/// Returns the cast that ORDER BY means by a name.
fn sorted_cast(name: &str, select: &Select) -> Option<Expr> {
    let (index, expr) = cast_called(name, select)?;
    Some(match select.distinct {
        // Of distinct rows, DataFusion knows their columns alone.
        Some(Distinct::Distinct) => Expr::Value(Value::Number((index + 1).to_string(), false).into()),
        _ => expr.clone(),
    })
}

/// Returns the cast of a column whose name is that column's, and its place, if no other column of the SELECT may have
/// the name.
fn cast_called<'a>(name: &str, select: &'a Select) -> Option<(usize, &'a Expr)> {
    let mut found = None;
    for (index, item) in select.projection.iter().enumerate() {
        let expr = match item {
            SelectItem::UnnamedExpr(expr) => expr,
            SelectItem::ExprWithAlias { alias, .. } if resolved(alias) != name => continue,
            _ => return None,
        };
        let Some(column) = ColumnPath::from_expr(expr).filter(|column| column.parts.last().is_some_and(|last| last == name)) else {
            continue;
        };
        if !column.is_cast || found.replace((index, expr)).is_some() {
            return None;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParserBuilder;

    use super::*;

    #[test]
    fn a_cast_is_found_under_the_name_of_its_column() {
        for (sql, expected) in [
            ("SELECT a, b::DATE FROM v ORDER BY b DESC, a", "SELECT a, b::DATE FROM v ORDER BY b::DATE DESC, a"),
            ("SELECT (v.b)::DATE FROM v ORDER BY B", "SELECT (v.b)::DATE FROM v ORDER BY (v.b)::DATE"),
            ("SELECT DISTINCT a, b::DATE FROM v ORDER BY b", "SELECT DISTINCT a, b::DATE FROM v ORDER BY 2"),
            (
                "SELECT a FROM (SELECT a::INT FROM v ORDER BY a LIMIT 1) AS w ORDER BY a",
                "SELECT a FROM (SELECT a::INT AS \"a\" FROM v ORDER BY a LIMIT 1) AS w ORDER BY a",
            ),
            (
                "WITH w AS (SELECT v.a::INT, b::INT, b FROM v) SELECT a::INT FROM w",
                "WITH w AS (SELECT v.a::INT AS \"a\", b::INT, b FROM v) SELECT a::INT FROM w",
            ),
            (
                "SELECT a FROM (SELECT a::INT FROM v ORDER BY a, a + 1) AS w",
                "SELECT a FROM (SELECT a::INT FROM v ORDER BY a::INT, a + 1) AS w",
            ),
        ] {
            assert_eq!(rewritten(sql), expected);
        }
        for same in [
            "SELECT a::INT FROM v ORDER BY v.a, a + 1, \"A\"",
            "SELECT a::INT AS b FROM v ORDER BY a",
            "SELECT a::INT AS a FROM v ORDER BY a",
            "SELECT a::INT, a FROM v ORDER BY a",
            "SELECT a::INT, b AS a FROM v ORDER BY a",
            "SELECT *, a::INT FROM v ORDER BY a",
            "SELECT 1 FROM (SELECT a::INT FROM v GROUP BY a::INT HAVING max(a) > 1) AS w",
            "SELECT 1 FROM (SELECT *, a::INT FROM v) AS w",
        ] {
            assert_eq!(rewritten(same), same);
        }
    }

    fn rewritten(sql: &str) -> String {
        let mut statement = DFParserBuilder::new(sql).build().unwrap().parse_statement().unwrap();
        name_casts(&mut statement);
        statement.to_string()
    }
}
