//! Waits for the part of a snapshot that an answer needs, while the snapshot is being copied.

use datafusion::common::ScalarValue;
use types::Result;

use super::keys;
use crate::answerer::{NeededBuckets, answerer};
use crate::query_context::QueryContext;
use crate::read_view::LoadedView;

/// Waits until the buckets that these keys of a view need are copied; without keys, until all are.
pub(crate) async fn fetch(context: &QueryContext, view: &LoadedView, keys: Option<&[Vec<ScalarValue>]>) -> Result<()> {
    if let Some(copy) = &view.snapshot {
        copy.note_asked();
    }
    let Some(copy) = view.copying().filter(|_| !context.needs_archive(view)) else { return Ok(()) };
    match keys.map_or(Ok(NeededBuckets::All), |keys| needed_buckets(view, keys))? {
        NeededBuckets::OfKeys(keys) => copy.fetch(&keys).await,
        NeededBuckets::All => copy.fetch_all().await,
    }
}

fn needed_buckets(view: &LoadedView, keys: &[Vec<ScalarValue>]) -> Result<NeededBuckets> {
    let columns = keys::columns(view.live.plan.answer_keys(), keys)?;
    answerer(&view.live).needed_buckets(&columns, keys.len())
}
