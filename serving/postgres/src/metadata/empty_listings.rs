//! Queries that list the columns of indexes, primary keys, foreign keys or other constraints, or the types of users.
//! There are none.

use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use definitions::depth::check_depth_to_parse;
use types::Result;

use super::spellings;

/// A query with one of these texts lists such columns or types, as drivers do.
const MARKERS: [&str; 6] = [
    "_pg_expandarray",
    "conkey[",
    "any(c.conkey)",
    "unnest(con.conkey)",
    "generate_subscripts(pg_catalog.pg_index.indkey",
    "from pg_type base_type where base_type.oid=t.typbasetype",
];

/// Returns a SELECT with the same names of columns and no rows, for a query that lists what is not there; `None` for
/// any other text. Only this SELECT is planned, so that the query may have a CASE with an arm for each type that a
/// driver knows.
pub(super) fn without_rows(sql: &str) -> Result<Option<String>> {
    if !lists_nothing(sql) {
        return Ok(None);
    }
    check_depth_to_parse(sql)?;
    Ok(no_rows(sql))
}

fn lists_nothing(sql: &str) -> bool {
    let sql = sql.to_ascii_lowercase();
    MARKERS.iter().any(|marker| sql.contains(marker))
}

/// A SELECT with the same names of columns and no rows. `None` for text that is not a SELECT.
fn no_rows(sql: &str) -> Option<String> {
    let statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).ok()?;
    let [ast::Statement::Query(query)] = statements.as_slice() else { return None };
    let select = first_select(&query.body)?;
    let name = |item: &ast::SelectItem| match item {
        ast::SelectItem::ExprWithAlias { alias, .. } => Some(alias.to_string()),
        ast::SelectItem::UnnamedExpr(ast::Expr::Identifier(name)) => Some(name.to_string()),
        ast::SelectItem::UnnamedExpr(ast::Expr::CompoundIdentifier(parts)) => parts.last().map(ToString::to_string),
        _ => None,
    };
    let names = select.projection.iter().map(name).collect::<Option<Vec<_>>>()?;
    let columns: Vec<String> = names.iter().map(|name| format!("CAST(NULL AS TEXT) AS {name}")).collect();
    let kept = spellings::placeholders(sql).into_iter().map(|name| format!(" AND CAST({name} AS TEXT) IS NULL"));
    Some(format!("SELECT {} WHERE false{}", columns.join(", "), kept.collect::<String>()))
}

/// The SELECT whose names of columns a query has: that of a UNION's first part.
fn first_select(body: &ast::SetExpr) -> Option<&ast::Select> {
    match body {
        ast::SetExpr::Select(select) => Some(select),
        ast::SetExpr::SetOperation { left, .. } => first_select(left),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
