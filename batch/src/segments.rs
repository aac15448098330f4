//! Gathers the states of checkpoints, from their states objects or from their events.

use std::sync::Arc;

use arrow::array::RecordBatch;
use catalog::{CatalogState, CheckpointRecord};
use committed::damage::{Finder, report_damage};
use committed::registry::LiveView;
use committed::segment::{Segment, SegmentSession, StoredSegment, segment_rows, stored_segment};
use datafusion::common::runtime::SpawnedTask;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use engine::states::at_kept_levels;
use storage::ObjectStorage;
use types::failures::Failures;
use types::files::FileKind;
use types::tiles::EdgesFrom;
use types::{Error, Result, failpoint};

use crate::attempt::Attempt;
use crate::basis::is_stream;
use crate::bucket_partitioner::{BucketPartitioner, BucketRows};
use crate::join::without_expired;
use crate::layer::RunContext;
use crate::mode::{REPLAYED_A_SECOND, ReplayFrom, ReplayRequest, RunMode};
use crate::replay::Replaying;

/// A segment's computation from the archive may take 1/`PART_OF_LIMIT` of the run's memory limit: states by bucket need
/// the rest.
const PART_OF_LIMIT: usize = 2;
/// The most segments that are read at once: each is held whole.
const SEGMENTS_AT_ONCE: usize = 4;

/// Where a run takes the states of checkpoints from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StatesFrom {
    /// Their states objects; where those lack them, they are computed from the archive.
    Stored,
    /// Their states objects; where those lack them, they are replayed from the log.
    StoredOrLog,
    /// All are computed from the checkpoints' events.
    Events(ReplayRequest),
}

impl StatesFrom {
    pub(crate) fn decide(view: &LiveView, mode: RunMode) -> StatesFrom {
        match mode {
            RunMode::Replay(request) => StatesFrom::Events(request),
            _ if is_stream(view) => StatesFrom::StoredOrLog,
            _ => StatesFrom::Stored,
        }
    }

    pub(crate) fn reads_log(self) -> bool {
        matches!(self, StatesFrom::StoredOrLog | StatesFrom::Events(ReplayRequest { from: ReplayFrom::Log, .. }))
    }

    /// How what has no states is replayed; `None`: it is computed from the archive, segment by segment.
    fn replayed(self) -> Option<ReplayRequest> {
        match self {
            StatesFrom::Stored => None,
            StatesFrom::StoredOrLog => Some(ReplayRequest { from: ReplayFrom::Log, events_a_second: Some(REPLAYED_A_SECOND) }),
            StatesFrom::Events(request) => Some(request),
        }
    }
}

/// The states of some checkpoints.
pub(crate) struct States {
    pub(crate) buckets: Vec<BucketRows>,
    pub(crate) failures: Failures,
    /// The events of links that no window reaches any more, left out.
    pub(crate) expired: i64,
}

/// Gathers the states of these checkpoints in `bucket_count` buckets, without edges that were last seen before `edges_from`.
///
/// Errors: `Limit` if a segment that has to be computed from the archive does not fit the limit.
pub(crate) async fn states_of(
    attempt: &Attempt<'_>,
    checkpoints: &[&CheckpointRecord],
    (from, bucket_count, edges_from): (StatesFrom, u32, &EdgesFrom),
    context: &RunContext<'_>,
) -> Result<States> {
    let view = &attempt.view;
    let (mut partitioner, mut expired) = (BucketPartitioner::new(attempt.shuffle(bucket_count)), 0);
    let mut add = |rows: &RecordBatch| {
        let rows = at_kept_levels(&view.plan, rows, &attempt.inputs.floors)?;
        let (rows, left_out) = without_expired(view, edges_from, rows)?;
        expired += left_out;
        partitioner.push_rows(rows)
    };
    let failures = read_segments(attempt, checkpoints, (from, context), &mut add).await?;
    Ok(States { buckets: partitioner.finish()?, failures, expired })
}

/// Reads the states of these checkpoints, and gives `each` their rows, of the finest level. Returns the events that are not
/// in them.
pub(crate) async fn read_segments(
    attempt: &Attempt<'_>,
    checkpoints: &[&CheckpointRecord],
    (from, context): (StatesFrom, &RunContext<'_>),
    each: &mut (dyn FnMut(&RecordBatch) -> Result<()> + Send),
) -> Result<Failures> {
    let batch = attempt.batch;
    let at_once = batch.settings.thread_count().min(SEGMENTS_AT_ONCE);
    let session = Arc::new(SegmentSession::new(&batch.functions, batch.settings.memory_limit_bytes / PART_OF_LIMIT / at_once)?);
    let mut replaying = from.replayed().map(|request| Replaying::begin(attempt, &session, request, context)).transpose()?;
    let held = MemoryConsumer::new("segments").register(&(attempt.pool.clone() as Arc<dyn MemoryPool>));
    let (mut failures, mut damaged) = (Failures::default(), Vec::new());
    for together in checkpoints.chunks(at_once) {
        let reading = together.iter().map(|checkpoint| {
            let source = (batch.storage.clone(), session.clone(), attempt.view.clone(), attempt.state.clone());
            SpawnedTask::spawn(stored(source, CheckpointRecord::clone(checkpoint), from))
        });
        let mut read = Vec::with_capacity(together.len());
        for segment in reading.collect::<Vec<_>>() {
            read.push(segment.join().await??);
        }
        // They are in memory already: others give way, and the run's peak shows it.
        held.resize(read.iter().map(bytes_of).sum());
        for (segment, checkpoint) in read.into_iter().zip(together) {
            match segment {
                StoredSegment::Found(Segment { rows, failures: failed, source: _, damaged: unreadable }) => {
                    each(rows.batch())?;
                    failures.extend(&failed);
                    damaged.extend(unreadable);
                }
                StoredSegment::Lacking { damaged: unreadable } => {
                    let lacks = || Error::internal("a checkpoint has neither states nor events");
                    failures.extend(&replaying.as_mut().ok_or_else(lacks)?.states_of(checkpoint, each).await?);
                    damaged.extend(unreadable);
                }
            }
            failpoint::hit("run.segment")?;
        }
    }
    let finder = Finder { name: &batch.worker, now: (context.clock)() };
    report_damage(&batch.catalog, &batch.storage, attempt.state, &damaged, finder).await;
    Ok(failures)
}

/// A checkpoint's states, as far as they are not to be replayed.
async fn stored(
    (storage, session, view, state): (ObjectStorage, Arc<SegmentSession>, LiveView, Arc<CatalogState>),
    checkpoint: CheckpointRecord,
    from: StatesFrom,
) -> Result<StoredSegment> {
    match from {
        StatesFrom::Stored => segment_rows(&storage, &session, &view, &state, &checkpoint).await.map(StoredSegment::Found),
        StatesFrom::StoredOrLog => stored_segment(&storage, &view, &state, &checkpoint).await,
        StatesFrom::Events(_) => Ok(StoredSegment::Lacking { damaged: None }),
    }
}

fn bytes_of(segment: &StoredSegment) -> usize {
    match segment {
        StoredSegment::Found(segment) => segment.rows.memory_bytes(),
        StoredSegment::Lacking { .. } => 0,
    }
}

/// The size of the states objects of these checkpoints.
pub(crate) fn states_bytes(attempt: &Attempt<'_>, checkpoints: &[&CheckpointRecord]) -> i64 {
    let files = checkpoints.iter().flat_map(|checkpoint| attempt.state.files.of_checkpoint(checkpoint.id));
    files.filter(|file| file.kind == FileKind::States).map(|file| file.bytes).sum()
}
