//! The names of an answer's columns. DataFusion names a column without an alias after its expression, shows constants
//! with their types, and refuses a SELECT with a column and the same one again, or cast: both have one name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::common::TableReference;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection};
use datafusion::sql::parser::Statement;
use datafusion::sql::planner::IdentNormalizer;
use datafusion::sql::sqlparser::ast::{self, Ident, SelectItem, SetExpr};
use types::Result;
use types::sql_errors::constants_as_sql;

use super::params::inner_mut;

/// Gives an alias to each column that the SELECT has more than once, cast or not: `n, n::text`. Returns the columns'
/// names by these aliases, for [`named`].
pub(super) fn tell_apart(statement: &mut Statement) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    let Some(ast::Statement::Query(query)) = inner_mut(statement) else { return names };
    let SetExpr::Select(select) = &mut *query.body else { return names };
    let has_all = select.projection.iter().any(|item| matches!(item, SelectItem::Wildcard(_)));
    let mut counts: BTreeMap<Vec<String>, usize> = BTreeMap::new();
    for (path, _) in select.projection.iter().filter_map(without_alias).filter_map(column) {
        *counts.entry(path).or_default() += 1;
    }
    let mut kept = BTreeSet::new();
    for (index, item) in select.projection.iter_mut().enumerate() {
        let Some(expr) = without_alias(item) else { continue };
        let Some((path, is_cast)) = column(expr) else { continue };
        let is_in_all = has_all && path.len() == 1;
        if !is_in_all && (counts[&path] == 1 || (!is_cast && kept.insert(path.clone()))) {
            continue;
        }
        let alias = format!("__column_{index}");
        names.extend(path.last().map(|name| (alias.clone(), name.clone())));
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', alias) };
    }
    names
}

fn without_alias(item: &SelectItem) -> Option<&ast::Expr> {
    match item {
        SelectItem::UnnamedExpr(expr) => Some(expr),
        _ => None,
    }
}

/// The parts of a column's name, and whether it is cast; `None` for another expression.
fn column(expr: &ast::Expr) -> Option<(Vec<String>, bool)> {
    let resolved = |name: &Ident| IdentNormalizer::default().normalize(name.clone());
    match expr {
        ast::Expr::Nested(expr) => column(expr),
        ast::Expr::Cast { expr, .. } => column(expr).map(|(path, _)| (path, true)),
        ast::Expr::Identifier(name) => Some((vec![resolved(name)], false)),
        ast::Expr::CompoundIdentifier(parts) => Some((parts.iter().map(resolved).collect(), false)),
        _ => None,
    }
}

/// Gives columns the names that SQL has for them: `3`, not `Int64(3)`. A column keeps DataFusion's name if another
/// column already has the one from SQL. The columns that [`tell_apart`] renamed get their names back.
pub(super) fn named(plan: LogicalPlan, told_apart: &BTreeMap<String, String>) -> Result<LogicalPlan> {
    let columns = plan.schema().columns();
    let name = |column: &str| told_apart.get(column).cloned().unwrap_or_else(|| constants_as_sql(column));
    let names: Vec<String> = columns.iter().map(|column| name(&column.name)).collect();
    let is_free = |at: usize| names.iter().filter(|name| **name == names[at]).count() == 1;
    let may_change = |at: usize| told_apart.contains_key(&columns[at].name) || is_free(at);
    let is_changed = |at: usize| columns[at].name != names[at] && may_change(at);
    if !(0..names.len()).any(is_changed) {
        return Ok(plan);
    }
    let shown = |at: usize| {
        let column = Expr::Column(columns[at].clone());
        let name = if is_changed(at) { &names[at] } else { &columns[at].name };
        match told_apart.is_empty() {
            // Columns may have one name if they are of different tables.
            false => column.alias_qualified(Some(TableReference::bare(at.to_string())), name.as_str()),
            true if is_changed(at) => column.alias(name.as_str()),
            true => column,
        }
    };
    let columns: Vec<Expr> = (0..names.len()).map(shown).collect();
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?))
}
