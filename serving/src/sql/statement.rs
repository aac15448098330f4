//! Parses the text of a query: any number of `SET as_of = '..'`, then one query.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use datafusion::common::TableReference;
use datafusion::error::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::resolve::resolve_table_references;
use datafusion::sql::sqlparser::ast::{self, Visitor};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use definitions::depth::check_depth;
use definitions::keywords;
use definitions::syntax::SyntaxNode;
use engine::events::parse_timestamp;
use engine::plan::{LACKS_BRACKETS, ignored_clause, ignored_in_calls, lacks_brackets};
use types::sql_dialect::SqlDialect;
use types::tiles::Micros;
use types::{Error, Reason, Result};

use super::ignored_words::without_ignored;
use super::names::{DEFAULT_SCHEMA, possible_views};
use super::params::inner;
use crate::follower::WantedViews;

/// A query and the time it names.
pub(super) struct ParsedQuery {
    pub(super) as_of: Option<Micros>,
    pub(super) statement: Statement,
}

pub(super) fn read(sql: &str) -> Result<ParsedQuery> {
    check_depth(sql)?;
    let mut as_of = None;
    let mut query = None;
    let parsed = match parsed(sql) {
        Err(error) => without_ignored(sql)?.map_or(Err(error), |known| parsed(&known)),
        parsed => parsed,
    };
    for statement in parsed.map_err(|error| refusal(sql).unwrap_or_else(|| error.into()))? {
        if query.is_some() {
            let message = "more than one query: expected one SELECT, with SET as_of = '..' in front of it";
            return Err(Error::input(message).with_reason(Reason::NotOneQuery));
        }
        match set_as_of(&statement)? {
            Some(time) => as_of = Some(time),
            None => query = Some(checked(sql, statement)?),
        }
    }
    match query {
        Some(statement) => Ok(ParsedQuery { as_of, statement }),
        None => Err(Error::input("no query: expected a SELECT").with_reason(Reason::NotOneQuery)),
    }
}

fn parsed(sql: &str) -> std::result::Result<VecDeque<Statement>, DataFusionError> {
    DFParserBuilder::new(sql).with_dialect(&SqlDialect).build().and_then(|mut parser| parser.parse_statements())
}

/// Explains why a text cannot be parsed, where the parser's own error would mislead.
fn refusal(sql: &str) -> Option<Error> {
    lock_of_postgresql(sql).map(found_within).or_else(|| keywords::refusal(sql))
}

/// Returns a lock that only PostgreSQL has, which the parser does not know.
fn lock_of_postgresql(sql: &str) -> Option<&'static str> {
    let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize().ok()?;
    let words: Vec<String> = tokens.iter().filter(|token| !matches!(token, Token::Whitespace(_))).map(Token::to_string).collect();
    ["FOR NO KEY UPDATE", "FOR KEY SHARE"].into_iter().find(|lock| {
        let lock: Vec<&str> = lock.split(' ').collect();
        words.windows(lock.len()).any(|words| words.iter().zip(&lock).all(|(word, expected)| word.eq_ignore_ascii_case(expected)))
    })
}

fn found_within(write: &str) -> Error {
    only_queries(&format!("found {write} within one"))
}

/// Returns the views that a query reads: all of them if it reads a system table, because system tables describe all
/// views.
pub fn views_read(sql: &str) -> WantedViews {
    let tables = read(sql).and_then(|query| Ok(resolve_table_references(&query.statement, true)?.0));
    let is_public = |table: &TableReference| table.schema().is_none_or(|schema| schema == DEFAULT_SCHEMA);
    match tables {
        Ok(tables) if tables.iter().all(is_public) => {
            WantedViews::Named(tables.iter().flat_map(|table| possible_views(table.table())).collect())
        }
        // A text that is no query is refused when it is asked.
        _ => WantedViews::All,
    }
}

/// Reads the time that a query names: RFC 3339 with a zone.
pub fn parse_as_of(text: &str) -> Result<Micros> {
    let wrong = || invalid_as_of(&format!("found \"{text}\", expected a time as RFC 3339 with a zone, such as 2024-05-01T12:30:00Z"));
    parse_timestamp(text.trim()).map_err(|_| wrong())
}

/// The error for a time that cannot be read.
pub fn invalid_as_of(what: &str) -> Error {
    Error::input(format!("as_of: {what}")).with_reason(Reason::InvalidAsOf)
}

/// The error for a query that would write or lock something.
pub fn only_queries(what: &str) -> Error {
    Error::input(format!("only queries are supported here: {what}")).with_reason(Reason::WritesWithinQuery)
}

/// Refuses plans that write although the text did not show it, such as EXPLAIN of a statement that writes.
pub(super) fn allow(plan: &LogicalPlan) -> Result<()> {
    let options = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    options.verify_plan(plan).map_err(|error| only_queries(Error::from(error).message()))
}

fn set_as_of(statement: &Statement) -> Result<Option<Micros>> {
    let Statement::Statement(statement) = statement else { return Ok(None) };
    let ast::Statement::Set(set) = &**statement else { return Ok(None) };
    let wrong = || Error::input(format!("\"{set}\": expected SET as_of = 'a time as RFC 3339'"));
    match set {
        ast::Set::SingleAssignment { variable, values, .. } if variable.to_string().eq_ignore_ascii_case("as_of") => {
            match values.as_slice() {
                [ast::Expr::Value(value)] => match &value.value {
                    ast::Value::SingleQuotedString(text) => parse_as_of(text).map(Some),
                    _ => Err(wrong()),
                },
                _ => Err(wrong()),
            }
        }
        _ => Err(wrong()),
    }
}

fn checked(sql: &str, statement: Statement) -> Result<Statement> {
    let is_query = match &statement {
        Statement::Explain(_) => true,
        Statement::Statement(inner) => matches!(
            &**inner,
            ast::Statement::Query(_)
                | ast::Statement::ExplainTable { .. }
                | ast::Statement::ShowTables { .. }
                | ast::Statement::ShowColumns { .. }
        ),
        _ => false,
    };
    if !is_query {
        let text = statement.to_string();
        let found = text.split_whitespace().next().unwrap_or_default();
        let expected = "expected SELECT or EXPLAIN (events go in through the log, definitions through apply)";
        return Err(Error::input(format!("{found} is not supported here: {expected}")).with_reason(Reason::NotAQuery));
    }
    if let Statement::Statement(inner) = &statement
        && let Some(write) = write_within(inner)
    {
        return Err(found_within(write));
    }
    if let Statement::Statement(inner) = &statement
        && let Some(clause) = ignored_clause(&**inner).or_else(|| ignored_in_calls(&**inner))
    {
        return Err(Error::input(format!("{clause} is not supported here: the answer would ignore it")));
    }
    if let Some(operation) = inner(&statement).and_then(operation_on_multisets) {
        let message = format!("not supported: {operation} ALL, write {operation}, or compare count(*) of each row of both sides");
        return Err(Error::input(message).with_reason(Reason::NotSupported));
    }
    if inner(&statement).is_some_and(lacks_brackets) {
        return Err(Error::input(LACKS_BRACKETS));
    }
    match inner(&statement).and_then(|inner| keywords::interval_refusal(sql, inner)) {
        Some(error) => Err(error),
        None => Ok(statement),
    }
}

/// Returns the first INTERSECT ALL or EXCEPT ALL, by its name. DataFusion does not count how often a row is on the
/// right side.
fn operation_on_multisets(statement: &ast::Statement) -> Option<&'static str> {
    let mut first = FirstOnMultisets(None);
    let _ = SyntaxNode::visit(statement, &mut first);
    first.0
}

struct FirstOnMultisets(Option<&'static str>);

impl Visitor for FirstOnMultisets {
    type Break = ();

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        self.0 = on_multisets(&query.body);
        if self.0.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

fn on_multisets(body: &ast::SetExpr) -> Option<&'static str> {
    let ast::SetExpr::SetOperation { op, set_quantifier, left, right } = body else { return None };
    let keeps_repeats = matches!(set_quantifier, ast::SetQuantifier::All | ast::SetQuantifier::AllByName);
    match op {
        ast::SetOperator::Intersect if keeps_repeats => Some("INTERSECT"),
        ast::SetOperator::Except | ast::SetOperator::Minus if keeps_repeats => Some("EXCEPT"),
        _ => on_multisets(left).or_else(|| on_multisets(right)),
    }
}

/// Returns the part of a query that changes or locks rows, such as a DELETE in its WITH.
fn write_within(statement: &ast::Statement) -> Option<&'static str> {
    let mut first = FirstWrite(None);
    let _ = SyntaxNode::visit(statement, &mut first);
    first.0
}

struct FirstWrite(Option<&'static str>);

impl Visitor for FirstWrite {
    type Break = ();

    fn pre_visit_statement(&mut self, statement: &ast::Statement) -> ControlFlow<()> {
        self.found(match statement {
            ast::Statement::Insert(_) => Some("INSERT"),
            ast::Statement::Update(_) => Some("UPDATE"),
            ast::Statement::Delete(_) => Some("DELETE"),
            ast::Statement::Merge(_) => Some("MERGE"),
            _ => None,
        })
    }

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        self.found(query.locks.first().map(|lock| match lock.lock_type {
            ast::LockType::Update => "FOR UPDATE",
            ast::LockType::Share => "FOR SHARE",
        }))
    }
}

impl FirstWrite {
    fn found(&mut self, write: Option<&'static str>) -> ControlFlow<()> {
        self.0 = write;
        if write.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_ignored_is_refused() {
        for (text, found) in [
            ("SELECT a FROM v PREWHERE a > 1", "PREWHERE"),
            ("SELECT a FROM (SELECT a FROM v TABLESAMPLE BERNOULLI (1)) AS t", "TABLESAMPLE"),
            ("SELECT a FROM v PARTITION (p)", "PARTITION"),
            ("SELECT a FROM v SETTINGS x = 1", "SETTINGS"),
            ("SELECT coalesce(sum(a), 0) FILTER (WHERE b) FROM v", "FILTER of a function that is no aggregate"),
            ("SELECT a, bit_xor(DISTINCT b) FROM v GROUP BY a", "DISTINCT in bit_xor"),
            ("SELECT * FROM v, generate_series(1, 3) WITH ORDINALITY", "WITH ORDINALITY"),
            ("SELECT a FROM (SELECT last_n(3)(a, 2) AS a FROM v) AS t", "a call with two lists of arguments"),
        ] {
            let error = read(text).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(&format!("{found} is not supported here")), "{text}: {error}");
        }
    }

    #[test]
    fn what_writes_within_a_query_is_refused() {
        for (text, found) in [
            ("WITH gone AS (DELETE FROM v RETURNING a) SELECT * FROM gone", "DELETE"),
            ("WITH a AS (SELECT 1) UPDATE v SET a = 1", "UPDATE"),
            ("WITH a AS (SELECT 1) INSERT INTO v SELECT * FROM a", "INSERT"),
            ("SELECT a FROM v WHERE a IN (SELECT a FROM w FOR UPDATE)", "FOR UPDATE"),
            ("SELECT a FROM v FOR SHARE", "FOR SHARE"),
            ("SELECT a FROM v FOR NO KEY UPDATE", "FOR NO KEY UPDATE"),
            ("SELECT a FROM v WHERE a IN (SELECT a FROM w for key\n share of w nowait)", "FOR KEY SHARE"),
        ] {
            let error = read(text).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(&format!("only queries are supported here: found {found} within one")), "{text}: {error}");
        }
        for (text, found) in [("INSERT INTO v VALUES (1)", "INSERT"), ("DELETE FROM v", "DELETE"), ("DROP TABLE v", "DROP")] {
            let error = read(text).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(&format!("{found} is not supported here: expected SELECT or EXPLAIN")), "{text}: {error}");
        }
        for text in ["WITH \"insert\" AS (SELECT 'delete' AS \"from\") SELECT \"from\" FROM \"insert\"", "SELECT a AS delete FROM v t"] {
            assert!(read(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_is_reported_with_the_word_that_is_to_blame() {
        for (text, expected) in [
            ("SELECT a, offset FROM v", "the SQL is not understood: \"offset\" is a keyword"),
            ("SELECT interval FROM v", "the SQL is not understood: \"interval\" is a keyword"),
            ("EXPLAIN SELECT a, interval FROM v", "the SQL is not understood: \"interval\" is a keyword"),
            ("SELECT 'for key share' FROM v v v", "the SQL is not understood: expected end of statement, found v"),
            ("SELECT \"for\" key share FROM v", "the SQL is not understood: expected end of statement, found share"),
        ] {
            assert_eq!(read(text).err().map(|error| error.message().to_owned()).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn a_query_reads_the_views_of_its_tables() {
        let text = "SET as_of = '2026-01-01T00:00:00Z'; \
            WITH c AS (SELECT * FROM a__batch) SELECT * FROM c JOIN \"B\" USING (k) WHERE k IN (SELECT k FROM d)";
        let names = ["a", "a__batch", "B", "d"].map(str::to_owned);
        assert_eq!(views_read(text), WantedViews::Named(names.into()));
    }

    #[test]
    fn a_query_of_system_tables_reads_all_views() {
        for text in ["SELECT * FROM system.views", "SELECT * FROM information_schema.tables", "SELEC"] {
            assert_eq!(views_read(text), WantedViews::All, "{text}");
        }
    }
}
