//! Runs a planned query: on which threads, when it is its turn, and within which limits.
//!
//! A query that reads only a few keys runs at once on the thread that asks. Every other query takes a place among the
//! running ones ([`Admission`]), and its batches are computed on threads of their own, which give way to lookups.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use access::Principal;
use arrow::array::RecordBatch;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, Stream, StreamExt};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use types::{Error, Result, threads};

use super::light::is_light;
use super::query_time::{Deadline, QueryTime};
use super::sized_rows::sized;
use super::view::KeyLookup;
use crate::admission::{Admission, Place};
use crate::query_runtime::QueryRuntime;

/// This many batches are computed ahead of the reader.
const MADE_AHEAD: usize = 1;
/// A query whose client takes nothing for this time leaves its place to others.
const PATIENCE: Duration = Duration::from_secs(1);
/// Operators that may produce very many batches from one that they read.
const JOINS: [&str; 5] = ["CrossJoinExec", "HashJoinExec", "NestedLoopJoinExec", "PiecewiseMergeJoinExec", "SortMergeJoinExec"];

/// Runs a plan when it is its turn. `runtime` is that of the query.
///
/// Errors: `Busy` when its turn does not come.
pub(super) async fn run_plan(
    runtime: &QueryRuntime,
    principal: &Arc<Principal>,
    (plan, context): (Arc<dyn ExecutionPlan>, Arc<TaskContext>),
    time: QueryTime,
) -> Result<(LimitedBatches, Turn)> {
    let (batches, turn) = match is_light(&plan)? {
        true => (execute_stream(sized(plan)?, context)?, Turn::default()),
        false => {
            let place = time.within(runtime.admission().place(principal)).await?;
            (made_apart(yielding(sized(plan)?)?, context), Turn::new(runtime.admission().clone(), principal.clone(), place))
        }
    };
    Ok((LimitedBatches::new(runtime, batches.boxed(), turn.clone(), time), turn))
}

/// Answers a few keys at once. `runtime` is that of the node.
pub(super) fn run_lookup(runtime: &QueryRuntime, lookup: KeyLookup, time: QueryTime) -> LimitedBatches {
    let of_node = runtime.clone();
    let batch = async move { lookup.answer(&of_node).await.map_err(DataFusionError::from) };
    LimitedBatches::new(runtime, stream::once(batch).boxed(), Turn::default(), time)
}

/// Makes joins yield between their batches, so that a cancelled query ends there. DataFusion itself yields only where
/// batches are read.
fn yielding(plan: Arc<dyn ExecutionPlan>) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
    let yielding = plan.transform_up(|node| match JOINS.contains(&node.name()) {
        true => Ok(Transformed::yes(Arc::new(CooperativeExec::new(node)) as Arc<dyn ExecutionPlan>)),
        false => Ok(Transformed::no(node)),
    })?;
    Ok(yielding.data)
}

/// Computes a query's batches on the threads for queries that read much.
fn made_apart(plan: Arc<dyn ExecutionPlan>, context: Arc<TaskContext>) -> SendableRecordBatchStream {
    let schema = plan.schema();
    let (made, taken) = mpsc::channel(MADE_AHEAD);
    let making = threads::SCANS.spawn(async move {
        match execute_stream(plan, context) {
            Ok(batches) => make(batches, made).await,
            Err(error) => drop(made.send(Err(error)).await),
        }
    });
    // What was begun ends with the stream; one whose maker panicked must not look whole.
    let batches = stream::unfold(Some((taken, AbortOnDropHandle::new(making))), |state| async move {
        let (mut taken, making) = state?;
        match taken.recv().await {
            Some(batch) => Some((batch, Some((taken, making)))),
            None => making.await.err().map(|ended| (Err(Error::from(ended).into()), None)),
        }
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, batches))
}

/// Computes batches up to the first error, each when there is room for it.
async fn make(mut batches: SendableRecordBatchStream, made: mpsc::Sender<DataFusionResult<RecordBatch>>) {
    while let Ok(room) = made.reserve().await {
        let Some(batch) = batches.next().await else { return };
        let failed = batch.is_err();
        room.send(batch);
        if failed {
            return;
        }
    }
}

/// A query's place among the running ones, which it can give up while nobody takes its rows. Cheap to clone.
#[derive(Clone, Default)]
pub struct Turn(Option<Arc<Taken>>);

struct Taken {
    admission: Admission,
    principal: Arc<Principal>,
    place: Mutex<Option<Place>>,
}

impl Turn {
    fn new(admission: Admission, principal: Arc<Principal>, place: Place) -> Self {
        Self(Some(Arc::new(Taken { admission, principal, place: Mutex::new(Some(place)) })))
    }

    /// Leaves the place to others until rows are asked for again.
    pub fn pause(&self) {
        if let Some(taken) = &self.0 {
            *taken.place() = None;
        }
    }

    /// Sends rows to the query's client. The place is given up if the client takes nothing for long.
    pub async fn while_sending<T>(&self, sending: impl Future<Output = T>) -> T {
        let mut sending = pin!(sending);
        if let Ok(sent) = tokio::time::timeout(PATIENCE, &mut sending).await {
            return sent;
        }
        self.pause();
        sending.await
    }

    /// Returns a future that takes a place again, if the query has none and needs one.
    fn retake(&self) -> Option<BoxFuture<'static, Result<()>>> {
        let taken = self.0.clone()?;
        if taken.place().is_some() {
            return None;
        }
        Some(Box::pin(async move {
            let place = taken.admission.endless_place(&taken.principal).await?;
            *taken.place() = Some(place);
            Ok(())
        }))
    }
}

impl Taken {
    fn place(&self) -> std::sync::MutexGuard<'_, Option<Place>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Batches within a query's limits, computed while the query has a place.
pub(super) struct LimitedBatches {
    batches: BoxStream<'static, DataFusionResult<RecordBatch>>,
    /// Adds to errors the setting or folder that they come from.
    runtime: QueryRuntime,
    turn: Turn,
    taking: Option<BoxFuture<'static, Result<()>>>,
    /// Of the query's time.
    deadline: Option<Deadline>,
    rows: Option<Rows>,
}

struct Rows {
    most: u64,
    sent: u64,
}

impl LimitedBatches {
    fn new(runtime: &QueryRuntime, batches: BoxStream<'static, DataFusionResult<RecordBatch>>, turn: Turn, time: QueryTime) -> Self {
        let rows = runtime.limits().result_rows.map(|most| Rows { most, sent: 0 });
        Self { batches, runtime: runtime.clone(), turn, taking: None, deadline: time.deadline(), rows }
    }

    /// The same, however many rows there are.
    pub(super) fn with_any_number_of_rows(self) -> Self {
        Self { rows: None, ..self }
    }

    /// The same error, with the setting or the folder that it comes from.
    fn named(&self, error: DataFusionError) -> DataFusionError {
        let error = self.runtime.spill_folder().named(error);
        match self.runtime.query_memory() {
            Some(memory) => memory.named(error),
            None => error,
        }
    }
}

impl Stream for LimitedBatches {
    type Item = DataFusionResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(out_of_time) = this.deadline.as_mut().and_then(|deadline| deadline.poll(cx)) {
            return Poll::Ready(Some(Err(out_of_time.into())));
        }
        if this.taking.is_none() {
            this.taking = this.turn.retake();
        }
        if let Some(taking) = &mut this.taking {
            let taken = ready!(taking.as_mut().poll(cx));
            this.taking = None;
            taken?;
        }
        let batch = ready!(this.batches.poll_next_unpin(cx)).transpose().map_err(|error| this.named(error))?;
        let Some(batch) = batch else {
            this.turn.pause();
            return Poll::Ready(None);
        };
        if let Some(rows) = &mut this.rows {
            rows.sent += batch.num_rows() as u64;
            if rows.sent > rows.most {
                return Poll::Ready(Some(Err(too_many_rows(rows.most).into())));
            }
        }
        Poll::Ready(Some(Ok(batch)))
    }
}

fn too_many_rows(most: u64) -> Error {
    metrics::counter!("basestream_serving_queries_refused_total", "reason" => "rows").increment(1);
    Error::limit(format!("the answer has more than {most} rows, the setting serving.limits.result_rows: add a LIMIT, or raise the setting"))
        .with("limit", "serving.limits.result_rows")
}

#[cfg(test)]
mod tests;
