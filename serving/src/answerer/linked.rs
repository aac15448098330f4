//! Answering a view over a JOIN: a walk along its edges, from the keys asked to the end points that are counted.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::Schema;
use committed::registry::LiveView;
use engine::plan::links::LinkPlan;
use engine::states::{FailedRows, SeenBy};
use engine::walk::{CancelCheck, LinkedView, Walk, Walked};
use types::Result;

use crate::kept_keys::KeyName;
use crate::row_cache::{Part, RowBasis, RowInputs, RowValidity};

use super::edge_layers::ViewEdges;
use super::grouped::check_types;
use super::{Answerer, Answers, AskedKeys, AskedPart, NeededBuckets, Scanned, StateSource, WantedPaths};

/// A walk of one key over at most this many edges, which takes about a millisecond, stays on the thread that asks.
const QUICK_EDGES: usize = 8_192;

pub(super) struct Linked<'v> {
    pub(super) view: &'v LiveView,
    pub(super) links: &'v LinkPlan,
}

impl Answerer for Linked<'_> {
    fn follows_links(&self) -> bool {
        true
    }

    fn encode(&self, columns: &[ArrayRef], keys: usize) -> Result<BinaryArray> {
        check_types(self.view, columns)?;
        self.view.codec.nodes()?.near(columns, keys)
    }

    fn needed_buckets(&self, _: &[ArrayRef], _: usize) -> Result<NeededBuckets> {
        Ok(NeededBuckets::All)
    }

    fn rows(&self, source: &StateSource<'_>, asked: &AskedKeys<'_>, cancel_check: &CancelCheck<'_>) -> Result<Answers> {
        let edges = ViewEdges::new(source, self.view)?;
        let walk = self.view.walk(self.links, &edges, asked.t).cancelled_by(cancel_check);
        let walked = walk.rows(&self.groups(asked)?, asked.keys, asked.wanted)?;
        let paths = match asked.paths.most {
            0 => None,
            _ => paths(&walk, asked, cancel_check)?,
        };
        answers(walked, asked, paths)
    }

    fn rows_if_quick(&self, source: &StateSource<'_>, asked: &AskedKeys<'_>) -> Result<Option<Answers>> {
        self.rows_within(QUICK_EDGES, source, asked)
    }

    fn kept_key(&self, _: &AskedKeys<'_>) -> Result<Option<KeyName>> {
        Ok(None)
    }

    /// A walk may lead to any edge, so its row depends on all layers of the view.
    fn row_validity(&self, source: &StateSource<'_>, asked: &AskedKeys<'_>, known: Option<&RowBasis>) -> Result<RowValidity> {
        let (StateSource::Layers { read_view, view: loaded }, false) = (source, self.view.plan.reads_time(asked.wanted)) else {
            return Ok(RowValidity::NotCacheable);
        };
        if asked.keys != 1 || asked.paths.most > 0 {
            return Ok(RowValidity::NotCacheable);
        }
        let mut parts: Vec<Part<'_>> = Vec::new();
        parts.extend(loaded.snapshot.iter().map(|snapshot| Part::Whole(snapshot.clone())));
        parts.extend(loaded.layers.iter().map(|layer| Part::Whole(layer.run.clone())));
        parts.extend(read_view.fresh_of(self.view).filter(|rows| !rows.is_empty()).map(|rows| Part::Whole(rows.clone())));
        Ok(RowInputs { spans: Walk::spans_at(&self.view.plan, self.links, asked.t), parts }.compared(known))
    }

    fn rows_seen(&self, source: &StateSource<'_>, seen: &SeenBy<'_>) -> Result<RecordBatch> {
        check_types(self.view, seen.keys)?;
        LinkedView { plan: &self.view.plan, codec: &self.view.codec, links: self.links }
            .rows_seen(&ViewEdges::new(source, self.view)?, seen)
    }

    fn scan(&self, source: &StateSource<'_>, asked: &AskedPart<'_>, cancel_check: &CancelCheck<'_>) -> Result<Scanned> {
        let fields: Vec<_> = asked.wanted.iter().map(|column| self.view.plan.columns[*column].field.clone()).collect();
        let (mut batches, mut any_estimated, mut failed) = (Vec::new(), false, Vec::new());
        let edges = ViewEdges::new(source, self.view)?;
        let walk = self.view.walk(self.links, &edges, asked.t).cancelled_by(cancel_check);
        walk.scan(asked.part, asked.wanted, &|_| true, &mut |batch, estimated, failed_here| {
            batches.push(batch);
            failed.push(failed_here);
            any_estimated |= estimated.true_count() > 0;
            Ok(())
        })?;
        let rows = concat_batches(&Arc::new(Schema::new(fields)), &batches)?;
        Ok(Scanned { rows, estimated: any_estimated, failed: FailedRows::together(failed)? })
    }
}

impl Linked<'_> {
    /// The row of one key, if its walk takes at most this many edges.
    pub(super) fn rows_within(&self, edges: usize, source: &StateSource<'_>, asked: &AskedKeys<'_>) -> Result<Option<Answers>> {
        if asked.keys != 1 || asked.paths.most > 0 {
            return Ok(None);
        }
        let layers = ViewEdges::new(source, self.view)?;
        let walk = self.view.walk(self.links, &layers, asked.t);
        let walked = walk.rows_within(edges, &self.groups(asked)?, asked.keys, asked.wanted)?;
        walked.map(|walked| answers(walked, asked, None)).transpose()
    }

    /// The keys asked as the edges hold them.
    fn groups(&self, asked: &AskedKeys<'_>) -> Result<Vec<ArrayRef>> {
        let encoded = self.encoded(asked)?;
        self.view.codec.nodes()?.groups_of(&encoded.iter().flatten().collect::<Vec<_>>())
    }
}

fn answers(walked: Walked, asked: &AskedKeys<'_>, paths: Option<RecordBatch>) -> Result<Answers> {
    let Walked { rows, found, estimated, failed } = walked;
    let failed = FailedRows::among(asked.columns, failed)?;
    Ok(Answers { rows, found, estimated: estimated.contains(&true), paths, failed })
}

/// The first paths of each key, in the order of the keys.
fn paths(walk: &Walk<'_>, asked: &AskedKeys<'_>, cancel_check: &CancelCheck<'_>) -> Result<Option<RecordBatch>> {
    let WantedPaths { most, counted_in } = asked.paths;
    let mut paths = Vec::with_capacity(asked.keys);
    for key in 0..asked.keys {
        cancel_check()?;
        let of_key: Vec<ArrayRef> = asked.columns.iter().map(|column| column.slice(key, 1)).collect();
        paths.push(walk.paths(&of_key, most, counted_in)?);
    }
    Ok(paths.first().map(|first| concat_batches(&first.schema(), &paths)).transpose()?)
}

#[cfg(test)]
mod tests;
