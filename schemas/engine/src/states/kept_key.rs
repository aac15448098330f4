//! The merged values of one key, kept for its next query. A key with a million events takes a second to merge, and most
//! queries of it need the same rows as the query before, or those and a few more.
//!
//! Layers never change, and merging the same rows in the same order gives the same value. So a kept value is valid
//! exactly for queries that select the same rows, at whatever time. For `count(DISTINCT ..)` the set of values in the
//! committed rows is kept too; the fresh rows are counted on top.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array};

use crate::functions::judged::judged;
use crate::functions::{DistinctSet, DistinctSize, Flaw};
use crate::plan::{AskedUses, RangeIndex, StateExpr, StateIndex, Use, ViewPlan};
use crate::states::pieces::{Pieces, RangeSelection, RowRun, values_in};
use crate::states::ranges::{merge, value_of_key};
use crate::states::values::MergedColumn;
use types::Result;
use types::tiles::Micros;

/// Values that cost less than this to merge, in values, are not kept.
const KEPT_FROM: usize = 256;

/// The values that are kept for one key of a view version. They refer to the columns and ranges of one plan, and are
/// used only with it.
#[derive(Default)]
pub struct KeptKey {
    kept: Mutex<HashMap<Use, MergedUse>>,
}

/// The merged value of one use.
#[derive(Default)]
struct MergedUse {
    value: Option<(MergedRows, MergedColumn)>,
    set: Option<(MergedRows, Arc<DistinctSet>)>,
}

impl KeptKey {
    /// The bytes of memory that are kept.
    pub fn memory_bytes(&self) -> usize {
        let kept = self.lock();
        size_of::<Self>() + kept.values().map(MergedUse::memory_bytes).sum::<usize>()
    }

    /// Drops the sets, which are large. The values stay.
    pub fn drop_sets(&self) {
        let _sets: Vec<_> = self.lock().values_mut().map(|kept| kept.set.take()).collect();
    }

    fn value(&self, usage: Use, rows: &MergedRows) -> Option<MergedColumn> {
        let kept = self.lock();
        let (of, value) = kept.get(&usage)?.value.as_ref()?;
        (of == rows).then(|| value.clone())
    }

    fn set(&self, usage: Use, committed: &MergedRows) -> Option<Arc<DistinctSet>> {
        let kept = self.lock();
        let (of, set) = kept.get(&usage)?.set.as_ref()?;
        (of == committed).then(|| set.clone())
    }

    // The replaced value may take a while to free, so it is dropped after the lock is released.

    fn keep_value(&self, usage: Use, rows: MergedRows, value: &MergedColumn) {
        let _replaced = self.lock().entry(usage).or_default().value.replace((rows, value.clone()));
    }

    fn keep_set(&self, usage: Use, committed: MergedRows, set: &Arc<DistinctSet>) {
        let _replaced = self.lock().entry(usage).or_default().set.replace((committed, set.clone()));
    }

    /// Removes the kept set, so that rows can be added to it. `None` if it holds rows that `committed` does not have,
    /// or if a lookup is reading it.
    fn take_set(&self, usage: Use, committed: &MergedRows) -> Option<(MergedRows, DistinctSet)> {
        let (taken_in, set) = self.lock().get_mut(&usage)?.set.take()?;
        let is_part = taken_in.0.iter().all(|rows| committed.0.contains(rows));
        Arc::try_unwrap(set).ok().filter(|_| is_part).map(|set| (taken_in, set))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Use, MergedUse>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for KeptKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeptKey({} values)", self.lock().len())
    }
}

impl MergedUse {
    fn memory_bytes(&self) -> usize {
        let value = self.value.as_ref().map_or(0, |(rows, value)| rows.memory_bytes() + value.memory_bytes());
        let set = self.set.as_ref().map_or(0, |(rows, set)| rows.memory_bytes() + set.memory_bytes());
        size_of::<Use>() + size_of::<Self>() + value + set
    }
}

/// The rows that a value was merged from, in their order.
#[derive(Debug, Default)]
struct MergedRows(Vec<RowsOfLayer>);

/// Rows of one batch. The pointers keep no layer alive, but no other array gets their addresses while they exist.
#[derive(Debug)]
struct RowsOfLayer {
    levels: Weak<dyn Array>,
    states: Weak<dyn Array>,
    rows: Range<usize>,
}

impl MergedRows {
    fn of_runs<'r>(plan: &ViewPlan, state: StateIndex, pieces: &Pieces<'_>, runs: impl Iterator<Item = &'r RowRun>) -> Self {
        let of_run = |run: &RowRun| {
            let column = |index: usize| Arc::downgrade(pieces.batches[run.batch].column(index));
            RowsOfLayer { levels: column(plan.keys.len()), states: column(plan.state_offset(state)), rows: run.rows.clone() }
        };
        Self(runs.map(of_run).collect())
    }

    fn memory_bytes(&self) -> usize {
        self.0.capacity() * size_of::<RowsOfLayer>()
    }
}

impl PartialEq for MergedRows {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl PartialEq for RowsOfLayer {
    fn eq(&self, other: &Self) -> bool {
        let same = |one: &Weak<dyn Array>, two: &Weak<dyn Array>| std::ptr::addr_eq(one.as_ptr(), two.as_ptr());
        self.rows == other.rows && same(&self.levels, &other.levels) && same(&self.states, &other.states)
    }
}

/// A wanted value: one state over one range, and the rows that it is merged from.
struct Wanted<'q> {
    plan: &'q ViewPlan,
    pieces: &'q Pieces<'q>,
    usage: Use,
    runs: &'q [RowRun],
}

impl Wanted<'_> {
    fn state(&self) -> &StateExpr {
        self.plan.state(self.usage.state)
    }

    fn rows(&self) -> MergedRows {
        MergedRows::of_runs(self.plan, self.usage.state, self.pieces, self.runs.iter())
    }

    fn committed(&self) -> MergedRows {
        MergedRows::of_runs(self.plan, self.usage.state, self.pieces, self.runs.iter().filter(|run| !run.is_fresh))
    }

    fn counts_distinct(&self) -> bool {
        let aggregate = &self.state().aggregate;
        aggregate.is_distinct() && aggregate.fun().name() == "count"
    }

    /// The cost of merging it, in values, if nothing of it is kept.
    fn cost(&self) -> usize {
        self.runs.iter().map(|run| self.cost_of(run)).sum()
    }

    fn cost_of(&self, run: &RowRun) -> usize {
        let fields = &self.pieces.batches[run.batch].columns()[self.plan.state_columns(self.usage.state)];
        fields.iter().map(|field| values_in(field, run.rows.clone())).sum()
    }

    /// The same, given the values that are kept.
    fn cost_with(&self, kept: &KeptKey) -> usize {
        let whole = self.cost();
        if whole < KEPT_FROM {
            return whole;
        }
        if kept.value(self.usage, &self.rows()).is_some() {
            return 0;
        }
        match self.counts_distinct() && kept.set(self.usage, &self.committed()).is_some() {
            true => self.runs.iter().filter(|run| run.is_fresh).map(|run| self.cost_of(run)).sum(),
            false => whole,
        }
    }

    fn value(&self, kept: &KeptKey) -> Result<MergedColumn> {
        let rows = self.rows();
        if let Some(value) = kept.value(self.usage, &rows) {
            return Ok(value);
        }
        let value = match self.distinct_set(kept)? {
            Some(set) => MergedColumn::new(self.state(), self.counted_with(&set)?)?,
            None => value_of_key(self.plan, self.usage.state, &RangeSelection::of_runs(self.runs), self.pieces)?,
        };
        kept.keep_value(self.usage, rows, &value);
        Ok(value)
    }

    /// The set of the committed values, if there is one.
    fn distinct_set(&self, kept: &KeptKey) -> Result<Option<Arc<DistinctSet>>> {
        if !self.counts_distinct() || self.has_marks() {
            return Ok(None);
        }
        let committed = self.committed();
        if let Some(set) = kept.set(self.usage, &committed) {
            return Ok(Some(set));
        }
        let before = kept.take_set(self.usage, &committed);
        let Some((taken_in, mut set)) = before.or_else(|| Some((MergedRows::default(), DistinctSet::of_fields(&self.state().fields)?)))
        else {
            return Ok(None);
        };
        let of_committed = self.runs.iter().filter(|run| !run.is_fresh).zip(&committed.0);
        for (run, _) in of_committed.filter(|(_, rows)| !taken_in.0.contains(rows)) {
            set.add(&self.states_of(run))?;
        }
        set.settle();
        let set = Arc::new(set);
        kept.keep_set(self.usage, committed, &set);
        Ok(Some(set))
    }

    fn counted_with(&self, set: &DistinctSet) -> Result<ArrayRef> {
        let fresh: Vec<ArrayRef> = self.runs.iter().filter(|run| run.is_fresh).map(|run| self.states_of(run)).collect();
        let DistinctSize { values, bytes } = set.size_with(&fresh)?;
        let counted: ArrayRef = Arc::new(Int64Array::from(vec![values]));
        let Some(limit_bytes) = self.state().limit_bytes else { return Ok(counted) };
        let is_past = BooleanArray::from(vec![bytes > limit_bytes]);
        Ok(judged(&counted, &is_past, Flaw::StateTooLarge)?)
    }

    /// Whether a state in these rows exceeded its limit, so that the set is unknown.
    fn has_marks(&self) -> bool {
        let Some(last) = self.state().fields.len().checked_sub(1).filter(|_| self.state().limit_bytes.is_some()) else { return false };
        let marks = |run: &RowRun| self.pieces.batches[run.batch].column(self.plan.state_offset(self.usage.state) + last).as_boolean_opt();
        self.runs.iter().any(|run| marks(run).is_some_and(|marks| run.rows.clone().any(|row| marks.is_valid(row) && marks.value(row))))
    }

    /// The first field of the state in these rows.
    fn states_of(&self, run: &RowRun) -> ArrayRef {
        self.pieces.batches[run.batch].column(self.plan.state_offset(self.usage.state)).slice(run.rows.start, run.rows.len())
    }
}

/// Estimates what [`merge_kept`] costs, in values: see [`values_in`].
pub(super) fn cost_of(plan: &ViewPlan, pieces: &Pieces<'_>, t: Micros, asked: &[Use], kept: Option<&KeptKey>) -> Result<usize> {
    let mut cost = 0;
    for_each_wanted(plan, pieces, t, asked, |wanted| {
        cost += kept.map_or_else(|| wanted.cost(), |kept| wanted.cost_with(kept));
        Ok(())
    })?;
    Ok(cost)
}

/// Like [`merge`], for one key of which these are all pieces. Uses the values in `kept`, and keeps those there that are
/// costly to merge.
pub(super) fn merge_kept(plan: &ViewPlan, pieces: &Pieces<'_>, t: Micros, asked: &AskedUses, kept: &KeptKey) -> Result<Vec<MergedColumn>> {
    let mut values: HashMap<Use, MergedColumn> = HashMap::new();
    for_each_wanted(plan, pieces, t, &asked.uses, |wanted| {
        if wanted.cost() >= KEPT_FROM {
            values.insert(wanted.usage, wanted.value(kept)?);
        }
        Ok(())
    })?;
    let cheap = asked.uses.iter().copied().filter(|usage| !values.contains_key(usage)).collect();
    let mut cheap = merge(plan, pieces, 1, t, &AskedUses::new(cheap))?.into_iter();
    Ok(asked.uses.iter().filter_map(|usage| values.get(usage).cloned().or_else(|| cheap.next())).collect())
}

/// Calls `visit` with each of these uses. The rows of a range are selected once.
fn for_each_wanted(
    plan: &ViewPlan,
    pieces: &Pieces<'_>,
    t: Micros,
    asked: &[Use],
    mut visit: impl FnMut(Wanted<'_>) -> Result<()>,
) -> Result<()> {
    let mut of_ranges: HashMap<RangeIndex, Vec<RowRun>> = HashMap::new();
    for usage in asked {
        if let Entry::Vacant(missing) = of_ranges.entry(usage.range) {
            missing.insert(pieces.runs_in(plan, usage.range, t)?);
        }
        visit(Wanted { plan, pieces, usage: *usage, runs: &of_ranges[&usage.range] })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
