//! Names a subquery in FROM that has no name, and reads another one without a name. DataFusion drops a SELECT whose
//! columns are written as those of the SELECT below it, although it computes them from these: one addition would be
//! left of `SELECT n + 1 AS n FROM (SELECT n + 1 AS n FROM (SELECT 1 AS n))`. With names the columns differ.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Ident, Query, SetExpr, TableAlias, TableFactor, TableWithJoins, VisitorMut};
use definitions::syntax::SyntaxNode;

use super::params::inner_mut;

/// What PostgreSQL calls them in its messages; a number follows.
const NAME: &str = "unnamed_subquery";

pub(super) fn rewrite(statement: &mut Statement) {
    if let Some(statement) = inner_mut(statement) {
        let _ = statement.visit_mut(&mut UnnamedSubqueries { named: 0 });
    }
}

struct UnnamedSubqueries {
    named: usize,
}

impl VisitorMut for UnnamedSubqueries {
    type Break = ();

    /// Outer ones come first: those within have no name yet.
    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { subquery, alias, .. } = factor
            && alias.is_none()
            && reads_an_unnamed_one(subquery)
        {
            self.named += 1;
            let name = Ident::new(format!("{NAME}_{}", self.named));
            *alias = Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
        }
        ControlFlow::Continue(())
    }
}

fn reads_an_unnamed_one(query: &Query) -> bool {
    match &*query.body {
        SetExpr::Select(select) => {
            let joined = |from: &TableWithJoins| from.joins.iter().any(|join| is_unnamed(&join.relation));
            select.from.iter().any(|from| is_unnamed(&from.relation) || joined(from))
        }
        SetExpr::Query(query) => reads_an_unnamed_one(query),
        _ => false,
    }
}

fn is_unnamed(table: &TableFactor) -> bool {
    matches!(table, TableFactor::Derived { alias: None, .. })
}
