//! Which system columns a SELECT names.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Join, JoinConstraint, Query, SelectItem, SelectItemQualifiedWildcardKind, TableFactor, Visitor,
};

use super::ast::{constraint, last, left_out, wildcard_options};
use crate::sql::names::resolved;

/// The prefix of the names of system columns. A stream's own columns cannot begin with it.
const SYSTEM_PREFIX: &str = "__";

/// How a SELECT names system columns.
#[derive(Default)]
pub(super) struct SystemNames {
    /// The relations that it writes before the dot.
    qualifiers: BTreeSet<String>,
    /// Whether one is named without its relation: in the SELECT itself, and in a subquery.
    is_bare: bool,
    is_bare_below: bool,
    /// How many subqueries enclose the visited expression.
    depth: usize,
    /// How many of them are in FROM, where they cannot name the other relations of FROM.
    relations: usize,
}

impl Visitor for SystemNames {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, relation: &TableFactor) -> ControlFlow<()> {
        self.relations += usize::from(matches!(relation, TableFactor::Derived { lateral: false, .. }));
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, relation: &TableFactor) -> ControlFlow<()> {
        self.relations -= usize::from(matches!(relation, TableFactor::Derived { lateral: false, .. }));
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            _ if self.relations > 0 => {}
            Expr::Identifier(name) if is_system(name) => match self.depth {
                0 => self.is_bare = true,
                _ => self.is_bare_below = true,
            },
            Expr::CompoundIdentifier(parts) => {
                if let [.., relation, name] = parts.as_slice()
                    && is_system(name)
                {
                    self.qualifiers.insert(resolved(relation));
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

impl SystemNames {
    /// Whether the system columns of a stream are named. A subquery that names one without its relation means its own
    /// relations first, so that it counts only where no other stream could be meant.
    pub(super) fn has(&self, alias: &str, is_only: bool) -> bool {
        self.is_bare || (is_only && self.is_bare_below) || self.qualifiers.contains(alias)
    }

    pub(super) fn add_using(&mut self, joins: &[&Join]) {
        for join in joins {
            if let Some(JoinConstraint::Using(names)) = constraint(join) {
                self.is_bare |= names.iter().any(|name| last(name).is_some_and(|name| name.starts_with(SYSTEM_PREFIX)));
            }
        }
    }

    /// Adds the system columns in `* EXCEPT (__offset)`, which count as named.
    pub(super) fn add_left_out(&mut self, projection: &[SelectItem]) {
        for item in projection {
            let is_named =
                wildcard_options(item).is_some_and(|options| left_out(options).iter().any(|name| name.starts_with(SYSTEM_PREFIX)));
            match item {
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) if is_named => {
                    self.qualifiers.extend(last(name));
                }
                _ => self.is_bare |= is_named,
            }
        }
    }
}

fn is_system(name: &Ident) -> bool {
    resolved(name).starts_with(SYSTEM_PREFIX)
}
