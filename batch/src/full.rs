//! A full run: recomputes the snapshot from the archive up to the cut, for a linked view with its join.

use catalog::SnapshotFiles;
use definitions::StreamDefinition;
use engine::states::FailureSink;
use storage::{Manifest, Tier};
use tracing::info;
use types::Result;
use types::files::FileRecord;

use crate::attempt::{Attempt, NewSnapshot};
use crate::bucket_partitioner::BucketRows;
use crate::decide::bucket_count;
use crate::layer::RunContext;
use crate::linked::{join_recomputed, local_edges};
use crate::progress::EventsRead;
use crate::recompute::{recompute, scan_archive};
use crate::write::Rows;

/// Returns the recomputed snapshot.
pub(crate) async fn recomputed(attempt: &Attempt<'_>, context: &RunContext<'_>) -> Result<NewSnapshot> {
    let files = attempt.inputs.archive(attempt.state, &attempt.view);
    let events = files.iter().map(|file| file.rows).sum();
    let buckets = bucket_count(events, attempt.batch.settings.events_per_bucket);
    // For a linked view: a second copy of its edges, to be walked.
    let local = local_edges(attempt);
    let failures = FailureSink::default();
    let states = recompute_states(attempt, &files, buckets, (&failures, context.events_read)).await?;
    let mut written = attempt.writer(Rows::OfEvents).write(states, local.as_ref(), context.progress).await?;
    info!(view = %attempt.view.name, run = %attempt.run.id, rows = written.rows, "the states are written");
    let base = Tier { bucket_count: buckets, files: std::mem::take(&mut written.buckets), pruned_at: Some(attempt.inputs.t) };
    let (mut carried_over, mut copies) = (Vec::new(), Vec::new());
    let joined = match &local {
        Some(local) => {
            let (join, tiers) = join_recomputed(attempt, local, &base, &mut written).await?;
            copies = tiers;
            carried_over = join.carried_over;
            written.add(join.files);
            Some(join.joined)
        }
        None => None,
    };
    let made_at = (context.clock)();
    let manifest = Manifest {
        format: Manifest::format_of(&attempt.inputs.edges_from, &[]),
        base,
        recomputed_at: Some(made_at),
        events,
        rows: written.rows,
        failures: failures.take(),
        joined,
        ..attempt.empty_manifest(made_at)
    };
    let bytes_read = files.iter().map(|file| file.bytes).sum();
    let run = attempt.finished_record((events, bytes_read), &written);
    Ok(NewSnapshot { manifest, files: SnapshotFiles { written: written.files, carried_over }, run, copies })
}

/// Recomputes the states from these files, partitioned into buckets, unsorted.
async fn recompute_states(
    attempt: &Attempt<'_>,
    files: &[FileRecord],
    buckets: u32,
    sinks: (&FailureSink, &EventsRead),
) -> Result<Vec<BucketRows>> {
    let (storage, threads) = (&attempt.batch.storage, attempt.batch.settings.thread_count());
    let source =
        |stream: &StreamDefinition, columns: &[usize]| scan_archive(storage, stream, columns, (files, &attempt.inputs.cut), threads);
    recompute(&attempt.shuffle(buckets), &attempt.session, &source, sinks).await
}
