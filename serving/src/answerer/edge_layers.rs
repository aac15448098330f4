//! The layers of a linked view's edges, as a walk finds them.

use std::ops::Range;
use std::sync::Arc;

use committed::registry::LiveView;
use engine::states::{SortedRun, StateRows, bucket_of, find_prefix};
use engine::walk::{EdgeLayers, LayerRows};
use types::Result;

use super::{StateSource, scan_parts};
use crate::read_view::LoadedView;

/// A view's edges in a source.
#[derive(Clone, Copy)]
pub(super) struct ViewEdges<'a> {
    source: &'a StateSource<'a>,
    view: &'a LiveView,
    /// The snapshot's: a walk may lead to any.
    buckets: &'a [Arc<SortedRun>],
}

impl<'a> ViewEdges<'a> {
    /// Errors: `Unavailable` while the snapshot is being copied.
    pub(super) fn new(source: &'a StateSource<'a>, view: &'a LiveView) -> Result<Self> {
        let buckets = match source {
            StateSource::Layers { view: LoadedView { snapshot: Some(snapshot), .. }, .. } => snapshot.buckets()?,
            _ => &[],
        };
        Ok(Self { source, view, buckets })
    }
}

impl EdgeLayers for ViewEdges<'_> {
    fn beginning(&self, prefix: &[u8], place: &[u8]) -> Vec<LayerRows<'_>> {
        let with = |laddered: bool| move |(chunk, rows): (_, Range<usize>)| (chunk, rows, laddered);
        match self.source {
            StateSource::Archive(layer) => layer.run.find_prefix(prefix).into_iter().map(with(false)).collect(),
            StateSource::Layers { read_view, view: loaded } => {
                let bucket = self.buckets.get(bucket_of(place, self.buckets.len() as u32) as usize);
                let snapshot = bucket.into_iter().flat_map(|bucket| bucket.find_prefix(prefix));
                let mut found: Vec<LayerRows<'_>> = snapshot.map(with(true)).collect();
                found.extend(loaded.layers.iter().flat_map(|layer| layer.run.find_prefix(prefix)).map(with(false)));
                let fresh = read_view.fresh_of(self.view).map(|rows| (&**rows, find_prefix(rows.keys(), prefix)));
                found.extend(fresh.filter(|(_, rows)| !rows.is_empty()).map(with(false)));
                found
            }
        }
    }

    fn parts(&self) -> u32 {
        scan_parts(self.source)
    }

    fn chunks(&self, part: u32) -> Vec<(&StateRows, bool)> {
        match self.source {
            StateSource::Archive(layer) => layer.run.chunks().iter().map(|chunk| (chunk, false)).collect(),
            StateSource::Layers { read_view, view: loaded } => {
                let bucket = self.buckets.get(part as usize);
                let mut chunks: Vec<_> = bucket.into_iter().flat_map(|bucket| bucket.chunks()).map(|chunk| (chunk, true)).collect();
                chunks.extend(loaded.layers.iter().flat_map(|layer| layer.run.chunks()).map(|chunk| (chunk, false)));
                chunks.extend(read_view.fresh_of(self.view).map(|rows| (&**rows, false)));
                chunks
            }
        }
    }
}
