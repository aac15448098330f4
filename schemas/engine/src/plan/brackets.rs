//! Finds `a IS DISTINCT FROM b AND c` without brackets. The parser takes `b AND c` for the right side, so that the
//! answer would be that of `a IS DISTINCT FROM (b AND c)`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr};
use definitions::syntax::SyntaxNode;

/// The message for an expression for which [`lacks_brackets`] is true.
pub const LACKS_BRACKETS: &str =
    "IS DISTINCT FROM lacks brackets before AND or OR: expected (a IS DISTINCT FROM b) AND .., or a IS DISTINCT FROM (b AND ..)";

/// Whether a statement or query has such an expression.
pub fn lacks_brackets(node: &impl SyntaxNode) -> bool {
    let mut is_found = false;
    let _ = node.visit_expressions(|expr| {
        is_found = takes_what_follows(expr);
        if is_found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    is_found
}

pub(super) fn takes_what_follows(expr: &Expr) -> bool {
    let (Expr::IsDistinctFrom(_, right) | Expr::IsNotDistinctFrom(_, right)) = expr else { return false };
    matches!(&**right, Expr::BinaryOp { op: BinaryOperator::And | BinaryOperator::Or | BinaryOperator::Xor, .. })
}

#[cfg(test)]
mod tests;
