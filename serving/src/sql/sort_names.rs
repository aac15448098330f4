//! ORDER BY with the name of a column of the SELECT. As in PostgreSQL, `SELECT ts::date .. ORDER BY ts` sorts by the date:
//! the name is that of the SELECT's column. To DataFusion it is the table's.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Distinct, Expr, OrderBy, OrderByKind, Query, Select, SelectItem, SetExpr, Value, VisitorMut};
use definitions::syntax::SyntaxNode;

use super::column_names::ColumnPath;
use super::names::resolved;
use super::params::inner_mut;

/// Puts the casts of columns in the place of their names in ORDER BY.
pub(super) fn sort_by_casts(statement: &mut Statement) {
    if let Some(statement) = inner_mut(statement) {
        let _ = statement.visit_mut(&mut SortNames);
    }
}

struct SortNames;

impl VisitorMut for SortNames {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Query { body, order_by: Some(OrderBy { kind: OrderByKind::Expressions(sorts), .. }), .. } = query
            && let SetExpr::Select(select) = &**body
        {
            for sort in sorts {
                if let Expr::Identifier(name) = &sort.expr
                    && let Some(cast) = cast_called(&resolved(name), select)
                {
                    sort.expr = cast;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// Returns the cast of a column whose name is that column's, if no other column of the SELECT may have it.
fn cast_called(name: &str, select: &Select) -> Option<Expr> {
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
    let (index, expr) = found?;
    Some(match select.distinct {
        // Of distinct rows, DataFusion knows their columns alone.
        Some(Distinct::Distinct) => Expr::Value(Value::Number((index + 1).to_string(), false).into()),
        _ => expr.clone(),
    })
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParserBuilder;

    use super::*;

    #[test]
    fn the_name_of_a_cast_in_order_by_is_the_cast() {
        for (sql, expected) in [
            ("SELECT a, b::DATE FROM v ORDER BY b DESC, a", "SELECT a, b::DATE FROM v ORDER BY b::DATE DESC, a"),
            ("SELECT (v.b)::DATE FROM v ORDER BY B", "SELECT (v.b)::DATE FROM v ORDER BY (v.b)::DATE"),
            ("SELECT DISTINCT a, b::DATE FROM v ORDER BY b", "SELECT DISTINCT a, b::DATE FROM v ORDER BY 2"),
            (
                "SELECT a FROM (SELECT a::INT FROM v ORDER BY a LIMIT 1) AS w ORDER BY a",
                "SELECT a FROM (SELECT a::INT FROM v ORDER BY a::INT LIMIT 1) AS w ORDER BY a",
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
        ] {
            assert_eq!(rewritten(same), same);
        }
    }

    fn rewritten(sql: &str) -> String {
        let mut statement = DFParserBuilder::new(sql).build().unwrap().parse_statement().unwrap();
        sort_by_casts(&mut statement);
        statement.to_string()
    }
}
