//! A bound on what rewriting and planning make of a statement. An expression that is written twice may be within
//! another one that is, too: without a bound, a text of some hundred bytes would grow until the process has no memory.

use std::ops::ControlFlow;

use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Expr, Visitor};
use definitions::syntax::SyntaxNode;
use types::{Error, Result};

use super::literals::name_of;
use super::params::inner_mut;

/// Expressions that may be copied in one statement: a list of thousands of rows is one of tens of thousands.
const MOST_COPIED: usize = 200_000;
/// Expressions that DataFusion may make of one statement, at most, while it plans it.
const MOST_PLANNED: usize = 500_000;

/// How many of them may still be copied.
#[derive(Debug)]
pub(super) struct Copies(usize);

impl Default for Copies {
    fn default() -> Self {
        Self(MOST_COPIED)
    }
}

impl Copies {
    /// Takes what this many copies of an expression have.
    ///
    /// Errors: `Limit` past the bound.
    pub(super) fn take(&mut self, expr: &Expr, copies: usize) -> Result<()> {
        if copies == 0 {
            return Ok(());
        }
        let (mut expressions, most) = (0, self.0 / copies);
        let counted = expr.visit_expressions(|_| {
            expressions += 1;
            if expressions > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if counted.is_break() {
            return Err(too_large(MOST_COPIED));
        }
        self.0 -= expressions * copies;
        Ok(())
    }
}

/// Errors: `Limit` for a statement of which DataFusion would make too much.
pub fn check_planned(statement: &mut Statement, state: &SessionState) -> Result<()> {
    let Some(statement) = inner_mut(statement) else { return Ok(()) };
    match statement.visit(&mut Planned { state, sizes: vec![0] }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(too_large(MOST_PLANNED)),
    }
}

fn too_large(most: usize) -> Error {
    Error::limit(format!(
        "calls and comparisons within one another make the query too large: written out, it has more than {most} expressions; \
         compute the inner ones in a subquery"
    ))
}

/// Whether the operand of a cast is asked once only: it is a column or a constant, or a cast of one.
fn is_simple(operand: &Expr) -> bool {
    match operand {
        Expr::Nested(operand) | Expr::Cast { expr: operand, .. } => is_simple(operand),
        other => matches!(other, Expr::Value(_) | Expr::Identifier(_) | Expr::CompoundIdentifier(_)),
    }
}

/// How many expressions are made of those visited so far: of the statement, and of each expression around this one.
struct Planned<'a> {
    state: &'a SessionState,
    sizes: Vec<usize>,
}

impl Visitor for Planned<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, _: &Expr) -> ControlFlow<()> {
        self.sizes.push(1);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        let size = self.sizes.pop().unwrap_or(0).saturating_mul(self.times_planned(expr));
        let Some(around) = self.sizes.last_mut() else { return ControlFlow::Break(()) };
        *around = around.saturating_add(size);
        if *around > MOST_PLANNED { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Planned<'_> {
    /// How often DataFusion goes through the operands of an expression at most, for each time that it goes through what
    /// is around it: it writes some twice, asks a cast twice for what it is cast from, and names a call by another name
    /// of the function with the names of its operands.
    fn times_planned(&self, expr: &Expr) -> usize {
        match expr {
            Expr::Cast { expr: operand, .. } if is_simple(operand) => 1,
            Expr::Cast { .. } | Expr::Between { .. } => 2,
            Expr::AnyOp { .. } | Expr::AllOp { .. } => 4,
            Expr::Function(call) => match name_of(call).as_deref() {
                Some("coalesce" | "nullif" | "nvl2") => 2,
                Some("nvl" | "ifnull") => 4,
                Some(name) if self.state.udf(name).is_ok_and(|function| function.name() != name) => 2,
                _ => 1,
            },
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests;
