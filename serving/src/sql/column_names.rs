//! The names of an answer's columns. DataFusion names a column without an alias after its expression, and shows
//! constants with their types.
//!
//! It refuses a SELECT with several columns of one name, which SQL allows: `n, n::text`, `n + 1, n + 1`, `n AS a, m AS
//! a`, `v.*, n`. Such a statement is planned again, with an alias of ours for each of them except the first, and the
//! answer shows their own names. Where a name would mean different columns, none of them keeps it, and nothing can
//! refer to it. In a subquery such a name is refused, because a reference to it could find another table's column.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::common::TableReference;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{self, Ident, OrderBy, OrderByKind, Query, Select, SelectItem, SetExpr, SetQuantifier, VisitorMut};
use definitions::syntax::SyntaxNode;
use types::sql_errors::constants_as_sql;
use types::{Error, Reason, Result};

use super::names::resolved;
use super::params::inner_mut;

/// The prefix of our aliases.
const ALIAS: &str = "__column_";
/// The prefix of DataFusion's names for the columns of `unnest`.
const UNNESTED: &str = "__unnest_placeholder";

/// If the error is that several columns have the same name: that name.
pub(super) fn repeated_name(error: &Error) -> Option<String> {
    let message = error.message();
    let rest = message.strip_prefix("two columns are called \"").and_then(|rest| rest.split_once("\": expected"));
    let rest = rest.or_else(|| message.strip_prefix("the column \"")?.split_once("\" is in several of the tables"));
    rest.map(|(name, _)| name.to_owned())
}

/// The columns that [`alias_repeated_names`] renamed.
#[derive(Debug, Default)]
pub(super) struct AliasedColumns {
    /// Their names, by our aliases.
    names: BTreeMap<String, HiddenName>,
    /// The names that mean different columns.
    ambiguous: BTreeSet<String>,
}

/// The name of a column that has an alias of ours in the plan.
#[derive(Debug)]
enum HiddenName {
    Written(String),
    /// The planner's name for an expression without an alias; its text where the planner has none.
    OfExpression(String),
}

impl AliasedColumns {
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Explains an error of a statement whose columns got aliases: a name that is not found may be that of several
    /// columns.
    pub(super) fn explained(&self, error: Error) -> Error {
        let name = error.message().strip_prefix("there is no column \"").and_then(|rest| rest.split_once('"'));
        match name.filter(|(name, _)| self.ambiguous.contains(*name)) {
            Some((name, _)) => ambiguous(name),
            None => error,
        }
    }

    /// The columns' names by our aliases. `plan` has the expressions.
    fn names_in(&self, plan: &LogicalPlan) -> Result<BTreeMap<String, String>> {
        let mut of_expressions: BTreeMap<&str, String> = BTreeMap::new();
        if self.names.values().any(|name| matches!(name, HiddenName::OfExpression(_))) {
            plan.apply_with_subqueries(|node| {
                if let LogicalPlan::Projection(projection) = node {
                    for expr in &projection.expr {
                        if let Expr::Alias(alias) = expr
                            && let Some((hidden, _)) = self.names.get_key_value(&alias.name)
                        {
                            let (_, name) = alias.expr.qualified_name();
                            if !name.ends_with(hidden.as_str()) && !name.contains(UNNESTED) {
                                of_expressions.insert(hidden, name);
                            }
                        }
                    }
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        let name = |(alias, name): (&String, &HiddenName)| {
            let name = match name {
                HiddenName::Written(name) => name.clone(),
                HiddenName::OfExpression(text) => {
                    of_expressions.get(alias.as_str()).map_or_else(|| text.clone(), |name| constants_as_sql(name))
                }
            };
            (alias.clone(), name)
        };
        Ok(self.names.iter().map(name).collect())
    }
}

fn ambiguous(name: &str) -> Error {
    Error::input(format!("several columns are called \"{name}\": expected different names (.. AS another) to refer to one of them"))
        .with_reason(Reason::AmbiguousColumn)
}

/// Gives aliases to columns of one name, in every SELECT of the statement. `clashing` are the names that the planner
/// refused: a `*` in the same SELECT has columns of these names too.
///
/// Errors: `Input` if ORDER BY names one of several columns, or if a subquery gives different columns one name.
pub(super) fn alias_repeated_names(statement: &mut Statement, clashing: &BTreeSet<String>) -> Result<AliasedColumns> {
    let mut repeats = Repeats { clashing, aliased: AliasedColumns::default(), depth: 0, outcome: Ok(()) };
    if let Some(statement) = inner_mut(statement) {
        let _ = statement.visit_mut(&mut repeats);
    }
    repeats.outcome.map(|()| repeats.aliased)
}

struct Repeats<'a> {
    clashing: &'a BTreeSet<String>,
    aliased: AliasedColumns,
    /// How many queries enclose the visited one.
    depth: usize,
    outcome: Result<()>,
}

impl VisitorMut for Repeats<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let is_outermost = self.depth == 0;
        self.depth += 1;
        let Query { body, order_by, .. } = query;
        let ambiguous = match &mut **body {
            SetExpr::Select(select) => self.select(select, is_outermost, order_by.is_some()),
            other => self.body(other, is_outermost),
        };
        self.outcome = match ambiguous.first().filter(|_| !is_outermost) {
            Some(name) => Err(self::ambiguous(name)),
            None => refuse_ambiguous(order_by.as_ref(), &ambiguous),
        };
        self.aliased.ambiguous.extend(ambiguous);
        if self.outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }
}

impl Repeats<'_> {
    /// Gives aliases to columns of a query's body; its subqueries are visited separately. Returns the names to which
    /// nothing can refer any more.
    fn body(&mut self, body: &mut SetExpr, is_outermost: bool) -> BTreeSet<String> {
        match body {
            SetExpr::Select(select) => self.select(select, is_outermost, false),
            // The names decide what belongs together.
            SetExpr::SetOperation {
                set_quantifier: SetQuantifier::ByName | SetQuantifier::AllByName | SetQuantifier::DistinctByName,
                ..
            } => BTreeSet::new(),
            SetExpr::SetOperation { left, right, .. } => {
                let mut ambiguous = self.body(left, is_outermost);
                ambiguous.extend(self.body(right, is_outermost));
                ambiguous
            }
            _ => BTreeSet::new(),
        }
    }

    fn select(&mut self, select: &mut Select, is_outermost: bool, is_sorted: bool) -> BTreeSet<String> {
        let items: Vec<Option<Item>> = select.projection.iter().map(Item::from_item).collect();
        let mut hidden = BTreeSet::new();
        let mut ambiguous = BTreeSet::new();
        let mut groups: BTreeMap<&ItemName, Vec<usize>> = BTreeMap::new();
        for (index, item) in items.iter().enumerate() {
            if let Some(item) = item {
                groups.entry(&item.name).or_default().push(index);
            }
        }
        for (name, group) in &groups {
            let members: Vec<&Item> = group.iter().filter_map(|index| items[*index].as_ref()).collect();
            let hides = hidden_in_group(&members, is_outermost);
            if let ItemName::Output(name) = name
                && hides.means_several
            {
                ambiguous.insert(name.clone());
            }
            hidden.extend(group.iter().zip(&hides.are_hidden).filter(|(_, is_hidden)| **is_hidden).map(|(index, _)| *index));
        }
        let is_expression = |item: &Item| matches!(item.name, ItemName::Expression(_));
        let takes_name = |item: &Item| match &item.column {
            // The columns of tables by which the rows are sorted are among those of the SELECT.
            Some(column) => column.is_cast && is_sorted,
            None => item.is_named_as_column,
        };
        if is_outermost {
            let indices = |is: &dyn Fn(&Item) -> bool| -> Vec<usize> {
                (0..items.len()).filter(|index| items[*index].as_ref().is_some_and(is)).collect()
            };
            // The planner leaves casts out of names, and gives some functions the names of others.
            hidden.extend(indices(&is_expression).into_iter().skip(1));
            hidden.extend(indices(&takes_name));
        }
        let has_wildcard = select.projection.iter().any(|item| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)));
        if has_wildcard {
            for (index, item) in items.iter().enumerate() {
                let Some(Item { name: ItemName::Output(name), column, .. }) = item else { continue };
                let is_column = column.as_ref().is_some_and(|column| is_outermost || !column.is_cast);
                let clashes = self.clashing.contains(name);
                // Something around a subquery may refer to any of its names.
                if (is_outermost && is_column) || (clashes && (is_outermost || is_column)) {
                    hidden.insert(index);
                }
                if is_outermost && clashes && !is_column {
                    ambiguous.insert(name.clone());
                }
            }
        }
        for (index, (item, found)) in select.projection.iter_mut().zip(&items).enumerate() {
            if let Some(found) = found
                && hidden.contains(&index)
            {
                self.hide(item, found);
            }
        }
        ambiguous
    }

    fn hide(&mut self, item: &mut SelectItem, found: &Item) {
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else { return };
        let alias = format!("{ALIAS}{}", self.aliased.names.len());
        let name = match &found.name {
            ItemName::Output(name) => HiddenName::Written(name.clone()),
            ItemName::Expression(_) => HiddenName::OfExpression(found.text.clone()),
        };
        // A copy of a deep expression takes much of the stack.
        let expr = std::mem::replace(expr, ast::Expr::Identifier(Ident::new("")));
        *item = SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', alias.as_str()) };
        self.aliased.names.insert(alias, name);
    }
}

/// An item of a SELECT that is one column.
struct Item {
    name: ItemName,
    text: String,
    /// The column, if the item is one without an alias.
    column: Option<ColumnPath>,
    /// Whether the planner gives it the name of a column.
    is_named_as_column: bool,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ItemName {
    /// An alias, or a column's own name.
    Output(String),
    /// The text of another expression. Its name is the same with and without a cast.
    Expression(String),
}

/// A column as it is written.
pub(super) struct ColumnPath {
    pub(super) parts: Vec<String>,
    pub(super) is_cast: bool,
}

impl ColumnPath {
    pub(super) fn from_expr(expr: &ast::Expr) -> Option<ColumnPath> {
        match expr {
            ast::Expr::Nested(expr) => ColumnPath::from_expr(expr),
            ast::Expr::Cast { expr, .. } => ColumnPath::from_expr(expr).map(|column| ColumnPath { is_cast: true, ..column }),
            ast::Expr::Identifier(name) => Some(ColumnPath { parts: vec![resolved(name)], is_cast: false }),
            ast::Expr::CompoundIdentifier(parts) => Some(ColumnPath { parts: parts.iter().map(resolved).collect(), is_cast: false }),
            _ => None,
        }
    }

    /// Whether both may be the same column, with or without the name of its table.
    fn may_be(&self, other: &ColumnPath) -> bool {
        self.parts.ends_with(&other.parts) || other.parts.ends_with(&self.parts)
    }
}

impl Item {
    fn from_item(item: &SelectItem) -> Option<Item> {
        match item {
            SelectItem::ExprWithAlias { expr, alias } => {
                Some(Item { name: ItemName::Output(resolved(alias)), text: expr.to_string(), column: None, is_named_as_column: false })
            }
            SelectItem::UnnamedExpr(expr) => {
                let column = ColumnPath::from_expr(expr);
                let name = match column.as_ref().and_then(|column| column.parts.last()) {
                    Some(name) => ItemName::Output(name.clone()),
                    None => ItemName::Expression(expression_text(expr)),
                };
                Some(Item { name, text: expr.to_string(), column, is_named_as_column: is_named_as_column(expr) })
            }
            _ => None,
        }
    }
}

/// The text of an expression without the casts and parentheses around it.
fn expression_text(expr: &ast::Expr) -> String {
    match expr {
        ast::Expr::Nested(inner) | ast::Expr::Cast { expr: inner, .. } => expression_text(inner),
        other => other.to_string(),
    }
}

fn is_named_as_column(expr: &ast::Expr) -> bool {
    match expr {
        ast::Expr::Nested(expr) | ast::Expr::Cast { expr, .. } | ast::Expr::AtTimeZone { timestamp: expr, .. } => is_named_as_column(expr),
        ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_) => true,
        _ => false,
    }
}

/// The columns of one name that get an alias of ours.
struct HiddenInGroup {
    are_hidden: Vec<bool>,
    /// Whether the name means different columns, so that none of them keeps it.
    means_several: bool,
}

fn hidden_in_group(members: &[&Item], is_outermost: bool) -> HiddenInGroup {
    let count = members.len();
    let columns: Option<Vec<&ColumnPath>> = members.iter().map(|item| item.column.as_ref()).collect();
    match columns {
        // Of different tables, several columns may have one name.
        Some(columns) => {
            let may_be = |at: usize, other: usize| other != at && columns[at].may_be(columns[other]);
            let alike: Vec<Vec<usize>> = (0..count).map(|at| (0..count).filter(|other| may_be(at, *other)).collect()).collect();
            let differs = |at: usize| !is_outermost && alike[at].iter().any(|other| columns[at].is_cast || columns[*other].is_cast);
            let comes_later = |at: usize| columns[at].is_cast || alike[at].iter().any(|other| *other < at && !columns[*other].is_cast);
            let are_hidden = (0..count).map(|at| !alike[at].is_empty() && (differs(at) || comes_later(at))).collect();
            HiddenInGroup { are_hidden, means_several: (0..count).any(differs) }
        }
        None => {
            let is_expression = matches!(members[0].name, ItemName::Expression(_));
            let means_several = !is_expression && members.iter().any(|item| item.text != members[0].text);
            HiddenInGroup { are_hidden: (0..count).map(|at| at > 0 || means_several).collect(), means_several }
        }
    }
}

/// Refuses an ORDER BY that names one of several columns.
fn refuse_ambiguous(order_by: Option<&OrderBy>, names: &BTreeSet<String>) -> Result<()> {
    let Some(OrderBy { kind: OrderByKind::Expressions(sorts), .. }) = order_by else { return Ok(()) };
    for sort in sorts {
        if let ast::Expr::Identifier(name) = &sort.expr
            && names.contains(&resolved(name))
        {
            return Err(ambiguous(&resolved(name)));
        }
    }
    Ok(())
}

/// Returns the name of each column of a SELECT that is the cast of a column and has no alias: as in PostgreSQL, that of
/// the column. Empty for another statement.
pub(super) fn names_of_casts(statement: &Statement) -> Vec<Option<String>> {
    let Statement::Statement(statement) = statement else { return Vec::new() };
    let ast::Statement::Query(query) = &**statement else { return Vec::new() };
    let SetExpr::Select(select) = &*query.body else { return Vec::new() };
    let name = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) => ColumnPath::from_expr(expr).filter(|column| column.is_cast)?.parts.pop(),
        _ => None,
    };
    select.projection.iter().map(name).collect()
}

/// Gives columns the names that SQL has for them: `3`, not `Int64(3)`. A column keeps DataFusion's name if another
/// column already has the one from SQL. The columns that [`alias_repeated_names`] renamed get their names back, and the
/// casts of columns get those from [`names_of_casts`].
pub(super) fn named(plan: LogicalPlan, aliased: &AliasedColumns, casts: &[Option<String>]) -> Result<LogicalPlan> {
    let hidden = aliased.names_in(&plan)?;
    let columns = plan.schema().columns();
    let cast = |at: usize| casts.get(at).filter(|_| casts.len() == columns.len()).cloned().flatten();
    let name = |at: usize, column: &str| hidden.get(column).cloned().or_else(|| cast(at)).unwrap_or_else(|| constants_as_sql(column));
    let names: Vec<String> = columns.iter().enumerate().map(|(at, column)| name(at, &column.name)).collect();
    let is_hidden = |at: usize| hidden.contains_key(&columns[at].name);
    let is_free = |at: usize| (0..names.len()).filter(|other| names[*other] == names[at] && !is_hidden(*other)).count() == 1;
    let is_changed = |at: usize| columns[at].name != names[at] && (is_hidden(at) || is_free(at));
    if !(0..names.len()).any(is_changed) {
        return Ok(plan);
    }
    let shown = |at: usize| {
        let column = Expr::Column(columns[at].clone());
        let name = if is_changed(at) { &names[at] } else { &columns[at].name };
        match hidden.is_empty() {
            // Columns may have one name if they are of different tables.
            false => column.alias_qualified(Some(TableReference::bare(at.to_string())), name.as_str()),
            true if is_changed(at) => column.alias(name.as_str()),
            true => column,
        }
    };
    let columns: Vec<Expr> = (0..names.len()).map(shown).collect();
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?))
}
