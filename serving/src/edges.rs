//! The layers of a linked view's edges, as a walk finds them.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::Schema;
use committed::registry::LiveView;
use engine::plan::links::LinkPlan;
use engine::states::{SortedRun, StateRows, bucket_of, find_prefix};
use engine::walk::{EdgeLayers, GoOn, LayerRows};
use types::Result;
use types::tiles::Micros;

use crate::lookup::{Source, scan_parts};
use crate::stand::LoadedView;

/// A view's edges in a source.
#[derive(Clone, Copy)]
pub(crate) struct ViewEdges<'a> {
    source: &'a Source<'a>,
    view: &'a LiveView,
    /// The snapshot's: a walk may lead to any.
    buckets: &'a [Arc<SortedRun>],
}

impl<'a> ViewEdges<'a> {
    /// Errors: `Unavailable` while the snapshot is being copied.
    pub(crate) fn new(source: &'a Source<'a>, view: &'a LiveView) -> Result<Self> {
        let buckets = match source {
            Source::Layers { view: LoadedView { snapshot: Some(snapshot), .. }, .. } => snapshot.buckets()?,
            _ => &[],
        };
        Ok(Self { source, view, buckets })
    }
}

impl EdgeLayers for ViewEdges<'_> {
    fn beginning(&self, prefix: &[u8], place: &[u8]) -> Vec<LayerRows<'_>> {
        let with = |laddered: bool| move |(chunk, rows): (_, Range<usize>)| (chunk, rows, laddered);
        match self.source {
            Source::Archive(layer) => layer.run.find_prefix(prefix).into_iter().map(with(false)).collect(),
            Source::Layers { stand, view: loaded } => {
                let bucket = self.buckets.get(bucket_of(place, self.buckets.len() as u32) as usize);
                let snapshot = bucket.into_iter().flat_map(|bucket| bucket.find_prefix(prefix));
                let mut found: Vec<LayerRows<'_>> = snapshot.map(with(true)).collect();
                found.extend(loaded.layers.iter().flat_map(|layer| layer.run.find_prefix(prefix)).map(with(false)));
                let fresh = stand.fresh_of(self.view).map(|rows| (&**rows, find_prefix(rows.keys(), prefix)));
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
            Source::Archive(layer) => layer.run.chunks().iter().map(|chunk| (chunk, false)).collect(),
            Source::Layers { stand, view: loaded } => {
                let bucket = self.buckets.get(part as usize);
                let mut chunks: Vec<_> = bucket.into_iter().flat_map(|bucket| bucket.chunks()).map(|chunk| (chunk, true)).collect();
                chunks.extend(loaded.layers.iter().flat_map(|layer| layer.run.chunks()).map(|chunk| (chunk, false)));
                chunks.extend(stand.fresh_of(self.view).map(|rows| (&**rows, false)));
                chunks
            }
        }
    }
}

/// All rows of one part that exist at `t`, and whether one of them is estimated. An error of `go_on` ends it.
pub(crate) fn scan(
    (view, links): (&LiveView, &LinkPlan),
    source: &Source<'_>,
    part: u32,
    t: Micros,
    wanted: &[usize],
    go_on: &GoOn<'_>,
) -> Result<(RecordBatch, bool)> {
    let fields: Vec<_> = wanted.iter().map(|column| view.plan.columns[*column].field.clone()).collect();
    let (mut batches, mut any) = (Vec::new(), false);
    let edges = ViewEdges::new(source, view)?;
    view.walk(links, &edges, t).while_ok(go_on).scan(part, wanted, &|_| true, &mut |batch, estimated| {
        batches.push(batch);
        any |= estimated.true_count() > 0;
        Ok(())
    })?;
    Ok((concat_batches(&Arc::new(Schema::new(fields)), &batches)?, any))
}
