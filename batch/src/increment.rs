//! An incremental run: adds the states of the checkpoints since the last cut to the snapshot before, as a delta, and
//! merges tiers where that is due.
//!
//! ```text
//! checkpoints since the cut --segments--> delta ------------------------------------+
//! tiers of the snapshot before --those that are due--> merged into one tier --------+--> snapshot
//!                              \--the others, as they are---------------------------+
//! ```

use std::sync::Arc;

use catalog::{CheckpointRecord, SnapshotFiles, checkpoints_after};
use committed::damage::{Finder, report_damage};
use committed::lacking::events_of;
use committed::segment::{Segment, SegmentSession, segment_rows};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use engine::states::{at_kept_levels, conform};
use futures::TryStreamExt;
use futures::future::try_join_all;
use storage::{Manifest, Tier, read_bucket};
use tracing::info;
use types::failures::Failures;
use types::{ErrorKind, Result, failpoint};

use crate::attempt::{Attempt, NewSnapshot};
use crate::basis::{first_to_merge, greater, is_outlived};
use crate::bucket_partitioner::{BucketPartitioner, BucketRows};
use crate::decide::bucket_count;
use crate::layer::RunContext;
use crate::write::{Rows, Written};

/// A segment's computation from the archive may take 1/`PART_OF_LIMIT` of the run's memory limit: states by bucket need
/// the rest.
const PART_OF_LIMIT: usize = 2;
/// The most segments that are read at once: each is held whole.
const SEGMENTS_AT_ONCE: usize = 4;

/// What became of an incremental run.
pub(crate) enum Incremented {
    Snapshot(Box<NewSnapshot>),
    /// The snapshot before holds everything up to the cut.
    Nothing,
    /// The run has to recompute from the archive, for this reason.
    NotPossible(String),
}

/// Makes a snapshot of the one `before` and what was committed since.
pub(crate) async fn increment(attempt: &Attempt<'_>, before: Manifest, context: &RunContext<'_>) -> Result<Incremented> {
    let checkpoints = checkpoints_after(attempt.state, &attempt.view.streams(), &before.cut)?;
    let is_base_outlived = is_outlived(&before.base, &attempt.view, attempt.inputs.t);
    if checkpoints.is_empty() && !is_base_outlived {
        return Ok(Incremented::Nothing);
    }
    let (states, failures) = match segments(attempt, &checkpoints, context).await {
        // A recomputation spills where a segment that is computed from the archive cannot.
        Err(error) if error.kind() == ErrorKind::Limit => return Ok(Incremented::NotPossible(error.to_string())),
        read => read?,
    };
    let tiers: Vec<&Tier> = before.tiers().collect();
    let first_due = if is_base_outlived { Some(0) } else { first_to_merge(&tiers) };
    let (kept, due) = tiers.split_at(first_due.unwrap_or(tiers.len()));
    let mut written = Written::default();
    let merged = match due {
        [] => None,
        due => Some(merge(attempt, due, &mut written, context).await?),
    };
    let delta = write(attempt, states, Rows::OfEvents, &mut written, context).await?;
    info!(view = %attempt.view.name, run = %attempt.run.id, checkpoints = checkpoints.len(), merged = due.len(), rows = written.rows,
        "the states since the last cut are written");

    let carried_over = kept.iter().flat_map(|tier| &tier.files).map(|file| file.path.clone()).collect();
    let added = merged.into_iter().chain([delta]).filter(|tier| !tier.files.is_empty());
    let mut tiers = kept.iter().copied().cloned().chain(added);
    let base = tiers.next().unwrap_or_default();
    let deltas: Vec<Tier> = tiers.collect();
    let events = events_of(attempt.state, &attempt.view, &checkpoints);
    let mut all_failures = before.failures.clone();
    all_failures.extend(&failures);
    let manifest = Manifest {
        format: Manifest::format_of(&attempt.inputs.edges_from, &deltas),
        rows: base.rows() + deltas.iter().map(Tier::rows).sum::<i64>(),
        base,
        deltas,
        floors: greater(&before.floors, &attempt.inputs.floors),
        recomputed_at: Some(before.recomputed_at.unwrap_or(before.made_at)),
        events: before.events + events,
        failures: all_failures,
        ..attempt.empty_manifest((context.clock)())
    };
    let run = attempt.finished_record(events, &written);
    let files = SnapshotFiles { written: written.files, carried_over };
    Ok(Incremented::Snapshot(Box::new(NewSnapshot { manifest, files, run })))
}

/// Reads the states of these checkpoints, by bucket. They come from the checkpoints' states objects; where those lack
/// them, from the archive.
///
/// Errors: `Limit` if a segment that has to be computed does not fit the limit.
async fn segments(
    attempt: &Attempt<'_>,
    checkpoints: &[&CheckpointRecord],
    context: &RunContext<'_>,
) -> Result<(Vec<BucketRows>, Failures)> {
    let (batch, state, view) = (attempt.batch, attempt.state, &attempt.view);
    let at_once = batch.settings.thread_count().min(SEGMENTS_AT_ONCE);
    let session = SegmentSession::new(&batch.functions, batch.settings.memory_limit_bytes / PART_OF_LIMIT / at_once)?;
    let buckets = bucket_count(events_of(state, view, checkpoints), batch.settings.events_per_bucket);
    let mut partitioner = BucketPartitioner::new(attempt.shuffle(buckets));
    let held = MemoryConsumer::new("segments").register(&(attempt.pool.clone() as Arc<dyn MemoryPool>));
    let (mut failures, mut damaged) = (Failures::default(), Vec::new());
    for together in checkpoints.chunks(at_once) {
        let reading = together.iter().map(|checkpoint| segment_rows(&batch.storage, &session, view, state, checkpoint));
        let read = try_join_all(reading).await?;
        // They are in memory already: others give way, and the run's peak shows it.
        held.resize(read.iter().map(|segment| segment.rows.memory_bytes()).sum());
        for Segment { rows, failures: failed, source: _, damaged: unreadable } in read {
            partitioner.push_rows(at_kept_levels(&view.plan, rows.batch(), &attempt.inputs.floors)?)?;
            failures.extend(&failed);
            damaged.extend(unreadable);
            failpoint::hit("run.segment")?;
        }
    }
    let finder = Finder { name: &batch.worker, now: (context.clock)() };
    report_damage(&batch.catalog, &batch.storage, state, &damaged, finder).await;
    Ok((partitioner.finish()?, failures))
}

/// Merges tiers into one.
async fn merge(attempt: &Attempt<'_>, tiers: &[&Tier], written: &mut Written, context: &RunContext<'_>) -> Result<Tier> {
    let rows = tiers.iter().map(|tier| tier.rows()).sum();
    let buckets = bucket_count(rows, attempt.batch.settings.events_per_bucket);
    let mut partitioner = BucketPartitioner::new(attempt.shuffle(buckets));
    for file in tiers.iter().flat_map(|tier| &tier.files) {
        let mut batches = read_bucket(&attempt.batch.storage, file).await?;
        while let Some(batch) = batches.try_next().await? {
            partitioner.push_rows(conform(attempt.view.plan.state_schema(), &batch)?)?;
        }
    }
    write(attempt, partitioner.finish()?, Rows::OfTiers, written, context).await
}

/// Writes a tier, and adds it to what the run wrote.
async fn write(
    attempt: &Attempt<'_>,
    states: Vec<BucketRows>,
    rows: Rows,
    written: &mut Written,
    context: &RunContext<'_>,
) -> Result<Tier> {
    let bucket_count = states.len() as u32;
    let already = written.rows;
    let progress = |rows: i64| (context.progress)(already + rows);
    let mut tier = attempt.writer(rows).write(states, None, &progress).await?;
    written.rows += tier.rows;
    written.bytes += tier.bytes;
    written.files.append(&mut tier.files);
    Ok(Tier { bucket_count, files: tier.buckets, pruned_at: Some(attempt.inputs.t) })
}
