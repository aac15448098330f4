//! Errors about what a sink or an alert cannot read. They say what it can read.

use definitions::{Diagnostic, Diagnostics, Origin};
use types::Error;
use types::sql_errors::{unknown_column, unknown_relation};
use types::suggest::expected;

use super::Sources;
use crate::parameters::FUNCTION;

/// Whose SELECT it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SelectOwner {
    Sink,
    Alert,
}

impl SelectOwner {
    /// Returns an error of the sink or alert `name` as diagnostics.
    pub(crate) fn diagnostics(self, name: &str, origin: &Origin, (line, column): (usize, usize), error: &Error) -> Diagnostics {
        let owner = match self {
            SelectOwner::Sink => "sink",
            SelectOwner::Alert => "alert",
        };
        let diagnostic = Diagnostic::error(line, column, format!("{owner} \"{name}\": {}", error.message()));
        let diagnostic = Diagnostic { help: error.fact("help").map(str::to_owned), ..diagnostic };
        Diagnostics(vec![diagnostic.in_file(origin.file.as_deref())])
    }

    /// Returns DataFusion's error about the SELECT, with what the project knows of a name that cannot be read.
    pub(crate) fn refused(self, error: Error, sources: Sources<'_>) -> Error {
        if error.message().starts_with("aggregate functions are not allowed in") {
            return self.aggregates();
        }
        if let Some(name) = unknown_column(error.message())
            && sources.parameters.get(name).is_ok()
        {
            return Error::input(format!("{}; the parameter is {FUNCTION}('{name}')", error.message()));
        }
        let Some(name) = unknown_relation(error.message()) else { return error };
        if sources.staging.contains(name) {
            return self.without_rows(name);
        }
        let streams = sources.streams.iter().map(|stream| &*stream.name);
        let views = sources.views.iter().map(|view| &*view.view);
        let (known, none): (Vec<&str>, &str) = match self {
            SelectOwner::Sink => (streams.chain(views).collect(), "no stream is defined"),
            SelectOwner::Alert if streams.clone().any(|stream| stream == name) => return alert_of_a_stream(name),
            SelectOwner::Alert => (views.collect(), "no view with an aggregate is defined"),
        };
        Error::input(format!("{}: {}", error.message(), expected(name, &known, none)))
    }

    /// The error for an aggregate, or GROUP BY, in the SELECT.
    pub(crate) fn aggregates(self) -> Error {
        match self {
            SelectOwner::Sink => Error::input(
                "a sink puts out one record for each event, and an aggregate (or GROUP BY) is over many: expected the aggregate in a view, \
                 which the sink joins by its keys",
            ),
            SelectOwner::Alert => Error::input(
                "an alert looks at one row of its view at a time, and an aggregate (or GROUP BY) is over many: expected the aggregate in \
                 the view",
            ),
        }
    }

    /// The error for a view without an aggregate.
    fn without_rows(self, name: &str) -> Error {
        match self {
            SelectOwner::Sink => Error::input(format!(
                "\"{name}\" is a view without an aggregate, which has no rows of its own: expected a stream after FROM, and views with an \
                 aggregate after LEFT JOIN"
            ))
            .with("help", format!("its SELECT in the sink: WITH {name} AS (SELECT ..) SELECT .. FROM {name}")),
            SelectOwner::Alert => Error::input(format!(
                "an alert reads the rows of a view, and \"{name}\" is a view without an aggregate, which has no rows of its own"
            ))
            .with("help", over(name)),
        }
    }
}

/// The error for an alert that reads a stream.
fn alert_of_a_stream(name: &str) -> Error {
    Error::input(format!("an alert reads the rows of a view, and \"{name}\" is a stream"))
        .with("help", format!("{}; for a record of each event, CREATE SINK", over(name)))
}

/// How an alert comes to rows of what has none.
fn over(name: &str) -> String {
    format!("CREATE VIEW .. AS SELECT key, count(*) AS n FROM {name} GROUP BY key, and the alert FROM that view")
}
