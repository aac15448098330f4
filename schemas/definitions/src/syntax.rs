//! Visits the parts of an SQL syntax tree: its queries, relations and expressions.
//!
//! sqlparser's own traversal is generic: the compiler generates all of it for each type of visitor, about half a
//! megabyte of code. Here it is generated for two types, one that reads and one that changes; both call a visitor that
//! is a trait object. All our crates visit trees through this file.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, ObjectName, OrderBy, PipeOperator, Query, Select, SelectItem, Statement, TableFactor, ValueWithSpan, Visit, VisitMut,
    Visitor, VisitorMut,
};

use types::Result;

/// A part of a syntax tree, with everything below it.
pub trait SyntaxNode {
    /// Calls the visitor for each part, until it breaks.
    fn visit(&self, visitor: &mut dyn Visitor<Break = ()>) -> ControlFlow<()>;

    /// Same as `visit`, for a visitor that changes parts.
    fn visit_mut(&mut self, visitor: &mut dyn VisitorMut<Break = ()>) -> ControlFlow<()>;

    /// Calls `each` for each expression, outer ones before inner ones, until it breaks.
    fn visit_expressions(&self, mut each: impl FnMut(&Expr) -> ControlFlow<()>) -> ControlFlow<()> {
        self.visit(&mut Expressions(&mut each))
    }

    /// Calls `change` for each expression, inner ones before outer ones: what it puts in the place of one is not
    /// visited. Ends with its first error.
    fn visit_expressions_mut(&mut self, mut change: impl FnMut(&mut Expr) -> Result<()>) -> Result<()> {
        let mut expressions = ExpressionsMut { change: &mut change, outcome: Ok(()) };
        let _ = self.visit_mut(&mut expressions);
        expressions.outcome
    }
}

macro_rules! syntax_nodes {
    ($($node:ty),+) => {
        $(impl SyntaxNode for $node {
            // Inlined into another crate, it would generate the traversal there once more.
            #[inline(never)]
            fn visit(&self, visitor: &mut dyn Visitor<Break = ()>) -> ControlFlow<()> {
                Visit::visit(self, &mut DynVisitor(visitor))
            }

            #[inline(never)]
            fn visit_mut(&mut self, visitor: &mut dyn VisitorMut<Break = ()>) -> ControlFlow<()> {
                VisitMut::visit(self, &mut DynVisitorMut(visitor))
            }
        })+
    };
}

syntax_nodes!(Statement, Query, Select, SelectItem, Expr, Function, Option<OrderBy>, Vec<PipeOperator>);

struct DynVisitor<'a>(&'a mut dyn Visitor<Break = ()>);

struct DynVisitorMut<'a>(&'a mut dyn VisitorMut<Break = ()>);

macro_rules! forward {
    ($($before:ident, $after:ident: $node:ty),+ $(,)?) => {
        impl Visitor for DynVisitor<'_> {
            type Break = ();
            $(
                fn $before(&mut self, node: &$node) -> ControlFlow<()> {
                    self.0.$before(node)
                }

                fn $after(&mut self, node: &$node) -> ControlFlow<()> {
                    self.0.$after(node)
                }
            )+
        }

        impl VisitorMut for DynVisitorMut<'_> {
            type Break = ();
            $(
                fn $before(&mut self, node: &mut $node) -> ControlFlow<()> {
                    self.0.$before(node)
                }

                fn $after(&mut self, node: &mut $node) -> ControlFlow<()> {
                    self.0.$after(node)
                }
            )+
        }
    };
}

// All hooks that the traits have: one that is missing would never be called.
forward!(
    pre_visit_query, post_visit_query: Query,
    pre_visit_select, post_visit_select: Select,
    pre_visit_relation, post_visit_relation: ObjectName,
    pre_visit_table_factor, post_visit_table_factor: TableFactor,
    pre_visit_expr, post_visit_expr: Expr,
    pre_visit_statement, post_visit_statement: Statement,
    pre_visit_value, post_visit_value: ValueWithSpan,
);

struct Expressions<'a>(&'a mut dyn FnMut(&Expr) -> ControlFlow<()>);

impl Visitor for Expressions<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        (self.0)(expr)
    }
}

struct ExpressionsMut<'a> {
    change: &'a mut dyn FnMut(&mut Expr) -> Result<()>,
    outcome: Result<()>,
}

impl VisitorMut for ExpressionsMut<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.outcome = (self.change)(expr);
        if self.outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

#[cfg(test)]
mod tests;
