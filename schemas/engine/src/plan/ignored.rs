//! Refuses clauses that the parser reads and DataFusion silently ignores, because the answer would not be what the
//! query asks for.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Query, Select, TableFactor, Visitor};
use definitions::syntax::SyntaxNode;

/// The first clause in a statement or query that DataFusion would ignore.
pub fn ignored_clause(node: &impl SyntaxNode) -> Option<&'static str> {
    let mut ignored = Ignored(None);
    let _ = node.visit(&mut ignored);
    ignored.0
}

struct Ignored(Option<&'static str>);

impl Ignored {
    fn first_of<const N: usize>(&mut self, clauses: [(bool, &'static str); N]) -> ControlFlow<()> {
        self.0 = clauses.into_iter().find_map(|(is_there, clause)| is_there.then_some(clause));
        if self.0.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Visitor for Ignored {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.first_of([(query.settings.is_some(), "SETTINGS"), (query.format_clause.is_some(), "FORMAT")])
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        self.first_of([
            (select.prewhere.is_some(), "PREWHERE"),
            (!select.connect_by.is_empty(), "CONNECT BY"),
            (!select.distribute_by.is_empty(), "DISTRIBUTE BY"),
        ])
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<()> {
        match table {
            TableFactor::Table { sample, partitions, with_hints, index_hints, .. } => self.first_of([
                (sample.is_some(), "TABLESAMPLE"),
                (!partitions.is_empty(), "PARTITION"),
                (!with_hints.is_empty() || !index_hints.is_empty(), "a hint of a table"),
            ]),
            TableFactor::Derived { sample, .. } => self.first_of([(sample.is_some(), "TABLESAMPLE")]),
            _ => ControlFlow::Continue(()),
        }
    }
}
