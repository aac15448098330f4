//! SQL text as syntax: a view's SELECT, and what `verify` adds to it.

use datafusion::sql::sqlparser::ast::{Expr, Query, Select, SelectItem, SetExpr};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use types::{Error, Result};

/// Returns the SELECT with the view's columns.
pub(super) fn top_select(query: &mut Query) -> Result<&mut Select> {
    match &mut *query.body {
        SetExpr::Select(select) => Ok(select),
        SetExpr::Query(inner) => top_select(inner),
        other => Err(Error::input(format!("a view that is kept is a SELECT with aggregates, found {other}"))),
    }
}

pub(super) fn parse_query(sql: &str) -> Result<Query> {
    let wrong = |error: ParserError| Error::input(format!("the SELECT does not parse: {error}"));
    let mut parser = Parser::new(&GenericDialect {}).try_with_sql(sql).map_err(wrong)?;
    let query = parser.parse_query().map_err(wrong)?;
    Ok(*query)
}

/// Parses text that `verify` itself wrote.
pub(super) fn parse_expr(sql: &str) -> Result<Expr> {
    let wrong = |error| Error::internal(format!("verify wrote an expression that does not parse: {sql}: {error}"));
    Parser::new(&GenericDialect {}).try_with_sql(sql).map_err(wrong)?.parse_expr().map_err(wrong)
}

pub(super) fn parse_item(sql: &str) -> Result<SelectItem> {
    let wrong = |error| Error::internal(format!("verify wrote a column that does not parse: {sql}: {error}"));
    Parser::new(&GenericDialect {}).try_with_sql(sql).map_err(wrong)?.parse_select_item().map_err(wrong)
}
