//! Each event's time and place, carried through everything between a stream and the view's aggregates: the hidden columns are
//! added to every inner SELECT list. Views without aggregate become CTEs in front.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    Cte, ExceptSelectItem, Ident, ObjectName, ObjectNamePart, Query, Select, SelectItem, SetExpr, SetOperator, SetQuantifier, TableAlias,
    TableAliasColumnDef, TableFactor, WildcardAdditionalOptions, With,
};
use schemas::definitions::{Definitions, ViewDefinition};
use schemas::{Error, Result};

use super::{parse_query, quoted, resolved};

/// What every table and every inner SELECT ends with.
pub(super) const HIDDEN: [&str; 4] = ["__event_time", "__source", "__partition", "__offset"];

/// Whether the inner SELECTs keep their WHERE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Where {
    Kept,
    Dropped,
}

/// How often each stream is read.
type Reads = BTreeMap<Arc<str>, usize>;
/// The CTEs in sight.
type Scope = BTreeMap<String, Reads>;

/// The view's query with the hidden columns in sight of its top SELECT, which itself is left as it is (but for its WHERE).
pub(super) fn carry(view: &ViewDefinition, definitions: &Definitions, filters: Where) -> Result<(Query, Reads)> {
    let mut carry = Carry { definitions, filters, staging: Vec::new(), open: vec![view.name.clone()] };
    let mut query = parse_query(&view.select)?;
    let reads = carry.query(&mut query, &Scope::new(), true)?;
    let staging = std::mem::take(&mut carry.staging);
    if !staging.is_empty() {
        let ctes = staging.into_iter().map(|(name, query, _)| cte(&name, query));
        match &mut query.with {
            Some(with) => with.cte_tables = ctes.chain(std::mem::take(&mut with.cte_tables)).collect(),
            None => query.with = Some(With { with_token: AttachedToken::empty(), recursive: false, cte_tables: ctes.collect() }),
        }
    }
    Ok((query, reads))
}

struct Carry<'a> {
    definitions: &'a Definitions,
    filters: Where,
    /// Views without aggregate that are named, deepest first.
    staging: Vec<(Arc<str>, Query, Reads)>,
    /// The views being resolved: a name met again is a cycle.
    open: Vec<Arc<str>>,
}

impl Carry<'_> {
    fn query(&mut self, query: &mut Query, scope: &Scope, top: bool) -> Result<Reads> {
        let mut scope = scope.clone();
        for cte in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            let reads = self.query(&mut cte.query, &scope, false)?;
            name_hidden(&mut cte.alias);
            scope.insert(resolved(&cte.alias.name), reads);
        }
        self.body(&mut query.body, &scope, top)
    }

    fn body(&mut self, body: &mut SetExpr, scope: &Scope, top: bool) -> Result<Reads> {
        match body {
            SetExpr::Select(select) => self.select(select, scope, top),
            SetExpr::Query(query) => self.query(query, scope, top),
            SetExpr::SetOperation { op: SetOperator::Union, set_quantifier: SetQuantifier::All, left, right } => {
                let mut reads = self.body(left, scope, false)?;
                for (stream, times) in self.body(right, scope, false)? {
                    *reads.entry(stream).or_default() += times;
                }
                Ok(reads)
            }
            other => Err(Error::input(format!("only SELECT and UNION ALL stand between a stream and its aggregates, found {other}"))),
        }
    }

    fn select(&mut self, select: &mut Select, scope: &Scope, top: bool) -> Result<Reads> {
        let reads = match select.from.as_mut_slice() {
            [one] if one.joins.is_empty() => self.relation(&mut one.relation, scope)?,
            _ => return Err(Error::input("a view reads one relation: expected FROM a stream, without a JOIN")),
        };
        if self.filters == Where::Dropped {
            select.selection = None;
        }
        if !top {
            for item in &mut select.projection {
                if let SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) = item {
                    leave_out_hidden(options);
                }
            }
            select
                .projection
                .extend(HIDDEN.map(|name| SelectItem::UnnamedExpr(datafusion::sql::sqlparser::ast::Expr::Identifier(Ident::new(name)))));
        }
        Ok(reads)
    }

    fn relation(&mut self, relation: &mut TableFactor, scope: &Scope) -> Result<Reads> {
        match relation {
            TableFactor::Table { name, alias, .. } => {
                alias.iter_mut().for_each(name_hidden);
                self.named(name, scope)
            }
            TableFactor::Derived { subquery, alias, .. } => {
                alias.iter_mut().for_each(name_hidden);
                self.query(subquery, scope, false)
            }
            other => Err(Error::input(format!("only streams, views without aggregate and subqueries stand in FROM, found {other}"))),
        }
    }

    fn named(&mut self, name: &ObjectName, scope: &Scope) -> Result<Reads> {
        let [ObjectNamePart::Identifier(ident)] = name.0.as_slice() else {
            return Err(Error::input(format!("there is no stream {name}")));
        };
        let name = resolved(ident);
        if let Some(reads) = scope.get(&name) {
            return Ok(reads.clone());
        }
        if let Some((_, _, reads)) = self.staging.iter().find(|(known, _, _)| **known == *name) {
            return Ok(reads.clone());
        }
        if let Some(stream) = self.definitions.streams.iter().find(|stream| *stream.name == *name) {
            return Ok(Reads::from([(stream.name.clone(), 1)]));
        }
        let Some(view) = self.definitions.views.iter().find(|view| *view.name == *name) else {
            return Err(Error::input(format!("there is no stream and no view \"{name}\"")));
        };
        if self.open.contains(&view.name) {
            return Err(Error::input(format!("the view names itself through {}", self.open.join(" -> "))));
        }
        self.open.push(view.name.clone());
        let mut query = parse_query(&view.select)?;
        let reads = self.query(&mut query, &Scope::new(), false)?;
        self.open.pop();
        self.staging.push((view.name.clone(), query, reads.clone()));
        Ok(reads)
    }
}

/// `AS x (a, b)` names every column, so also the hidden ones.
fn name_hidden(alias: &mut TableAlias) {
    if !alias.columns.is_empty() {
        alias.columns.extend(HIDDEN.map(|name| TableAliasColumnDef { name: Ident::new(name), data_type: None }));
    }
}

/// The hidden columns stand at the end, once: `*` does not bring them.
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
