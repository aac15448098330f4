//! Which keys' rows may have changed since the snapshot before: those that an edge leads to which is new, gone or other than it was, or
//! over which an edge of a window passed.
//!
//! A row depends on its key's near edges, and on the far edges of the nodes they lead to. So a changed near edge changes its own key (new
//! near edges with far edges old and new), a changed far edge the keys with near edges to its node (old near edges with new far ones):
//! nothing else is joined anew.

use std::cmp::Ordering;
use std::collections::HashSet;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::TimestampMicrosecondType;
use arrow_row::{RowConverter, Rows, SortField};
use schemas::plan::links::{EdgeKind, LinkPlan, PairRange, Side};
use schemas::registry::LiveView;
use schemas::states::StateRows;
use schemas::states::rows::{levels, tiles};
use schemas::tiles::{Micros, Range};
use schemas::walk::{Buckets, EdgeLayers};
use schemas::{Error, Result};

/// Keys and nodes with changed edges, by how the edges' keys begin.
#[derive(Debug, Default)]
pub(super) struct Changed {
    near: HashSet<Vec<u8>>,
    far: HashSet<Vec<u8>>,
}

impl Changed {
    pub(super) fn len(&self) -> usize {
        self.near.len() + self.far.len()
    }

    pub(super) fn extend(&mut self, other: Changed) {
        self.near.extend(other.near);
        self.far.extend(other.far);
    }

    /// The keys of a part whose rows may have changed, those that have no edges any more included.
    pub(super) fn keys_of(&self, view: &LiveView, links: &LinkPlan, edges: &Buckets, part: u32) -> Result<HashSet<Vec<u8>>> {
        let codec = view.codec.nodes()?;
        let mut keys = self.near.clone();
        for (rows, _) in edges.chunks(part) {
            let near = codec.near_rows(rows.batch())?;
            let of = |columns: &std::ops::Range<usize>| -> Vec<ArrayRef> {
                rows.batch().columns()[columns.clone()].iter().map(|key| key.slice(near.start, near.len())).collect()
            };
            let groups = codec.near(&of(&links.layout.groups), near.len())?;
            let nodes = codec.far(&of(&links.layout.via), near.len())?;
            for row in 0..near.len() {
                if self.far.contains(nodes.value(row)) && !keys.contains(groups.value(row)) {
                    keys.insert(groups.value(row).to_vec());
                }
            }
        }
        Ok(keys)
    }
}

/// What changed in one bucket between two snapshots' rows, made for times `t`.
pub(super) fn changed(view: &LiveView, links: &LinkPlan, (old, new): (&[StateRows], &[StateRows]), t: (Micros, Micros)) -> Result<Changed> {
    let old_states = old.iter().map(|rows| encoded_states(view, rows)).collect::<Result<Vec<_>>>()?;
    let new_states = new.iter().map(|rows| encoded_states(view, rows)).collect::<Result<Vec<_>>>()?;
    let passed = Passed::new(links, t);
    let (mut in_old, mut in_new) = (vec![Vec::new(); old.len()], vec![Vec::new(); new.len()]);
    let (mut left, mut right) = (Cursor::start(old)?, Cursor::start(new)?);
    loop {
        match (&left, &right) {
            (None, None) => break,
            (Some(at), None) => in_old[at.chunk].push(at.row as u32),
            (None, Some(at)) => in_new[at.chunk].push(at.row as u32),
            (Some(one), Some(two)) => match one.place().cmp(&two.place()) {
                Ordering::Less => in_old[one.chunk].push(one.row as u32),
                Ordering::Greater => in_new[two.chunk].push(two.row as u32),
                Ordering::Equal => {
                    let same = old_states[one.chunk].row(one.row) == new_states[two.chunk].row(two.row);
                    if !same || passed.over(view, links, &new[two.chunk], two.row)? {
                        in_new[two.chunk].push(two.row as u32);
                    }
                }
            },
        }
        let order = match (&left, &right) {
            (Some(one), Some(two)) => one.place().cmp(&two.place()),
            (Some(_), None) => Ordering::Less,
            _ => Ordering::Greater,
        };
        if order.is_le() {
            left = left.map(|at| at.next(old)).transpose()?.flatten();
        }
        if order.is_ge() {
            right = right.map(|at| at.next(new)).transpose()?.flatten();
        }
    }
    let mut found = Changed::default();
    for (chunks, rows) in [(old, in_old), (new, in_new)] {
        for (chunk, rows) in chunks.iter().zip(rows).filter(|(_, rows)| !rows.is_empty()) {
            add(view, links, chunk, rows, &mut found)?;
        }
    }
    Ok(found)
}

/// A row among chunks.
struct Cursor<'a> {
    chunk: usize,
    row: usize,
    keys: &'a BinaryArray,
    levels: &'a [u8],
    tiles: &'a [Micros],
}

impl<'a> Cursor<'a> {
    fn start(chunks: &'a [StateRows]) -> Result<Option<Self>> {
        Self::of(chunks, 0)
    }

    fn of(chunks: &'a [StateRows], from: usize) -> Result<Option<Self>> {
        let Some(chunk) = (from..chunks.len()).find(|chunk| !chunks[*chunk].is_empty()) else { return Ok(None) };
        let rows = &chunks[chunk];
        Ok(Some(Self { chunk, row: 0, keys: rows.keys(), levels: levels(rows.batch())?.values(), tiles: tiles(rows.batch())? }))
    }

    fn next(mut self, chunks: &'a [StateRows]) -> Result<Option<Self>> {
        self.row += 1;
        if self.row < self.keys.len() { Ok(Some(self)) } else { Self::of(chunks, self.chunk + 1) }
    }

    fn place(&self) -> (&'a [u8], u8, Micros) {
        (self.keys.value(self.row), self.levels[self.row], self.tiles[self.row])
    }
}

/// The states of rows as bytes, equal where the states are.
fn encoded_states(view: &LiveView, rows: &StateRows) -> Result<Rows> {
    let states = &rows.batch().columns()[view.plan.state_offset(0)..];
    let fields = states.iter().map(|state| SortField::new(state.data_type().clone())).collect();
    Ok(RowConverter::new(fields)?.convert_columns(states)?)
}

/// The stretches of event time that an edge of a window passed over, on either side.
struct Passed {
    near: Vec<(Micros, Micros)>,
    far: Vec<(Micros, Micros)>,
}

impl Passed {
    fn new(links: &LinkPlan, (before, now): (Micros, Micros)) -> Self {
        let of = |side: fn(&PairRange) -> Range| {
            let mut passed = Vec::new();
            for range in links.ranges.iter().map(side) {
                let (one, two) = (range.at(before), range.at(now));
                for (one, two) in one.from.zip(two.from).into_iter().chain(one.to.zip(two.to)).filter(|(one, two)| one != two) {
                    passed.push((one.min(two), one.max(two)));
                }
            }
            passed
        };
        Self { near: of(|range| range.near), far: of(|range| range.far) }
    }

    fn over(&self, view: &LiveView, links: &LinkPlan, rows: &StateRows, row: usize) -> Result<bool> {
        let passed = if side_of(rows, row)? == Side::Near { &self.near } else { &self.far };
        let holds = |time: Micros| passed.iter().any(|(from, to)| (*from..*to).contains(&time));
        if passed.is_empty() {
            return Ok(false);
        }
        if links.kind == EdgeKind::Full {
            return Ok(holds(tiles(rows.batch())?[row]));
        }
        for condition in &links.conditions {
            let seen = rows.batch().column(view.plan.state_offset(condition.state)).as_primitive_opt::<TimestampMicrosecondType>();
            let seen = seen.ok_or_else(|| Error::corrupt("when an edge was seen is no timestamp"))?;
            if seen.is_valid(row) && holds(seen.value(row)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn side_of(rows: &StateRows, row: usize) -> Result<Side> {
    let side = rows.batch().column(0).as_boolean_opt().ok_or_else(|| Error::internal("the side of an edge changed its type"))?;
    Ok(if side.value(row) { Side::Far } else { Side::Near })
}

/// Notes what these rows' edges leave.
fn add(view: &LiveView, links: &LinkPlan, chunk: &StateRows, rows: Vec<u32>, found: &mut Changed) -> Result<()> {
    let codec = view.codec.nodes()?;
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for row in rows {
        if side_of(chunk, row as usize)? == Side::Near { near.push(row) } else { far.push(row) }
    }
    let of = |columns: &std::ops::Range<usize>, rows: &[u32]| -> Result<Vec<ArrayRef>> {
        let rows = UInt32Array::from(rows.to_vec());
        chunk.batch().columns()[columns.clone()].iter().map(|key| Ok(take(key, &rows, None)?)).collect()
    };
    let groups = codec.near(&of(&links.layout.groups, &near)?, near.len())?;
    let nodes = codec.far(&of(&links.layout.via, &far)?, far.len())?;
    found.near.extend(groups.iter().flatten().map(<[u8]>::to_vec));
    found.far.extend(nodes.iter().flatten().map(<[u8]>::to_vec));
    Ok(())
}

#[cfg(test)]
mod tests;
