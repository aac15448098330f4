//! The rows of a linked view as events see them. Each event has its own set of edges: those before it. Some events add
//! nothing to any node that the walks of the others pass. They all see the same there, and one walk answers them together.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::Schema;
use engine::walk::Walk;
use types::Result;
use types::tiles::{Micros, Span};

use super::Linked;
use crate::answerer::edge_layers::{EdgesBefore, NoEdges, SeenEdges, ViewEdges};
use crate::answerer::{SeenBy, StateSource};

/// Events that are walked together, at first and at most. Where too many of them see more than an earlier one, they are
/// fewer.
const AT_FIRST: usize = 64;
const AT_MOST: usize = 256;

/// One row for each event.
pub(super) fn seen_walks(linked: &Linked<'_>, source: &StateSource<'_>, seen: &SeenBy<'_>) -> Result<RecordBatch> {
    let edges = EdgesBefore::new(ViewEdges::new(source, linked.view)?, seen.before);
    let prefixes = linked.view.codec.nodes()?.near(seen.keys, seen.t.len())?;
    let mut walks = Walks { linked, edges: &edges, seen, prefixes, answered: Vec::new(), parts: Vec::new() };
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

struct Walks<'a> {
    linked: &'a Linked<'a>,
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
        Walk::spans_at(&self.linked.view.plan, self.linked.links, t)
    }

    /// Walks from the keys of these events with all that the last one sees. Returns those to which another one of them adds
    /// what they do not see.
    fn walk(&mut self, events: &[usize]) -> Result<Vec<usize>> {
        let last = events.iter().map(|event| self.seen.counted[*event]).max().unwrap_or(0);
        let is_added =
            |event: usize, node: &[u8]| self.seen.added.is_some_and(|added| added.adds_to_prefix(node, self.seen.counted[event]..last));
        let mut is_apart: Vec<bool> = events.iter().map(|event| is_added(*event, self.prefixes.value(*event))).collect();
        let layers = SeenEdges::new(self.edges, self.seen.added, last);
        let times: Vec<Micros> = events.iter().map(|event| self.seen.t[*event]).collect();
        let walk = self.linked.view.walk(self.linked.links, &layers, times[0]);
        let groups = self.keys_of(events)?;
        let walked = walk.rows_at(&groups, &times, self.seen.wanted, &mut |key, node| {
            is_apart[key] = is_apart[key] || is_added(events[key], node);
        })?;
        let (apart, settled): (Vec<usize>, Vec<usize>) = (0..events.len()).partition(|key| is_apart[*key]);
        let rows = UInt32Array::from_iter_values(settled.iter().map(|key| *key as u32));
        self.take(settled.iter().map(|key| events[*key] as u32), if apart.is_empty() { walked.rows } else { taken(&walked.rows, &rows)? });
        Ok(apart.into_iter().map(|key| events[key]).collect())
    }

    fn walk_alone(&mut self, event: usize) -> Result<()> {
        let layers = SeenEdges::new(self.edges, self.seen.added, self.seen.counted[event]);
        let groups = self.keys_of(&[event])?;
        let (view, links, t) = (self.linked.view, self.linked.links, self.seen.t[event]);
        let walked = match self.seen.has_key(event) {
            true => view.walk(links, &layers, t).rows(&groups, 1, self.seen.wanted)?,
            false => view.walk(links, &NoEdges, t).rows(&groups, 1, self.seen.wanted)?,
        };
        self.take([event as u32], walked.rows);
        Ok(())
    }

    fn keys_of(&self, events: &[usize]) -> Result<Vec<ArrayRef>> {
        let prefixes: Vec<&[u8]> = events.iter().map(|event| self.prefixes.value(*event)).collect();
        self.linked.view.codec.nodes()?.groups_of(&prefixes)
    }

    fn take(&mut self, events: impl IntoIterator<Item = u32>, rows: RecordBatch) {
        self.answered.extend(events);
        self.parts.push(rows);
    }

    /// The rows in the order of their events.
    fn in_order(self) -> Result<RecordBatch> {
        let fields: Vec<_> = self.seen.wanted.iter().map(|column| self.linked.view.plan.columns[*column].field.clone()).collect();
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

#[cfg(test)]
mod tests;
