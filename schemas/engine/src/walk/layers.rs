//! Where a walk finds edges: layers of sorted state rows.

use std::ops::Range;
use std::sync::Arc;

use crate::states::StateRows;
use crate::states::buckets::{bucket_hash, bucket_of_hash, buckets_of_part};
use crate::states::sorted::SortedRun;
use crate::walk::node_index::NodeIndex;

/// Rows of one layer, and whether it holds every level of the ladder (a snapshot does) or the finest alone.
pub type LayerRows<'a> = (&'a StateRows, Range<usize>, bool);

/// All layers of a view's edges.
pub trait EdgeLayers: Sync {
    /// The rows whose keys begin so; `place` is what the bucket is chosen by, in layers that have buckets.
    fn beginning(&self, prefix: &[u8], place: &[u8]) -> Vec<LayerRows<'_>>;

    /// The number of parts in which all keys are scanned.
    fn parts(&self) -> u32;

    /// The chunks that may hold keys of a part, and whether all of a chunk's keys are of it.
    fn chunks(&self, part: u32) -> Vec<(&StateRows, bool)>;
}

/// One run of the finest level.
impl EdgeLayers for SortedRun {
    fn beginning(&self, prefix: &[u8], _: &[u8]) -> Vec<LayerRows<'_>> {
        self.find_prefix(prefix).into_iter().map(|(chunk, rows)| (chunk, rows, false)).collect()
    }

    fn parts(&self) -> u32 {
        1
    }

    fn chunks(&self, _: u32) -> Vec<(&StateRows, bool)> {
        SortedRun::chunks(self).iter().map(|chunk| (chunk, false)).collect()
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

impl EdgeLayers for SnapshotEdges {
    fn beginning(&self, prefix: &[u8], place: &[u8]) -> Vec<LayerRows<'_>> {
        let hash = bucket_hash(place);
        let buckets = self.0.iter().map(|tier| &tier.0[bucket_of_hash(hash, tier.bucket_count()) as usize]);
        let found =
            buckets.flat_map(|(run, nodes)| nodes.as_ref().map_or_else(|| run.find_prefix(prefix), |nodes| nodes.find(run, prefix, hash)));
        found.map(|(chunk, rows)| (chunk, rows, true)).collect()
    }

    fn parts(&self) -> u32 {
        self.0.iter().map(TierEdges::bucket_count).max().unwrap_or(1)
    }

    fn chunks(&self, part: u32) -> Vec<(&StateRows, bool)> {
        let parts = self.parts();
        let mut chunks = Vec::new();
        for tier in &self.0 {
            let count = tier.bucket_count();
            for bucket in buckets_of_part(part, parts, count) {
                chunks.extend(tier.0[bucket as usize].0.chunks().iter().map(|chunk| (chunk, count == parts)));
            }
        }
        chunks
    }
}
