//! Removes `within(event time, window [, until])` from an aggregate's FILTER. It becomes the range that the kept state
//! is merged over.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};

use crate::plan::hidden::{names_event_time, strip_casts};
use crate::plan::written::{ColumnNames, sql_of};
use definitions::{StreamDefinition, durations};
use types::tiles::{Level, TimeRange};
use types::{Error, Result};

/// A FILTER without its `within`, and the range that it named.
pub(super) struct SplitFilter {
    pub(super) rest: Option<Expr>,
    pub(super) range: Option<TimeRange>,
}

/// Takes the only `within` out of a FILTER's conjuncts.
pub(super) fn split(
    filter: Option<&Expr>,
    input: &LogicalPlan,
    streams: &[Arc<StreamDefinition>],
    precision: Option<Level>,
) -> Result<SplitFilter> {
    let Some(filter) = filter else { return Ok(SplitFilter { rest: None, range: None }) };
    let mut range = None;
    let mut rest: Option<Expr> = None;
    for conjunct in datafusion::logical_expr::utils::split_conjunction(filter) {
        match call(conjunct) {
            Some(_) if range.is_some() => {
                return Err(Error::input(
                    "one FILTER holds two calls of within(): expected one; within(ts, '31d', '1d') gives both edges of a range",
                ));
            }
            Some(args) => range = Some(range_of(args, input, streams, precision)?),
            None if mentions(conjunct) => {
                return Err(Error::input(
                    "within() is inside OR, NOT or another expression: expected it as a condition of its own, joined by AND",
                ));
            }
            None => rest = Some(rest.map_or_else(|| conjunct.clone(), |rest| rest.and(conjunct.clone()))),
        }
    }
    Ok(SplitFilter { rest, range })
}

/// Whether an expression calls `within` anywhere.
pub(super) fn mentions(expr: &Expr) -> bool {
    mentions_function(expr, "within")
}

pub(super) fn mentions_function(expr: &Expr, name: &str) -> bool {
    let mut found = false;
    let _ = expr.apply(|node| {
        found |= matches!(node, Expr::ScalarFunction(function) if function.func.name() == name);
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found
}

pub(super) fn call(expr: &Expr) -> Option<&[Expr]> {
    match expr {
        Expr::ScalarFunction(function) if function.func.name() == "within" => Some(&function.args),
        _ => None,
    }
}

pub(super) fn range_of(
    args: &[Expr],
    input: &LogicalPlan,
    streams: &[Arc<StreamDefinition>],
    precision: Option<Level>,
) -> Result<TimeRange> {
    let is_event_time = args.first().is_some_and(|arg| names_event_time(arg, input, streams));
    if !is_event_time {
        let found = args.first().map(|expr| sql_of(expr, ColumnNames::Bare)).unwrap_or_default();
        return Err(Error::input(format!(
            "within({found}, ..) is not about the event time: expected the stream's event_time column, unchanged"
        )));
    }
    let window = text(args.get(1))?;
    let window = if window.eq_ignore_ascii_case("all") { None } else { Some(durations::parse_duration(&window)?) };
    let until = args.get(2).map(|arg| text(Some(arg)).and_then(|text| durations::parse_duration(&text))).transpose()?;
    match (window, until) {
        (Some(window), Some(until)) if until >= window => Err(Error::input(format!(
            "within() from {window:?} ago until {until:?} ago is empty: expected the second bound to be the nearer one"
        ))),
        (window, Some(until)) => Ok(TimeRange::between(window, until, precision)),
        (Some(window), None) => Ok(TimeRange::trailing(window, precision)),
        (None, None) => Ok(TimeRange::ALL),
    }
}

fn text(arg: Option<&Expr>) -> Result<String> {
    match arg.map(strip_casts) {
        Some(Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::LargeUtf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _)) => {
            Ok(text.clone())
        }
        other => Err(Error::input(format!(
            "within() takes its window as a literal text such as '7d' or 'all', found {}",
            other.map(|expr| sql_of(expr, ColumnNames::Bare)).unwrap_or_default()
        ))),
    }
}
