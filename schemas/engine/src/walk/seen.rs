//! The rows of a linked view as events see them. Each event has its own set of edges: those before it. Some events add
//! nothing to any node that the walks of the others pass. They all see the same there, and one walk answers them
//! together.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{ArrayRef, BinaryArray, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::Schema;
use hashbrown::{DefaultHashBuilder, HashSet};

use crate::plan::ViewPlan;
use crate::plan::links::LinkPlan;
use crate::states::{AddedStates, KeyCodec, NodeCodec, Probe, SeenBy, StateRows};
use crate::walk::Walk;
use crate::walk::layers::{EdgeLayers, LayerRows, NodeProbe, PartChunk};
use types::Result;
use types::tiles::{Micros, Span};

/// Events that are walked together, at first and at most. Where too many of them see more than an earlier one, they are
/// fewer.
const AT_FIRST: usize = 64;
const AT_MOST: usize = 256;

/// A linked view, as walks need it.
#[derive(Clone, Copy)]
pub struct LinkedView<'a> {
    pub plan: &'a ViewPlan,
    pub codec: &'a KeyCodec,
    pub links: &'a LinkPlan,
}

impl<'a> LinkedView<'a> {
    /// One row for each event, in their order, with the wanted columns. `layers` are the edges from before the batch
    /// that are not in `seen.before`.
    pub fn rows_seen(self, layers: &dyn EdgeLayers, seen: &SeenBy<'_>) -> Result<RecordBatch> {
        let nodes = self.codec.nodes()?;
        let edges = EdgesBefore { nodes, layers, before: seen.before, found: Mutex::default() };
        let prefixes = nodes.near(seen.keys, seen.t.len())?;
        let mut walks = Walks { view: self, edges: &edges, seen, prefixes, answered: Vec::new(), parts: Vec::new() };
        let (mut from, mut size) = (0, AT_FIRST);
        while from < seen.t.len() {
            let together = walks.together(from, size);
            let count = together.len();
            let apart = if count > 1 { walks.walk(&together)? } else { together };
            for event in &apart {
                walks.walk_alone(*event)?;
            }
            size = if 2 * apart.len() > count { (size / 2).max(1) } else { (2 * size).min(AT_MOST) };
            from += count;
        }
        walks.in_order()
    }

    fn walk(self, layers: &'a dyn EdgeLayers, t: Micros) -> Walk<'a> {
        Walk::new(self.plan, self.codec, self.links, layers, t)
    }
}

struct Walks<'a> {
    view: LinkedView<'a>,
    edges: &'a EdgesBefore<'a>,
    seen: &'a SeenBy<'a>,
    /// The beginnings of the near edges of each event's key.
    prefixes: BinaryArray,
    /// The events whose rows are in `parts`, in the order of the rows.
    answered: Vec<u32>,
    parts: Vec<RecordBatch>,
}

impl Walks<'_> {
    /// The next events, starting with `from`, that can be walked together: at most `size`, all with different keys, and
    /// with ranges that have the same edges.
    fn together(&self, from: usize, size: usize) -> Vec<usize> {
        let (mut keys, mut events) = (HashSet::new(), Vec::new());
        let mut spans: Option<(Micros, Vec<Span>)> = None;
        for event in (from..self.seen.t.len()).take(size) {
            let t = self.seen.t[event];
            let is_same = match &spans {
                None => {
                    spans = Some((t, self.spans_at(t)));
                    true
                }
                Some((known, of_known)) => *known == t || *of_known == self.spans_at(t),
            };
            if !is_same || !self.seen.has_key(event) && event > from || !keys.insert(self.prefixes.value(event)) {
                break;
            }
            events.push(event);
            if !self.seen.has_key(event) {
                break;
            }
        }
        events
    }

    fn spans_at(&self, t: Micros) -> Vec<Span> {
        Walk::spans_at(self.view.plan, self.view.links, t)
    }

    /// Walks from the keys of these events with all that the last one sees. Returns those to which another one of them
    /// adds what they do not see.
    fn walk(&mut self, events: &[usize]) -> Result<Vec<usize>> {
        let last = events.iter().map(|event| self.seen.counted[*event]).max().unwrap_or(0);
        let is_added =
            |event: usize, node: &[u8]| self.seen.added.is_some_and(|added| added.adds_to_prefix(node, self.seen.counted[event]..last));
        let mut is_apart: Vec<bool> = events.iter().map(|event| is_added(*event, self.prefixes.value(*event))).collect();
        let layers = SeenEdges { edges: self.edges, added: self.seen.added, counted: last };
        let times: Vec<Micros> = events.iter().map(|event| self.seen.t[*event]).collect();
        let walk = self.view.walk(&layers, times[0]);
        let groups = self.keys_of(events)?;
        let walked = walk.rows_at(&groups, &times, self.seen.wanted, &mut |key, node| {
            is_apart[key] = is_apart[key] || is_added(events[key], node);
        })?;
        let (apart, together): (Vec<usize>, Vec<usize>) = (0..events.len()).partition(|key| is_apart[*key]);
        let rows = UInt32Array::from_iter_values(together.iter().map(|key| *key as u32));
        self.take(together.iter().map(|key| events[*key] as u32), if apart.is_empty() { walked.rows } else { taken(&walked.rows, &rows)? });
        Ok(apart.into_iter().map(|key| events[key]).collect())
    }

    fn walk_alone(&mut self, event: usize) -> Result<()> {
        let layers = SeenEdges { edges: self.edges, added: self.seen.added, counted: self.seen.counted[event] };
        let groups = self.keys_of(&[event])?;
        let t = self.seen.t[event];
        let walked = match self.seen.has_key(event) {
            true => self.view.walk(&layers, t).rows(&groups, 1, self.seen.wanted)?,
            false => self.view.walk(&NoEdges, t).rows(&groups, 1, self.seen.wanted)?,
        };
        self.take([event as u32], walked.rows);
        Ok(())
    }

    fn keys_of(&self, events: &[usize]) -> Result<Vec<ArrayRef>> {
        let prefixes: Vec<&[u8]> = events.iter().map(|event| self.prefixes.value(*event)).collect();
        self.view.codec.nodes()?.groups_of(&prefixes)
    }

    fn take(&mut self, events: impl IntoIterator<Item = u32>, rows: RecordBatch) {
        self.answered.extend(events);
        self.parts.push(rows);
    }

    /// The rows in the order of their events.
    fn in_order(self) -> Result<RecordBatch> {
        let fields: Vec<_> = self.seen.wanted.iter().map(|column| self.view.plan.columns[*column].field.clone()).collect();
        let rows = concat_batches(&self.parts.first().map_or_else(|| Arc::new(Schema::new(fields)), RecordBatch::schema), &self.parts)?;
        if self.answered.is_sorted() {
            return Ok(rows);
        }
        let mut place = vec![0; self.answered.len()];
        self.answered.iter().enumerate().for_each(|(row, event)| place[*event as usize] = row as u32);
        taken(&rows, &UInt32Array::from(place))
    }
}

/// These rows of a batch, which may have no column.
fn taken(rows: &RecordBatch, of: &UInt32Array) -> Result<RecordBatch> {
    match rows.num_columns() {
        0 => Ok(rows.slice(0, of.len())),
        _ => Ok(take_record_batch(rows, of)?),
    }
}

/// A view's edges from before a batch of events. Walks of a batch lead to the same nodes again and again: where the
/// edges of a node are is found once.
struct EdgesBefore<'a> {
    nodes: &'a Arc<NodeCodec>,
    layers: &'a dyn EdgeLayers,
    before: &'a [StateRows],
    found: Mutex<HashMap<Box<[u8]>, Vec<LayerRows<'a>>, DefaultHashBuilder>>,
}

impl<'a> EdgesBefore<'a> {
    fn edges_of(&self, nodes: &[NodeProbe<'_>]) -> Vec<Vec<LayerRows<'a>>> {
        let mut known = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        // What a prefix begins with decides its place.
        let unknown: Vec<NodeProbe<'_>> = nodes.iter().copied().filter(|node| !known.contains_key(node.prefix.bytes())).collect();
        let mut found = self.layers.edges_of(&unknown);
        let prefixes: Vec<Probe<'_>> = unknown.iter().map(|node| node.prefix).collect();
        for rows in self.before {
            rows.find_nodes(self.nodes, &prefixes, |node, range| found[node].push(LayerRows { rows, range, rolled_up: false }));
        }
        known.extend(unknown.iter().map(|node| node.prefix.bytes().into()).zip(found));
        nodes.iter().map(|node| known.get(node.prefix.bytes()).cloned().unwrap_or_default()).collect()
    }
}

/// A view's edges with what the first events of a batch add.
struct SeenEdges<'a> {
    edges: &'a EdgesBefore<'a>,
    added: Option<&'a AddedStates>,
    /// How many of the batch's events.
    counted: u32,
}

impl EdgeLayers for SeenEdges<'_> {
    fn edges_of(&self, nodes: &[NodeProbe<'_>]) -> Vec<Vec<LayerRows<'_>>> {
        let mut found = self.edges.edges_of(nodes);
        if let Some(added) = self.added {
            for (edges, node) in found.iter_mut().zip(nodes) {
                let of_node = added.of_prefix_before(node.prefix.bytes(), self.counted);
                edges.extend(of_node.map(|range| LayerRows { rows: added.rows(), range, rolled_up: false }));
            }
        }
        found
    }

    fn parts(&self) -> u32 {
        self.edges.layers.parts()
    }

    fn chunks(&self, part: u32) -> Vec<PartChunk<'_>> {
        self.edges.layers.chunks(part)
    }
}

/// No edges: what an event without a key sees.
pub struct NoEdges;

impl EdgeLayers for NoEdges {
    fn edges_of(&self, nodes: &[NodeProbe<'_>]) -> Vec<Vec<LayerRows<'_>>> {
        vec![Vec::new(); nodes.len()]
    }

    fn parts(&self) -> u32 {
        1
    }

    fn chunks(&self, _: u32) -> Vec<PartChunk<'_>> {
        Vec::new()
    }
}
