//! Edges that leave some nodes, from all layers, merged.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::plan::links::{EdgeKind, PairRange, Side};
use crate::states::answer::{merged, merged_states};
use crate::states::{Pieces, StateRows};
use crate::tiles::Micros;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use arrow_row::{RowConverter, SortField};

use crate::walk::degree::{self, Threshold};
use crate::walk::{LayerRows, Walk};

/// Where a node's edges are found.
pub(super) struct NodeAt {
    /// How their encoded keys begin.
    pub(super) prefix: Vec<u8>,
    /// What tells their bucket.
    pub(super) place: Vec<u8>,
    /// State rows of them in all layers.
    pub(super) rows: usize,
}

impl NodeAt {
    pub(super) fn measured(walk: &Walk<'_>, prefix: &[u8], place: &[u8]) -> Self {
        let rows = walk.layers.beginning(prefix, place).iter().map(|(_, rows, _)| rows.len()).sum();
        Self { prefix: prefix.to_vec(), place: place.to_vec(), rows }
    }
}

/// The edges of some nodes. Each edge has a number; `keys` are its key columns.
pub(super) struct EdgeSet<'a> {
    pub(super) keys: Vec<ArrayRef>,
    /// The index of the node that each edge leaves.
    pub(super) node: Vec<u32>,
    /// Hashes of what each edge leads to, once they are asked for.
    pub(super) hashes: Option<Vec<u64>>,
    /// Of each node that has too many edges: the greatest hash that is followed.
    sampled: HashMap<u32, u64>,
    side: Side,
    pieces: Pieces<'a>,
    /// Merged values by their index among the edge plan's uses.
    values: HashMap<usize, ArrayRef>,
}

impl<'a> EdgeSet<'a> {
    pub(super) fn gather(walk: &Walk<'a>, side: Side, nodes: &[NodeAt]) -> Result<EdgeSet<'a>> {
        let mut found = Found::default();
        let mut sampled = HashMap::new();
        for (index, node) in nodes.iter().enumerate() {
            let layers = walk.layers.beginning(&node.prefix, &node.place);
            let rows: usize = layers.iter().map(|(_, rows, _)| rows.len()).sum();
            let most = if rows > walk.links.max_degree { degree::threshold(walk, side, &layers)? } else { None };
            if let Some(most) = most {
                sampled.insert(index as u32, most);
            }
            found.add_node(walk, side, index as u32, &layers, most)?;
        }
        let uses = uses_of(walk, side)?;
        let columns = merged(&walk.view.plan, &walk.view.codec, &found.keys, &found.pieces, walk.t, &uses)?;
        let (keys, values) = columns.split_at(walk.view.plan.keys.len());
        Ok(EdgeSet {
            keys: keys.to_vec(),
            node: found.node,
            hashes: None,
            sampled,
            side,
            pieces: found.pieces,
            values: uses.into_iter().zip(values.iter().cloned()).collect(),
        })
    }

    /// Hashes what each edge leads to, for keys of which a sample is followed.
    pub(super) fn hash(&mut self, walk: &Walk<'_>) -> Result<()> {
        self.hashes = Some(degree::hashes(walk, self.side, &self.keys)?);
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.node.len()
    }

    /// Whether each edge has an event in its side's range that meets a condition.
    pub(super) fn live(&self, walk: &Walk<'_>, condition: usize, range: &PairRange) -> Result<Vec<bool>> {
        let range = if self.side == Side::Near { &range.near } else { &range.far };
        let value = self.value(walk.links.edge_use(&walk.view.plan, condition, range)?)?;
        Ok(match walk.links.kind {
            EdgeKind::Full => value.as_primitive::<Int64Type>().iter().map(|count| count.unwrap_or_default() > 0).collect(),
            EdgeKind::Liveness => {
                let from = range.at(walk.t).from;
                let seen = value.as_primitive::<TimestampMicrosecondType>();
                seen.iter().map(|seen| seen.is_some_and(|seen| from.is_none_or(|from| from <= seen))).collect()
            }
        })
    }

    /// How many events of each edge meet a condition in its side's range.
    pub(super) fn counts(&self, walk: &Walk<'_>, condition: usize, range: &PairRange) -> Result<Vec<u64>> {
        let range = if self.side == Side::Near { &range.near } else { &range.far };
        let value = self.value(walk.links.edge_use(&walk.view.plan, condition, range)?)?;
        Ok(value.as_primitive::<Int64Type>().iter().map(|count| count.unwrap_or_default().max(0) as u64).collect())
    }

    /// When each edge was last seen, in its side's longest range.
    pub(super) fn seen(&self, walk: &Walk<'_>) -> Result<&ArrayRef> {
        let longest = &walk.links.ranges[walk.links.existence];
        let range = if self.side == Side::Near { &longest.near } else { &longest.far };
        self.value(walk.links.seen_use(&walk.view.plan, range)?)
    }

    /// A state of the edges merged over a range, as a state, with the row of each edge that has one.
    pub(super) fn states(&self, walk: &Walk<'_>, state: usize, range: &PairRange) -> Result<(Vec<ArrayRef>, Vec<Option<u32>>)> {
        let range = if self.side == Side::Near { &range.near } else { &range.far };
        let range = walk.links.edge_range(&walk.view.plan, range);
        let range = range.ok_or_else(|| Error::internal("a linked view asks for a range that its edges do not keep"))?;
        merged_states(&walk.view.plan, &self.pieces, walk.t, state, range, self.len())
    }

    /// Per node, how much of its edges is followed.
    pub(super) fn thresholds(&self, nodes: usize) -> Vec<Threshold> {
        let near = |node| self.sampled.get(&(node as u32)).copied().unwrap_or(u64::MAX);
        (0..nodes).map(|node| Threshold { near: near(node), far: u64::MAX }).collect()
    }

    fn value(&self, usage: usize) -> Result<&ArrayRef> {
        self.values.get(&usage).ok_or_else(|| Error::internal("a walk asks for what it did not merge"))
    }
}

/// The edge plan's uses that a side's edges are asked for.
fn uses_of(walk: &Walk<'_>, side: Side) -> Result<Vec<usize>> {
    let mut uses = Vec::new();
    for range in &walk.links.ranges {
        let range = if side == Side::Near { &range.near } else { &range.far };
        for (index, condition) in walk.links.conditions.iter().enumerate() {
            if condition.side.is_none_or(|of| of == side) {
                uses.push(walk.links.edge_use(&walk.view.plan, index, range)?);
            }
        }
    }
    let longest = &walk.links.ranges[walk.links.existence];
    uses.push(walk.links.seen_use(&walk.view.plan, if side == Side::Near { &longest.near } else { &longest.far })?);
    uses.sort_unstable();
    uses.dedup();
    Ok(uses)
}

/// Which state rows hold an event of their side's longest range: the others add to no answer, and their edges are no neighbours.
pub(super) struct Alive<'a> {
    seen: &'a [Micros],
    from: Option<Micros>,
}

impl<'a> Alive<'a> {
    pub(super) fn of(walk: &Walk<'_>, side: Side, rows: &'a StateRows) -> Result<Alive<'a>> {
        let longest = &walk.links.ranges[walk.links.existence];
        let range = if side == Side::Near { &longest.near } else { &longest.far };
        let seen = rows.batch().column(walk.view.plan.state_offset(walk.links.seen)).as_primitive_opt::<TimestampMicrosecondType>();
        let seen = seen.ok_or_else(|| Error::corrupt("when an edge was seen is no timestamp"))?;
        Ok(Alive { seen: seen.values(), from: range.at(walk.t).from })
    }

    pub(super) fn holds(&self, row: usize) -> bool {
        self.from.is_none_or(|from| from <= self.seen[row])
    }
}

/// State rows under one node, by edge.
#[derive(Default)]
struct Found<'a> {
    keys: Vec<&'a [u8]>,
    node: Vec<u32>,
    pieces: Pieces<'a>,
}

impl<'a> Found<'a> {
    fn add_node(&mut self, walk: &Walk<'_>, side: Side, node: u32, layers: &[LayerRows<'a>], most: Option<u64>) -> Result<()> {
        let mut known: HashMap<&'a [u8], u32> = HashMap::new();
        for (rows, range, laddered) in layers {
            let alive = Alive::of(walk, side, rows)?;
            let followed = most.map(|most| degree::followed(walk, side, rows, range.clone(), most)).transpose()?;
            let keys = rows.keys();
            let mut from = range.start;
            while from < range.end {
                let key = keys.value(from);
                let to = (from + 1..range.end).find(|row| keys.value(*row) != key).unwrap_or(range.end);
                if (from..to).any(|row| alive.holds(row)) && followed.as_ref().is_none_or(|followed| followed[from - range.start]) {
                    let edge = *known.entry(key).or_insert_with(|| {
                        self.keys.push(key);
                        self.node.push(node);
                        self.keys.len() as u32 - 1
                    });
                    self.pieces.add(rows.batch(), from..to, edge, *laddered);
                }
                from = to;
            }
        }
        Ok(())
    }
}

/// Values as numbers, equal where they are; none for NULL.
pub(super) struct Ids(Vec<Option<u32>>);

impl Ids {
    /// `numbers` holds those given so far, by the values' encoding.
    pub(super) fn of(values: &ArrayRef, numbers: &mut HashMap<Vec<u8>, u32>) -> Result<Ids> {
        let converter = RowConverter::new(vec![SortField::new(values.data_type().clone())])?;
        let rows = converter.convert_columns(std::slice::from_ref(values))?;
        let mut ids = Vec::with_capacity(values.len());
        for row in 0..values.len() {
            if values.is_null(row) {
                ids.push(None);
                continue;
            }
            let next = numbers.len() as u32;
            let bytes = rows.row(row);
            ids.push(Some(match numbers.get(bytes.as_ref()) {
                Some(known) => *known,
                None => *numbers.entry(bytes.as_ref().to_vec()).or_insert(next),
            }));
        }
        Ok(Ids(ids))
    }

    pub(super) fn get(&self, index: usize) -> Option<u32> {
        self.0[index]
    }

    /// `<>` as SQL has it: not true of a NULL.
    pub(super) fn differs(&self, index: usize, other: &Ids, at: usize) -> bool {
        matches!((self.0[index], other.0[at]), (Some(one), Some(two)) if one != two)
    }
}
