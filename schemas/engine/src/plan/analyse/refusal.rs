//! Turns DataFusion's refusal of a SELECT into a diagnostic. It adds the names that may have been meant, and the call
//! that was refused.

use std::ops::ControlFlow;

use datafusion::error::DataFusionError;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{self, Spanned, Visitor};

use super::Planner;
use super::logical_plan::{analysed, logical, parse, selected_alone};
use super::unknown_names::with_other_unknown_names;
use crate::plan::refuse;
use crate::plan::refuse::{SelectShape, at_span};
use crate::plan::select_place::SelectError;
use definitions::syntax::SyntaxNode;
use definitions::{Diagnostics, ViewDefinition};
use types::Error;
use types::sql_errors::{CAST, unknown_relation};
use types::suggest::nearest;

/// The number of expected names that are listed.
const LISTED: usize = 30;
/// The number of calls that are examined.
const CALLS: usize = 100;

impl Planner {
    /// Returns the diagnostics for an error from planning `query`, the SELECT of `view`. If it is about a name that
    /// nothing has, the others are there too.
    pub(super) async fn refused(
        &self,
        view: &ViewDefinition,
        session: &SessionContext,
        query: &ast::Query,
        error: DataFusionError,
    ) -> Diagnostics {
        let mut found = Diagnostics::new();
        for error in with_other_unknown_names(session, query, error.into()).await {
            found.extend(self.refused_at(view, session, query, error).await);
        }
        found
    }

    /// The diagnostics of this error alone.
    async fn refused_at(
        &self,
        view: &ViewDefinition,
        session: &SessionContext,
        query: &ast::Query,
        SelectError { error, span }: SelectError,
    ) -> Diagnostics {
        if let Some(name) = unknown_relation(error.message()) {
            let known = self.selected_from(view, session);
            return at_span(view, span, &Error::input(format!("{}{}", error.message(), expected(name, &known))));
        }
        let call = if span.is_none() { wrong_call(session, query, error.message()).await } else { None };
        let error = error.with_text_hint(&view.select);
        let Some(call) = call else { return at_span(view, span, &error) };
        let message = match &call.argument {
            Some(argument) => error.message().replace(CAST, &CAST.replace("..", argument)),
            None => error.message().to_owned(),
        };
        let (line, column) = refuse::select_place(view).at(call.line, call.column);
        refuse::one(view, line, column, &message)
    }

    /// Returns what a view may select from: the streams, and the staging views.
    fn selected_from(&self, view: &ViewDefinition, session: &SessionContext) -> Vec<&str> {
        let is_staging = |other: &ViewDefinition| {
            let query = parse(session, other);
            query.is_ok_and(|query| matches!(refuse::check(&query, other, &self.functions), Ok(SelectShape::Staging)))
        };
        let views = self.views.values().filter(|other| other.name != view.name && is_staging(other));
        self.streams.iter().map(|stream| &*stream.name).chain(views.map(|other| &*other.name)).collect()
    }
}

fn expected(name: &str, known: &[&str]) -> String {
    if known.is_empty() {
        return ", and none is defined".to_owned();
    }
    let near = nearest(name, known.iter().copied()).map(|near| format!("did you mean \"{near}\"? ")).unwrap_or_default();
    let more = if known.len() > LISTED { ", .." } else { "" };
    let listed: Vec<&str> = known.iter().copied().take(LISTED).collect();
    format!(": {near}expected one of {}{more}", listed.join(", "))
}

/// A call in the SELECT's text.
struct WrittenCall {
    line: u64,
    column: u64,
    /// Its only argument, as written.
    argument: Option<String>,
}

/// Finds the call that an error without a position is about: the innermost call that is refused with the same message
/// when it is selected alone.
async fn wrong_call(session: &SessionContext, query: &ast::Query, message: &str) -> Option<WrittenCall> {
    let mut calls = Calls(Vec::new());
    let _ = query.visit(&mut calls);
    for call in calls.0 {
        let alone = selected_alone(query, ast::Expr::Function(call.clone()))?;
        let outcome = logical(session, &alone).await.and_then(|plan| analysed(session, plan));
        if outcome.is_err_and(|error| Error::from(error).message() == message) {
            return place_of(&call);
        }
    }
    None
}

/// Calls, inner ones before outer ones.
struct Calls(Vec<ast::Function>);

impl Visitor for Calls {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &ast::Expr) -> ControlFlow<()> {
        if let ast::Expr::Function(function) = expr {
            self.0.push(function.clone());
        }
        if self.0.len() < CALLS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

/// Returns where its only argument begins, or else the call itself.
fn place_of(call: &ast::Function) -> Option<WrittenCall> {
    let argument = match &call.args {
        ast::FunctionArguments::List(list) => match list.args.as_slice() {
            [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(argument))] => Some(argument),
            _ => None,
        },
        _ => None,
    };
    let starts = argument.map(|argument| argument.span().start).into_iter().chain([call.span().start]);
    let start = starts.into_iter().find(|start| start.line > 0)?;
    Some(WrittenCall { line: start.line, column: start.column, argument: argument.map(ToString::to_string) })
}
