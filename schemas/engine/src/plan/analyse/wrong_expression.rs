//! Finds the expression that the planner refused if its error has no position: the planner knows only the positions of
//! columns.

use std::ops::ControlFlow;

use datafusion::common::Span;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{self, Expr, Spanned, Visitor};

use super::logical_plan::{analysed, logical, selected_alone};
use crate::plan::select_place::SelectError;
use definitions::syntax::SyntaxNode;
use types::Error;

/// The number of expressions that are examined.
const EXPRESSIONS: usize = 200;

/// An expression in the SELECT's text.
pub(super) struct WrongExpression {
    /// For a call with one argument, the position of the argument.
    pub(super) span: Span,
    /// The only argument of a call, as written.
    pub(super) argument: Option<String>,
}

/// Returns the error with the position of the expression that it is about, if it has none.
pub(crate) async fn with_position(session: &SessionContext, query: &ast::Query, SelectError { error, span }: SelectError) -> SelectError {
    let span = match span {
        Some(span) => Some(span),
        None => wrong_expression(session, query, error.message()).await.map(|wrong| wrong.span),
    };
    SelectError { error, span }
}

/// Returns the innermost expression that is refused with the same message when it is selected alone.
pub(super) async fn wrong_expression(session: &SessionContext, query: &ast::Query, message: &str) -> Option<WrongExpression> {
    let constant = Expr::Value(ast::Value::Boolean(true).with_empty_span());
    // What is wrong in a table of FROM, or in WITH, is wrong beside every expression.
    if is_refused(session, query, constant, message).await? {
        return None;
    }
    let mut expressions = Expressions(Vec::new());
    let _ = query.visit(&mut expressions);
    for expression in expressions.0 {
        if is_refused(session, query, expression.clone(), message).await? {
            return written(&expression);
        }
    }
    None
}

/// `None` if no expression of the query can be selected alone.
async fn is_refused(session: &SessionContext, query: &ast::Query, expression: Expr, message: &str) -> Option<bool> {
    let alone = selected_alone(query, expression)?;
    let outcome = logical(session, &alone).await.and_then(|plan| analysed(session, plan));
    Some(outcome.is_err_and(|error| Error::from(error).message() == message))
}

/// Expressions that consist of others, inner ones before outer ones.
struct Expressions(Vec<Expr>);

impl Visitor for Expressions {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if !matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_) | Expr::Nested(_)) {
            self.0.push(expr.clone());
        }
        if self.0.len() < EXPRESSIONS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

fn written(expression: &Expr) -> Option<WrongExpression> {
    let argument = match expression {
        Expr::Function(call) => only_argument(call),
        _ => None,
    };
    let span = argument.into_iter().chain([expression]).map(Spanned::span).find_map(Span::try_from_sqlparser_span)?;
    Some(WrongExpression { span, argument: argument.map(ToString::to_string) })
}

fn only_argument(call: &ast::Function) -> Option<&Expr> {
    let ast::FunctionArguments::List(list) = &call.args else { return None };
    match list.args.as_slice() {
        [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(argument))] => Some(argument),
        _ => None,
    }
}
