//! Determines the keys whose rows may have changed since the previous snapshot: those that reach an edge which is new,
//! gone or different, or which entered or left a window ([`EdgeStarts`]). Only these keys are joined again.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

use arrow::array::{Array, ArrayRef, BinaryArray, UInt32Array};
use arrow::compute::take;
use committed::registry::LiveView;
use engine::plan::links::LinkPlan;
use engine::states::{StateRows, bucket_of, levels, tiles};
use engine::walk::{EdgeLayers, EdgeStarts, PartChunk, SnapshotEdges};
use storage::MaterialisedJoin;
use types::Result;
use types::tiles::Micros;

mod added;
mod compare;

pub(super) use added::Added;

use compare::{Comparing, RowPosition};

/// The times of the previous join and of the one being made.
#[derive(Debug, Clone, Copy)]
pub(super) struct JoinTimes {
    pub(super) before: Micros,
    pub(super) now: Micros,
}

/// The changes since the join of the previous snapshot, whose other rows are still valid.
pub(crate) struct JoinChanges {
    /// Changed keys, by part.
    pub(super) near: Vec<HashSet<Vec<u8>>>,
    pub(super) far: HashSet<Vec<u8>>,
    pub(super) joined: MaterialisedJoin,
    /// The parts whose file of that join is damaged or gone.
    pub(super) lost: BTreeSet<u32>,
}

impl JoinChanges {
    pub(super) fn count(&self) -> usize {
        self.near.iter().map(HashSet::len).sum::<usize>() + self.far.len()
    }
}

/// Divides keys, as the prefixes of their near edges, into parts.
pub(super) fn by_part(view: &LiveView, near: HashSet<Vec<u8>>, parts: u32) -> Result<Vec<HashSet<Vec<u8>>>> {
    let mut divided = vec![HashSet::new(); parts as usize];
    if near.is_empty() {
        return Ok(divided);
    }
    let codec = view.codec.nodes()?;
    let prefixes: Vec<&[u8]> = near.iter().map(Vec::as_slice).collect();
    let places = codec.near_places(&codec.groups_of(&prefixes)?, prefixes.len())?;
    let numbers: Vec<u32> = places.iter().map(|place| bucket_of(place.unwrap_or_default(), parts)).collect();
    for (key, number) in near.into_iter().zip(numbers) {
        divided[number as usize].insert(key);
    }
    Ok(divided)
}

/// Returns the keys of a part whose rows may have changed. This includes keys that no longer have edges (`near`).
pub(super) fn keys_of(
    view: &LiveView,
    links: &LinkPlan,
    edges: &SnapshotEdges,
    part: u32,
    near: &HashSet<Vec<u8>>,
    far: &HashSet<Vec<u8>>,
) -> Result<HashSet<Vec<u8>>> {
    let codec = view.codec.nodes()?;
    let mut keys = near.clone();
    if far.is_empty() {
        return Ok(keys);
    }
    let parts = edges.parts();
    for PartChunk { rows, is_of_part } in edges.chunks(part) {
        let near = codec.near_rows(rows.batch())?;
        let columns = |columns: &Range<usize>| &rows.batch().columns()[columns.clone()];
        let via: Vec<ArrayRef> = columns(&links.layout.via).iter().map(|key| key.slice(near.start, near.len())).collect();
        let nodes = codec.far(&via, near.len())?;
        let reached: Vec<u32> = (0..near.len()).filter(|row| far.contains(nodes.value(*row))).map(|row| row as u32).collect();
        if reached.is_empty() {
            continue;
        }
        let reached = UInt32Array::from(reached);
        let groups: Vec<ArrayRef> =
            columns(&links.layout.groups).iter().map(|key| Ok(take(key, &reached, None)?)).collect::<Result<_>>()?;
        let (prefixes, places) = (codec.near(&groups, reached.len())?, codec.near_places(&groups, reached.len())?);
        for row in 0..reached.len() {
            let is_asked = is_of_part || bucket_of(places.value(row), parts) == part;
            if is_asked && !keys.contains(prefixes.value(row)) {
                keys.insert(prefixes.value(row).to_vec());
            }
        }
    }
    Ok(keys)
}

/// Returns what changed in one bucket between the rows of two snapshots.
pub(super) fn changed(view: &LiveView, links: &LinkPlan, old: &[StateRows], new: &[StateRows], times: JoinTimes) -> Result<EdgeStarts> {
    let comparing = Comparing::new(view, links, old, new, times)?;
    let (mut in_old, mut in_new) = (vec![Vec::new(); old.len()], vec![Vec::new(); new.len()]);
    let (mut left, mut right) = (Cursor::start(old)?, Cursor::start(new)?);
    loop {
        let order = match (&left, &right) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(one), Some(two)) => one.place().cmp(&two.place()),
        };
        let one = left.as_ref().filter(|_| order.is_le()).map(Cursor::position);
        let two = right.as_ref().filter(|_| order.is_ge()).map(Cursor::position);
        if comparing.differ(one, two) {
            match (two, one) {
                (Some(at), _) => in_new[at.chunk].push(at.row as u32),
                (None, Some(at)) => in_old[at.chunk].push(at.row as u32),
                (None, None) => {}
            }
        }
        if order.is_le() {
            left = left.map(|at| at.next(old)).transpose()?.flatten();
        }
        if order.is_ge() {
            right = right.map(|at| at.next(new)).transpose()?.flatten();
        }
    }
    let mut found = EdgeStarts::default();
    for (chunks, rows) in [(old, in_old), (new, in_new)] {
        for (chunk, rows) in chunks.iter().zip(rows).filter(|(_, rows)| !rows.is_empty()) {
            found.add(&view.codec, links, chunk, rows)?;
        }
    }
    Ok(found)
}

/// A position in a list of chunks.
struct Cursor<'a> {
    chunk: usize,
    row: usize,
    keys: &'a BinaryArray,
    levels: &'a [u8],
    tiles: &'a [Micros],
}

impl<'a> Cursor<'a> {
    fn start(chunks: &'a [StateRows]) -> Result<Option<Self>> {
        Self::first_row_from(chunks, 0)
    }

    fn first_row_from(chunks: &'a [StateRows], from: usize) -> Result<Option<Self>> {
        let Some(chunk) = (from..chunks.len()).find(|chunk| !chunks[*chunk].is_empty()) else { return Ok(None) };
        let rows = &chunks[chunk];
        Ok(Some(Self { chunk, row: 0, keys: rows.keys(), levels: levels(rows.batch())?.values(), tiles: tiles(rows.batch())? }))
    }

    fn next(mut self, chunks: &'a [StateRows]) -> Result<Option<Self>> {
        self.row += 1;
        if self.row < self.keys.len() { Ok(Some(self)) } else { Self::first_row_from(chunks, self.chunk + 1) }
    }

    fn position(&self) -> RowPosition {
        RowPosition { chunk: self.chunk, row: self.row }
    }

    /// The values by which rows are ordered: key, level and tile.
    fn place(&self) -> (&'a [u8], u8, Micros) {
        (self.keys.value(self.row), self.levels[self.row], self.tiles[self.row])
    }
}

#[cfg(test)]
mod tests;
