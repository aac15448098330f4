//! Merges state rows by key, level and tile, and rolls tiles up into coarser ones.
//!
//! Groups are numbered in the order of their first row, and every group has a row: DataFusion's accumulators assume
//! that every group number up to the given total has been seen.

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BooleanArray, RecordBatch, TimestampMicrosecondArray, UInt8Array, UInt32Array};
use arrow::compute::{concat, concat_batches, filter_record_batch, interleave, interleave_record_batch, take};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::GroupsAccumulatorAdapter;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use std::sync::Arc;

use crate::plan::{StateExpr, StateIndex, ViewPlan};
use crate::states::keys::KeyCodec;
use crate::states::rows::{RowOrder, StateRows, first_from, levels, taken_column, tiles};
use types::tiles::{Level, Micros, finest_kept};
use types::{Error, Result};

/// Creates an accumulator for a state's groups.
pub(super) fn accumulator(state: &StateExpr) -> Result<Box<dyn GroupsAccumulator>> {
    accumulator_for(&state.aggregate, state.has_groups)
}

/// Creates an accumulator for groups of an aggregate.
pub(crate) fn groups_accumulator(aggregate: &Arc<AggregateFunctionExpr>) -> Result<Box<dyn GroupsAccumulator>> {
    accumulator_for(aggregate, aggregate.groups_accumulator_supported())
}

fn accumulator_for(aggregate: &Arc<AggregateFunctionExpr>, has_groups: bool) -> Result<Box<dyn GroupsAccumulator>> {
    if has_groups {
        return Ok(aggregate.create_groups_accumulator()?);
    }
    let aggregate = aggregate.clone();
    Ok(Box::new(GroupsAccumulatorAdapter::new(move || aggregate.create_accumulator())))
}

/// Sorts rows, and merges rows with the same key, level and tile into one.
pub fn sort_and_merge(plan: &ViewPlan, codec: &KeyCodec, batches: &[RecordBatch]) -> Result<StateRows> {
    merge_sorted(plan, &StateRows::sort(plan, codec, batches)?)
}

/// Merges rows with the same key, level and tile into one.
pub fn merge_sorted(plan: &ViewPlan, rows: &StateRows) -> Result<StateRows> {
    let groups = number_groups(rows, |level, tile| (level, tile))?;
    if groups.first_row.len() == rows.len() { Ok(rows.clone()) } else { merge_groups(plan, rows, &groups) }
}

/// Rolls up rows of whole keys: adds the coarser levels, and drops tiles before `floors`.
///
/// The rows are in the order of [`StateRows::sort`] (each key's rows by tile). They are all of the finest level, or
/// each is of the finest level that keeps its time ([`ViewPlan::kept_past`]).
pub fn rollup(plan: &ViewPlan, rows: &StateRows, floors: &[(Level, Option<Micros>)]) -> Result<StateRows> {
    let present = levels_of(rows)?;
    let mut all = Vec::with_capacity(plan.levels.len());
    let mut below = rows.slice(0..0);
    for level in &plan.levels {
        below = match present.contains(level) {
            // Rows that were created at this level come before those of finer levels, key by key.
            true => rollup_to(plan, &up_to(rows, *level, &present)?, *level)?,
            false if below.is_empty() => below,
            false => rollup_to(plan, &below, *level)?,
        };
        let floor = floors.iter().find(|(of, _)| of == level).and_then(|(_, floor)| *floor);
        all.push(keep_from(&below, floor)?);
    }
    in_order(rows.keys(), all)
}

/// Moves rows of the finest level to the finest level that `floors` keep for their time, as [`rollup`] would in the
/// end: most states are older than the windows that need fine tiles. Several rows may then have the same key and tile.
pub fn at_kept_levels(plan: &ViewPlan, rows: &RecordBatch, floors: &[(Level, Option<Micros>)]) -> Result<RecordBatch> {
    let placed: Vec<(Level, Micros)> = tiles(rows)?.iter().map(|tile| (finest_kept(floors, *tile), *tile)).collect();
    let levels = placed.iter().map(|(level, _)| level.code());
    // A row in the tile of all time keeps its start.
    let starts = placed.iter().map(|(level, tile)| if *level == Level::All { *tile } else { level.floor(*tile) });
    let mut columns = rows.columns().to_vec();
    columns[plan.keys.len()] = Arc::new(UInt8Array::from_iter_values(levels));
    columns[plan.keys.len() + 1] = Arc::new(TimestampMicrosecondArray::from_iter_values(starts).with_timezone("UTC"));
    Ok(RecordBatch::try_new(rows.schema(), columns)?)
}

/// Merges rows of whole keys from several sets that were rolled up: rows of the same key, level and tile become one,
/// and tiles before `floors` are dropped.
///
/// The rows are in the order [`RowOrder::ByLevel`], and so is the result. Each set has all its rows of the tiles from
/// `floors` on.
pub fn merge_rolled_up(plan: &ViewPlan, rows: &StateRows, floors: &[(Level, Option<Micros>)]) -> Result<StateRows> {
    merge_sorted(plan, &filtered(rows, &is_kept(rows.batch(), floors)?)?)
}

/// Drops rows of tiles before `floors`.
pub fn kept_tiles(rows: &RecordBatch, floors: &[(Level, Option<Micros>)]) -> Result<RecordBatch> {
    let keep = is_kept(rows, floors)?;
    if keep.true_count() == rows.num_rows() { Ok(rows.clone()) } else { Ok(filter_record_batch(rows, &keep)?) }
}

/// Whether each row is of a tile from its level's floor on.
fn is_kept(rows: &RecordBatch, floors: &[(Level, Option<Micros>)]) -> Result<BooleanArray> {
    let mut least = [Micros::MIN; Level::LEVELS.len()];
    for (level, floor) in floors {
        least[level.code() as usize] = floor.unwrap_or(Micros::MIN);
    }
    let places = levels(rows)?.values().iter().zip(tiles(rows)?);
    Ok(places.map(|(level, tile)| Some(least.get(*level as usize).is_none_or(|least| tile >= least))).collect())
}

/// Returns the levels that rows have, finest first.
fn levels_of(rows: &StateRows) -> Result<Vec<Level>> {
    let mut present = [false; Level::LEVELS.len()];
    for code in levels(rows.batch())?.values() {
        let slot = present.get_mut(*code as usize);
        *slot.ok_or_else(|| Error::corrupt(format!("unknown tile level {code}")))? = true;
    }
    Ok(Level::LEVELS.into_iter().filter(|level| present[level.code() as usize]).collect())
}

/// Returns the rows of a level and of all finer ones.
fn up_to(rows: &StateRows, level: Level, present: &[Level]) -> Result<StateRows> {
    if present.last() == Some(&level) {
        return Ok(rows.clone());
    }
    filtered(rows, &levels(rows.batch())?.iter().map(|code| code.map(|code| code <= level.code())).collect())
}

/// Merges rows, which are in the order of their tiles, into the tiles of a coarser level.
fn rollup_to(plan: &ViewPlan, rows: &StateRows, to: Level) -> Result<StateRows> {
    let groups = number_groups(rows, |_, tile| (to.code(), to.floor(tile)))?;
    merge_groups(plan, rows, &groups)
}

/// Drops tiles that begin before `floor`.
pub fn keep_from(rows: &StateRows, floor: Option<Micros>) -> Result<StateRows> {
    let Some(floor) = floor else { return Ok(rows.clone()) };
    filtered(rows, &tiles(rows.batch())?.iter().map(|tile| Some(*tile >= floor)).collect())
}

fn filtered(rows: &StateRows, keep: &BooleanArray) -> Result<StateRows> {
    if keep.true_count() == rows.len() {
        return Ok(rows.clone());
    }
    let keys = arrow::compute::filter(rows.keys(), keep)?.as_binary::<i32>().clone();
    Ok(StateRows::from_sorted(filter_record_batch(rows.batch(), keep)?, keys))
}

/// Combines the rows of several levels, finest first and each sorted, key by key. `every_key` lists all keys in order.
fn in_order(every_key: &BinaryArray, mut levels: Vec<StateRows>) -> Result<StateRows> {
    if levels.len() == 1 {
        return levels.pop().ok_or_else(|| Error::internal("a view has a level"));
    }
    let mut order: Vec<(usize, usize)> = Vec::with_capacity(levels.iter().map(StateRows::len).sum());
    let mut next = vec![0; levels.len()];
    let mut row = 0;
    while row < every_key.len() {
        let key = every_key.value(row);
        for (level, (rows, next)) in levels.iter().zip(&mut next).enumerate() {
            while *next < rows.len() && rows.keys().value(*next) == key {
                order.push((level, *next));
                *next += 1;
            }
        }
        row += 1;
        while row < every_key.len() && every_key.value(row) == key {
            row += 1;
        }
    }
    let batches: Vec<&RecordBatch> = levels.iter().map(StateRows::batch).collect();
    let keys: Vec<&dyn Array> = levels.iter().map(|rows| rows.keys() as &dyn Array).collect();
    let keys = interleave(&keys, &order)?.as_binary::<i32>().clone();
    Ok(StateRows::from_sorted(interleave_record_batch(&batches, &order)?, keys))
}

/// Sorted rows with their group numbers, and each group's first row.
struct RowGroups {
    of_row: Vec<usize>,
    first_row: Vec<u32>,
    level: Vec<u8>,
    tile: Vec<Micros>,
}

fn number_groups(rows: &StateRows, place: impl Fn(u8, Micros) -> (u8, Micros)) -> Result<RowGroups> {
    let (keys, level_of, tile_of) = (rows.keys(), levels(rows.batch())?, tiles(rows.batch())?);
    let mut groups = RowGroups { of_row: Vec::with_capacity(rows.len()), first_row: Vec::new(), level: Vec::new(), tile: Vec::new() };
    for (row, (level, tile)) in level_of.values().iter().zip(tile_of.iter()).enumerate() {
        let (level, tile) = place(*level, *tile);
        let same = groups.first_row.last().is_some_and(|first| {
            keys.value(*first as usize) == keys.value(row) && groups.level.last() == Some(&level) && groups.tile.last() == Some(&tile)
        });
        if !same {
            groups.first_row.push(row as u32);
            groups.level.push(level);
            groups.tile.push(tile);
        }
        groups.of_row.push(groups.first_row.len() - 1);
    }
    Ok(groups)
}

fn merge_groups(plan: &ViewPlan, rows: &StateRows, groups: &RowGroups) -> Result<StateRows> {
    let first = UInt32Array::from(groups.first_row.clone());
    let all = first.len() == rows.len();
    let keys = if all { rows.keys().clone() } else { take(rows.keys(), &first, None)?.as_binary::<i32>().clone() };
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(plan.state_schema().fields().len());
    for key in &rows.batch().columns()[..plan.keys.len()] {
        columns.push(if all { key.clone() } else { taken_column(key, &first)? });
    }
    columns.push(Arc::new(UInt8Array::from(groups.level.clone())));
    columns.push(Arc::new(TimestampMicrosecondArray::from(groups.tile.clone()).with_timezone("UTC")));
    let several = if all { None } else { SeveralRows::worth_it(plan, groups) };
    for (index, state) in plan.states.iter().enumerate() {
        let states = &rows.batch().columns()[plan.state_columns(StateIndex(index))];
        // Nothing to merge.
        if all {
            columns.extend_from_slice(states);
            continue;
        }
        // A list that is NULL means the same as an empty one: merging makes them alike.
        let is_collected = state.limit_bytes.is_some() && states.iter().all(|field| field.null_count() == 0);
        columns.extend(match several.as_ref().filter(|_| is_collected) {
            Some(several) => several.merge(state, states)?,
            None => merged_states(state, states, &groups.of_row, groups.first_row.len())?,
        });
    }
    Ok(StateRows::from_sorted(RecordBatch::try_new(plan.state_schema().clone(), columns)?, keys))
}

/// Merges the rows of a state into `total` groups.
fn merged_states(state: &StateExpr, rows: &[ArrayRef], groups: &[usize], total: usize) -> Result<Vec<ArrayRef>> {
    let mut accumulator = accumulator(state)?;
    accumulator.merge_batch(rows, groups, total)?;
    Ok(accumulator.state(EmitTo::All)?)
}

/// The groups of several rows, numbered anew. A group with a single row needs no merging: its collected values are
/// copied, at a fraction of the cost of collecting them again.
struct SeveralRows {
    rows: UInt32Array,
    /// The group of each of these rows.
    groups: Vec<usize>,
    count: usize,
    /// The place of each group's state: in a row that is not merged (0), or in one of these groups (1).
    places: Vec<(usize, usize)>,
}

impl SeveralRows {
    /// `None` if no state collects values, or if most rows have to be merged.
    fn worth_it(plan: &ViewPlan, groups: &RowGroups) -> Option<SeveralRows> {
        let collects = plan.states.iter().any(|state| state.limit_bytes.is_some());
        let several = collects.then(|| Self::among(groups))?;
        (several.rows.len() * 2 <= groups.of_row.len()).then_some(several)
    }

    fn among(groups: &RowGroups) -> SeveralRows {
        let ends = groups.first_row.iter().copied().skip(1).chain([groups.of_row.len() as u32]);
        let (mut rows, mut numbers, mut count) = (Vec::new(), Vec::new(), 0);
        let mut places = Vec::with_capacity(groups.first_row.len());
        for (first, end) in groups.first_row.iter().copied().zip(ends) {
            if end - first == 1 {
                places.push((0, first as usize));
                continue;
            }
            rows.extend(first..end);
            numbers.resize(rows.len(), count);
            places.push((1, count));
            count += 1;
        }
        SeveralRows { rows: rows.into(), groups: numbers, count, places }
    }

    fn merge(&self, state: &StateExpr, rows: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        let several = rows.iter().map(|field| taken_column(field, &self.rows)).collect::<Result<Vec<_>>>()?;
        let merged = merged_states(state, &several, &self.groups, self.count)?;
        rows.iter().zip(&merged).map(|(field, merged)| Ok(interleave(&[&**field, &**merged], &self.places)?)).collect()
    }
}

/// Merges sorted row sets into one. Their keys are encoded already.
pub fn merge_sets(plan: &ViewPlan, codec: &KeyCodec, sets: &[&StateRows]) -> Result<StateRows> {
    if sets.is_empty() {
        return sort_and_merge(plan, codec, &[]);
    }
    let batches: Vec<&RecordBatch> = sets.iter().map(|rows| rows.batch()).collect();
    let batch = concat_batches(plan.state_schema(), batches)?;
    let keys: Vec<&dyn Array> = sets.iter().map(|rows| rows.keys() as &dyn Array).collect();
    let keys = concat(&keys)?.as_binary::<i32>().clone();
    merge_sorted(plan, &StateRows::sort_encoded(RowOrder::ByTile, batch, keys)?)
}

/// Merges sorted row sets into sets that follow one another. The rows of a key are in one of them, so together they
/// equal the result of [`merge_sets`]. But while that copies all rows at once, this copies about `bytes_at_once` at a
/// time, or the rows of one key.
pub(crate) fn merge_in_parts(plan: &ViewPlan, codec: &KeyCodec, sets: &[&StateRows], bytes_at_once: usize) -> Result<Vec<StateRows>> {
    let bytes: usize = sets.iter().map(|set| set.memory_bytes()).sum();
    // The keys that divide the largest set evenly divide the others, too.
    let Some(largest) = sets.iter().max_by_key(|set| set.len()).filter(|largest| !largest.is_empty()) else {
        return Ok(vec![merge_sets(plan, codec, sets)?]);
    };
    let parts = bytes.div_ceil(bytes_at_once.max(1)).clamp(1, largest.len());
    let mut from = vec![0; sets.len()];
    let mut merged = Vec::with_capacity(parts);
    for part in 1..=parts {
        let next = (part < parts).then(|| largest.keys().value(part * largest.len() / parts));
        let end = |set: &StateRows| next.map_or(set.len(), |key| first_from(set.keys(), key));
        let to: Vec<usize> = sets.iter().map(|set| end(set)).collect();
        let slices = sets.iter().zip(from.iter().zip(&to)).map(|(set, (from, to))| set.slice(*from..*to));
        let slices: Vec<StateRows> = slices.filter(|rows| !rows.is_empty()).collect();
        if !slices.is_empty() {
            merged.push(merge_sets(plan, codec, &slices.iter().collect::<Vec<_>>())?);
        }
        from = to;
    }
    Ok(merged)
}

#[cfg(test)]
mod tests;
