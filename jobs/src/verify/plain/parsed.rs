//! SQL text as syntax: a view's SELECT, and what `verify` adds to it.

use datafusion::sql::sqlparser::ast::{Expr, Function, FunctionArguments, Ident, Query, Select, SelectItem, SetExpr};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use definitions::syntax::SyntaxNode;
use types::sql_dialect::SqlDialect;
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
    let mut parser = Parser::new(&SqlDialect).try_with_sql(sql).map_err(wrong)?;
    let mut query = *parser.parse_query().map_err(wrong)?;
    query.visit_expressions_mut(|expr| {
        if let Some(column) = column_named_as_function(expr) {
            *expr = column;
        }
        Ok(())
    })?;
    Ok(query)
}

/// Returns the column that the parser takes for a function without brackets: `user` or `l.user`.
fn column_named_as_function(expr: &Expr) -> Option<Expr> {
    let Expr::Function(Function { name, args: FunctionArguments::None, .. }) = expr else { return None };
    let parts: Vec<Ident> = name.0.iter().map(|part| part.as_ident().cloned()).collect::<Option<_>>()?;
    match parts.as_slice() {
        [name] => name.value.eq_ignore_ascii_case("user").then(|| Expr::Identifier(name.clone())),
        _ => Some(Expr::CompoundIdentifier(parts)),
    }
}

/// Parses text that `verify` itself wrote.
pub(super) fn parse_expr(sql: &str) -> Result<Expr> {
    let wrong = |error| Error::internal(format!("verify wrote an expression that does not parse: {sql}: {error}"));
    Parser::new(&SqlDialect).try_with_sql(sql).map_err(wrong)?.parse_expr().map_err(wrong)
}

pub(super) fn parse_item(sql: &str) -> Result<SelectItem> {
    let wrong = |error| Error::internal(format!("verify wrote a column that does not parse: {sql}: {error}"));
    Parser::new(&SqlDialect).try_with_sql(sql).map_err(wrong)?.parse_select_item().map_err(wrong)
}
