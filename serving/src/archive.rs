//! Answers from the archive, for times for which the kept tiles are not sufficient: exactly, but more slowly.

use std::sync::Arc;

use catalog::{ArchiveBounds, archive_files};
use committed::registry::LiveView;
use datafusion::common::ScalarValue;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr, execute_stream};
use definitions::StreamDefinition;
use engine::events::plan_schema;
use engine::states::{FailureSink, Gather, SortedRun, partial_exec, prepared_plan, state_rows_of};
use futures::TryStreamExt;
use storage::{OffsetRanges, archive_plan};
use tokio_util::task::AbortOnDropHandle;
use types::columns::EVENT_TIME;
use types::failures::Failures;
use types::files::FileRecord;
use types::tiles::Micros;
use types::vector::Vector;
use types::{Result, threads};

use crate::query_context::QueryContext;
use crate::query_runtime::QueryRuntime;

/// One view's states of all archived events up to a vector, and up to a time when the query names one.
#[derive(Debug)]
pub struct ArchiveLayer {
    pub run: SortedRun,
    pub vector: Vector,
    /// The events that are left out, because the view fails on them.
    pub failures: Failures,
    /// What it takes of the memory of all queries.
    _reservation: MemoryReservation,
}

/// Reads what a view needs at the query's time; asked with `as_of`, nothing dated after it. With `key` (values in the
/// order of the view's keys) only events of that key.
///
/// Errors: `Limit` when the states do not fit the memory that is left of the queries' limit.
pub(crate) async fn archive_layer(
    runtime: &QueryRuntime,
    view: &LiveView,
    context: &QueryContext,
    key: Option<&[ScalarValue]>,
) -> Result<ArchiveLayer> {
    let (runtime, view, context, key) = (runtime.clone(), view.clone(), context.clone(), key.map(<[_]>::to_vec));
    let reading = threads::SCANS.spawn(async move { read(&runtime, &view, &context, key.as_deref()).await });
    AbortOnDropHandle::new(reading).await?
}

async fn read(runtime: &QueryRuntime, view: &LiveView, context: &QueryContext, key: Option<&[ScalarValue]>) -> Result<ArchiveLayer> {
    let (session, storage) = (runtime.session()?, runtime.storage());
    let (state, t, as_of) = (&context.read_view.loaded.state, context.t(view), context.as_of);
    let vector = state.vector();
    let bounds = ArchiveBounds { cut: None, oldest: view.plan.oldest_kept(t), newest: as_of };
    let streams: Vec<Arc<str>> = view.plan.streams.iter().map(|stream| stream.name.clone()).collect();
    let files = archive_files(state, &streams, bounds);
    let source = |stream: &StreamDefinition, columns: &[usize]| -> Result<Arc<dyn ExecutionPlan>> {
        let of_stream: Vec<FileRecord> =
            files.iter().filter(|file| file.subject.as_ref() == Some(&stream.name)).map(|file| (*file).clone()).collect();
        let ranges = OffsetRanges { stream: stream.name.clone(), from: Vector::new(), to: vector.clone() };
        archive_plan(storage, &of_stream, plan_schema(stream), &ranges, Some(columns), 2)
    };
    let failures = FailureSink::default();
    let prepared = prepared_plan(&view.plan, &session, &source, &failures)?;
    let chosen = choose(prepared, as_of, key)?;
    let exec = partial_exec(&view.plan, Arc::new(CoalescePartitionsExec::new(chosen)))?;
    let mut stream = execute_stream(exec, session.task_ctx())?;
    let reservation = MemoryConsumer::new("ArchiveLayer").register(session.task_ctx().memory_pool());
    let mut gather = Gather::new(&view.plan, &view.codec, runtime.memory_limit_bytes());
    while let Some(batch) = stream.try_next().await? {
        gather.push(&[state_rows_of(&view.plan, &batch)?])?;
        reservation.try_resize(gather.memory_bytes())?;
    }
    let rows = gather.finish()?;
    reservation.try_resize(rows.memory_bytes())?;
    Ok(ArchiveLayer { run: SortedRun::in_memory(rows), vector, failures: failures.take(), _reservation: reservation })
}

/// Events at or before `as_of`, of one key, each when it is given.
fn choose(prepared: Arc<dyn ExecutionPlan>, as_of: Option<Micros>, key: Option<&[ScalarValue]>) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = prepared.schema();
    let mut conditions: Vec<Arc<dyn PhysicalExpr>> = Vec::new();
    if let Some(as_of) = as_of {
        let time = Arc::new(Column::new(EVENT_TIME, schema.index_of(EVENT_TIME)?));
        let limit = ScalarValue::TimestampMicrosecond(Some(as_of), Some("UTC".into()));
        conditions.push(Arc::new(BinaryExpr::new(time, Operator::LtEq, Arc::new(Literal::new(limit)))));
    }
    for (index, value) in key.into_iter().flatten().enumerate() {
        let column = Arc::new(Column::new(schema.field(index).name(), index));
        conditions.push(Arc::new(BinaryExpr::new(column, Operator::IsNotDistinctFrom, Arc::new(Literal::new(value.clone())))));
    }
    let all = conditions.into_iter().reduce(|a, b| Arc::new(BinaryExpr::new(a, Operator::And, b)));
    match all {
        Some(all) => Ok(Arc::new(FilterExec::try_new(all, prepared)?)),
        None => Ok(prepared),
    }
}

#[cfg(test)]
mod tests;
