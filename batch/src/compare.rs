//! Compares a recomputation with the states that incremental runs had kept up to the same cut.
//!
//! ```text
//! base, from the archive or replayed --------------------------------+
//!                                                                     bucket by bucket, row by row
//! tiers of the snapshot before --\                                    |
//! checkpoints since its cut -------> states by bucket --sort, merge --+
//! ```
//!
//! Both sides are as of one cut and time: the run's. If other runs added to the snapshot while it recomputed, both
//! sides are as of the cut of the last of these, and the same is added to the base. Any difference is a defect, or
//! damage that no checksum detects. The run publishes what it recomputed anyway, because states are defined by the
//! archive.
//!
//! Memory is bounded as in any run: the kept states are partitioned and spilled like those of a recomputation. A
//! failing comparison does not make its run fail.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::nullif;
use arrow::datatypes::{DataType, TimestampMicrosecondType};
use catalog::{CheckpointRecord, Comparison, StateDifference, checkpoints_after};
use committed::damage::{Finder, report_damage};
use committed::registry::LiveView;
use definitions::durations::format_duration_parts;
use engine::plan::StateIndex;
use engine::states::{StateRows, conform, kept_tiles, rollup};
use futures::{StreamExt, TryStreamExt, stream};
use storage::{BucketFile, Manifest, Tier, read_bucket};
use tokio::sync::mpsc;
use tracing::{info, warn};
use types::tiles::EdgesFrom;
use types::vector::Vector;
use types::{Error, Result, failpoint};

use crate::attempt::Attempt;
use crate::basis::{greater, is_compared, later};
use crate::bucket_partitioner::BucketRows;
use crate::context::RunContext;
use crate::join::without_expired;
use crate::limits::RunLimits;
use crate::mode::RunMode;
use crate::recompute::join_partitions;
use crate::request::RunRequest;
use crate::segments::{Prepare, StatesFrom, at_levels, states_bytes, states_of};
use crate::tiers::tier_rows;
use crate::write::{Rows, SnapshotWriter};

mod rows;

use rows::{ComparedRows, compare_at_hand};

/// Compares recomputed or replayed states with the previous snapshot, if incremental runs maintain one.
pub(crate) async fn compare_recomputed(
    attempt: &Attempt<'_>,
    request: &RunRequest,
    made: &Manifest,
    context: &RunContext<'_>,
) -> Option<Comparison> {
    let before = attempt.before.as_ref().filter(|_| request.compare)?;
    if !is_compared(attempt.state, &attempt.view, before, (attempt.inputs.t, request.mode)) {
        return None;
    }
    let began = Instant::now();
    let compared = Box::pin(compared(attempt, before, made, context));
    let Some(most) = RunLimits::from_definition(attempt.state, &attempt.run, request.mode).timeout() else { return Some(compared.await) };
    let too_long = |_| Comparison {
        seconds: began.elapsed().as_secs_f64(),
        error: Some(format!("it took longer than the view's timeout of {}", format_duration_parts(most))),
        ..Comparison::default()
    };
    Some(tokio::time::timeout(most, compared).await.unwrap_or_else(too_long))
}

/// Compares the `recomputed` snapshot with the one `before`, each with the checkpoints since its cut, and reports the
/// differences. `attempt` is as of the later of the two.
async fn compared(attempt: &Attempt<'_>, before: &Manifest, recomputed: &Manifest, context: &RunContext<'_>) -> Comparison {
    let began = Instant::now();
    let mut bytes_read = 0;
    let outcome = compare(attempt, before, recomputed, context, &mut bytes_read).await;
    let (found, error) = match outcome {
        Ok(found) => (found, None),
        Err(error) => {
            let finder = Finder { name: &attempt.batch.worker, now: (context.clock)() };
            report_damage(&attempt.batch.catalog, &attempt.batch.storage, attempt.state, std::slice::from_ref(&error), finder).await;
            (ComparedRows::default(), Some(error.to_string()))
        }
    };
    let ComparedRows { rows, differences, first } = found;
    let comparison = Comparison { rows, differences, first, seconds: began.elapsed().as_secs_f64(), bytes_read, error };
    report(attempt, &comparison);
    comparison
}

fn report(attempt: &Attempt<'_>, comparison: &Comparison) {
    let (view, run) = (&attempt.view.name, attempt.run.id);
    metrics::counter!("basestream_batch_differences_total", "view" => view.to_string()).increment(comparison.differences.max(0) as u64);
    match (comparison.first.first(), &comparison.error) {
        (Some(StateDifference { key, column, level, tile, kept, recomputed, .. }), _) => warn!(
            %view, %run, differences = comparison.differences, key, column, level, tile, kept, recomputed,
            "incremental runs had kept other states than a recomputation gives; the recomputed ones are published"
        ),
        (None, Some(error)) => warn!(%view, %run, error, "the recomputation could not be compared with the states that were kept"),
        (None, None) => info!(%view, %run, rows = comparison.rows, "the recomputation gives the states that were kept"),
    }
}

async fn compare(
    attempt: &Attempt<'_>,
    before: &Manifest,
    recomputed: &Manifest,
    context: &RunContext<'_>,
    bytes_read: &mut i64,
) -> Result<ComparedRows> {
    let streams = attempt.view.streams();
    let is_added_to = !recomputed.cut.covers(&before.cut.of_streams(&streams));
    let cut = if is_added_to { &before.cut } else { &recomputed.cut };
    let (kept, recomputed) = (StatesAtCut::find(attempt, before, cut)?, StatesAtCut::find(attempt, recomputed, cut)?);
    *bytes_read = kept.bytes(attempt) + recomputed.bytes(attempt);
    let threads = attempt.settings.thread_count();
    // The recomputation may have gone on with slices that a clock which was ahead has pruned.
    let floors = greater(&recomputed.manifest.floors, &greater(&before.floors, &attempt.inputs.floors));
    let sides = Sides {
        attempt,
        // They share the memory of all sorts.
        writer: SnapshotWriter { floors, threads: threads * 2, ..attempt.writer(Rows::Tiers) },
        edges_from: later(&before.edges_from, &attempt.inputs.edges_from),
    };
    let base = &recomputed.manifest.base;
    let of_kept = sides.states(&kept, base.bucket_count, context).await?;
    let of_recomputed: Vec<Recomputed<'_>> = match recomputed.checkpoints.is_empty() {
        true => (0..base.bucket_count).map(|bucket| Recomputed::Written(base.file_of(bucket))).collect(),
        false => sides.states(&recomputed, base.bucket_count, context).await?.into_iter().map(Recomputed::AddedTo).collect(),
    };
    failpoint::hit("run.compared")?;
    // Collected first: a closure in the stream would make this future one that cannot be spawned.
    let buckets: Vec<_> = of_kept.into_iter().zip(of_recomputed).map(|(kept, recomputed)| sides.compare_bucket(kept, recomputed)).collect();
    let mut buckets = std::pin::pin!(stream::iter(buckets).buffered(threads));
    let mut all = ComparedRows::default();
    while let Some(found) = buckets.try_next().await? {
        all.add(found);
    }
    Ok(all)
}

/// All states up to a cut: those of a snapshot, and of the checkpoints since.
struct StatesAtCut<'s> {
    manifest: &'s Manifest,
    checkpoints: Vec<&'s CheckpointRecord>,
}

impl<'s> StatesAtCut<'s> {
    fn find(attempt: &'s Attempt<'_>, manifest: &'s Manifest, cut: &Vector) -> Result<Self> {
        let streams = attempt.view.streams();
        let mut checkpoints = checkpoints_after(attempt.state, &streams, &manifest.cut)?;
        checkpoints.retain(|checkpoint| checkpoint.is_within_of(&streams, cut));
        Ok(StatesAtCut { manifest, checkpoints })
    }

    /// The size of the files to read.
    fn bytes(&self, attempt: &Attempt<'_>) -> i64 {
        self.manifest.tiers().map(Tier::bytes).sum::<i64>() + states_bytes(attempt, &self.checkpoints)
    }
}

/// The recomputed states of one bucket.
enum Recomputed<'s> {
    /// The file of the bucket, unless it is empty.
    Written(Option<&'s BucketFile>),
    /// The states with those of the checkpoints since.
    AddedTo(BucketRows),
}

/// Converts both sides to the same form.
struct Sides<'r> {
    attempt: &'r Attempt<'r>,
    /// Its floors are the ones above which both sides keep rows.
    writer: SnapshotWriter,
    edges_from: EdgesFrom,
}

impl Sides<'_> {
    /// The states of one side in buckets, unsorted.
    async fn states(&self, side: &StatesAtCut<'_>, buckets: u32, context: &RunContext<'_>) -> Result<Vec<BucketRows>> {
        let (attempt, view) = (self.attempt, &self.attempt.view);
        let tiers: Vec<&Tier> = side.manifest.tiers().collect();
        let (of_tiers, _) = tier_rows(attempt, &tiers, self.edges_from, buckets).await?;
        let (levels, kept, floors) = (at_levels(attempt, self.edges_from), view.clone(), attempt.inputs.floors.clone());
        // Tiers have all levels: so that they can be merged with them, segments get theirs one by one.
        let prepare: Prepare = Arc::new(move |rows| {
            let (rows, left_out) = levels(rows)?;
            let sorted = StateRows::sort(&kept.plan, &kept.codec, &[rows])?;
            Ok((rollup(&kept.plan, &sorted, &floors)?.batch().clone(), left_out))
        });
        let from = StatesFrom::decide(view, RunMode::ByStrategy);
        let of_checkpoints = states_of(attempt, &side.checkpoints, from, buckets, prepare, context).await?;
        join_partitions(vec![of_tiers, of_checkpoints.buckets], buckets)
    }

    async fn compare_bucket(&self, kept: BucketRows, recomputed: Recomputed<'_>) -> Result<ComparedRows> {
        let ((send_kept, kept_rows), (send_recomputed, recomputed_rows)) = (mpsc::channel(2), mpsc::channel(2));
        let recomputed = async {
            match recomputed {
                Recomputed::Written(None) => Ok(()),
                Recomputed::Written(Some(file)) => self.read(file, send_recomputed).await,
                Recomputed::AddedTo(rows) => self.writer.clone().sort(rows, send_recomputed).await,
            }
        };
        let (of_kept, of_recomputed, found) =
            futures::join!(self.writer.clone().sort(kept, send_kept), recomputed, self.compare_rows(kept_rows, recomputed_rows));
        // If the comparison fails, the others fail too, because their receiver is gone. A side that fails seems to end.
        let found = found?;
        of_kept?;
        of_recomputed?;
        Ok(found)
    }

    /// Sends the rows of a recomputed file, without those that the kept states have already dropped.
    async fn read(&self, file: &BucketFile, send: mpsc::Sender<StateRows>) -> Result<()> {
        let view = &self.attempt.view;
        let mut batches = read_bucket(&self.attempt.batch.storage, file).await?;
        while let Some(batch) = batches.try_next().await? {
            let (rows, _) = without_expired(view, &self.edges_from, conform(view.plan.state_schema(), &batch)?)?;
            let rows = kept_tiles(&rows, &self.writer.floors)?;
            let keys = view.codec.encode(&rows.columns()[..view.plan.keys.len()], rows.num_rows())?;
            send.send(StateRows::from_sorted(rows, keys)).await.map_err(|_| Error::internal("a comparison is gone"))?;
        }
        Ok(())
    }

    async fn compare_rows(
        &self,
        mut kept_rows: mpsc::Receiver<StateRows>,
        mut recomputed_rows: mpsc::Receiver<StateRows>,
    ) -> Result<ComparedRows> {
        let view = &self.attempt.view;
        let counts_expired = counts_expired(view, &self.edges_from);
        let is_compared = move |state: StateIndex| state != StateIndex::EVENTS || !counts_expired;
        let (mut kept, mut recomputed, mut found) = (None, None, ComparedRows::default());
        loop {
            self.refill(&mut kept, &mut kept_rows).await?;
            self.refill(&mut recomputed, &mut recomputed_rows).await?;
            if is_done(&kept) && is_done(&recomputed) {
                return Ok(found);
            }
            let none = || StateRows::from_sorted(RecordBatch::new_empty(view.plan.state_schema().clone()), Vec::<&[u8]>::new().into());
            let at_hand = (kept.take().unwrap_or_else(none), recomputed.take().unwrap_or_else(none));
            let plan = view.plan.clone();
            // Otherwise one thread would read and compare all buckets.
            let comparing = tokio::task::spawn_blocking(move || {
                let mut found = ComparedRows::default();
                let left = compare_at_hand(&plan, at_hand, is_compared, &mut found)?;
                Ok::<_, Error>((left, found))
            });
            let ((left, also_left), more) = comparing.await??;
            (kept, recomputed) = (Some(left), Some(also_left));
            found.add(more);
        }
    }

    /// Fetches rows of a side if none are buffered, unless it has ended.
    async fn refill(&self, at_hand: &mut Option<StateRows>, rows: &mut mpsc::Receiver<StateRows>) -> Result<()> {
        while is_done(at_hand)
            && let Some(next) = rows.recv().await
        {
            let batch = without_old_times(&self.attempt.view, &self.edges_from, next.batch())?;
            *at_hand = Some(StateRows::from_sorted(batch, next.keys().clone()));
        }
        Ok(())
    }
}

fn is_done(rows: &Option<StateRows>) -> bool {
    rows.as_ref().is_none_or(StateRows::is_empty)
}

/// Whether edges may count events that no window reaches any more: a recomputation does not read these.
fn counts_expired(view: &LiveView, edges_from: &EdgesFrom) -> bool {
    view.plan.liveness_links().is_some() && *edges_from != EdgesFrom::default()
}

/// Removes the times, under each condition, at which edges were last seen if no window reaches them any more: they are
/// equivalent to none.
fn without_old_times(view: &LiveView, edges_from: &EdgesFrom, rows: &RecordBatch) -> Result<RecordBatch> {
    if !counts_expired(view, edges_from) {
        return Ok(rows.clone());
    }
    let wrong = || Error::corrupt("the rows of edges are not of their view's schema").with("view", &view.name);
    let is_far = rows.column(0).as_boolean_opt().ok_or_else(wrong)?;
    let mut columns = rows.columns().to_vec();
    for column in &mut columns[view.plan.keys.len() + 2..] {
        if !matches!(column.data_type(), DataType::Timestamp(..)) {
            continue;
        }
        let times = column.as_primitive_opt::<TimestampMicrosecondType>().ok_or_else(wrong)?;
        let is_old = |row: usize| {
            let from = if is_far.value(row) { edges_from.far } else { edges_from.near };
            times.is_valid(row) && from.is_some_and(|from| times.value(row) < from)
        };
        let old = BooleanArray::from_iter((0..times.len()).map(|row| Some(is_old(row))));
        let cleared: ArrayRef = nullif(column, &old)?;
        *column = cleared;
    }
    Ok(RecordBatch::try_new(rows.schema(), columns)?)
}
