//! The layers of a linked view's edges, as a walk finds them.

use std::ops::Range;
use std::sync::Arc;

use committed::registry::LiveView;
use engine::states::{NodeCodec, Probe, StateRows};
use engine::walk::{EdgeLayers, LayerRows, NodeProbe, PartChunk};
use types::Result;

use super::{StateSource, scan_parts};
use crate::copy::{PartRun, SnapshotCopy};
use crate::read_view::LoadedView;

/// A view's edges in a source.
#[derive(Clone, Copy)]
pub(super) struct ViewEdges<'a> {
    source: &'a StateSource<'a>,
    view: &'a LiveView,
    nodes: &'a Arc<NodeCodec>,
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

    /// The chunks that may have keys of one of any number of parts.
    fn chunks_of_part(&self, part: u32, parts: u32) -> Vec<PartChunk<'_>> {
        let mut chunks = self.snapshot_chunks_of_part(part, parts);
        chunks.extend(self.chunks_without_parts().into_iter().map(|rows| PartChunk { rows, is_of_part: false }));
        chunks
    }

    /// Those of the snapshot alone.
    pub(super) fn snapshot_chunks_of_part(&self, part: u32, parts: u32) -> Vec<PartChunk<'_>> {
        let runs = self.snapshot.and_then(|snapshot| snapshot.runs_of_part(part, parts).ok()).into_iter().flatten();
        runs.flat_map(|PartRun { run, is_of_part }| run.chunks().iter().map(move |rows| PartChunk { rows, is_of_part })).collect()
    }

    /// Those of layers, of fresh states and of an archive: each may have keys of every part.
    pub(super) fn chunks_without_parts(&self) -> Vec<&StateRows> {
        match self.source {
            StateSource::Archive(layer) => layer.run.chunks().iter().collect(),
            StateSource::Layers { read_view, view: loaded } => {
                let of_layers = loaded.layers.iter().flat_map(|layer| layer.run.chunks());
                of_layers.chain(read_view.fresh_of(self.view).map(|rows| &**rows)).collect()
            }
        }
    }
}

impl EdgeLayers for ViewEdges<'_> {
    fn edges_of(&self, nodes: &[NodeProbe<'_>]) -> Vec<Vec<LayerRows<'_>>> {
        let prefixes: Vec<Probe<'_>> = nodes.iter().map(|node| node.prefix).collect();
        let mut found: Vec<Vec<LayerRows<'_>>> = vec![Vec::new(); nodes.len()];
        match self.source {
            StateSource::Archive(layer) => {
                layer.run.find_nodes(self.nodes, &prefixes, |node, rows, range| found[node].push(finest(rows, range)));
            }
            StateSource::Layers { read_view, view: loaded } => {
                for (node, edges) in nodes.iter().zip(&mut found) {
                    for run in self.snapshot.into_iter().flat_map(|snapshot| snapshot.runs_of(node.place)).flatten() {
                        run.find_nodes(self.nodes, &[node.prefix], |_, rows, range| edges.push(LayerRows { rows, range, rolled_up: true }));
                    }
                }
                for layer in &loaded.layers {
                    layer.run.find_nodes(self.nodes, &prefixes, |node, rows, range| found[node].push(finest(rows, range)));
                }
                for fresh in read_view.fresh_of(self.view) {
                    fresh.find_nodes(self.nodes, &prefixes, |node, range| found[node].push(finest(fresh, range)));
                }
            }
        }
        found
    }

    fn parts(&self) -> u32 {
        scan_parts(self.source)
    }

    fn chunks(&self, part: u32) -> Vec<PartChunk<'_>> {
        self.chunks_of_part(part, self.parts())
    }
}

/// Rows of a layer that holds the finest level alone.
fn finest(rows: &StateRows, range: Range<usize>) -> LayerRows<'_> {
    LayerRows { rows, range, rolled_up: false }
}
