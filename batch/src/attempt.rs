//! What a run does between its start and its publication, step by step.

use std::sync::Arc;

use catalog::{CatalogState, RunRecord};
use committed::registry::{LiveView, Registry};
use datafusion::prelude::SessionContext;
use definitions::StreamDefinition;
use engine::states::FailureSink;
use storage::{Joined, Manifest, read_manifest};
use tracing::info;
use types::{Error, Result};

use crate::bucket_partitioner::{BucketRows, ShuffleContext};
use crate::decide::{RunInputs, RunTime, bucket_count};
use crate::join::{Join, LocalEdges, if_readable};
use crate::layer::{Batch, RunContext};
use crate::memory::PeakPool;
use crate::publish::publish;
use crate::recompute::{recompute, scan_archive};
use crate::session::open_session;
use crate::write::{SnapshotWriter, Written};

/// Recomputes a view up to the run's cut and publishes the result. A failure before the last step leaves the served
/// snapshot untouched.
pub(crate) async fn attempt(
    batch: &Batch,
    state: &CatalogState,
    run: RunRecord,
    t: RunTime,
    context: &RunContext<'_>,
) -> Result<RunRecord> {
    let attempt = Attempt::prepare(batch, state, run, t).await?;
    let states = attempt.recompute_states().await?;
    let mut written = attempt.write_states(states, context).await?;
    let joined = attempt.write_join(state, &mut written).await?;
    let run = attempt.finished_record(&written);
    let manifest = attempt.manifest(&run, &mut written, joined, context);
    Box::pin(publish(batch, &attempt.view, run, manifest, written.files, context)).await
}

/// A run in progress: its inputs and its tools.
struct Attempt<'a> {
    batch: &'a Batch,
    run: RunRecord,
    view: LiveView,
    inputs: RunInputs,
    buckets: u32,
    pool: Arc<PeakPool>,
    session: SessionContext,
    failures: FailureSink,
    /// For a linked view: a second copy of its edges, to be walked.
    local_edges: Option<LocalEdges>,
}

impl<'a> Attempt<'a> {
    async fn prepare(batch: &'a Batch, state: &CatalogState, run: RunRecord, t: RunTime) -> Result<Attempt<'a>> {
        let registry = Registry::load(state, &batch.functions).await?;
        let view = registry
            .view(&run.view, run.version)
            .ok_or_else(|| Error::not_found(format!("the view \"{}\" has no live version {} that keeps states", run.view, run.version)))?
            .clone();
        let inputs = RunInputs::at_cut(state, &run, &view, t)?;
        let buckets = bucket_count(inputs.events(), batch.settings.events_per_bucket);
        let pool = Arc::new(PeakPool::new(batch.settings.memory_limit_bytes));
        let session = open_session(&batch.settings, &batch.storage, &batch.functions, pool.clone())?;
        let local_edges = LocalEdges::of_linked(batch.settings.temp_dir.clone(), &view, pool.clone());
        let failures = FailureSink::default();
        Ok(Attempt { batch, run, view, inputs, buckets, pool, session, failures, local_edges })
    }

    /// Recomputes the states from the archive up to the cut, partitioned into buckets, unsorted.
    async fn recompute_states(&self) -> Result<Vec<BucketRows>> {
        let (storage, threads) = (&self.batch.storage, self.batch.settings.thread_count());
        let source = |stream: &StreamDefinition, columns: &[usize]| scan_archive(storage, stream, columns, &self.inputs, threads);
        let shuffle = ShuffleContext {
            plan: self.view.plan.clone(),
            floors: self.inputs.floors.clone(),
            edges_from: self.inputs.edges_from,
            codec: self.view.codec.clone(),
            buckets: self.buckets,
            threads,
            temp_dir: self.batch.settings.temp_dir.clone(),
            pool: self.pool.clone(),
            limit_bytes: self.batch.settings.memory_limit_bytes,
        };
        recompute(&shuffle, &self.session, &source, &self.failures).await
    }

    /// Sorts, merges and rolls up each bucket, and writes its file.
    async fn write_states(&self, states: Vec<BucketRows>, context: &RunContext<'_>) -> Result<Written> {
        let writer = SnapshotWriter {
            storage: self.batch.storage.clone(),
            plan: self.view.plan.clone(),
            codec: self.view.codec.clone(),
            version: self.view.version,
            run: self.run.id,
            floors: self.inputs.floors.clone(),
            limit_bytes: self.batch.settings.memory_limit_bytes,
            threads: self.batch.settings.thread_count(),
            context: self.session.task_ctx(),
        };
        let written = writer.write(states, self.local_edges.as_ref(), context.progress).await?;
        info!(view = %self.view.name, run = %self.run.id, rows = written.rows, "the states are written");
        Ok(written)
    }

    /// Writes the materialised join of a linked view. `None` for other views.
    async fn write_join(&self, state: &CatalogState, written: &mut Written) -> Result<Option<Joined>> {
        let Some(local_edges) = &self.local_edges else { return Ok(None) };
        let threads = self.batch.settings.thread_count();
        let edges = Arc::new(local_edges.mapped(self.buckets, threads, std::mem::take(&mut written.local)).await?);
        let (storage, view) = (self.batch.storage.clone(), self.view.clone());
        let join = Join { storage, view, links: local_edges.links.clone(), edges, t: self.inputs.t, run: self.run.id, threads };
        let join = join.write(self.manifest_before(state).await.as_ref()).await?;
        written.bytes += join.files.iter().map(|file| file.bytes).sum::<i64>();
        written.files.extend(join.files);
        Ok(Some(join.joined))
    }

    /// Reads the manifest of the served snapshot. `None` if there is none, or it cannot be read.
    async fn manifest_before(&self, state: &CatalogState) -> Option<Manifest> {
        let record = state.snapshot(&self.view.name, self.view.version);
        let file = record.and_then(|record| state.files.get(&record.manifest));
        if_readable(read_manifest(&self.batch.storage, file?).await)
    }

    fn finished_record(&self, written: &Written) -> RunRecord {
        RunRecord {
            events_read: self.inputs.events(),
            rows_written: written.rows,
            bytes_written: written.bytes,
            peak_memory_bytes: self.pool.peak_bytes() as i64,
            ..self.run.clone()
        }
    }

    fn manifest(&self, run: &RunRecord, written: &mut Written, joined: Option<Joined>, context: &RunContext<'_>) -> Manifest {
        Manifest {
            format: Manifest::format_of(&self.inputs.edges_from),
            view: self.view.name.clone(),
            version: self.view.version,
            run: run.id,
            cut: self.inputs.cut.clone(),
            stamp: self.view.plan.stamp.clone(),
            bucket_count: self.buckets,
            files: std::mem::take(&mut written.buckets),
            floors: self.inputs.floors.clone(),
            edges_from: self.inputs.edges_from,
            max_event_time: self.inputs.max_event_time,
            made_at: (context.clock)(),
            events: run.events_read,
            expired: 0,
            rows: run.rows_written,
            failures: self.failures.take(),
            joined,
        }
    }
}
