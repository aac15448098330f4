//! A full run: recomputes the snapshot from the archive up to the cut, for a linked view with its join.

use definitions::StreamDefinition;
use engine::events::plan_schema;
use engine::states::FailureSink;
use types::Result;
use types::files::FileRecord;

use crate::attempt::{Attempt, NewSnapshot};
use crate::bucket_count::bucket_count;
use crate::bucket_partitioner::BucketRows;
use crate::layer::RunContext;
use crate::one_tier::{AllStates, write_one_tier};
use crate::progress::EventsRead;
use crate::recompute::{files_of, recompute, scan_archive};
use crate::shared_scan::ArchiveRead;

/// Returns the recomputed snapshot.
pub(crate) async fn recomputed(attempt: &Attempt<'_>, context: &RunContext<'_>) -> Result<NewSnapshot> {
    let files = attempt.inputs.archive(attempt.state, &attempt.view);
    let events = files.iter().map(|file| file.rows).sum();
    let buckets = bucket_count(events, attempt.batch.settings.events_per_bucket);
    let failures = FailureSink::default();
    let states = AllStates {
        buckets: recompute_states(attempt, &files, buckets, (&failures, context.events_read)).await?,
        events,
        bytes_read: files.iter().map(|file| file.bytes).sum(),
        failures: failures.take(),
        expired: None,
    };
    write_one_tier(attempt, states, context).await
}

/// Recomputes the states from these files, partitioned into buckets, unsorted.
async fn recompute_states(
    attempt: &Attempt<'_>,
    files: &[FileRecord],
    buckets: u32,
    sinks: (&FailureSink, &EventsRead),
) -> Result<Vec<BucketRows>> {
    let (storage, threads, cut) = (&attempt.batch.storage, attempt.batch.settings.thread_count(), &attempt.inputs.cut);
    let source = |stream: &StreamDefinition, columns: &[usize]| {
        let reads = ArchiveRead {
            storage,
            stream: &stream.name,
            files: files_of(files, stream),
            schema: plan_schema(stream),
            columns,
            cut: cut.clone(),
            threads,
            context: attempt.session.task_ctx(),
        };
        match attempt.batch.shared_scan.join(reads)? {
            Some(rows) => Ok(rows),
            None => scan_archive(storage, stream, columns, (files, cut), threads),
        }
    };
    recompute(&attempt.shuffle(buckets), &attempt.session, &source, sinks).await
}
