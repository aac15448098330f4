//! Explains on one line why an expression cannot be computed.

use datafusion::error::DataFusionError;
use datafusion::logical_expr::Expr;
use types::Error;

use crate::plan::written::{ColumnNames, sql_of};

pub(super) fn refused(constant: &Expr, error: DataFusionError) -> Error {
    let error = root_cause(error);
    match constant {
        // The message of a cast names both types.
        Expr::Cast(_) => error,
        _ => Error::input(format!("{} cannot be computed: {}", sql_of(constant, ColumnNames::Bare), error.message())),
    }
}

/// The cause of an error on one line, without the names of the rules that found it.
pub(super) fn root_cause(error: DataFusionError) -> Error {
    let DataFusionError::External(found) = Error::datafusion_root(&error) else { return error.into() };
    Error::input(found.to_string().split_whitespace().collect::<Vec<_>>().join(" "))
}
