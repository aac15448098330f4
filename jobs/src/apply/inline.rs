//! Makes a view's text self-contained: the staging views that it names become CTEs before its SELECT. A stored version
//! then keeps its meaning, and a change of a staging view changes every view that builds on it.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{ObjectName, ObjectNamePart, Query, Spanned, Statement, Visitor};
use datafusion::sql::sqlparser::parser::Parser;
use definitions::syntax::SyntaxNode;
use definitions::{Definitions, ViewDefinition, parse};
use types::sql_dialect::SqlDialect;

/// Returns the text as it is compared and stored: no trailing spaces, no blank lines around it, no semicolon at the
/// end.
pub(crate) fn normalised(sql: &str) -> String {
    let lines: Vec<&str> = sql.lines().map(str::trim_end).collect();
    let text = lines.join("\n");
    text.trim().trim_end_matches(|c: char| c == ';' || c.is_whitespace()).to_owned()
}

/// Returns the view's statement with the views it names as CTEs. A text that does not parse is returned unchanged: its
/// mistake is reported elsewhere.
pub(crate) fn self_contained(view: &ViewDefinition, definitions: &Definitions) -> String {
    let mut ctes = Vec::new();
    collect(view, definitions, &mut vec![view.name.clone()], &mut ctes);
    if ctes.is_empty() {
        return view.sql.clone();
    }
    let (Some(query), Some(at)) = (query_of(&view.select), view.sql.rfind(&view.select)) else { return view.sql.clone() };
    let list: Vec<String> = ctes.iter().map(|named| format!("{} AS (\n{}\n)", named.name, normalised(&named.select))).collect();
    let list = list.join(", ");
    let (head, tail) = view.sql.split_at(at);
    match with_keyword_end(&query, &view.select) {
        Some(end) => format!("{head}{} {list},{}", &tail[..end], &tail[end..]),
        None => format!("{head}WITH {list}\n{tail}"),
    }
}

/// Collects the views that `view` names, deepest first, each once. `open` guards against cycles.
fn collect<'a>(view: &ViewDefinition, definitions: &'a Definitions, open: &mut Vec<Arc<str>>, ctes: &mut Vec<&'a ViewDefinition>) {
    let Some(query) = query_of(&view.select) else { return };
    for name in relations_of(&query) {
        let Some(named) = definitions.views.iter().find(|known| *known.name == *name) else { continue };
        if open.contains(&named.name) || ctes.iter().any(|known| known.name == named.name) {
            continue;
        }
        open.push(named.name.clone());
        collect(named, definitions, open, ctes);
        open.pop();
        ctes.push(named);
    }
}

/// Returns the names of streams and views that a stored `CREATE VIEW` selects from; empty if it does not parse.
pub(super) fn relations(sql: &str) -> BTreeSet<String> {
    parse::parse_view(sql).map(|view| relations_of_select(&view.select)).unwrap_or_default()
}

/// The same of a SELECT.
pub(super) fn relations_of_select(select: &str) -> BTreeSet<String> {
    query_of(select).map(|query| relations_of(&query).into_iter().collect()).unwrap_or_default()
}

/// True if a stored `CREATE VIEW` has a view of this name as a CTE.
pub(crate) fn names_as_staging(sql: &str, view: &str) -> bool {
    let query = parse::parse_view(sql).ok().and_then(|definition| query_of(&definition.select));
    let with = query.and_then(|query| query.with);
    with.is_some_and(|with| with.cte_tables.iter().any(|cte| cte.alias.name.value == view))
}

fn query_of(select: &str) -> Option<Query> {
    match Parser::parse_sql(&SqlDialect, select).ok()?.pop()? {
        Statement::Query(query) => Some(*query),
        _ => None,
    }
}

/// Returns the names that a query selects from, in order of appearance, without the names of its own CTEs.
fn relations_of(query: &Query) -> Vec<String> {
    struct Names {
        found: Vec<String>,
        ctes: BTreeSet<String>,
    }
    impl Visitor for Names {
        type Break = ();
        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            self.ctes.extend(query.with.iter().flat_map(|with| &with.cte_tables).map(|cte| cte.alias.name.value.to_lowercase()));
            ControlFlow::Continue(())
        }
        fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
            if let [ObjectNamePart::Identifier(name)] = relation.0.as_slice() {
                self.found.push(if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() });
            }
            ControlFlow::Continue(())
        }
    }
    let mut names = Names { found: Vec::new(), ctes: BTreeSet::new() };
    let _ = query.visit(&mut names);
    let Names { mut found, ctes } = names;
    found.retain(|name| !ctes.contains(name));
    found
}

/// Returns the position after the keyword WITH of the outermost query, if it has one.
fn with_keyword_end(query: &Query, text: &str) -> Option<usize> {
    let start = query.with.as_ref()?.span().start;
    let line_start: usize = text.split_inclusive('\n').take(start.line.saturating_sub(1) as usize).map(str::len).sum();
    let line = &text[line_start..];
    let column: usize = line.chars().take(start.column.saturating_sub(1) as usize).map(char::len_utf8).sum();
    let at = line_start + column;
    text.get(at..at + 4).filter(|word| word.eq_ignore_ascii_case("with")).map(|_| at + 4)
}
