//! `FROM t, unnest(t.tags) AS tag` and `FROM t CROSS JOIN LATERAL unnest(tags) AS u (tag)`: the items of a column's
//! arrays, with the row of each. DataFusion has `unnest` among the columns of a SELECT, and of constants in FROM: here
//! the table becomes `(SELECT *, unnest(t.tags) AS tag FROM t) AS t`.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, JoinOperator, ObjectNamePart, Select, SetExpr, TableAlias, TableFactor, TableWithJoins,
    VisitorMut,
};
use datafusion::sql::sqlparser::parser::Parser;
use definitions::syntax::SyntaxNode;

use super::names::resolved;
use super::params::inner_mut;
use types::sql_dialect::SqlDialect;

/// Rewrites every SELECT from one table and the items of one of its columns.
pub(super) fn rewrite(statement: &mut Statement) {
    if let Some(statement) = inner_mut(statement) {
        let _ = statement.visit_mut(&mut UnnestedColumns);
    }
}

struct UnnestedColumns;

impl VisitorMut for UnnestedColumns {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let Some((from, items)) = with_items(&select.from) else { return ControlFlow::Continue(()) };
        // A column of the items has one name, which nothing else may have.
        let _ = select.visit_expressions_mut(|expr| {
            if let Expr::CompoundIdentifier(parts) = expr
                && let [table, column] = parts.as_slice()
                && resolved(table) == resolved(&items)
            {
                *expr = Expr::Identifier(column.clone());
            }
            Ok(())
        });
        select.from = from;
        ControlFlow::Continue(())
    }
}

/// The table with the items beside its columns, and the alias of the items.
fn with_items(from: &[TableWithJoins]) -> Option<(Vec<TableWithJoins>, Ident)> {
    let (table, unnest) = match from {
        [table, unnest] if table.joins.is_empty() && unnest.joins.is_empty() => (&table.relation, &unnest.relation),
        [TableWithJoins { relation, joins }] => match joins.as_slice() {
            [join] if matches!(join.join_operator, JoinOperator::CrossJoin(_)) => (relation, &join.relation),
            _ => return None,
        },
        _ => return None,
    };
    let TableFactor::Table { name, alias, args: None, .. } = table else { return None };
    let table_name = match (alias, name.0.last()?) {
        (Some(TableAlias { name, columns, .. }), _) if columns.is_empty() => name,
        (None, ObjectNamePart::Identifier(name)) => name,
        _ => return None,
    };
    let (array, alias) = array_of_column(unnest)?;
    let column = match alias.columns.as_slice() {
        [] => &alias.name,
        [column] => &column.name,
        _ => return None,
    };
    let sql = format!("SELECT * FROM (SELECT *, unnest({array}) AS {column} FROM {table}) AS {table_name}");
    let query = Parser::new(&SqlDialect).try_with_sql(&sql).and_then(|mut parser| parser.parse_query()).ok()?;
    match *query.body {
        SetExpr::Select(select) if resolved(table_name) != resolved(&alias.name) => Some((select.from, alias.name.clone())),
        _ => None,
    }
}

/// What is unnested, if it depends on a column, and its alias.
fn array_of_column(unnest: &TableFactor) -> Option<(&Expr, &TableAlias)> {
    let (array, alias) = match unnest {
        TableFactor::UNNEST { alias: Some(alias), array_exprs, with_offset: false, with_ordinality: false, .. } => {
            let [array] = array_exprs.as_slice() else { return None };
            (array, alias)
        }
        TableFactor::Function { name, args, with_ordinality: false, alias: Some(alias), .. } => {
            let ([ObjectNamePart::Identifier(name)], [FunctionArg::Unnamed(FunctionArgExpr::Expr(array))]) = (&name.0[..], &args[..])
            else {
                return None;
            };
            if resolved(name) != "unnest" {
                return None;
            }
            (array, alias)
        }
        _ => return None,
    };
    let has_column = array.visit_expressions(|expr| match expr {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    has_column.is_break().then_some((array, alias))
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParserBuilder;

    use super::*;

    #[test]
    fn items_of_a_column_are_a_column_of_its_table() {
        let rewritten = |sql: &str| {
            let mut statement = DFParserBuilder::new(sql).build().unwrap().parse_statement().unwrap();
            rewrite(&mut statement);
            statement.to_string()
        };
        for (sql, expected) in [
            ("SELECT id, tag FROM t, unnest(tags) AS tag", "SELECT id, tag FROM (SELECT *, unnest(tags) AS tag FROM t) AS t"),
            (
                "SELECT x.id, u.tag FROM t AS x CROSS JOIN LATERAL unnest(x.tags) AS u (tag) WHERE u.tag = 'a'",
                "SELECT x.id, tag FROM (SELECT *, unnest(x.tags) AS tag FROM t AS x) AS x WHERE tag = 'a'",
            ),
            ("SELECT * FROM t CROSS JOIN unnest(tags) AS tag", "SELECT * FROM (SELECT *, unnest(tags) AS tag FROM t) AS t"),
        ] {
            assert_eq!(rewritten(sql), expected);
        }
        for same in ["SELECT * FROM t, UNNEST(ARRAY[1, 2]) AS n", "SELECT * FROM t, v", "SELECT * FROM UNNEST(ARRAY[1]) AS n"] {
            assert_eq!(rewritten(same), same);
        }
    }
}
