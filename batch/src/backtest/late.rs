//! Counts the scored events that the log received too late for the windows of views. If windows end at the time when
//! the log received an event, events that were ingested long after they happened see nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::sinks::JoinedView;
use types::tiles::{Micros, TimeRange};

/// The scored events that the log received so late that no window of a view reaches back to their own time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedLate {
    pub view: Arc<str>,
    pub rows: u64,
}

/// The windows of one view that sinks read, and the events that are late for all of them.
struct OfView {
    windows: Vec<TimeRange>,
    late: ReceivedLate,
}

/// Counts late events as they are scored.
pub(super) struct LateEvents(Vec<OfView>);

impl LateEvents {
    /// `joins`: the views, with their columns that sinks read.
    pub(super) fn new<'a>(joins: impl Iterator<Item = &'a JoinedView>) -> LateEvents {
        let mut windows: BTreeMap<Arc<str>, Vec<TimeRange>> = BTreeMap::new();
        for join in joins {
            windows.entry(join.plan.view.clone()).or_default().extend(join.plan.windows(&join.wanted));
        }
        let with_windows = windows.into_iter().filter(|(_, windows)| !windows.is_empty());
        LateEvents(with_windows.map(|(view, windows)| OfView { windows, late: ReceivedLate { view, rows: 0 } }).collect())
    }

    /// Adds a scored event by its own time, and by the one for which its rows are read.
    pub(super) fn add(&mut self, own: Micros, read: Micros) {
        for OfView { windows, late } in &mut self.0 {
            let begin = windows.iter().filter_map(|window| window.at(read).from).min();
            late.rows += u64::from(begin.is_some_and(|begin| own < begin));
        }
    }

    pub(super) fn counted(self) -> Vec<ReceivedLate> {
        self.0.into_iter().map(|of_view| of_view.late).collect()
    }
}
