//! Rewrites `FETCH FIRST 10 ROWS ONLY`, which Hibernate and other tools write, to `LIMIT 10`.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Expr, Fetch, LimitClause, Query, Value, VisitorMut};
use definitions::syntax::SyntaxNode;

use super::params::inner_mut;

/// Rewrites each FETCH to a LIMIT. A FETCH with `PERCENT` or `WITH TIES`, or next to a LIMIT, is left as it is: the
/// planner refuses it.
pub(super) fn as_limit(statement: &mut Statement) {
    if let Some(statement) = inner_mut(statement) {
        let _ = statement.visit_mut(&mut FetchClauses);
    }
}

struct FetchClauses;

impl VisitorMut for FetchClauses {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let offset = match &query.limit_clause {
            None => None,
            Some(LimitClause::LimitOffset { limit: None, offset, limit_by }) if limit_by.is_empty() => offset.clone(),
            Some(_) => return ControlFlow::Continue(()),
        };
        if let Some(Fetch { with_ties: false, percent: false, quantity }) = &query.fetch {
            let one = || Expr::Value(Value::Number("1".to_owned(), false).into());
            let limit = Some(quantity.clone().unwrap_or_else(one));
            query.limit_clause = Some(LimitClause::LimitOffset { limit, offset, limit_by: Vec::new() });
            query.fetch = None;
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParserBuilder;
    use datafusion::sql::sqlparser::dialect::GenericDialect;

    use super::*;

    #[test]
    fn a_fetch_becomes_a_limit() {
        for (sql, expected) in [
            ("SELECT a FROM v ORDER BY a FETCH FIRST 10 ROWS ONLY", "SELECT a FROM v ORDER BY a LIMIT 10"),
            ("SELECT a FROM v OFFSET $1 ROWS FETCH NEXT $2 ROWS ONLY", "SELECT a FROM v LIMIT $2 OFFSET $1 ROWS"),
            ("SELECT a FROM (SELECT a FROM v FETCH FIRST ROW ONLY) AS t", "SELECT a FROM (SELECT a FROM v LIMIT 1) AS t"),
            ("SELECT a FROM v FETCH FIRST 1 ROWS WITH TIES", "SELECT a FROM v FETCH FIRST 1 ROWS WITH TIES"),
            ("SELECT a FROM v LIMIT 2 FETCH FIRST 1 ROWS ONLY", "SELECT a FROM v LIMIT 2 FETCH FIRST 1 ROWS ONLY"),
        ] {
            let mut parser = DFParserBuilder::new(sql).with_dialect(&GenericDialect {}).build().unwrap();
            let mut statement = parser.parse_statement().unwrap();
            as_limit(&mut statement);
            assert_eq!(statement.to_string(), expected);
        }
    }
}
