//! Turns DataFusion's refusal of a SELECT into a diagnostic. It adds the names that may have been meant, and the
//! expression that was refused.

use datafusion::error::DataFusionError;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast;

use super::Planner;
use super::logical_plan::parse;
use super::unknown_names::with_other_unknown_names;
use super::wrong_expression::{WrongExpression, wrong_expression};
use crate::plan::refuse;
use crate::plan::refuse::{SelectShape, at_span};
use crate::plan::select_place::SelectError;
use definitions::{Diagnostics, ViewDefinition};
use types::Error;
use types::sql_errors::{CAST, unknown_relation};
use types::suggest::nearest;

/// The number of expected names that are listed.
const LISTED: usize = 30;

impl Planner {
    /// Returns the diagnostics for an error from planning `query`, the SELECT of `view`. For an unknown name they
    /// include all other unknown names.
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
            let known = self.selected_from(view);
            return at_span(view, span, &Error::input(format!("{}{}", error.message(), expected(name, &known))));
        }
        let wrong = if span.is_none() { wrong_expression(session, query, error.message()).await } else { None };
        let error = error.with_text_hint(&view.select);
        let Some(WrongExpression { span, argument }) = wrong else { return at_span(view, span, &error) };
        let message = match &argument {
            Some(argument) => error.message().replace(CAST, &CAST.replace("..", argument)),
            None => error.message().to_owned(),
        };
        let (line, column) = refuse::select_place(view).at_span(Some(span));
        refuse::one(view, line, column, &message)
    }

    /// Returns what a view may select from: the streams, and the staging views.
    fn selected_from(&self, view: &ViewDefinition) -> Vec<&str> {
        let is_staging = |other: &ViewDefinition| {
            let query = parse(other);
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
