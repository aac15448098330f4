//! Recomputes states from the archive, partitioned into the buckets of a snapshot.

use std::sync::Arc;

use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::prelude::SessionContext;
use definitions::StreamDefinition;
use engine::events::plan_schema;
use engine::states::{EventSource, FailureSink, partial_exec, prepared_plan};
use futures::TryStreamExt;
use storage::{ObjectStorage, OffsetRanges, archive_plan};
use tokio::task::JoinSet;
use types::files::FileRecord;
use types::{Error, Result};

use crate::bucket_partitioner::{BucketPartitioner, BucketRows, ShuffleContext};
use crate::progress::EventsRead;

/// Turns archive rows into unsorted states by bucket. One key and tile may have several rows. An event goes directly to
/// the finest tile that the snapshot keeps, because most events are older than the windows that need finer tiles.
/// Events that fail go to `failures`, and `events_read` counts those that were read.
///
/// Under memory pressure Partial emits early what it has, and the partitioner spills. States are merged when they are
/// written, in order and a few keys at a time. A second aggregation in between would have to hold or spill what the
/// partitioner holds anyway, and spilling it fails for states that are larger than their accumulators report.
pub(crate) async fn recompute(
    shuffle: &ShuffleContext,
    session: &SessionContext,
    source: &EventSource<'_>,
    (failures, events_read): (&FailureSink, &EventsRead),
) -> Result<Vec<BucketRows>> {
    let plan = shuffle.plan.kept_past(&shuffle.floors, &shuffle.edges_from)?;
    // What Partial emits is beside its table while it is made, and is reserved by nobody until the partitioner has it.
    let emitted = MemoryConsumer::new("emitted states").register(&shuffle.pool);
    emitted.grow(emitted_bytes(shuffle));
    let partial: Arc<dyn ExecutionPlan> = partial_exec(&plan, prepared_plan(&plan, session, source, failures)?)?;
    events_read.watch(partial.clone());
    let aggregate = |partition: usize| {
        let mut states = partial.execute(partition, session.task_ctx())?;
        let mut partitioner = BucketPartitioner::new(shuffle.clone());
        Ok::<_, Error>(async move {
            while let Some(batch) = states.try_next().await? {
                partitioner.push(&batch)?;
            }
            Ok(partitioner)
        })
    };
    let partitions = partial.output_partitioning().partition_count();
    let partitioners = each_partition(partitions, shuffle.threads, aggregate).await?;
    // What is reserved from here on are the rows, and what their sorts may take is known.
    drop(emitted);
    join_partitions(partitioners.into_iter().map(BucketPartitioner::finish).collect::<Result<_>>()?, shuffle.buckets)
}

/// The part of the limit that is kept free for emitted states. On each thread Partial and the partitioner have equal
/// shares of the rest. While Partial emits its table, it holds its share times the peak factor of the view's
/// aggregates.
fn emitted_bytes(shuffle: &ShuffleContext) -> usize {
    let left = 1.0 - 2.0 / (1.0 + shuffle.plan.peak_factor());
    (shuffle.limit_bytes as f64 * left) as usize
}

/// Joins the rows of each bucket from several partitioners, at least one.
pub(crate) fn join_partitions(partitions: Vec<Vec<BucketRows>>, buckets: u32) -> Result<Vec<BucketRows>> {
    let mut parts: Vec<Vec<BucketRows>> = (0..buckets).map(|_| Vec::new()).collect();
    for partitioned in partitions {
        for (of_bucket, rows) in parts.iter_mut().zip(partitioned) {
            of_bucket.push(rows);
        }
    }
    parts.into_iter().map(|parts| BucketRows::join(parts).ok_or_else(|| Error::internal("a plan has a partition"))).collect()
}

/// Does the work of each partition in a separate task, `threads` at a time. The work on a partition begins only when it
/// is its turn: a view over several streams has more partitions than a run has threads, and each of them reads files.
pub(crate) async fn each_partition<T, F>(partitions: usize, threads: usize, work: impl Fn(usize) -> Result<F>) -> Result<Vec<T>>
where
    F: Future<Output = Result<T>> + Send + 'static,
    T: Send + 'static,
{
    let mut waiting = 0..partitions;
    let (mut running, mut done) = (JoinSet::new(), Vec::with_capacity(partitions));
    loop {
        while running.len() < threads
            && let Some(partition) = waiting.next()
        {
            running.spawn(work(partition)?);
        }
        match running.join_next().await {
            Some(outcome) => done.push(outcome??),
            None => return Ok(done),
        }
    }
}

/// Scans these columns of a stream's archived events within the ranges.
pub(crate) fn scan_archive(
    storage: &ObjectStorage,
    stream: &StreamDefinition,
    columns: &[usize],
    (files, ranges): (&[FileRecord], &OffsetRanges),
    threads: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let files = files_of(files, stream);
    archive_plan(storage, &files, plan_schema(stream), ranges, Some(columns), threads)
}

pub(crate) fn files_of(files: &[FileRecord], stream: &StreamDefinition) -> Vec<FileRecord> {
    let is_of_stream = |file: &&FileRecord| file.subject.as_deref() == Some(&*stream.name);
    files.iter().filter(is_of_stream).cloned().collect()
}

#[cfg(test)]
mod tests;
