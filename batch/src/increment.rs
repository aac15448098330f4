//! An incremental run: adds the states of the checkpoints since the last cut to the snapshot before, as a delta, and
//! merges tiers where that is due.
//!
//! ```text
//! checkpoints since the cut --segments--> delta ------------------------------------+
//! tiers of the snapshot before --those that are due--> merged into one tier --------+--> snapshot
//!                              \--the others, as they are------------------------- -+
//! ```

use catalog::{CheckpointRecord, SnapshotFiles, carried_over, checkpoints_after};
use committed::damage::{Finder, report_damage};
use committed::segment::{Segment, SegmentSession, segment_rows};
use engine::states::{at_kept_levels, conform};
use futures::TryStreamExt;
use futures::future::try_join_all;
use storage::{Manifest, Tier, read_bucket};
use tracing::info;
use types::failures::Failures;
use types::{Result, failpoint};

use crate::attempt::{Attempt, NewSnapshot};
use crate::basis::{events_of, first_to_merge, greater};
use crate::bucket_partitioner::{BucketPartitioner, BucketRows};
use crate::decide::{bucket_count, streams_of};
use crate::layer::RunContext;
use crate::write::{Rows, Written};

/// A segment's computation from the archive may take 1/`PART_OF_LIMIT` of the run's memory limit: states by bucket need
/// the rest.
const PART_OF_LIMIT: usize = 2;

/// Returns the snapshot `before` with what was committed since. `None` if there is nothing new.
pub(crate) async fn increment(attempt: &Attempt<'_>, before: Manifest, context: &RunContext<'_>) -> Result<Option<NewSnapshot>> {
    let checkpoints = checkpoints_after(attempt.state, &streams_of(&attempt.view), &before.cut)?;
    if checkpoints.is_empty() {
        return Ok(None);
    }
    let tiers: Vec<&Tier> = before.tiers().collect();
    let (kept, due) = tiers.split_at(first_to_merge(&tiers).unwrap_or(tiers.len()));
    let mut written = Written::default();
    let merged = match due {
        [] => None,
        due => Some(merge(attempt, due, &mut written, context).await?),
    };
    let (delta, failures) = delta(attempt, &checkpoints, &mut written, context).await?;
    info!(view = %attempt.view.name, run = %attempt.run.id, checkpoints = checkpoints.len(), merged = due.len(), rows = written.rows,
        "the states since the last cut are written");

    let kept_paths = kept.iter().flat_map(|tier| &tier.files).map(|file| &*file.path);
    let carried_over = carried_over(attempt.state, kept_paths, attempt.run.id)?;
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
    Ok(Some(NewSnapshot { manifest, files, run }))
}

/// Writes the states of these checkpoints as a tier. States come from the checkpoints' states objects; where those lack
/// them, from the archive.
async fn delta(
    attempt: &Attempt<'_>,
    checkpoints: &[&CheckpointRecord],
    written: &mut Written,
    context: &RunContext<'_>,
) -> Result<(Tier, Failures)> {
    let (batch, state, view) = (attempt.batch, attempt.state, &attempt.view);
    let session = SegmentSession::new(&batch.functions, batch.settings.memory_limit_bytes / PART_OF_LIMIT)?;
    let buckets = bucket_count(events_of(state, view, checkpoints), batch.settings.events_per_bucket);
    let mut partitioner = BucketPartitioner::new(attempt.shuffle(buckets));
    let (mut failures, mut damaged) = (Failures::default(), Vec::new());
    for together in checkpoints.chunks(batch.settings.thread_count()) {
        let segments = together.iter().map(|checkpoint| segment_rows(&batch.storage, &session, view, state, checkpoint));
        for segment in try_join_all(segments).await? {
            let Segment { rows, failures: failed, source: _, damaged: unreadable } = segment;
            partitioner.push_rows(at_kept_levels(&view.plan, rows.batch(), &attempt.inputs.floors)?)?;
            failures.extend(&failed);
            damaged.extend(unreadable);
            failpoint::hit("run.segment")?;
        }
    }
    let finder = Finder { name: &batch.worker, now: (context.clock)() };
    report_damage(&batch.catalog, &batch.storage, state, &damaged, finder).await;
    let tier = write(attempt, partitioner.finish()?, Rows::OfEvents, written, context).await?;
    Ok((tier, failures))
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
    Ok(Tier { bucket_count, files: tier.buckets })
}
