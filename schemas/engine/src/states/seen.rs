//! The rows of keys as the events of one batch see them: each event sees what earlier events add, but nothing after it.
//!
//! A key's states from before the batch are merged once. The additions of its events are merged in blocks of 1, 2, 4,
//! 8, .. consecutive events, so an event that sees `n` additions needs about `log2 n` blocks at most, and as many
//! merges, however many events its key has in the batch.

use std::ops::Range;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array, new_empty_array};
use arrow::compute::{concat, take};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::plan::{AskedUses, RangeIndex, StateIndex, Use, ViewPlan};
use crate::states::added::AddedStates;
use crate::states::answer::answer_by;
use crate::states::keys::KeyCodec;
use crate::states::pieces::{NO_GROUP, Pieces, RangeSelection};
use crate::states::ranges::{Merged, fields_of, of_groups, of_nothing};
use crate::states::rows::{levels, tiles};
use crate::states::values::MergedColumn;
use types::tiles::{Level, Micros, Span, TileRun};
use types::{Error, Result};

/// How one event sees the row of its key.
#[derive(Debug, Clone, Copy)]
pub struct SeenEvent {
    /// An index of [`Seen::keys`].
    pub key: u32,
    /// How many events of the batch are counted, from the first on.
    pub counted: u32,
    /// The time at which the row is read.
    pub t: Micros,
}

/// The events of one batch, and the states that they see.
pub struct Seen<'a> {
    /// The encoded keys, each once.
    pub keys: &'a [&'a [u8]],
    /// The state rows of each key from before the batch.
    pub before: &'a Pieces<'a>,
    /// The state rows that the events of the batch add. `None` if the view does not read their stream.
    pub added: Option<&'a AddedStates>,
    pub events: &'a [SeenEvent],
}

/// Returns the columns `wanted` (indices into the plan's columns), with a row for each event in their order. Values
/// that cannot be computed are NULL.
pub fn answer_seen(plan: &ViewPlan, codec: &KeyCodec, seen: &Seen<'_>, wanted: &[usize]) -> Result<RecordBatch> {
    let keys = codec.decode(seen.events.iter().map(|event| seen.keys[event.key as usize]))?;
    let times: Vec<Micros> = seen.events.iter().map(|event| event.t).collect();
    let merge = |asked: &AskedUses| -> Result<Vec<MergedColumn>> {
        let values = seen.values(plan, &asked.uses, &mut Merges::default())?;
        asked.uses.iter().zip(values).map(|(usage, values)| MergedColumn::new(plan.state(usage.state), values)).collect()
    };
    Ok(answer_by(plan, &keys, &times, wanted, merge)?.rows)
}

/// How many state rows were merged.
#[derive(Debug, Default)]
struct Merges {
    /// State rows from before the batch.
    before: usize,
    /// State rows from the events of the batch.
    added: usize,
}

impl Seen<'_> {
    /// Returns a column of values, one per event, for each use in `asked`.
    fn values(&self, plan: &ViewPlan, asked: &[Use], merges: &mut Merges) -> Result<Vec<ArrayRef>> {
        let together = self.group_by_spans(plan);
        let added = self.added_to_keys();
        let parts = together.iter().map(|events| self.values_of(plan, events, &added, asked, merges)).collect::<Result<Vec<_>>>()?;
        match parts.as_slice() {
            [] => Ok(asked.iter().map(|usage| new_empty_array(plan.state(usage.state).nothing.data_type())).collect()),
            [one] => Ok(one.clone()),
            _ => {
                let mut place = vec![0; self.events.len()];
                together.iter().flatten().enumerate().for_each(|(at, event)| place[*event as usize] = at as u32);
                let place = UInt32Array::from(place);
                let column = |usage: usize| -> Result<ArrayRef> {
                    let parts: Vec<&dyn Array> = parts.iter().map(|part| part[usage].as_ref()).collect();
                    Ok(take(&concat(&parts)?, &place, None)?)
                };
                (0..asked.len()).map(column).collect()
            }
        }
    }

    /// The rows that the events of the batch add to each key. They are the same for all ranges.
    fn added_to_keys(&self) -> Vec<Range<usize>> {
        self.keys.iter().map(|key| self.added.map_or(0..0, |added| added.of_key(key))).collect()
    }

    /// Groups the events whose ranges have the same edges.
    fn group_by_spans(&self, plan: &ViewPlan) -> Vec<Vec<u32>> {
        let mut groups: Vec<Vec<u32>> = Vec::new();
        let mut known: HashMap<Vec<Span>, usize> = HashMap::new();
        let mut last: Option<(Micros, usize)> = None;
        for (index, event) in self.events.iter().enumerate() {
            let group = match last {
                Some((t, group)) if t == event.t => group,
                _ => {
                    let spans = plan.ranges.iter().map(|range| range.at(event.t)).collect();
                    *known.entry(spans).or_insert(groups.len())
                }
            };
            if group == groups.len() {
                groups.push(Vec::new());
            }
            groups[group].push(index as u32);
            last = Some((event.t, group));
        }
        groups
    }

    /// Returns those of the rows added to each key that one of these events counts.
    fn counted_by(&self, events: &[u32], added: &[Range<usize>]) -> Vec<Range<usize>> {
        let mut counted = vec![0; self.keys.len()];
        for event in events.iter().map(|event| &self.events[*event as usize]) {
            let most = &mut counted[event.key as usize];
            *most = event.counted.max(*most);
        }
        let before = |(rows, counted)| self.added.map_or(0..0, |added| added.before(rows, counted));
        added.iter().zip(counted).map(before).collect()
    }

    /// The same for some of the events, whose ranges all have the same edges. `added` are the rows added to each key.
    fn values_of(
        &self,
        plan: &ViewPlan,
        events: &[u32],
        added: &[Range<usize>],
        asked: &[Use],
        merges: &mut Merges,
    ) -> Result<Vec<ArrayRef>> {
        let counted = self.counted_by(events, added);
        let mut in_ranges: HashMap<RangeIndex, InRange<'_>> = HashMap::new();
        let mut values = Vec::with_capacity(asked.len());
        for usage in asked {
            let in_range = match in_ranges.entry(usage.range) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(missing) => missing.insert(InRange::select(self, plan, usage.range, events, &counted)?),
            };
            values.push(in_range.values(plan, usage.state, merges)?);
        }
        Ok(values)
    }
}

/// The rows that some events see in one range: for each key those from before the batch, then those that its events
/// add.
struct InRange<'a> {
    before: &'a Pieces<'a>,
    /// For each key, its rows as indices of a batch of `before` and of a row in it.
    rows_before: Vec<Vec<(usize, usize)>>,
    added: Option<&'a AddedStates>,
    /// The rows of `added`, key by key and in the order of their events.
    steps: UInt32Array,
    /// The index of the first step of each key, and the end of the last steps.
    from: Vec<usize>,
    /// A group for events that see the same rows: a key, and the number of its steps.
    groups: Vec<(u32, usize)>,
    /// The group of each event.
    group_of: Vec<u32>,
    /// Whether a key has several groups, by key.
    is_shared: Vec<bool>,
}

impl<'a> InRange<'a> {
    /// `counted` are the rows that one of the events counts, by key.
    fn select(seen: &'a Seen<'_>, plan: &ViewPlan, range: RangeIndex, events: &[u32], counted: &[Range<usize>]) -> Result<InRange<'a>> {
        let t = events.first().map_or(0, |event| seen.events[*event as usize].t);
        let rows_before = rows_before(&RangeSelection::for_ranges(plan, &[range], seen.before, seen.keys.len(), t)?);
        let (steps, from) = steps(seen, &plan.covers(t)[range.0].finest, counted)?;
        let (mut groups, mut group_of) = (Vec::new(), Vec::with_capacity(events.len()));
        let mut known: HashMap<(u32, usize), u32> = HashMap::new();
        let mut groups_of_key = vec![0_u32; seen.keys.len()];
        for event in events.iter().map(|event| &seen.events[*event as usize]) {
            let of_key = &steps[from[event.key as usize]..from[event.key as usize + 1]];
            let of_row = |row: &u32| seen.added.map_or(0, |added| added.events()[*row as usize]);
            let count = of_key.partition_point(|row| of_row(row) < event.counted);
            if count == 0 && rows_before[event.key as usize].is_empty() {
                group_of.push(NO_GROUP);
                continue;
            }
            let group = *known.entry((event.key, count)).or_insert(groups.len() as u32);
            if group as usize == groups.len() {
                groups.push((event.key, count));
                groups_of_key[event.key as usize] += 1;
            }
            group_of.push(group);
        }
        let is_shared = groups_of_key.iter().map(|groups| *groups > 1).collect();
        Ok(InRange { before: seen.before, rows_before, added: seen.added, steps: steps.into(), from, groups, group_of, is_shared })
    }

    /// The value of a state for each event.
    fn values(&self, plan: &ViewPlan, state: StateIndex, merges: &mut Merges) -> Result<ArrayRef> {
        let nothing = &plan.state(state).nothing;
        if self.groups.is_empty() {
            return of_nothing(nothing, self.group_of.len());
        }
        let before = self.shared_before(plan, state, merges)?;
        let blocks = self.blocks(plan, state, merges)?;
        let mut fields = fields_of(plan, state, self.before);
        let (of_shared, first_level) = (self.before.batches.len(), self.before.batches.len() + 1);
        for (field, arrays) in fields.iter_mut().enumerate() {
            arrays.push(&*before.fields[field]);
            arrays.extend(blocks.iter().map(|level| &*level.fields[field]));
        }
        let (mut rows, mut groups) = (Vec::new(), Vec::new());
        for (group, (key, steps)) in self.groups.iter().enumerate() {
            let key = *key as usize;
            match self.is_shared[key] {
                true => rows.extend(before.row_of_key[key].map(|row| (of_shared, row))),
                false => {
                    rows.extend(self.rows_before[key].iter().copied());
                    merges.before += self.rows_before[key].len();
                }
            }
            let first = rows.len();
            match self.is_shared[key] {
                true => rows.extend(blocks_of(*steps).map(|(level, block)| (first_level + level, blocks[level].from[key] + block))),
                false => rows.extend((0..*steps).map(|step| (first_level, self.from[key] + step))),
            }
            merges.added += rows.len() - first;
            groups.resize(rows.len(), group);
        }
        let merged = Merged { state: plan.state(state), fields, rows: &rows, groups: &groups }.values()?;
        of_groups(&merged, nothing, &self.group_of, &mut None)
    }

    /// The states from before the batch of the keys that several groups share, each key's merged into one.
    fn shared_before(&self, plan: &ViewPlan, state: StateIndex, merges: &mut Merges) -> Result<Before> {
        let (mut rows, mut groups, mut row_of_key, mut count) = (Vec::new(), Vec::new(), vec![None; self.is_shared.len()], 0);
        for (key, of_key) in self.rows_before.iter().enumerate().filter(|(key, of_key)| self.is_shared[*key] && !of_key.is_empty()) {
            rows.extend(of_key.iter().copied());
            groups.resize(rows.len(), count);
            row_of_key[key] = Some(count);
            count += 1;
        }
        merges.before += rows.len();
        let state_expr = plan.state(state);
        let fields = match count {
            0 => state_expr.fields.iter().map(|field| new_empty_array(field.data_type())).collect(),
            _ => {
                let fields = fields_of(plan, state, self.before);
                Merged { state: state_expr, fields, rows: &rows, groups: &groups }.states()?
            }
        };
        Ok(Before { fields, row_of_key })
    }

    /// The steps themselves, then merged two by two, and so on.
    fn blocks(&self, plan: &ViewPlan, state: StateIndex, merges: &mut Merges) -> Result<Vec<Blocks>> {
        let Some(added) = self.added else { return Ok(Vec::new()) };
        let (state_expr, columns) = (plan.state(state), &added.rows().batch().columns()[plan.state_columns(state)]);
        let fields = columns.iter().map(|column| Ok(take(column, &self.steps, None)?)).collect::<Result<_>>()?;
        let mut all = vec![Blocks { fields, from: self.from.clone() }];
        for level in 1_u32.. {
            let below = &all[all.len() - 1];
            let (mut rows, mut groups, mut from) = (Vec::new(), Vec::new(), Vec::with_capacity(self.is_shared.len() + 1));
            for (key, _) in self.is_shared.iter().enumerate() {
                from.push(groups.len() / 2);
                let count = if self.is_shared[key] { (self.from[key + 1] - self.from[key]) >> level } else { 0 };
                for block in 0..count {
                    rows.extend([0, 1].map(|half| (0, below.from[key] + 2 * block + half)));
                    groups.extend([groups.len() / 2; 2]);
                }
            }
            if rows.is_empty() {
                break;
            }
            from.push(groups.len() / 2);
            merges.added += rows.len();
            let fields = below.fields.iter().map(|field| vec![field.as_ref() as &dyn Array]).collect();
            let fields = Merged { state: state_expr, fields, rows: &rows, groups: &groups }.states()?;
            all.push(Blocks { fields, from });
        }
        Ok(all)
    }
}

/// The fields of a state, with a row for each key that has any.
struct Before {
    fields: Vec<ArrayRef>,
    row_of_key: Vec<Option<usize>>,
}

/// The fields of a state, with a row for each block of one size, and where the blocks of each key begin.
struct Blocks {
    fields: Vec<ArrayRef>,
    from: Vec<usize>,
}

/// The blocks that make up the first `steps`, in their order: the power of two that is the size, and the index among
/// blocks of this size.
fn blocks_of(steps: usize) -> impl Iterator<Item = (usize, usize)> {
    let largest_first = (0..usize::BITS as usize).rev().filter(move |level| steps >> level & 1 == 1);
    largest_first.map(move |level| (level, (steps >> level) - 1))
}

/// The selected rows of each key.
fn rows_before(selected: &RangeSelection) -> Vec<Vec<(usize, usize)>> {
    let mut of_group = vec![Vec::new(); selected.group_count];
    for (row, group) in selected.rows.iter().zip(&selected.groups) {
        of_group[*group].push(*row);
    }
    let of_key = |group: &u32| of_group.get_mut(*group as usize).map(std::mem::take).unwrap_or_default();
    selected.groups_of(0).iter().map(of_key).collect()
}

/// Returns those of the counted rows that are of these tiles, key by key, and where the rows of each key begin.
fn steps(seen: &Seen<'_>, runs: &[TileRun], counted: &[Range<usize>]) -> Result<(Vec<u32>, Vec<usize>)> {
    let Some(added) = seen.added else { return Ok((Vec::new(), vec![0; seen.keys.len() + 1])) };
    let (level_codes, starts) = (levels(added.rows().batch())?, tiles(added.rows().batch())?);
    let (mut steps, mut from) = (Vec::new(), Vec::with_capacity(seen.keys.len() + 1));
    for of_key in counted {
        from.push(steps.len());
        for row in of_key.clone() {
            let code = level_codes.value(row);
            let level = Level::from_code(code).ok_or_else(|| Error::internal(format!("unknown tile level {code}")))?;
            if runs.iter().any(|run| run.contains(level, starts[row])) {
                steps.push(row as u32);
            }
        }
    }
    from.push(steps.len());
    Ok((steps, from))
}

#[cfg(test)]
mod tests;
