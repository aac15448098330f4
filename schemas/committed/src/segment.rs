//! Reads a checkpoint's states for one view version: from the section of its states object or, if that is missing,
//! damaged or of another format, from the archive. A segment is a cache of Partial(its archive file).

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;

use crate::registry::LiveView;
use catalog::{CatalogState, CheckpointRecord, archive_file_of};
use engine::events::plan_schema;
use engine::functions::Functions;
use engine::plan::session_builder;
use engine::states::{Gather, Partial, StateRows, conform, sort_and_merge};
use storage::{ObjectStorage, StatesObject, read_archive_as};
use types::failures::Failures;
use types::files::{FileKind, FileRecord};
use types::{Error, ErrorKind, Result};

/// Where a checkpoint's states of one view version were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentSource {
    States,
    Archive,
}

/// A checkpoint's states of one view version.
#[derive(Debug)]
pub struct Segment {
    /// Sorted and merged, at the view's finest level.
    pub rows: StateRows,
    /// The events that are not in the states, because the view fails on them.
    pub failures: Failures,
    pub source: SegmentSource,
    /// Why its states object could not be read.
    pub damaged: Option<Error>,
}

/// Computes segments: a session whose operators, and the rows in progress next to them, stay under a limit.
pub struct SegmentSession {
    context: SessionContext,
    memory_limit_bytes: usize,
}

impl SegmentSession {
    /// Creates a session with these functions and this limit.
    pub fn new(functions: &Functions, memory_limit_bytes: usize) -> Result<SegmentSession> {
        let pool = Arc::new(GreedyMemoryPool::new(memory_limit_bytes));
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc()?;
        let state = session_builder().with_runtime_env(runtime).build();
        let context = SessionContext::new_with_state(state);
        functions.register(&context)?;
        Ok(SegmentSession { context, memory_limit_bytes })
    }

    pub fn context(&self) -> &SessionContext {
        &self.context
    }
}

/// Reads a segment, or computes it from the archive if its states object lacks it or cannot be read.
///
/// Errors: `Corrupt` when the archive is damaged as well, `Limit` when the states exceed the session's limit.
pub async fn segment_rows(
    storage: &ObjectStorage,
    session: &SegmentSession,
    view: &LiveView,
    state: &CatalogState,
    checkpoint: &CheckpointRecord,
) -> Result<Segment> {
    match stored_segment(storage, view, state, checkpoint).await? {
        StoredSegment::Found(segment) => Ok(*segment),
        StoredSegment::Lacking { damaged } => Ok(Segment { damaged, ..computed_segment(storage, session, view, state, checkpoint).await? }),
    }
}

/// What a checkpoint's states objects have of a view version.
#[derive(Debug)]
pub enum StoredSegment {
    Found(Box<Segment>),
    /// Nothing that can be read; `damaged` says why, where an object cannot be read.
    Lacking {
        damaged: Option<Error>,
    },
}

/// Reads a segment from its checkpoint's states object.
///
/// Errors: `Unavailable` when the storage does not answer.
pub async fn stored_segment(
    storage: &ObjectStorage,
    view: &LiveView,
    state: &CatalogState,
    checkpoint: &CheckpointRecord,
) -> Result<StoredSegment> {
    let StoredRows { found, damaged } = stored_rows(storage, view, state, checkpoint).await?;
    let Some((batches, failures)) = found else { return Ok(StoredSegment::Lacking { damaged }) };
    let (plan, codec) = (view.plan.clone(), view.codec.clone());
    // On a thread of its own: after a start, those of many checkpoints are sorted.
    let rows = tokio::task::spawn_blocking(move || sort_and_merge(&plan, &codec, &batches)).await??;
    Ok(StoredSegment::Found(Box::new(Segment { rows, failures, source: SegmentSource::States, damaged })))
}

/// The rows of a segment as they are in its checkpoint's states object: neither sorted nor merged for sure.
#[derive(Debug)]
pub struct StoredRows {
    /// `None` if no object that can be read has any.
    pub found: Option<(Vec<RecordBatch>, Failures)>,
    /// Why an object cannot be read.
    pub damaged: Option<Error>,
}

/// Reads the rows of a segment from its checkpoint's states object.
///
/// Errors: `Unavailable` when the storage does not answer.
pub async fn stored_rows(
    storage: &ObjectStorage,
    view: &LiveView,
    state: &CatalogState,
    checkpoint: &CheckpointRecord,
) -> Result<StoredRows> {
    let mut damaged = None;
    for file in state.readable_of(checkpoint.id, FileKind::States) {
        match section(storage, view, file).await {
            Ok(Some(rows)) => return Ok(StoredRows { found: Some(rows), damaged }),
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::Unavailable => return Err(error),
            // Missing, damaged, or of a newer release.
            Err(error) => {
                tracing::warn!(view = %view.name, file = %file.path, %error, "a segment cannot be read; its states \
                    are computed from the archive");
                damaged = Some(error);
            }
        }
    }
    Ok(StoredRows { found: None, damaged })
}

/// Computes a segment from the archive.
///
/// Errors: `Corrupt` when the archive is damaged, `Limit` when the states exceed the session's limit.
pub async fn computed_segment(
    storage: &ObjectStorage,
    session: &SegmentSession,
    view: &LiveView,
    state: &CatalogState,
    checkpoint: &CheckpointRecord,
) -> Result<Segment> {
    let mut partial = Partial::new(view.plan.clone(), &session.context)?;
    let mut gather = Gather::new(&view.plan, &view.codec, session.memory_limit_bytes);
    for stream in &view.plan.streams {
        let Some(file) = archive_file_of(state, checkpoint.id, &stream.name) else { continue };
        let mut events = read_archive_as(storage, file, plan_schema(stream)).await?;
        // Merged as they arrive, so that memory holds the segment and not its events.
        while let Some(batch) = events.try_next().await? {
            gather.push(&partial.states(&stream.name, &[batch]).await?)?;
        }
    }
    Ok(Segment { rows: gather.finish()?, failures: partial.take_failures(), source: SegmentSource::Archive, damaged: None })
}

async fn section(storage: &ObjectStorage, view: &LiveView, file: &FileRecord) -> Result<Option<(Vec<RecordBatch>, Failures)>> {
    let object = StatesObject::open(storage, file).await?;
    let Some(section) = object.section(&view.name, view.version) else { return Ok(None) };
    if !view.plan.reads_stamp(&section.stamp) {
        return Ok(None);
    }
    let batches = object.read_section(section).await?;
    let batches = batches.iter().map(|batch| conform(view.plan.state_schema(), batch)).collect::<Result<_>>()?;
    Ok(Some((batches, section.failures.clone())))
}
