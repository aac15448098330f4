//! Determines since when the values that a condition reads have been what they are.
//!
//! A window ends at the time at which a row is evaluated. A value of all time has no end: it includes every event that
//! is read. A process that catches up evaluates times before some of these events. Then a greatest or least event time
//! itself says since when it has been so. Any other value has been so since the last event of its key, if the view has
//! its time.

use std::collections::BTreeSet;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::TimestampMicrosecondType;
use datafusion::physical_expr::expressions::Column;
use types::sql_types::timestamp_type;
use types::tiles::{Micros, TimeRange};

use super::AlertPlan;
use crate::plan::{ColumnKind, StateExpr, ViewPlan};

/// Since when the values of all time that a condition reads have been what they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SettledTime {
    /// It does not matter: the condition reads no such value, or it counts in a window and does not ask for the time.
    /// In the second case an alert that was over before the evaluation begins too, with such values as they are now.
    /// Of a linked view, the walk says it.
    Always,
    /// Since the latest of the times in these columns of the view.
    Since(Vec<usize>),
    Unknown,
}

impl SettledTime {
    /// The settled time of a condition that reads these columns of the view.
    pub(super) fn for_condition(view: &ViewPlan, condition: &BTreeSet<usize>, asks_for_time: bool) -> SettledTime {
        if view.links().is_some() {
            return SettledTime::Always;
        }
        let of_all_time: Vec<usize> =
            condition.iter().copied().filter(|column| reads(view, *column, |range| *range == TimeRange::ALL)).collect();
        let has_windows = condition.iter().any(|column| reads(view, *column, |range| *range != TimeRange::ALL));
        if of_all_time.is_empty() || (has_windows && !asks_for_time) {
            return SettledTime::Always;
        }
        let (mut times, others): (Vec<usize>, Vec<usize>) = of_all_time.into_iter().partition(|column| event_time(view, *column).is_some());
        if others.is_empty() {
            return SettledTime::Since(times);
        }
        let is_last = |state: &StateExpr| state.function == "max" && state.filter.is_none();
        match (0..view.columns.len()).find(|column| event_time(view, *column).is_some_and(is_last)) {
            Some(last) => {
                times.push(last);
                SettledTime::Since(times)
            }
            None => SettledTime::Unknown,
        }
    }

    /// The columns that it needs.
    pub(super) fn columns(&self) -> &[usize] {
        match self {
            SettledTime::Since(columns) => columns,
            SettledTime::Always | SettledTime::Unknown => &[],
        }
    }
}

impl AlertPlan {
    /// For each of these rows, since when the values of all time that the condition reads have been what they are. The
    /// condition is not evaluated at earlier times. `Micros::MIN` if that does not matter; `None` if it is not known.
    pub fn values_since(&self, rows: &RecordBatch) -> Vec<Option<Micros>> {
        if self.settled == SettledTime::Unknown {
            return vec![None; rows.num_rows()];
        }
        let mut since = vec![Micros::MIN; rows.num_rows()];
        let places = self.settled.columns().iter().filter_map(|column| self.wanted.binary_search(column).ok());
        for times in places.filter_map(|place| rows.column(place).as_primitive_opt::<TimestampMicrosecondType>()) {
            for (row, since) in since.iter_mut().enumerate().filter(|(row, _)| times.is_valid(*row)) {
                *since = times.value(row).max(*since);
            }
        }
        since.into_iter().map(Some).collect()
    }
}

/// Whether a column is computed over such a range.
fn reads(view: &ViewPlan, column: usize, is_such: impl Fn(&TimeRange) -> bool) -> bool {
    match view.columns.get(column).map(|column| &column.kind) {
        Some(ColumnKind::Value(value)) => value.ranges.iter().filter_map(|range| view.ranges.get(range.in_view().0)).any(is_such),
        _ => false,
    }
}

/// The state of a column that is the greatest or the least event time of all time, of all events or of some.
fn event_time(view: &ViewPlan, column: usize) -> Option<&StateExpr> {
    let column = view.columns.get(column)?;
    let ColumnKind::Value(value) = &column.kind else { return None };
    let [usage] = value.uses.as_slice() else { return None };
    value.expr.downcast_ref::<Column>()?;
    let usage = view.values()?.uses.get(usage.0)?;
    let state = view.states.get(usage.state.0)?;
    let is_extreme = matches!(state.function.as_str(), "max" | "min") && state.is_of_event_time;
    let is_such = is_extreme && view.ranges.get(usage.range.0) == Some(&TimeRange::ALL) && *column.field.data_type() == timestamp_type();
    is_such.then_some(state)
}
