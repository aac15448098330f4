//! Where a walk finds edges: layers of sorted state rows.

use std::ops::Range;
use std::sync::Arc;

use crate::states::buckets::{bucket_hash, bucket_of_hash, buckets_of_part};
use crate::states::sorted::SortedRun;
use crate::states::{Probe, StateRows};
use crate::walk::node_index::NodeIndex;

/// Rows of one layer.
#[derive(Debug, Clone)]
pub struct LayerRows<'a> {
    pub rows: &'a StateRows,
    pub range: Range<usize>,
    /// Whether the layer holds every level, as a snapshot does, or the finest alone.
    pub rolled_up: bool,
}

/// A chunk that may have keys of a part.
#[derive(Debug, Clone, Copy)]
pub struct PartChunk<'a> {
    pub rows: &'a StateRows,
    /// Whether all its keys are of that part.
    pub is_of_part: bool,
}

/// A node whose edges are searched for.
#[derive(Debug, Clone, Copy)]
pub struct NodeProbe<'k> {
    /// What the encoded keys of its edges begin with.
    pub prefix: Probe<'k>,
    /// What the bucket of its edges is chosen by, in layers that have buckets.
    pub place: &'k [u8],
}

/// All layers of a view's edges.
pub trait EdgeLayers: Sync {
    /// The rows of the edges that leave each node, in the order of the nodes. Nodes that are searched for together cost
    /// less.
    fn edges_of(&self, nodes: &[NodeProbe<'_>]) -> Vec<Vec<LayerRows<'_>>>;

    /// The number of parts in which all keys are scanned.
    fn parts(&self) -> u32;

    /// The chunks that may have keys of a part.
    fn chunks(&self, part: u32) -> Vec<PartChunk<'_>>;
}

/// One run of the finest level.
impl EdgeLayers for SortedRun {
    fn edges_of(&self, nodes: &[NodeProbe<'_>]) -> Vec<Vec<LayerRows<'_>>> {
        let edges = |node: &NodeProbe<'_>| self.find_prefix(node.prefix.bytes()).into_iter();
        nodes.iter().map(|node| edges(node).map(|(rows, range)| LayerRows { rows, range, rolled_up: false }).collect()).collect()
    }

    fn parts(&self) -> u32 {
        1
    }

    fn chunks(&self, _: u32) -> Vec<PartChunk<'_>> {
        SortedRun::chunks(self).iter().map(|rows| PartChunk { rows, is_of_part: false }).collect()
    }
}

/// The edges of one tier of a snapshot: a run per bucket, each with its nodes where there is room to know them.
#[derive(Default)]
pub struct TierEdges(pub Vec<(Arc<SortedRun>, Option<NodeIndex>)>);

/// A snapshot's tiers alone.
#[derive(Default)]
pub struct SnapshotEdges(pub Vec<TierEdges>);

impl TierEdges {
    fn bucket_count(&self) -> u32 {
        self.0.len() as u32
    }
}

impl SnapshotEdges {
    fn edges_of_node(&self, node: &NodeProbe<'_>) -> Vec<LayerRows<'_>> {
        let (hash, prefix) = (bucket_hash(node.place), node.prefix.bytes());
        let buckets = self.0.iter().map(|tier| &tier.0[bucket_of_hash(hash, tier.bucket_count()) as usize]);
        let found =
            buckets.flat_map(|(run, nodes)| nodes.as_ref().map_or_else(|| run.find_prefix(prefix), |nodes| nodes.find(run, prefix, hash)));
        found.map(|(rows, range)| LayerRows { rows, range, rolled_up: true }).collect()
    }
}

impl EdgeLayers for SnapshotEdges {
    fn edges_of(&self, nodes: &[NodeProbe<'_>]) -> Vec<Vec<LayerRows<'_>>> {
        nodes.iter().map(|node| self.edges_of_node(node)).collect()
    }

    fn parts(&self) -> u32 {
        self.0.iter().map(TierEdges::bucket_count).max().unwrap_or(1)
    }

    fn chunks(&self, part: u32) -> Vec<PartChunk<'_>> {
        let parts = self.parts();
        let mut chunks = Vec::new();
        for tier in &self.0 {
            let count = tier.bucket_count();
            for bucket in buckets_of_part(part, parts, count) {
                let run = &tier.0[bucket as usize].0;
                chunks.extend(run.chunks().iter().map(|rows| PartChunk { rows, is_of_part: count == parts }));
            }
        }
        chunks
    }
}
