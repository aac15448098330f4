//! Carries each event's time and place through everything between a stream and the view's aggregates: the hidden
//! columns are added to every inner SELECT list. Staging views become CTEs before the query.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    Cte, ExceptSelectItem, ExcludeSelectItem, Expr, Ident, ObjectName, ObjectNamePart, Query, Select, SelectItem, SetExpr, SetOperator,
    SetQuantifier, TableAlias, TableAliasColumnDef, TableFactor, WildcardAdditionalOptions, With,
};
use definitions::{Definitions, ViewDefinition};
use types::{Error, Result};

use super::names::{quoted, resolved};
use super::parsed::parse_query;
use super::sides::{HIDDEN, JoinedRelation, Sides, qualifier, relations};

/// Whether the inner SELECTs keep their WHERE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InnerFilters {
    Kept,
    Dropped,
}

/// How often each stream is read.
type ReadCounts = BTreeMap<Arc<str>, usize>;
/// The visible CTEs.
type Scope = BTreeMap<String, Table>;

/// A relation in FROM: the streams it reads, and the names of its columns, without the hidden ones.
#[derive(Debug, Clone, Default)]
struct Table {
    reads: ReadCounts,
    columns: BTreeSet<String>,
}

/// A view's query whose top SELECT can use the hidden columns.
#[derive(Debug)]
pub(super) struct CarriedQuery {
    pub(super) query: Query,
    pub(super) reads: ReadCounts,
    /// The relations that the top SELECT reads.
    pub(super) sides: Sides,
}

/// Carries the hidden columns up to the top SELECT, which itself is left unchanged (except for its WHERE).
pub(super) fn carry(view: &ViewDefinition, definitions: &Definitions, filters: InnerFilters) -> Result<CarriedQuery> {
    let mut carry = Carry { definitions, filters, staging: Vec::new(), open: vec![view.name.clone()], sides: None };
    let mut query = parse_query(&view.select)?;
    let reads = carry.query(&mut query, &Scope::new(), true)?.reads;
    let sides = carry.sides.take().ok_or_else(|| Error::input("a view that is kept is a SELECT with aggregates"))?;
    let staging = std::mem::take(&mut carry.staging);
    if !staging.is_empty() {
        let ctes = staging.into_iter().map(|(name, query, _)| cte(&name, query));
        match &mut query.with {
            Some(with) => with.cte_tables = ctes.chain(std::mem::take(&mut with.cte_tables)).collect(),
            None => query.with = Some(With { with_token: AttachedToken::empty(), recursive: false, cte_tables: ctes.collect() }),
        }
    }
    Ok(CarriedQuery { query, reads, sides })
}

struct Carry<'a> {
    definitions: &'a Definitions,
    filters: InnerFilters,
    /// The staging views that are named, deepest first.
    staging: Vec<(Arc<str>, Query, Table)>,
    /// The views being resolved: a name that occurs again is a cycle.
    open: Vec<Arc<str>>,
    /// The relations that the top SELECT reads, once it has been visited.
    sides: Option<Sides>,
}

impl Carry<'_> {
    fn query(&mut self, query: &mut Query, scope: &Scope, top: bool) -> Result<Table> {
        let mut scope = scope.clone();
        for cte in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            let table = self.query(&mut cte.query, &scope, false)?;
            scope.insert(resolved(&cte.alias.name), named_by(Some(&mut cte.alias), table));
        }
        self.body(&mut query.body, &scope, top)
    }

    fn body(&mut self, body: &mut SetExpr, scope: &Scope, top: bool) -> Result<Table> {
        match body {
            SetExpr::Select(select) => self.select(select, scope, top),
            SetExpr::Query(query) => self.query(query, scope, top),
            SetExpr::SetOperation { op: SetOperator::Union, set_quantifier: SetQuantifier::All, left, right } => {
                let mut table = self.body(left, scope, false)?;
                add(&mut table.reads, self.body(right, scope, false)?.reads);
                Ok(table)
            }
            other => {
                Err(Error::input(format!("only SELECT and UNION ALL are supported between a stream and its aggregates, found {other}")))
            }
        }
    }

    fn select(&mut self, select: &mut Select, scope: &Scope, top: bool) -> Result<Table> {
        let mut read = match top {
            true => self.top(select, scope)?,
            false => match select.from.as_mut_slice() {
                [one] if one.joins.is_empty() => self.relation(&mut one.relation, scope)?,
                _ => return Err(Error::input("only the view itself joins: expected FROM one relation, without a JOIN")),
            },
        };
        if self.filters == InnerFilters::Dropped {
            select.selection = None;
        }
        read.columns = outputs(&select.projection, &read.columns);
        if !top {
            for item in &mut select.projection {
                if let SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) = item {
                    leave_out_hidden(options);
                }
            }
            select.projection.extend(HIDDEN.map(|name| SelectItem::UnnamedExpr(Expr::Identifier(Ident::new(name)))));
        }
        Ok(read)
    }

    /// Handles the top SELECT, the only one that may join.
    fn top(&mut self, select: &mut Select, scope: &Scope) -> Result<Table> {
        let (relations, condition) = relations(select)?;
        let joined = relations.len() > 1;
        let (mut read, mut sides) = (Table::default(), Vec::new());
        for (index, relation) in relations.into_iter().enumerate() {
            let qualifier = if joined { Some(qualifier(relation, index)?) } else { None };
            let table = self.relation(relation, scope)?;
            add(&mut read.reads, table.reads);
            read.columns.extend(table.columns.iter().cloned());
            sides.push(JoinedRelation { qualifier, relation: relation.clone(), columns: table.columns });
        }
        self.sides = Some(Sides { sides, on: condition.on, using: condition.using });
        Ok(read)
    }

    fn relation(&mut self, relation: &mut TableFactor, scope: &Scope) -> Result<Table> {
        let (table, alias) = match relation {
            TableFactor::Table { name, alias, .. } => (self.named(name, scope)?, alias),
            TableFactor::Derived { subquery, alias, .. } => (self.query(subquery, scope, false)?, alias),
            other => {
                return Err(Error::input(format!(
                    "only streams, views without aggregate and subqueries are supported in FROM, found {other}"
                )));
            }
        };
        Ok(named_by(alias.as_mut(), table))
    }

    fn named(&mut self, name: &ObjectName, scope: &Scope) -> Result<Table> {
        let [ObjectNamePart::Identifier(ident)] = name.0.as_slice() else {
            return Err(Error::input(format!("there is no stream {name}")));
        };
        let name = resolved(ident);
        if let Some(table) = scope.get(&name) {
            return Ok(table.clone());
        }
        if let Some((_, _, table)) = self.staging.iter().find(|(known, _, _)| **known == *name) {
            return Ok(table.clone());
        }
        if let Some(stream) = self.definitions.streams.iter().find(|stream| *stream.name == *name) {
            let columns = stream.columns.iter().map(|column| column.name.to_string()).collect();
            return Ok(Table { reads: ReadCounts::from([(stream.name.clone(), 1)]), columns });
        }
        let Some(view) = self.definitions.views.iter().find(|view| *view.name == *name) else {
            return Err(Error::input(format!("there is no stream and no view \"{name}\"")));
        };
        if self.open.contains(&view.name) {
            return Err(Error::input(format!("the view refers to itself through {}", self.open.join(" -> "))));
        }
        self.open.push(view.name.clone());
        let mut query = parse_query(&view.select)?;
        let table = self.query(&mut query, &Scope::new(), false)?;
        self.open.pop();
        self.staging.push((view.name.clone(), query, table.clone()));
        Ok(table)
    }
}

fn add(reads: &mut ReadCounts, more: ReadCounts) {
    for (stream, times) in more {
        *reads.entry(stream).or_default() += times;
    }
}

/// `AS x (a, b)` names every column, so the hidden ones are added.
fn named_by(alias: Option<&mut TableAlias>, mut table: Table) -> Table {
    if let Some(alias) = alias.filter(|alias| !alias.columns.is_empty()) {
        table.columns = alias.columns.iter().map(|column| resolved(&column.name)).collect();
        alias.columns.extend(HIDDEN.map(|name| TableAliasColumnDef { name: Ident::new(name), data_type: None }));
    }
    table
}

/// Returns the names in the result of a SELECT list over columns with these names.
fn outputs(projection: &[SelectItem], columns: &BTreeSet<String>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for item in projection {
        match item {
            SelectItem::ExprWithAlias { alias, .. } => names.extend([resolved(alias)]),
            SelectItem::UnnamedExpr(Expr::Identifier(name)) => names.extend([resolved(name)]),
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => names.extend(parts.last().map(resolved)),
            SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) => {
                let left_out = left_out(options);
                names.extend(columns.iter().filter(|column| !left_out.contains(*column)).cloned());
            }
            _ => {}
        }
    }
    names
}

fn left_out(options: &WildcardAdditionalOptions) -> BTreeSet<String> {
    let except = options.opt_except.iter().flat_map(|except| [&except.first_element].into_iter().chain(&except.additional_elements));
    let exclude = options.opt_exclude.iter().flat_map(|exclude| match exclude {
        ExcludeSelectItem::Single(one) => std::slice::from_ref(one),
        ExcludeSelectItem::Multiple(several) => several.as_slice(),
    });
    let last = |name: &ObjectName| match name.0.last() {
        Some(ObjectNamePart::Identifier(name)) => Some(resolved(name)),
        _ => None,
    };
    except.map(resolved).chain(exclude.filter_map(last)).collect()
}

/// Excludes the hidden columns from `*`, because they are added once at the end.
fn leave_out_hidden(options: &mut WildcardAdditionalOptions) {
    let hidden = HIDDEN.map(Ident::new);
    match &mut options.opt_except {
        Some(except) => except.additional_elements.extend(hidden),
        None => {
            let [first_element, additional_elements @ ..] = hidden;
            options.opt_except = Some(ExceptSelectItem { first_element, additional_elements: additional_elements.to_vec() });
        }
    }
}

fn cte(name: &str, query: Query) -> Cte {
    let quoted_name = Ident::with_quote('"', name);
    debug_assert_eq!(quoted_name.to_string(), quoted(name));
    let alias = TableAlias { explicit: false, name: quoted_name, columns: Vec::new(), at: None };
    Cte { alias, query: Box::new(query), from: None, materialized: None, closing_paren_token: AttachedToken::empty() }
}
