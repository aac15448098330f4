//! What has to be merged for some of a view's columns.

use std::borrow::Cow;

use crate::plan::{ColumnKind, ColumnRangeIndex, StateIndex, Use, UseIndex, ValueColumn, ViewPlan};

/// What columns are computed from, each once and in order.
#[derive(Debug, Clone)]
pub(crate) struct Need {
    pub(crate) ranges: Vec<ColumnRangeIndex>,
    pub(crate) uses: Vec<UseIndex>,
    /// What is merged for each key of a grouped view: the events of each range, then the uses.
    pub(crate) merged: Vec<Use>,
}

impl ViewPlan {
    /// What the columns `wanted` (indices into the plan's) need. Most queries want all of them.
    pub(crate) fn need(&self, wanted: &[usize]) -> Cow<'_, Need> {
        match self.are_all(wanted) {
            true => Cow::Borrowed(self.need_of_all.get_or_init(|| Need::for_columns(self, wanted))),
            false => Cow::Owned(Need::for_columns(self, wanted)),
        }
    }
}

impl Need {
    fn for_columns(plan: &ViewPlan, wanted: &[usize]) -> Need {
        let mut uses: Vec<UseIndex> = values_among(plan, wanted).flat_map(|value| value.uses.iter().copied()).collect();
        uses.sort_unstable();
        uses.dedup();
        let ranges = ranges_of(plan, wanted);
        let merged = plan.values().map_or_else(Vec::new, |values| {
            let events = ranges.iter().map(|range| Use { state: StateIndex::EVENTS, range: range.in_view() });
            events.chain(uses.iter().map(|usage| values.uses[usage.0])).collect()
        });
        Need { ranges, uses, merged }
    }
}

/// The range that decides which keys have a row is always needed.
fn ranges_of(plan: &ViewPlan, wanted: &[usize]) -> Vec<ColumnRangeIndex> {
    let mut ranges = vec![plan.existence_of_rows()];
    ranges.extend(values_among(plan, wanted).flat_map(|value| &value.ranges));
    ranges.sort_unstable();
    ranges.dedup();
    ranges
}

fn values_among<'a>(plan: &'a ViewPlan, wanted: &'a [usize]) -> impl Iterator<Item = &'a ValueColumn> {
    wanted.iter().filter_map(move |column| match &plan.columns[*column].kind {
        ColumnKind::Key(_) => None,
        ColumnKind::Value(value) => Some(value),
    })
}
