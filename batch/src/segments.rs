//! Gathers the states of checkpoints, from their states objects or from their events.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use catalog::{CatalogState, CheckpointRecord};
use committed::damage::{Finder, report_damage};
use committed::registry::LiveView;
use committed::segment::{SegmentSession, computed_segment, stored_rows};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use engine::states::at_kept_levels;
use storage::ObjectStorage;
use types::failures::Failures;
use types::files::FileKind;
use types::tiles::EdgesFrom;
use types::{Error, Result, failpoint};
use uuid::Uuid;

use crate::attempt::Attempt;
use crate::basis::is_stream;
use crate::bucket_partitioner::{BucketPartitioner, BucketRows, sliced_bytes};
use crate::context::RunContext;
use crate::join::without_expired;
use crate::mode::{REPLAYED_A_SECOND, ReplayFrom, ReplayRequest, RunMode};
use crate::recompute::{each_partition, join_partitions};
use crate::replay::Replaying;

/// A segment's computation from the archive may take 1/`PART_OF_LIMIT` of the run's memory limit: states by bucket need
/// the rest.
const PART_OF_LIMIT: usize = 2;
/// The most segments that are read at once: each is held whole.
const SEGMENTS_AT_ONCE: usize = 4;

/// Where a run takes the states of checkpoints from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StatesFrom {
    /// From states objects; states that these lack are computed from the archive.
    Stored,
    /// From states objects; states that these lack are replayed from the log.
    StoredOrLog,
    /// From events: all states are computed from the checkpoints' events.
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

    /// How checkpoints without states are replayed. `None` if their states are computed from the archive, segment by
    /// segment.
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
    /// The number of events of links that were left out because no window reaches them any more.
    pub(crate) expired: i64,
}

/// Prepares the rows of segments, all of the finest level, before they are put into buckets. The second result is the
/// number of events that were left out.
pub(crate) type Prepare = Arc<dyn Fn(&RecordBatch) -> Result<(RecordBatch, i64)> + Send + Sync>;

/// Moves rows to the levels that the run keeps, and leaves out edges that were last seen before `edges_from`.
pub(crate) fn at_levels(attempt: &Attempt<'_>, edges_from: EdgesFrom) -> Prepare {
    let (view, floors) = (attempt.view.clone(), attempt.inputs.floors.clone());
    Arc::new(move |rows| without_expired(&view, &edges_from, at_kept_levels(&view.plan, rows, &floors)?))
}

/// Gathers the states of these checkpoints in `bucket_count` buckets, in several tasks. Checkpoints that have to be
/// replayed follow, in their order.
///
/// Errors: `Limit` if a segment that has to be computed from the archive does not fit the limit.
pub(crate) async fn states_of(
    attempt: &Attempt<'_>,
    checkpoints: &[&CheckpointRecord],
    from: StatesFrom,
    bucket_count: u32,
    prepare: Prepare,
    context: &RunContext<'_>,
) -> Result<States> {
    let batch = attempt.batch;
    let tasks = attempt.settings.thread_count().min(SEGMENTS_AT_ONCE);
    let session = Arc::new(SegmentSession::new(&batch.functions, attempt.settings.memory_limit_bytes / PART_OF_LIMIT / tasks)?);
    let gathering = Gathering { attempt, context, session, from, bucket_count, prepare };
    let (mut parts, mut lacking, mut damaged) = (Vec::new(), BTreeSet::new(), Vec::new());
    for share in gathering.read_shares(checkpoints, tasks).await? {
        parts.push(share.states);
        lacking.extend(share.lacking);
        damaged.extend(share.damaged);
    }
    if let Some(request) = from.replayed().filter(|_| !lacking.is_empty()) {
        let lacking: Vec<&CheckpointRecord> = checkpoints.iter().copied().filter(|checkpoint| lacking.contains(&checkpoint.id)).collect();
        parts.push(gathering.replay(&lacking, request).await?);
    }
    let finder = Finder { name: &batch.worker, now: (context.clock)() };
    report_damage(&batch.catalog, &batch.storage, attempt.state, &damaged, finder).await;
    States::joined(parts, bucket_count)
}

impl States {
    /// Joins the states of parts of the checkpoints.
    fn joined(parts: Vec<States>, bucket_count: u32) -> Result<States> {
        let (mut buckets, mut failures, mut expired) = (Vec::with_capacity(parts.len()), Failures::default(), 0);
        for part in parts {
            buckets.push(part.buckets);
            failures.extend(&part.failures);
            expired += part.expired;
        }
        Ok(States { buckets: join_partitions(buckets, bucket_count)?, failures, expired })
    }
}

/// How a run gathers the states of checkpoints.
struct Gathering<'a> {
    attempt: &'a Attempt<'a>,
    context: &'a RunContext<'a>,
    session: Arc<SegmentSession>,
    from: StatesFrom,
    bucket_count: u32,
    prepare: Prepare,
}

impl Gathering<'_> {
    /// Reads the checkpoints' segments in several tasks, each of which reads a share of them.
    async fn read_shares(&self, checkpoints: &[&CheckpointRecord], tasks: usize) -> Result<Vec<ReadShare>> {
        let read_share = |place: usize| {
            let share: Vec<CheckpointRecord> =
                checkpoints.iter().skip(place).step_by(tasks).map(|checkpoint| (*checkpoint).clone()).collect();
            Ok(self.reader().read(share))
        };
        each_partition(tasks, tasks, read_share).await
    }

    fn reader(&self) -> SegmentReader {
        let attempt = self.attempt;
        SegmentReader {
            storage: attempt.batch.storage.clone(),
            session: self.session.clone(),
            view: attempt.view.clone(),
            state: attempt.state.clone(),
            from: self.from,
            held: MemoryConsumer::new("segments").register(&(attempt.pool.clone() as Arc<dyn MemoryPool>)),
            partitioner: BucketPartitioner::new(attempt.shuffle(self.bucket_count)),
            prepare: self.prepare.clone(),
        }
    }

    /// Computes the states of checkpoints from their events, one checkpoint after the other.
    async fn replay(&self, checkpoints: &[&CheckpointRecord], request: ReplayRequest) -> Result<States> {
        let mut replaying = Replaying::begin(self.attempt, &self.session, request, self.context)?;
        let mut partitioner = BucketPartitioner::new(self.attempt.shuffle(self.bucket_count));
        let (mut failures, mut expired) = (Failures::default(), 0);
        let mut each = |rows: &RecordBatch| {
            let (rows, left_out) = (self.prepare)(rows)?;
            expired += left_out;
            partitioner.push_rows(rows)
        };
        for checkpoint in checkpoints {
            failures.extend(&replaying.states_of(checkpoint, &mut each).await?);
            failpoint::hit("run.segment")?;
        }
        Ok(States { buckets: partitioner.finish()?, failures, expired })
    }
}

/// Reads a share of a run's segments, one after the other.
struct SegmentReader {
    storage: ObjectStorage,
    session: Arc<SegmentSession>,
    view: LiveView,
    state: Arc<CatalogState>,
    from: StatesFrom,
    /// The memory of the current segment's rows, so that other operators give way and the run's peak includes it.
    held: MemoryReservation,
    partitioner: BucketPartitioner,
    prepare: Prepare,
}

/// A share of a run's segments.
struct ReadShare {
    states: States,
    /// The checkpoints whose states are to be replayed.
    lacking: Vec<Uuid>,
    damaged: Vec<Error>,
}

impl SegmentReader {
    async fn read(mut self, checkpoints: Vec<CheckpointRecord>) -> Result<ReadShare> {
        let (mut failures, mut expired) = (Failures::default(), 0);
        let (mut lacking, mut damaged) = (Vec::new(), Vec::new());
        for checkpoint in &checkpoints {
            let Some((batches, failed)) = self.rows_of(checkpoint, &mut damaged).await? else {
                lacking.push(checkpoint.id);
                continue;
            };
            self.held.resize(batches.iter().map(sliced_bytes).sum::<Result<usize>>()?);
            for rows in &batches {
                let (rows, left_out) = (self.prepare)(rows)?;
                expired += left_out;
                self.partitioner.push_rows(rows)?;
            }
            failures.extend(&failed);
            failpoint::hit("run.segment")?;
        }
        Ok(ReadShare { states: States { buckets: self.partitioner.finish()?, failures, expired }, lacking, damaged })
    }

    /// Returns a checkpoint's rows, and the events that are left out of them. `None` if they have to be replayed.
    async fn rows_of(&self, checkpoint: &CheckpointRecord, damaged: &mut Vec<Error>) -> Result<Option<(Vec<RecordBatch>, Failures)>> {
        if let StatesFrom::Events(_) = self.from {
            return Ok(None);
        }
        let stored = stored_rows(&self.storage, &self.view, &self.state, checkpoint).await?;
        damaged.extend(stored.damaged);
        match (stored.found, self.from) {
            (Some(found), _) => Ok(Some(found)),
            (None, StatesFrom::Stored) => {
                let computed = computed_segment(&self.storage, &self.session, &self.view, &self.state, checkpoint).await?;
                Ok(Some((vec![computed.rows.batch().clone()], computed.failures)))
            }
            (None, _) => Ok(None),
        }
    }
}

/// The size of the states objects of these checkpoints.
pub(crate) fn states_bytes(attempt: &Attempt<'_>, checkpoints: &[&CheckpointRecord]) -> i64 {
    let files = checkpoints.iter().flat_map(|checkpoint| attempt.state.readable_of(checkpoint.id, FileKind::States));
    files.map(|file| file.bytes).sum()
}
