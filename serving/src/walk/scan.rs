//! Scanning a linked view: every group key that has near edges, walked some at a time.

use std::collections::BTreeSet;

use arrow::array::BooleanArray;
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::record_batch::RecordBatch;
use schemas::Result;
use schemas::plan::links::LinkPlan;
use schemas::registry::LiveView;
use schemas::states::StateRows;
use schemas::storage::bucket_of;
use schemas::tiles::Micros;

use crate::lookup::{Source, scan_parts};
use crate::walk::Walk;

/// Keys that are walked together.
const KEYS: usize = 1_024;

/// All rows of one part that exist at `t`, and whether one of them is estimated.
pub(crate) fn scan(
    view: &LiveView,
    links: &LinkPlan,
    source: &Source<'_>,
    part: u32,
    t: Micros,
    wanted: &[usize],
) -> Result<(RecordBatch, bool)> {
    let walk = Walk::new(view, links, source, t);
    let keys: Vec<Vec<u8>> = keys_of(&walk, part)?.into_iter().collect();
    let fields: Vec<_> = wanted.iter().map(|column| view.plan.columns[*column].field.clone()).collect();
    let schema = std::sync::Arc::new(arrow::datatypes::Schema::new(fields));
    let (mut batches, mut estimated) = (Vec::new(), false);
    for keys in keys.chunks(KEYS) {
        let prefixes: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let answers = walk.rows(&view.codec.nodes()?.groups_of(&prefixes)?, keys.len(), wanted)?;
        batches.push(filter_record_batch(&answers.rows, &BooleanArray::from(answers.found))?);
        estimated |= answers.estimated;
    }
    Ok((concat_batches(&schema, &batches)?, estimated))
}

/// How the near edges of this part's group keys begin.
fn keys_of(walk: &Walk<'_>, part: u32) -> Result<BTreeSet<Vec<u8>>> {
    let parts = scan_parts(walk.source);
    let mut keys = BTreeSet::new();
    for (rows, in_part) in walk.source.chunks(walk.view, part) {
        add_keys(walk, rows, (part, if in_part { 1 } else { parts }), &mut keys)?;
    }
    Ok(keys)
}

fn add_keys(walk: &Walk<'_>, rows: &StateRows, (part, parts): (u32, u32), keys: &mut BTreeSet<Vec<u8>>) -> Result<()> {
    let codec = walk.view.codec.nodes()?;
    let near = codec.near_rows(rows.batch())?;
    let groups: Vec<_> =
        rows.batch().columns()[walk.links.layout.groups.clone()].iter().map(|key| key.slice(near.start, near.len())).collect();
    let prefixes = codec.near(&groups, near.len())?;
    let places = codec.near_places(&groups, near.len())?;
    for row in 0..near.len() {
        if (parts == 1 || bucket_of(places.value(row), parts) == part) && !keys.contains(prefixes.value(row)) {
            keys.insert(prefixes.value(row).to_vec());
        }
    }
    Ok(())
}
