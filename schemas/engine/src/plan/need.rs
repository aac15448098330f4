//! The values that have to be merged for some of a view's columns.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::plan::{ColumnKind, ColumnRangeIndex, RangeIndex, StateIndex, Use, UseIndex, ValueColumn, ViewPlan};

/// The uses and ranges from which columns are computed, each once and in order.
#[derive(Debug, Clone)]
pub(crate) struct Need {
    pub(crate) ranges: Vec<ColumnRangeIndex>,
    pub(crate) uses: Vec<UseIndex>,
    /// The values that are merged for each key of a grouped view: the events of each range, then the uses.
    pub(crate) merged: AskedUses,
}

impl ViewPlan {
    /// Returns what the columns `wanted` (indices into the plan's) need. Most queries want all of them.
    pub(crate) fn need(&self, wanted: &[usize]) -> Cow<'_, Need> {
        match self.are_all(wanted) {
            true => Cow::Borrowed(self.need_of_all.get_or_init(|| Need::for_columns(self, wanted))),
            false => Cow::Owned(Need::for_columns(self, wanted)),
        }
    }
}

impl Need {
    fn for_columns(plan: &ViewPlan, wanted: &[usize]) -> Need {
        let uses: Vec<UseIndex> = each_once(values_among(plan, wanted).flat_map(|value| value.uses.iter().copied()));
        let ranges = ranges_of(plan, wanted);
        let merged = plan.values().map_or_else(Vec::new, |values| {
            let events = ranges.iter().map(|range| Use { state: StateIndex::EVENTS, range: range.in_view() });
            events.chain(uses.iter().map(|usage| values.uses[usage.0])).collect()
        });
        Need { ranges, uses, merged: AskedUses::new(merged) }
    }
}

/// The range that decides which keys have a row is always needed.
fn ranges_of(plan: &ViewPlan, wanted: &[usize]) -> Vec<ColumnRangeIndex> {
    let of_values = values_among(plan, wanted).flat_map(|value| value.ranges.iter().copied());
    each_once(std::iter::once(plan.existence_of_rows()).chain(of_values))
}

fn values_among<'a>(plan: &'a ViewPlan, wanted: &'a [usize]) -> impl Iterator<Item = &'a ValueColumn> {
    wanted.iter().filter_map(move |column| match &plan.columns[*column].kind {
        ColumnKind::Key(_) => None,
        ColumnKind::Value(value) => Some(value),
    })
}

/// The uses whose values are asked for, and which of them are merged together.
#[derive(Debug, Clone)]
pub(crate) struct AskedUses {
    /// In the order of the values.
    pub(crate) uses: Vec<Use>,
    /// Their ranges, each once and in order.
    ranges: Vec<RangeIndex>,
    /// The groups that are merged together, with all ranges at once. Computed on first use.
    at_once: OnceLock<Vec<StatesOverRanges>>,
}

/// States that are merged over the same ranges, whose rows are the same.
#[derive(Debug, Clone)]
pub(crate) struct StatesOverRanges {
    pub(crate) ranges: Vec<RangeIndex>,
    pub(crate) states: Vec<AskedState>,
}

/// A state, and where its values belong.
#[derive(Debug, Clone)]
pub(crate) struct AskedState {
    pub(crate) state: StateIndex,
    pub(crate) places: Vec<ValuePlace>,
}

/// The value over a range, and the use that asks for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ValuePlace {
    /// An index of [`StatesOverRanges::ranges`].
    pub(crate) range: usize,
    /// An index of [`AskedUses::uses`].
    pub(crate) usage: usize,
}

impl AskedUses {
    pub(crate) fn new(uses: Vec<Use>) -> AskedUses {
        let ranges = each_once(uses.iter().map(|usage| usage.range));
        AskedUses { uses, ranges, at_once: OnceLock::new() }
    }

    /// Returns the groups that are merged together, with at most this many ranges at once.
    pub(crate) fn parts(&self, ranges_at_once: usize) -> Cow<'_, [StatesOverRanges]> {
        match self.ranges.len() <= ranges_at_once {
            true => Cow::Borrowed(self.at_once.get_or_init(|| merged_together(&self.uses, &self.ranges)).as_slice()),
            false => self.ranges.chunks(ranges_at_once).flat_map(|ranges| merged_together(&self.uses, ranges)).collect(),
        }
    }
}

/// Groups the uses that are over one of these ranges.
fn merged_together(uses: &[Use], ranges: &[RangeIndex]) -> Vec<StatesOverRanges> {
    let mut of_states: BTreeMap<StateIndex, Vec<(RangeIndex, usize)>> = BTreeMap::new();
    for (usage, Use { state, range }) in uses.iter().enumerate().filter(|(_, usage)| ranges.contains(&usage.range)) {
        of_states.entry(*state).or_default().push((*range, usage));
    }
    let mut together: BTreeMap<Vec<RangeIndex>, Vec<AskedState>> = BTreeMap::new();
    for (state, uses) in of_states {
        let ranges = each_once(uses.iter().map(|(range, _)| *range));
        let place = |(range, usage): (RangeIndex, usize)| ValuePlace { range: ranges.partition_point(|other| *other < range), usage };
        let places = uses.into_iter().map(place).collect();
        together.entry(ranges).or_default().push(AskedState { state, places });
    }
    together.into_iter().map(|(ranges, states)| StatesOverRanges { ranges, states }).collect()
}

/// Sorts items and removes duplicates.
fn each_once<T: Ord>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut items: Vec<T> = items.collect();
    items.sort_unstable();
    items.dedup();
    items
}
