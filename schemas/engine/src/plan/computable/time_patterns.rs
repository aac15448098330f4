//! Refuses PostgreSQL's patterns in `to_char`, which would return them as they are.

use datafusion::common::DFSchema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use types::{Error, Result};

use super::unsupported::check_each;
use crate::functions::time_patterns::{chrono_pattern, is_difference, is_to_char};

/// Checks the constant patterns of a definition.
///
/// Errors: `Input` for one of PostgreSQL's, with chrono's in its place.
pub(super) fn check_time_patterns(plan: &LogicalPlan) -> Result<()> {
    check_each(plan, check)
}

fn check(expr: &Expr, schema: &DFSchema) -> Result<()> {
    let Expr::ScalarFunction(call) = expr else { return Ok(()) };
    let [time, Expr::Literal(pattern, _)] = call.args.as_slice() else { return Ok(()) };
    // DataFusion reads other patterns of a difference of times.
    let is_of_time = is_to_char(&call.func) && !time.get_type(schema).is_ok_and(|data_type| is_difference(&data_type));
    let Some(pattern) = pattern.try_as_str().flatten().filter(|_| is_of_time) else { return Ok(()) };
    let expected = match chrono_pattern(pattern) {
        Ok(same) if same == pattern => return Ok(()),
        Ok(in_chrono) => format!("expected '{in_chrono}'"),
        Err(found) => format!("found {found}, expected fields that begin with %, such as '%Y-%m-%d'"),
    };
    Err(Error::input(format!("to_char in a definition does not read PostgreSQL's pattern '{pattern}': {expected}")))
}
