//! The layers of a linked view's edges, as a walk finds them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use committed::registry::LiveView;
use engine::states::{AddedStates, NodeCodec, StateRows};
use engine::walk::{EdgeLayers, LayerRows};
use types::Result;

use super::{StateSource, scan_parts};
use crate::copy::{PartRun, SnapshotCopy};
use crate::read_view::LoadedView;

/// A view's edges in a source.
#[derive(Clone, Copy)]
pub(super) struct ViewEdges<'a> {
    source: &'a StateSource<'a>,
    view: &'a LiveView,
    nodes: &'a NodeCodec,
    /// With all its buckets: a walk may lead to any.
    snapshot: Option<&'a SnapshotCopy>,
}

impl<'a> ViewEdges<'a> {
    /// Errors: `Unavailable` while the snapshot is being copied.
    pub(super) fn new(source: &'a StateSource<'a>, view: &'a LiveView) -> Result<Self> {
        let snapshot = match source {
            StateSource::Layers { view: LoadedView { snapshot: Some(snapshot), .. }, .. } => Some(&**snapshot),
            _ => None,
        };
        if let Some(snapshot) = snapshot {
            snapshot.runs()?;
        }
        Ok(Self { source, view, nodes: view.codec.nodes()?, snapshot })
    }

    fn rows_beginning(self, prefix: &[u8], place: &[u8]) -> Vec<LayerRows<'a>> {
        let with = |laddered: bool| move |(chunk, rows): (_, Range<usize>)| (chunk, rows, laddered);
        match self.source {
            StateSource::Archive(layer) => layer.run.find_node(self.nodes, prefix).into_iter().map(with(false)).collect(),
            StateSource::Layers { read_view, view: loaded } => {
                let runs = self.snapshot.into_iter().flat_map(|snapshot| snapshot.runs_of(place)).flatten();
                let mut found: Vec<LayerRows<'a>> = runs.flat_map(|run| run.find_node(self.nodes, prefix)).map(with(true)).collect();
                found.extend(loaded.layers.iter().flat_map(|layer| layer.run.find_node(self.nodes, prefix)).map(with(false)));
                let fresh = read_view.fresh_of(self.view).map(|rows| (&**rows, rows.find_node(self.nodes, prefix)));
                found.extend(fresh.filter(|(_, rows)| !rows.is_empty()).map(with(false)));
                found
            }
        }
    }
}

impl EdgeLayers for ViewEdges<'_> {
    fn beginning(&self, prefix: &[u8], place: &[u8]) -> Vec<LayerRows<'_>> {
        self.rows_beginning(prefix, place)
    }

    fn parts(&self) -> u32 {
        scan_parts(self.source)
    }

    fn chunks(&self, part: u32) -> Vec<(&StateRows, bool)> {
        match self.source {
            StateSource::Archive(layer) => layer.run.chunks().iter().map(|chunk| (chunk, false)).collect(),
            StateSource::Layers { read_view, view: loaded } => {
                let runs = self.snapshot.and_then(|snapshot| snapshot.runs_of_part(part).ok()).into_iter().flatten();
                let of_snapshot = runs.flat_map(|PartRun { run, is_of_part }| run.chunks().iter().map(move |chunk| (chunk, is_of_part)));
                let mut chunks: Vec<_> = of_snapshot.collect();
                chunks.extend(loaded.layers.iter().flat_map(|layer| layer.run.chunks()).map(|chunk| (chunk, false)));
                chunks.extend(read_view.fresh_of(self.view).map(|rows| (&**rows, false)));
                chunks
            }
        }
    }
}

/// A view's edges from before a batch of events. Walks of a batch lead to the same nodes again and again: where the edges
/// of a node are is found once.
pub(super) struct EdgesBefore<'a> {
    edges: ViewEdges<'a>,
    before: &'a [StateRows],
    found: Mutex<HashMap<Box<[u8]>, Vec<LayerRows<'a>>>>,
}

impl<'a> EdgesBefore<'a> {
    /// `before` is what is in no layer of the source.
    pub(super) fn new(edges: ViewEdges<'a>, before: &'a [StateRows]) -> Self {
        Self { edges, before, found: Mutex::default() }
    }

    fn beginning(&self, prefix: &[u8], place: &[u8]) -> Vec<LayerRows<'a>> {
        let mut known = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        // What a prefix begins with decides its place.
        if let Some(found) = known.get(prefix) {
            return found.clone();
        }
        let mut found = self.edges.rows_beginning(prefix, place);
        let before = self.before.iter().map(|rows| (rows, rows.find_node(self.edges.nodes, prefix), false));
        found.extend(before.filter(|(_, rows, _)| !rows.is_empty()));
        known.insert(prefix.into(), found.clone());
        found
    }
}

/// A view's edges with what the first events of a batch add.
pub(super) struct SeenEdges<'a> {
    edges: &'a EdgesBefore<'a>,
    added: Option<&'a AddedStates>,
    /// How many events.
    counted: u32,
}

impl<'a> SeenEdges<'a> {
    pub(super) fn new(edges: &'a EdgesBefore<'a>, added: Option<&'a AddedStates>, counted: u32) -> Self {
        Self { edges, added, counted }
    }
}

impl EdgeLayers for SeenEdges<'_> {
    fn beginning(&self, prefix: &[u8], place: &[u8]) -> Vec<LayerRows<'_>> {
        let mut found = self.edges.beginning(prefix, place);
        let added = self.added.into_iter();
        found.extend(added.flat_map(|added| added.of_prefix_before(prefix, self.counted).map(|rows| (added.rows(), rows, false))));
        found
    }

    fn parts(&self) -> u32 {
        self.edges.edges.parts()
    }

    fn chunks(&self, part: u32) -> Vec<(&StateRows, bool)> {
        self.edges.edges.chunks(part)
    }
}

/// No edges: what an event without a key sees.
pub(super) struct NoEdges;

impl EdgeLayers for NoEdges {
    fn beginning(&self, _: &[u8], _: &[u8]) -> Vec<LayerRows<'_>> {
        Vec::new()
    }

    fn parts(&self) -> u32 {
        1
    }

    fn chunks(&self, _: u32) -> Vec<(&StateRows, bool)> {
        Vec::new()
    }
}
