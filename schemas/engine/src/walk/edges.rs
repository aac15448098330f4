//! Edges that leave some nodes, from all layers, merged.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, TimestampMicrosecondArray, new_empty_array};
use arrow::compute::interleave;
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};

use crate::plan::links::{ConditionIndex, EdgeKind, EdgeUseIndex, KeyColumn, PairRange, Side};
use crate::plan::{AskedUses, StateIndex};
use crate::states::Pieces;
use crate::states::ranges::{merge, merged_states};
use crate::walk::alive::{LongestRange, timestamps};
use crate::walk::degree;
use crate::walk::degree::Threshold;
use crate::walk::{LayerRows, NodeProbe, Walk};
use types::tiles::Micros;
use types::{Error, Result};

/// The state rows of one node's edges.
pub(super) struct NodeRows<'a> {
    pub(super) layers: Vec<LayerRows<'a>>,
    /// The number of rows in all layers.
    pub(super) rows: usize,
    /// [`NodeRows::threshold`], once it was computed.
    known: OnceCell<Option<u64>>,
}

impl<'a> NodeRows<'a> {
    pub(super) fn find_all(walk: &Walk<'a>, nodes: &[NodeProbe<'_>]) -> Vec<Self> {
        walk.layers.edges_of(nodes).into_iter().map(Self::new).collect()
    }

    fn new(layers: Vec<LayerRows<'a>>) -> Self {
        let rows = layers.iter().map(|layer| layer.range.len()).sum();
        Self { layers, rows, known: OnceCell::new() }
    }

    /// Where there are too many edges: the smallest hash that is not followed. It takes hashing them all, and is kept;
    /// a node's edges are all of one side.
    pub(super) fn threshold(&self, walk: &Walk<'_>, side: Side) -> Result<Option<u64>> {
        if self.rows <= walk.links.max_degree {
            return Ok(None);
        }
        if let Some(known) = self.known.get() {
            return Ok(*known);
        }
        let threshold = degree::threshold(walk, side, &self.layers)?;
        Ok(*self.known.get_or_init(|| threshold))
    }
}

/// Runs of nodes that have about this many edges together.
pub(super) fn batches(nodes: &[NodeRows<'_>], edges: usize) -> Vec<Range<usize>> {
    let (mut batches, mut from, mut held) = (Vec::new(), 0, 0);
    for (index, node) in nodes.iter().enumerate() {
        if held > 0 && held + node.rows > edges {
            batches.push(from..index);
            (from, held) = (index, 0);
        }
        held += node.rows;
    }
    if from < nodes.len() {
        batches.push(from..nodes.len());
    }
    batches
}

/// The edges of some nodes, in the order of the nodes. Each edge has a number.
pub(super) struct EdgeSet<'a> {
    /// The index of the node that each edge leaves.
    pub(super) node: Vec<u32>,
    /// Hashes of what each edge leads to, once they are asked for.
    hashes: Option<Vec<u64>>,
    /// Of each node that has too many edges: the smallest hash that is not followed.
    sampled: HashMap<u32, u64>,
    side: Side,
    found: Found<'a>,
    /// [`EdgeKind::Full`]: the rows to be merged.
    pieces: Pieces<'a>,
    /// Merged values by the edge plan's use.
    values: HashMap<EdgeUseIndex, ArrayRef>,
}

impl<'a> EdgeSet<'a> {
    pub(super) fn gather<'n>(walk: &Walk<'a>, side: Side, nodes: impl Iterator<Item = &'n NodeRows<'a>>) -> Result<EdgeSet<'a>>
    where
        'a: 'n,
    {
        let (mut found, longest) = (Found::default(), LongestRange::on_side(walk, side));
        let mut sampled = HashMap::new();
        for (index, node) in nodes.enumerate() {
            let most = node.threshold(walk, side)?;
            if let Some(most) = most {
                sampled.insert(index as u32, most);
            }
            found.add_node(walk, &longest, index as u32, &node.layers, most)?;
        }
        let node = std::mem::take(&mut found.node);
        let mut edges = EdgeSet { node, hashes: None, sampled, side, found, pieces: Pieces::default(), values: HashMap::new() };
        edges.merge(walk)?;
        Ok(edges)
    }

    fn merge(&mut self, walk: &Walk<'_>) -> Result<()> {
        let plan = walk.plan;
        let uses = uses_of(walk, self.side)?;
        if walk.links.kind == EdgeKind::Liveness {
            for usage in uses {
                let seen = self.found.last_seen(plan.state_offset(walk.links.edge_uses[usage.0].state), self.len())?;
                self.values.insert(usage, seen);
            }
            return Ok(());
        }
        for rows in &self.found.rows {
            self.pieces.add(self.found.batches[rows.batch], rows.from..rows.to, rows.edge, rows.rolled_up);
        }
        let asked = AskedUses::new(uses.iter().map(|usage| walk.links.edge_uses[usage.0]).collect());
        let merged = merge(plan, &self.pieces, self.len(), walk.row_time, &asked)?;
        self.values = uses.into_iter().zip(merged.into_iter().map(|merged| merged.values)).collect();
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.node.len()
    }

    /// A key column of the edges.
    pub(super) fn key(&self, walk: &Walk<'_>, column: KeyColumn) -> Result<ArrayRef> {
        self.found.key(column).map(|key| key.unwrap_or_else(|| new_empty_array(walk.plan.keys[column.0].data_type())))
    }

    pub(super) fn keys(&self, walk: &Walk<'_>, columns: &Range<usize>) -> Result<Vec<ArrayRef>> {
        columns.clone().map(|column| self.key(walk, KeyColumn(column))).collect()
    }

    /// Hashes what each edge leads to, for keys of which a sample is followed.
    pub(super) fn hash(&mut self, walk: &Walk<'_>) -> Result<()> {
        let ends = self.keys(walk, degree::leads_to(walk, self.side))?;
        self.hashes = Some(degree::hashes(walk, self.side, &ends, self.len())?);
        Ok(())
    }

    /// The hash of what an edge leads to, where it was asked for.
    pub(super) fn hash_of(&self, edge: usize) -> Option<u64> {
        self.hashes.as_ref().map(|hashes| hashes[edge])
    }

    /// Whether each edge has an event in its side's range that meets a condition.
    pub(super) fn live(&self, walk: &Walk<'_>, condition: ConditionIndex, range: &PairRange) -> Result<Vec<bool>> {
        let range = range.range(self.side);
        let value = self.value(walk.links.edge_use(walk.plan, condition, range)?)?;
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
    pub(super) fn counts(&self, walk: &Walk<'_>, condition: ConditionIndex, range: &PairRange) -> Result<Vec<u64>> {
        let value = self.value(walk.links.edge_use(walk.plan, condition, range.range(self.side))?)?;
        Ok(value.as_primitive::<Int64Type>().iter().map(|count| count.unwrap_or_default().max(0) as u64).collect())
    }

    /// When each edge was last seen, in its side's longest range.
    pub(super) fn seen(&self, walk: &Walk<'_>) -> Result<&ArrayRef> {
        let longest = walk.links.longest_range();
        self.value(walk.links.seen_use(walk.plan, longest.range(self.side))?)
    }

    /// A state of the edges merged over a range, as a state, with the row of each edge that has one.
    pub(super) fn states(&self, walk: &Walk<'_>, state: StateIndex, range: &PairRange) -> Result<(Vec<ArrayRef>, Vec<Option<u32>>)> {
        let usage = walk.links.use_over(walk.plan, state, range.range(self.side))?;
        merged_states(walk.plan, &self.pieces, walk.row_time, usage, self.len())
    }

    /// The edges of each node.
    pub(super) fn edges_of_nodes(&self, nodes: usize) -> Vec<Range<u32>> {
        let mut edges = vec![0..0; nodes];
        for (edge, node) in self.node.iter().enumerate() {
            let of_node = &mut edges[*node as usize];
            let from = if of_node.start == of_node.end { edge as u32 } else { of_node.start };
            *of_node = from..edge as u32 + 1;
        }
        edges
    }

    /// Per node, how much of its edges is followed.
    pub(super) fn thresholds(&self, nodes: usize) -> Vec<Threshold> {
        let near = |node| self.sampled.get(&(node as u32)).copied().unwrap_or(u64::MAX);
        (0..nodes).map(|node| Threshold { near: near(node), far: u64::MAX }).collect()
    }

    fn value(&self, usage: EdgeUseIndex) -> Result<&ArrayRef> {
        self.values.get(&usage).ok_or_else(|| Error::internal("a walk asks for what it did not merge"))
    }
}

/// The uses that a side's edges are asked for.
fn uses_of(walk: &Walk<'_>, side: Side) -> Result<Vec<EdgeUseIndex>> {
    let mut uses = Vec::new();
    for range in &walk.links.ranges {
        let range = range.range(side);
        for (index, condition) in walk.links.conditions.iter().enumerate() {
            if condition.side.is_none_or(|of| of == side) {
                uses.push(walk.links.edge_use(walk.plan, ConditionIndex(index), range)?);
            }
        }
    }
    let longest = walk.links.longest_range();
    uses.push(walk.links.seen_use(walk.plan, longest.range(side))?);
    uses.sort_unstable();
    uses.dedup();
    Ok(uses)
}

/// State rows under some nodes, by edge.
#[derive(Default)]
struct Found<'a> {
    batches: Vec<&'a RecordBatch>,
    /// The node that each edge leaves.
    node: Vec<u32>,
    /// One row of each edge: its batch and its place there.
    one_row: Vec<(usize, usize)>,
    rows: Vec<EdgeRows>,
}

/// Rows of one edge in one batch.
struct EdgeRows {
    edge: u32,
    batch: usize,
    from: usize,
    to: usize,
    rolled_up: bool,
}

impl<'a> Found<'a> {
    fn add_node(&mut self, walk: &Walk<'_>, longest: &LongestRange, node: u32, layers: &[LayerRows<'a>], most: Option<u64>) -> Result<()> {
        let mut known: hashbrown::HashMap<&'a [u8], u32> = hashbrown::HashMap::new();
        for LayerRows { rows, range, rolled_up } in layers {
            let alive = longest.alive(rows)?;
            let followed = most.map(|most| degree::followed(walk, longest.side, rows, range.clone(), most)).transpose()?;
            let batch = self.batch(rows.batch());
            let keys = rows.keys();
            let mut from = range.start;
            while from < range.end {
                let key = keys.value(from);
                let to = (from + 1..range.end).find(|row| keys.value(*row) != key).unwrap_or(range.end);
                if (from..to).any(|row| alive.holds(row)) && followed.as_ref().is_none_or(|followed| followed[from - range.start]) {
                    let next = self.node.len() as u32;
                    // An edge has its rows of one layer together; only another layer's may be of an edge that is known.
                    let edge = if layers.len() == 1 { next } else { *known.entry(key).or_insert(next) };
                    if edge == next {
                        self.node.push(node);
                        self.one_row.push((batch, from));
                    }
                    self.rows.push(EdgeRows { edge, batch, from, to, rolled_up: *rolled_up });
                }
                from = to;
            }
        }
        Ok(())
    }

    fn batch(&mut self, batch: &'a RecordBatch) -> usize {
        // Nodes that are found one after the other mostly lie in few batches: the last ones are looked at first.
        match self.batches.iter().rposition(|known| std::ptr::eq(*known, batch)) {
            Some(place) => place,
            None => {
                self.batches.push(batch);
                self.batches.len() - 1
            }
        }
    }

    /// A key column, a value for each edge; `None` without edges.
    fn key(&self, column: KeyColumn) -> Result<Option<ArrayRef>> {
        if self.one_row.is_empty() {
            return Ok(None);
        }
        let columns: Vec<&dyn Array> = self.batches.iter().map(|batch| batch.column(column.0).as_ref()).collect();
        Ok(Some(interleave(&columns, &self.one_row)?))
    }

    /// The greatest of a column of timestamps over each edge's rows.
    fn last_seen(&self, column: usize, edges: usize) -> Result<ArrayRef> {
        let columns = self.batches.iter().map(|batch| timestamps(batch, column)).collect::<Result<Vec<_>>>()?;
        let mut seen: Vec<Option<Micros>> = vec![None; edges];
        for rows in &self.rows {
            let column = columns[rows.batch];
            for row in (rows.from..rows.to).filter(|row| column.is_valid(*row)) {
                let last = &mut seen[rows.edge as usize];
                *last = (*last).max(Some(column.value(row)));
            }
        }
        Ok(Arc::new(TimestampMicrosecondArray::from(seen).with_timezone("UTC")))
    }
}
