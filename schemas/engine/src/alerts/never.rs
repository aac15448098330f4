//! Finds conditions that no row satisfies at any time, as far as that follows from the windows of the view: a key has a
//! row only while it has an event in the longest one, and an event of a window is not older than the window.

use std::time::Duration;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use datafusion::physical_expr::expressions::Column;
use definitions::durations::format_duration_parts;

use crate::functions::intervals::LENGTH_FUNCTION;
use crate::plan::{ColumnKind, StateIndex, Use, ViewPlan, asks_for_time, strip_casts};

const MICROSECONDS_A_DAY: i128 = 24 * 3_600 * 1_000_000;

/// Returns why no row satisfies a condition, if that is known. One part of it that is never true is enough.
pub(super) fn why_never(condition: &Expr, view: &ViewPlan) -> Option<String> {
    split_conjunction(condition).into_iter().find_map(|part| counts_no_event(part, view).or_else(|| is_too_old(part, view)))
}

/// `n_1h = 0`, where `n_1h` counts all events of the longest window.
fn counts_no_event(part: &Expr, view: &ViewPlan) -> Option<String> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = part else { return None };
    let (count, op, number) = match (whole_number(left), whole_number(right)) {
        (None, Some(number)) => (left, *op, number),
        (Some(number), None) => (right, op.swap()?, number),
        _ => return None,
    };
    let is_below_one = match op {
        Operator::Eq | Operator::LtEq => number < 1,
        Operator::Lt => number <= 1,
        _ => false,
    };
    let (name, usage) = merged_value(count, view)?;
    let is_of_all = usage.state == StateIndex::EVENTS && view.range(usage.range) == view.range(view.existence);
    (is_below_one && is_of_all && !view.keys.is_empty())
        .then(|| format!("a key has a row only while {name}, which counts all events of the longest window, is at least 1"))
}

/// `as_of() - seen_1h > INTERVAL '2 hours'`, where `seen_1h` is the time of an event of the last hour.
fn is_too_old(part: &Expr, view: &ViewPlan) -> Option<String> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = part else { return None };
    let (greater, less) = match op {
        Operator::Gt | Operator::GtEq => (measured(left), measured(right)),
        Operator::Lt | Operator::LtEq => (measured(right), measured(left)),
        _ => return None,
    };
    let (seen, age) = match (operands(greater), operands(less)) {
        (Some((time, Operator::Minus, age)), None) if asks_for_time(time) && interval(age).is_some() => (less, age),
        (Some((time, Operator::Minus, seen)), None) if asks_for_time(time) => (seen, less),
        (None, Some((seen, Operator::Plus, age))) if asks_for_time(greater) => (seen, age),
        _ => return None,
    };
    let (name, usage) = merged_value(seen, view)?;
    let state = view.state(usage.state);
    let is_event_time = matches!(state.function.as_str(), "max" | "min") && state.is_of_event_time;
    let oldest = view.range(usage.range).longest_stay()?;
    (is_event_time && interval(age)? >= oldest)
        .then(|| format!("{name} is the time of an event that is less than {} old", format_duration_parts(oldest)))
}

/// The column of the view, if it is a single merged value.
fn merged_value<'a>(expr: &Expr, view: &'a ViewPlan) -> Option<(&'a str, Use)> {
    let Expr::Column(named) = expr else { return None };
    let column = view.columns.iter().find(|column| *column.field.name() == named.name)?;
    let ColumnKind::Value(value) = &column.kind else { return None };
    let [usage] = value.uses.as_slice() else { return None };
    value.expr.downcast_ref::<Column>()?;
    Some((column.field.name().as_str(), *view.values()?.uses.get(usage.0)?))
}

fn whole_number(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Literal(number, _) if number.data_type().is_integer() => match number.cast_to(&DataType::Int64) {
            Ok(ScalarValue::Int64(number)) => number,
            _ => None,
        },
        _ => None,
    }
}

/// The expression whose length is compared, where that is so, without the casts around it.
fn measured(expr: &Expr) -> &Expr {
    match strip_casts(expr) {
        Expr::ScalarFunction(call) if call.func.name() == LENGTH_FUNCTION => call.args.first().map_or(expr, strip_casts),
        other => other,
    }
}

fn operands(expr: &Expr) -> Option<(&Expr, Operator, &Expr)> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => Some((strip_casts(left), *op, strip_casts(right))),
        _ => None,
    }
}

/// The length of a constant interval without months.
fn interval(expr: &Expr) -> Option<Duration> {
    match expr {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(interval)), _) if interval.months == 0 => {
            let microseconds = i128::from(interval.days) * MICROSECONDS_A_DAY + i128::from(interval.nanoseconds) / 1_000;
            u64::try_from(microseconds).ok().map(Duration::from_micros)
        }
        _ => None,
    }
}
