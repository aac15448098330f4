//! Reads the rows of tiers by bucket, in several tasks.

use arrow::array::RecordBatch;
use engine::states::{at_kept_levels, conform, kept_tiles};
use futures::TryStreamExt;
use storage::{BucketFile, Tier, read_bucket};
use types::Result;
use types::tiles::EdgesFrom;

use crate::attempt::Attempt;
use crate::bucket_partitioner::{BucketPartitioner, BucketRows};
use crate::join::without_expired;
use crate::recompute::{each_partition, join_partitions};

/// Returns the rows of all files of these tiers, unsorted, in this many buckets, without tiles that are no longer kept,
/// which are neither sorted nor spilled. The second result is the number of events of links that were left out, because
/// no window reaches them any more.
pub(crate) async fn tier_rows(
    attempt: &Attempt<'_>,
    tiers: &[&Tier],
    edges_from: EdgesFrom,
    buckets: u32,
) -> Result<(Vec<BucketRows>, i64)> {
    let floors = attempt.inputs.floors.clone();
    rows_by_bucket(attempt, tiers, (edges_from, buckets), move |rows| kept_tiles(rows, &floors)).await
}

/// Returns the rows of all files of these slices in the same way, each at the finest level that is kept of its time.
pub(crate) async fn slice_rows(attempt: &Attempt<'_>, slices: &[&Tier], buckets: u32) -> Result<Vec<BucketRows>> {
    let (plan, floors) = (attempt.view.plan.clone(), attempt.inputs.floors.clone());
    let placed = move |rows: &RecordBatch| at_kept_levels(&plan, rows, &floors);
    // What is too old was left out by its events.
    Ok(rows_by_bucket(attempt, slices, (EdgesFrom::default(), buckets), placed).await?.0)
}

/// Returns the rows of all files of these tiers that `keep` keeps.
async fn rows_by_bucket(
    attempt: &Attempt<'_>,
    tiers: &[&Tier],
    (edges_from, buckets): (EdgesFrom, u32),
    keep: impl Fn(&RecordBatch) -> Result<RecordBatch> + Clone + Send + 'static,
) -> Result<(Vec<BucketRows>, i64)> {
    let threads = attempt.settings.thread_count();
    let (storage, view, shuffle) = (&attempt.batch.storage, &attempt.view, attempt.shuffle(buckets));
    let mut shares: Vec<Vec<BucketFile>> = vec![Vec::new(); threads];
    for (place, file) in tiers.iter().flat_map(|tier| &tier.files).enumerate() {
        shares[place % threads].push(file.clone());
    }
    let read = |place: usize| {
        let (storage, view, files) = (storage.clone(), view.clone(), shares[place].clone());
        let keep = keep.clone();
        let mut partitioner = BucketPartitioner::new(shuffle.clone());
        Ok(async move {
            let mut left_out = 0;
            for file in &files {
                let mut batches = read_bucket(&storage, file).await?;
                while let Some(batch) = batches.try_next().await? {
                    let rows = conform(view.plan.state_schema(), &batch)?;
                    let (rows, expired) = without_expired(&view, &edges_from, rows)?;
                    left_out += expired;
                    partitioner.push_rows(keep(&rows)?)?;
                }
            }
            Ok((partitioner.finish()?, left_out))
        })
    };
    let (parts, left_out): (Vec<_>, Vec<i64>) = each_partition(threads, threads, read).await?.into_iter().unzip();
    Ok((join_partitions(parts, buckets)?, left_out.into_iter().sum()))
}
