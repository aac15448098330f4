//! The layers of a linked view's edges, as a walk finds them.

use committed::registry::LiveView;
use engine::states::{NodeCodec, Probe, StateRows};
use engine::walk::{EdgeLayers, LayerRows, NodeProbe};
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
}

impl EdgeLayers for ViewEdges<'_> {
    fn edges_of(&self, nodes: &[NodeProbe<'_>]) -> Vec<Vec<LayerRows<'_>>> {
        let prefixes: Vec<Probe<'_>> = nodes.iter().map(|node| node.prefix).collect();
        let mut found: Vec<Vec<LayerRows<'_>>> = vec![Vec::new(); nodes.len()];
        match self.source {
            StateSource::Archive(layer) => {
                layer.run.find_nodes(self.nodes, &prefixes, |node, chunk, rows| found[node].push((chunk, rows, false)));
            }
            StateSource::Layers { read_view, view: loaded } => {
                for (node, edges) in nodes.iter().zip(&mut found) {
                    for run in self.snapshot.into_iter().flat_map(|snapshot| snapshot.runs_of(node.place)).flatten() {
                        run.find_nodes(self.nodes, &[node.prefix], |_, chunk, rows| edges.push((chunk, rows, true)));
                    }
                }
                for layer in &loaded.layers {
                    layer.run.find_nodes(self.nodes, &prefixes, |node, chunk, rows| found[node].push((chunk, rows, false)));
                }
                for fresh in read_view.fresh_of(self.view) {
                    fresh.find_nodes(self.nodes, &prefixes, |node, rows| found[node].push((fresh, rows, false)));
                }
            }
        }
        found
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
