//! Selects the state rows for each range. Tiles are found by search, so the cost of a range is proportional to the rows
//! that it needs, not to those that are stored.

use std::ops::Range;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Int64Type, TimestampMicrosecondType, UInt8Type};

use crate::plan::{Cover, RangeIndex, StateIndex, ViewPlan};
use types::columns::{LEVEL, TILE};
use types::tiles::{Level, Micros, RowTime, Span, TileRun, TimeRange};
use types::{Error, Result};

/// The state rows that a query needs, from any number of layers, each with the index of its key.
///
/// A layer is *rolled up* if it holds every level of the view (a snapshot); otherwise it holds only the finest
/// level.
#[derive(Default)]
pub struct Pieces<'a> {
    pub(super) batches: Vec<&'a RecordBatch>,
    /// Whether each batch belongs to a layer that may be dropped soon. Such batches are merged on top of the kept
    /// values.
    is_fresh: Vec<bool>,
    rows: Vec<Piece>,
}

struct Piece {
    batch: usize,
    from: usize,
    to: usize,
    key: u32,
    rolled_up: bool,
}

impl Piece {
    fn rows(&self) -> Range<usize> {
        self.from..self.to
    }

    /// The tiles of a cover that its layer holds.
    fn tiles_of<'c>(&self, cover: &'c Cover) -> &'c [TileRun] {
        if self.rolled_up { &cover.rolled_up } else { &cover.finest }
    }
}

/// A batch is looked up among this many of the last ones. Listing a batch twice costs only a pointer.
const LAST: usize = 16;

impl<'a> Pieces<'a> {
    /// Adds rows `from..to` of a batch, sorted by level and tile, all of the key with this index.
    pub fn add(&mut self, batch: &'a RecordBatch, rows: Range<usize>, key: u32, rolled_up: bool) {
        self.add_from(batch, false, rows, key, rolled_up);
    }

    /// The same for rows of a fresh layer, which holds the finest level only.
    pub fn add_fresh(&mut self, batch: &'a RecordBatch, rows: Range<usize>, key: u32) {
        self.add_from(batch, true, rows, key, false);
    }

    /// Adds all rows of key 0 of `other`, as rows of the key with this index.
    pub fn add_key(&mut self, other: &Pieces<'a>, key: u32) {
        for piece in other.rows.iter().filter(|piece| piece.key == 0) {
            self.add_from(other.batches[piece.batch], other.is_fresh[piece.batch], piece.rows(), key, piece.rolled_up);
        }
    }

    fn add_from(&mut self, batch: &'a RecordBatch, is_fresh: bool, rows: Range<usize>, key: u32, rolled_up: bool) {
        if rows.is_empty() {
            return;
        }
        let known = self.batches.iter().rev().take(LAST).position(|known| std::ptr::eq(*known, batch));
        let batch = match known {
            Some(before_last) => self.batches.len() - 1 - before_last,
            None => {
                self.batches.push(batch);
                self.is_fresh.push(is_fresh);
                self.batches.len() - 1
            }
        };
        self.rows.push(Piece { batch, from: rows.start, to: rows.end, key, rolled_up });
    }

    /// The rows, in the order in which they were added, and their batches.
    pub fn rows(&self) -> impl Iterator<Item = (&'a RecordBatch, Range<usize>)> {
        self.rows.iter().map(|piece| (self.batches[piece.batch], piece.rows()))
    }

    /// An upper bound of the values in all rows, regardless of ranges.
    pub(super) fn values(&self, plan: &ViewPlan) -> usize {
        let rows: usize = self.rows.iter().map(|piece| piece.rows().len()).sum();
        let of_field = |place: usize| match plan.state_schema().field(place).data_type().is_primitive() {
            // Without a look at the columns of each piece.
            true => rows,
            false => self.rows.iter().map(|piece| values_in(self.batches[piece.batch].column(place), piece.rows())).sum::<usize>(),
        };
        (plan.state_offset(StateIndex::EVENTS)..plan.state_schema().fields().len()).map(of_field).sum()
    }

    /// Returns, for each key, the first time after `t` at which one of its rows enters or leaves one of these ranges,
    /// where each range ends at the time of the query ([`RowTime::up_to`]). `None` if the key does not change without
    /// new rows.
    pub fn changes(&self, plan: &ViewPlan, ranges: &[TimeRange], keys: usize, t: Micros) -> Result<Vec<Option<Micros>>> {
        let mut changes: Vec<Option<Micros>> = vec![None; keys];
        for piece in &self.rows {
            let (levels, tiles) = places(plan, self.batches[piece.batch])?;
            let first = &mut changes[piece.key as usize];
            for row in piece.rows() {
                let of_row =
                    ranges.iter().filter(|range| levels[row] <= range.hop.code()).filter_map(|range| range.changes_by(tiles[row], t));
                *first = first.iter().copied().chain(of_row).min();
            }
        }
        Ok(changes)
    }

    /// Returns how many events each key has in a span. Its edges are starts of tiles of the finest level, and no tile
    /// that covers it was dropped.
    pub fn events_in(&self, plan: &ViewPlan, keys: usize, span: Span) -> Result<Vec<i64>> {
        let cover = Cover::new(span, &plan.levels);
        let mut events = vec![0; keys];
        for piece in &self.rows {
            let batch = self.batches[piece.batch];
            let (levels, tiles) = places(plan, batch)?;
            let counts = counts_of_events(plan, batch)?;
            let of_key = &mut events[piece.key as usize];
            let found = |rows: Range<usize>| *of_key += counts[rows].iter().sum::<i64>();
            find(levels, tiles, piece.rows(), piece.tiles_of(&cover), found)?;
        }
        Ok(events)
    }

    /// The rows that a range is merged from at `t`. All pieces must be of one key.
    pub(super) fn runs_in(&self, plan: &ViewPlan, range: RangeIndex, t: Micros) -> Result<Vec<RowRun>> {
        let covers = plan.covers(t);
        let mut runs: Vec<RowRun> = Vec::new();
        for piece in &self.rows {
            let (levels, tiles) = places(plan, self.batches[piece.batch])?;
            let (batch, is_fresh) = (piece.batch, self.is_fresh[piece.batch]);
            let found = |rows: Range<usize>| match runs.last_mut() {
                Some(last) if last.batch == batch && last.rows.end == rows.start => last.rows.end = rows.end,
                _ => runs.push(RowRun { batch, is_fresh, rows }),
            };
            find(levels, tiles, piece.rows(), piece.tiles_of(&covers[range.0]), found)?;
        }
        Ok(runs)
    }
}

/// Consecutive rows of one batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowRun {
    /// An index of a batch among the pieces.
    pub(super) batch: usize,
    pub(super) is_fresh: bool,
    pub(super) rows: Range<usize>,
}

/// Estimates the cost of merging these rows of a state's field, in values: rows, items of lists, and each 16 bytes of
/// texts. A value takes some fifty nanoseconds.
pub(super) fn values_in(column: &dyn Array, rows: Range<usize>) -> usize {
    let of_bytes = |from: usize, to: usize| (to - from) / BYTES_OF_A_VALUE;
    rows.len()
        + match column.data_type() {
            DataType::List(_) => {
                let (lists, offsets) = (column.as_list::<i32>(), column.as_list::<i32>().value_offsets());
                values_in(lists.values(), offsets[rows.start] as usize..offsets[rows.end] as usize)
            }
            DataType::Struct(_) => column.as_struct().columns().iter().map(|field| values_in(field, rows.clone())).sum(),
            DataType::Binary => {
                let offsets = column.as_binary::<i32>().value_offsets();
                of_bytes(offsets[rows.start] as usize, offsets[rows.end] as usize)
            }
            DataType::Utf8 => {
                let offsets = column.as_string::<i32>().value_offsets();
                of_bytes(offsets[rows.start] as usize, offsets[rows.end] as usize)
            }
            _ => 0,
        }
}

const BYTES_OF_A_VALUE: usize = 16;

/// The rows of several ranges, range by range. The rows of one range and one key form a group. Groups are numbered in
/// the order of their first row.
pub(super) struct RangeSelection {
    /// Each row as an index of a batch among the pieces, and a row of it.
    pub(super) rows: Vec<(usize, usize)>,
    /// The group of each row.
    pub(super) groups: Vec<usize>,
    pub(super) group_count: usize,
    /// The group of each range and key.
    group_of: Vec<u32>,
    keys: usize,
}

/// Marks a range and key without rows, and so without a group.
pub(super) const NO_GROUP: u32 = u32::MAX;

impl RangeSelection {
    /// The rows of these runs, all of one range and one key.
    pub(super) fn of_runs(runs: &[RowRun]) -> RangeSelection {
        let rows: Vec<(usize, usize)> = runs.iter().flat_map(|run| run.rows.clone().map(|row| (run.batch, row))).collect();
        match rows.is_empty() {
            true => RangeSelection { rows, groups: Vec::new(), group_count: 0, group_of: vec![NO_GROUP], keys: 1 },
            false => RangeSelection { groups: vec![0; rows.len()], rows, group_count: 1, group_of: vec![0], keys: 1 },
        }
    }

    /// Selects the rows that these ranges are merged from.
    pub(super) fn for_ranges(
        plan: &ViewPlan,
        ranges: &[RangeIndex],
        pieces: &Pieces<'_>,
        keys: usize,
        time: impl Into<RowTime>,
    ) -> Result<RangeSelection> {
        let covers = plan.covers(time);
        // Most pieces have a row or two of a range.
        let room = pieces.rows.len() * ranges.len();
        let (mut rows, mut groups, mut group_count) = (Vec::with_capacity(room), Vec::with_capacity(room), 0);
        let mut group_of = vec![NO_GROUP; ranges.len() * keys];
        let places = pieces.batches.iter().map(|batch| places(plan, batch)).collect::<Result<Vec<_>>>()?;
        for (range, group_of) in ranges.iter().zip(group_of.chunks_mut(keys.max(1))) {
            for piece in &pieces.rows {
                let before = rows.len();
                let (levels, tiles) = places[piece.batch];
                let found = |found: Range<usize>| rows.extend(found.map(|row| (piece.batch, row)));
                find(levels, tiles, piece.rows(), piece.tiles_of(&covers[range.0]), found)?;
                if rows.len() == before {
                    continue;
                }
                let group = &mut group_of[piece.key as usize];
                if *group == NO_GROUP {
                    *group = group_count as u32;
                    group_count += 1;
                }
                groups.resize(rows.len(), *group as usize);
            }
        }
        Ok(RangeSelection { rows, groups, group_count, group_of, keys })
    }

    /// Returns the group of each key in the range at this position of the selected ranges.
    pub(super) fn groups_of(&self, place: usize) -> &[u32] {
        &self.group_of[place * self.keys..(place + 1) * self.keys]
    }
}

/// Returns the levels and tiles of state rows.
fn places<'a>(plan: &ViewPlan, batch: &'a RecordBatch) -> Result<(&'a [u8], &'a [Micros])> {
    let column = |index: usize, name: &str| {
        batch.columns().get(plan.keys.len() + index).ok_or_else(|| Error::corrupt(format!("state rows lack the column {name}")))
    };
    let (levels, tiles) = (column(0, LEVEL)?, column(1, TILE)?);
    let wrong = |name: &str, found: &arrow::array::ArrayRef| Error::corrupt(format!("{name} is {}", found.data_type()));
    let level_codes = levels.as_primitive_opt::<UInt8Type>().ok_or_else(|| wrong(LEVEL, levels))?;
    let tile_starts = tiles.as_primitive_opt::<TimestampMicrosecondType>().ok_or_else(|| wrong(TILE, tiles))?;
    Ok((level_codes.values(), tile_starts.values()))
}

/// Returns the number of events of each state row.
fn counts_of_events<'a>(plan: &ViewPlan, batch: &'a RecordBatch) -> Result<&'a [i64]> {
    let column = batch.columns().get(plan.state_offset(StateIndex::EVENTS));
    let counts = column.and_then(|column| column.as_primitive_opt::<Int64Type>());
    Ok(counts.ok_or_else(|| Error::corrupt("state rows lack the count of events"))?.values())
}

/// Reports which of `rows` (of one key, sorted by level and tile) are in `runs` (sorted by level and start), in order.
fn find(levels: &[u8], tiles: &[Micros], rows: Range<usize>, runs: &[TileRun], mut found: impl FnMut(Range<usize>)) -> Result<()> {
    let mut from = rows.start;
    while from < rows.end {
        let code = levels[from];
        let level = Level::from_code(code).ok_or_else(|| Error::corrupt(format!("unknown tile level {code}")))?;
        let to = from + levels[from..rows.end].partition_point(|other| *other <= code);
        for run in runs.iter().filter(|run| run.level == level) {
            let start = from + run.from.map_or(0, |start| tiles[from..to].partition_point(|tile| *tile < start));
            let end = run.to.map_or(to, |end| start + tiles[start..to].partition_point(|tile| *tile < end));
            if start < end {
                found(start..end);
            }
        }
        from = to;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
