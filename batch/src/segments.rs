//! Gathers the states of checkpoints, from their states objects or from their events.

use std::sync::Arc;

use catalog::CheckpointRecord;
use committed::damage::{Finder, report_damage};
use committed::registry::LiveView;
use committed::segment::{Segment, SegmentSession, StoredSegment, segment_rows, stored_segment};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use futures::future::try_join_all;
use types::tiles::EdgesFrom;
use types::{Error, Result, failpoint};

use crate::attempt::Attempt;
use crate::basis::is_stream;
use crate::gathered::{Gathered, States};
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
    let (batch, state, view) = (attempt.batch, attempt.state, &attempt.view);
    let at_once = batch.settings.thread_count().min(SEGMENTS_AT_ONCE);
    let session = SegmentSession::new(&batch.functions, batch.settings.memory_limit_bytes / PART_OF_LIMIT / at_once)?;
    let request = match from {
        StatesFrom::Stored => None,
        StatesFrom::StoredOrLog => Some(ReplayRequest { from: ReplayFrom::Log, events_a_second: Some(REPLAYED_A_SECOND) }),
        StatesFrom::Events(request) => Some(request),
    };
    let mut replaying = request.map(|request| Replaying::begin(attempt, &session, request, context)).transpose()?;
    let mut gathered = Gathered::begin(attempt, bucket_count, edges_from);
    let held = MemoryConsumer::new("segments").register(&(attempt.pool.clone() as Arc<dyn MemoryPool>));
    let mut damaged = Vec::new();
    for together in checkpoints.chunks(at_once) {
        let reading = together.iter().map(|checkpoint| async {
            match from {
                StatesFrom::Stored => segment_rows(&batch.storage, &session, view, state, checkpoint).await.map(StoredSegment::Found),
                StatesFrom::StoredOrLog => stored_segment(&batch.storage, view, state, checkpoint).await,
                StatesFrom::Events(_) => Ok(StoredSegment::Lacking { damaged: None }),
            }
        });
        let read = try_join_all(reading).await?;
        // They are in memory already: others give way, and the run's peak shows it.
        held.resize(read.iter().map(bytes_of).sum());
        for (segment, checkpoint) in read.into_iter().zip(together) {
            match segment {
                StoredSegment::Found(Segment { rows, failures, source: _, damaged: unreadable }) => {
                    gathered.add(rows.batch())?;
                    gathered.failures.extend(&failures);
                    damaged.extend(unreadable);
                }
                StoredSegment::Lacking { damaged: unreadable } => {
                    let lacks = || Error::internal("a checkpoint has neither states nor events");
                    replaying.as_mut().ok_or_else(lacks)?.add_to(&mut gathered, checkpoint).await?;
                    damaged.extend(unreadable);
                }
            }
            failpoint::hit("run.segment")?;
        }
    }
    let finder = Finder { name: &batch.worker, now: (context.clock)() };
    report_damage(&batch.catalog, &batch.storage, state, &damaged, finder).await;
    gathered.finish()
}

fn bytes_of(segment: &StoredSegment) -> usize {
    match segment {
        StoredSegment::Found(segment) => segment.rows.memory_bytes(),
        StoredSegment::Lacking { .. } => 0,
    }
}
