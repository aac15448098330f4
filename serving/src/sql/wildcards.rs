//! `*` over a stream: the stream's own columns. Its system columns (`__offset` and the like) are returned only where a
//! query names them.
//!
//! The statement is rewritten before it is planned. In a SELECT with `*`, a stream whose system columns are not named
//! is replaced by a subquery with its own columns. If they are named, `*` leaves them out.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use committed::registry::LiveStream;
use datafusion::common::TableReference;
use datafusion::error::DataFusionError;
use datafusion::sql::parser::Statement;
use datafusion::sql::planner::object_name_to_table_reference;
use datafusion::sql::sqlparser::ast::{
    JoinConstraint, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableFactor, VisitorMut,
};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use definitions::StreamDefinition;
use definitions::syntax::SyntaxNode;
use engine::events::event_schema;
use types::sql_dialect::SqlDialect;
use types::{Error, Result};

use super::names::{DEFAULT_CATALOG, DEFAULT_SCHEMA, resolved};
use super::with_names::WithNames;

mod ast;
mod named;

pub(super) use ast::leave_out;
use ast::{constraint, joins, last, quoted, relations_of, wildcard_options};
use named::SystemNames;

type Streams = BTreeMap<Arc<str>, LiveStream>;

/// Rewrites every SELECT of the statement so that `*` has no system columns.
///
/// Errors: `Input` where `*` would have to leave out the system columns of several joined streams that name them.
pub(super) fn leave_out_system_columns(statement: &mut Statement, streams: &Streams) -> Result<()> {
    match statement {
        Statement::Explain(explain) => leave_out_system_columns(&mut explain.statement, streams),
        Statement::Statement(statement) => {
            let mut rewriter = Rewriter { streams, with_names: WithNames::default(), outcome: Ok(()) };
            let _ = statement.visit_mut(&mut rewriter);
            rewriter.outcome
        }
        _ => Ok(()),
    }
}

struct Rewriter<'a> {
    streams: &'a Streams,
    with_names: WithNames,
    outcome: Result<()>,
}

impl VisitorMut for Rewriter<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let Query { with, body, order_by, pipe_operators, .. } = query;
        self.with_names.enter_body(with.as_ref());

        let mut beside = SystemNames::default();
        let _ = order_by.visit(&mut beside);
        let _ = pipe_operators.visit(&mut beside);
        self.outcome = self.body(body, beside);

        self.with_names.go_to_definitions();
        if self.outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.with_names.leave();
        ControlFlow::Continue(())
    }
}

impl Rewriter<'_> {
    /// Rewrites the SELECTs of a query's body; its subqueries are visited separately. `beside` are the names in the
    /// clauses that follow the body.
    fn body(&self, body: &mut SetExpr, beside: SystemNames) -> Result<()> {
        match body {
            SetExpr::Select(select) => self.select(select, beside),
            SetExpr::SetOperation { left, right, .. } => {
                self.body(left, SystemNames::default())?;
                self.body(right, SystemNames::default())
            }
            _ => Ok(()),
        }
    }

    fn select(&self, select: &mut Select, mut named: SystemNames) -> Result<()> {
        let joins = joins(&select.from);
        let is_natural = joins.iter().any(|join| matches!(constraint(join), Some(JoinConstraint::Natural)));
        // `FROM s` alone has no list, and means all columns.
        let has_wildcard = select.projection.is_empty() || select.projection.iter().any(|item| wildcard_options(item).is_some());
        if !has_wildcard && !is_natural {
            return Ok(());
        }
        named.add_using(&joins);
        named.add_left_out(&select.projection);
        let _ = select.visit(&mut named);

        let mut relations = Vec::new();
        for tables in &mut select.from {
            relations_of(tables, &mut relations);
        }
        let mut streams: Vec<(&mut TableFactor, FoundStream<'_>)> = Vec::new();
        for relation in relations {
            if let Some(stream) = self.stream(relation)? {
                streams.push((relation, stream));
            }
        }
        let is_only = streams.len() == 1;
        let mut with_named = Vec::new();
        for (relation, stream) in streams {
            match named.has(&stream.alias, is_only) {
                true => with_named.push(stream),
                false => *relation = own_columns(relation, &stream)?,
            }
        }
        if is_natural && with_named.len() > 1 {
            return Err(Error::input("NATURAL JOIN of streams whose system columns are named: expected JOIN .. USING or JOIN .. ON"));
        }
        leave_out_of_wildcards(&mut select.projection, &with_named)
    }

    /// Returns the stream that a relation names. `None` for any other relation.
    fn stream(&self, relation: &TableFactor) -> Result<Option<FoundStream<'_>>> {
        let TableFactor::Table { name, alias, args: None, .. } = relation else { return Ok(None) };
        let table = object_name_to_table_reference(name.clone(), true)?;
        let is_public = table.catalog().is_none_or(|catalog| catalog == DEFAULT_CATALOG)
            && table.schema().is_none_or(|schema| schema == DEFAULT_SCHEMA);
        let is_defined_here = matches!(&table, TableReference::Bare { table } if self.with_names.has(table));
        if !is_public || is_defined_here {
            return Ok(None);
        }
        let alias = alias.as_ref().map_or_else(|| table.table().to_owned(), |alias| resolved(&alias.name));
        Ok(self.streams.get(table.table()).map(|stream| FoundStream { alias, definition: &stream.definition }))
    }
}

/// A stream in FROM.
struct FoundStream<'a> {
    /// The name by which the SELECT knows it.
    alias: String,
    definition: &'a StreamDefinition,
}

impl FoundStream<'_> {
    fn system_columns(&self) -> Vec<String> {
        event_schema(self.definition).fields().iter().skip(self.definition.columns.len()).map(|field| field.name().clone()).collect()
    }
}

/// Leaves the system columns of these streams out of `*`.
fn leave_out_of_wildcards(projection: &mut [SelectItem], streams: &[FoundStream<'_>]) -> Result<()> {
    for item in projection {
        match item {
            SelectItem::Wildcard(options) => match streams {
                [] => {}
                [stream] => leave_out(options, &stream.system_columns()),
                several => {
                    let aliases: Vec<String> = several.iter().map(|stream| format!("{}.*", stream.alias)).collect();
                    return Err(Error::input(format!(
                        "* over several streams whose system columns are named: expected {} instead of *",
                        aliases.join(", ")
                    )));
                }
            },
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options) => {
                let stream = streams.iter().find(|stream| last(name).as_ref() == Some(&stream.alias));
                if let Some(stream) = stream {
                    leave_out(options, &stream.system_columns());
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// A stream's own columns as a relation of the same name.
fn own_columns(relation: &TableFactor, stream: &FoundStream<'_>) -> Result<TableFactor> {
    let mut table = relation.clone();
    let alias = match &mut table {
        TableFactor::Table { alias, .. } => alias.take(),
        _ => None,
    };
    let alias = alias.map_or_else(|| format!("AS {}", quoted(&stream.alias)), |alias| alias.to_string());
    let columns: Vec<String> = stream.definition.columns.iter().map(|column| quoted(&column.name)).collect();
    let text = format!("(SELECT {} FROM {table}) {alias}", columns.join(", "));
    let parsed = Parser::new(&SqlDialect).try_with_sql(&text).and_then(|mut parser| parser.parse_table_factor());
    parsed.map_err(|error: ParserError| DataFusionError::from(error).into())
}

#[cfg(test)]
mod tests;
