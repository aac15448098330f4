//! SQL over one read view: `SELECT` and `EXPLAIN`, with `SET as_of = '..';` in front to name the time. Nothing can be
//! written.
//!
//! | table | what it is |
//! | --- | --- |
//! | `<view>` | its answer: a lookup where WHERE names every key, else a scan of what the SELECT names |
//! | `<view>__batch`, `<view>__speed` | the kept states: the snapshot's, and those after its cut |
//! | `<linked view>__batch` | its join as of the snapshot's cut; the kept edges, of all layers, are `<linked view>__edges` |
//! | `<stream>` | the accepted events up to the committed vector, where the whole query stands then; `*` has no system columns |
//! | `system.*` | what the node knows of itself: one table for each of `system::SystemTable` |

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use access::Principal;
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use engine::plan::TextType;
use event_log::Log;
use futures::{StreamExt, TryStreamExt};
use metrics::Histogram;
use types::tiles::Micros;
use types::{Error, Result};

use crate::follower::{AwaitedPosition, CountedEvents, Follower};
use crate::meta::Meta;
use crate::query_context::QueryContext;
use crate::query_runtime::QueryRuntime;
use crate::read_view::ReadView;
use crate::value_errors::OnValueError;

mod any_of_arrays;
mod array_text;
mod cast_names;
mod casts;
mod column_names;
mod compared_subqueries;
mod copies;
mod date_text;
mod describe;
mod equality;
mod events;
mod exists;
mod fetch_clause;
mod function_names;
mod ignored_words;
mod in_subqueries;
mod joined;
mod keyed;
mod lifted_subqueries;
mod light;
mod like_escape;
mod literals;
mod names;
mod operand_types;
pub mod params;
mod pg_typeof;
mod planning;
mod query_meta;
mod query_time;
mod regular_expressions;
mod rights;
mod row_values;
mod running;
mod search_path;
mod series;
mod similar_to;
mod sized_rows;
mod sorted_positions;
mod source;
mod statement;
mod states;
mod subquery_names;
mod system;
mod table;
mod tables;
mod time_texts;
mod unnested_columns;
mod used;
mod using_columns;
mod view;
mod wildcards;
mod with_names;
mod written_functions;

use planning::{PlanRequest, PlannedQuery, plan};
use query_time::QueryTime;
use used::TablesRead;
use view::KeyLookup;

pub use copies::check_planned;
pub use date_text::date_and_zone;
pub use describe::{Described, TableDescription};
pub(crate) use describe::{all_tables, describe};
pub use like_escape::{like_pattern, without_escape};
pub use query_meta::QueryMeta;
pub use query_time::out_of_time;
pub(crate) use query_time::plan_in_time;
pub use running::Turn;
pub use search_path::SearchPath;
pub use statement::{invalid_as_of, only_queries, parse_as_of, views_read};

/// The answer of a query: batches as they are computed, and what they are computed from.
pub struct QueryResponse {
    pub schema: SchemaRef,
    /// The [`TextType`] of each column.
    pub text_types: Vec<TextType>,
    pub batches: SendableRecordBatchStream,
    pub meta: QueryMeta,
    /// The query's place among the running queries.
    pub turn: Turn,
    /// The part of the query's memory that its reader holds.
    held: HeldMemory,
}

impl QueryResponse {
    /// Counts these bytes, which the reader keeps of the answer, as memory of the query.
    ///
    /// Errors: `Limit` where it does not fit.
    pub(crate) fn hold(&self, bytes: usize) -> Result<()> {
        Ok(self.held.try_resize(bytes)?)
    }

    /// The meta, with what is known from the batches so far. It is complete after the last one.
    pub fn meta_so_far(&self) -> Meta {
        self.meta.so_far()
    }

    /// Returns all batches. The caller bounds how many rows it asks for.
    pub async fn collect(self) -> Result<Vec<RecordBatch>> {
        Ok(self.batches.try_collect().await?)
    }
}

/// The memory that a reader holds of an answer. It is reserved on first use, because most readers hold nothing.
type HeldMemory = LazyLock<MemoryReservation, Box<dyn FnOnce() -> MemoryReservation + Send>>;

/// The settings of a client's session for its queries.
#[derive(Debug, Clone, Copy, Default)]
pub struct SessionSettings<'a> {
    /// The time as of which the answer is, where the text names none.
    pub as_of: Option<Micros>,
    /// The zone of local times, by a name that Arrow knows. `None` for UTC.
    pub time_zone: Option<&'a str>,
    pub search_path: SearchPath,
}

/// A query: its text and parameters, and who asks it.
pub(crate) struct Query<'a> {
    pub(crate) sql: &'a str,
    pub(crate) params: Params,
    pub(crate) settings: SessionSettings<'a>,
    pub(crate) on_value_error: OnValueError,
    /// Who asks. It needs the right to read every table of the query.
    pub(crate) principal: Arc<Principal>,
}

/// A query without its parameters.
#[derive(Debug, Clone, Copy)]
struct QueryText<'a> {
    sql: &'a str,
    settings: SessionSettings<'a>,
    on_value_error: OnValueError,
}

/// The context in which tables are listed and read, for one principal.
#[derive(Clone, Copy)]
pub(crate) struct TableReader<'a> {
    pub(crate) principal: &'a Arc<Principal>,
    /// The log whose ends `system.*` shows.
    pub(crate) log: Option<&'a Arc<dyn Log>>,
}

/// The values of `$1`, `$2`, ..
#[derive(Debug, Clone)]
pub enum Params {
    /// Values with the types of JSON.
    Json(Vec<serde_json::Value>),
    /// Values with the types of [`Described::params`].
    Typed(Vec<ScalarValue>),
}

/// Plans a query over the present read view and begins it. With `after`, waits for a read view that counts everything
/// before that position.
pub(crate) async fn query(
    follower: &Follower,
    runtime: &QueryRuntime,
    log: Option<&Arc<dyn Log>>,
    asked: Query<'_>,
    after: Option<AwaitedPosition<'_>>,
) -> Result<QueryResponse> {
    if let Some(after) = after {
        let counted = {
            let (read_view, search_path) = (follower.read_view()?, asked.settings.search_path);
            let statement = planning::read(asked.sql, search_path, &read_view)?.statement;
            let session = runtime.session()?.state();
            let named = tables::tables_named(&read_view, &session, (&statement, search_path), &asked.principal)?;
            if named.has_streams { CountedEvents::Committed } else { CountedEvents::WithFresh }
        };
        follower.wait_for(after, counted).await?;
    }
    loop {
        let times = Times::begin(runtime);
        let read_view = follower.read_view()?;
        let loaded = read_view.loaded.clone();
        let outcome = match plan_ready(runtime, log, read_view, &asked, times.limit).await {
            Ok(ready) => match after.filter(|after| !ready.context.read_view.vector.covers(after.position)) {
                None => begin(follower, runtime, &asked.principal, ready, times).await,
                // The archive has to answer one of its views, and has what is committed.
                Some(after) => {
                    drop(ready);
                    follower.wait_for(after, CountedEvents::Committed).await?;
                    continue;
                }
            },
            Err(error) => Err(error),
        };
        match outcome {
            // Found while it was planned: no row was answered yet.
            Err(error) if follower.reload_without_damaged(&loaded, &error).await? => {}
            outcome => return follower.report_damage(outcome).await,
        }
    }
}

/// The same over a given read view, whose files the caller keeps from being collected.
pub(crate) async fn query_at(
    follower: &Follower,
    runtime: &QueryRuntime,
    log: Option<&Arc<dyn Log>>,
    read_view: ReadView,
    asked: Query<'_>,
) -> Result<QueryResponse> {
    let times = Times::begin(runtime);
    let outcome = match plan_ready(runtime, log, read_view, &asked, times.limit).await {
        Ok(ready) => begin(follower, runtime, &asked.principal, ready, times).await,
        Err(error) => Err(error),
    };
    follower.report_damage(outcome).await
}

/// Plans a query, so that it can be begun.
async fn plan_ready(
    runtime: &QueryRuntime,
    log: Option<&Arc<dyn Log>>,
    read_view: ReadView,
    asked: &Query<'_>,
    time: QueryTime,
) -> Result<Ready> {
    let read_view = Arc::new(read_view);
    let Query { sql, params, settings, on_value_error, principal } = asked;
    let text = QueryText { sql, settings: *settings, on_value_error: *on_value_error };
    if let Some(ready) = keyed::ready(runtime, principal, &read_view, text, params)? {
        return Ok(ready);
    }
    // Owned, because planning may outlive its caller.
    let (of_query, of_principal, log, params) = (runtime.for_query(principal), principal.clone(), log.cloned(), params.clone());
    let SessionSettings { as_of, time_zone, search_path } = *settings;
    let (sql, time_zone, on_value_error) = ((*sql).to_owned(), time_zone.map(str::to_owned), *on_value_error);
    let planning = async move {
        let settings = SessionSettings { as_of, time_zone: time_zone.as_deref(), search_path };
        let reader = TableReader { principal: &of_principal, log: log.as_ref() };
        ready(&of_query, reader, read_view, QueryText { sql: &sql, settings, on_value_error }, params).await
    };
    time.within(runtime.planners().plan(principal, planning)).await
}

/// Waits for the query's turn and begins it.
async fn begin(
    follower: &Follower,
    runtime: &QueryRuntime,
    principal: &Arc<Principal>,
    ready: Ready,
    times: Times,
) -> Result<QueryResponse> {
    let Ready { context, tables, work, text_types } = ready;
    let (schema, (batches, turn), held) = match work {
        Work::Lookup(lookup) => {
            let (of_node, principal) = (runtime.clone(), principal.clone());
            let held = held_memory(move || of_node.for_query(&principal));
            (lookup.shown.clone(), (running::run_lookup(runtime, lookup, times.limit), Turn::default()), held)
        }
        Work::Plan { physical, task, runtime } => {
            let schema = physical.schema();
            let begun = running::run_plan(&runtime, principal, (physical, task), times.limit).await?;
            (schema, begun, held_memory(move || runtime))
        }
    };
    let follower = follower.clone();
    let reported = batches.then(move |batch| {
        let _until_dropped = &times;
        let follower = follower.clone();
        async move {
            if let Some(error) = batch.as_ref().err().and_then(Error::inside) {
                drop(follower.report_damage::<()>(Err(error)).await);
            }
            batch
        }
    });
    let batches = Box::pin(RecordBatchStreamAdapter::new(schema.clone(), reported));
    Ok(QueryResponse { schema, text_types, batches, meta: QueryMeta::new(context, tables), turn, held })
}

/// Runs a plan over tables that are not the node's, such as PostgreSQL's catalog, as a query of this principal. Drivers
/// read all of a catalog to connect: its rows are not limited.
pub(crate) async fn run(
    runtime: &QueryRuntime,
    principal: &Arc<Principal>,
    plan: Arc<dyn ExecutionPlan>,
    context: TaskContext,
) -> Result<(SendableRecordBatchStream, Turn)> {
    let (runtime, schema) = (runtime.for_query(principal), plan.schema());
    let context = Arc::new(context.with_runtime(runtime.task_context().runtime_env()));
    let time = QueryTime::begin(runtime.limits());
    let (batches, turn) = running::run_plan(&runtime, principal, (plan, context), time).await?;
    Ok((Box::pin(RecordBatchStreamAdapter::new(schema, batches.with_any_number_of_rows())), turn))
}

fn held_memory(of_query: impl FnOnce() -> QueryRuntime + Send + 'static) -> HeldMemory {
    HeldMemory::new(Box::new(move || MemoryConsumer::new("answer").register(of_query().task_context().memory_pool())))
}

/// A query that can be begun.
struct Ready {
    context: QueryContext,
    tables: TablesRead,
    work: Work,
    /// For each column of its answer what its texts are.
    text_types: Vec<TextType>,
}

/// The work that computes the rows of a query.
enum Work {
    /// A plan that runs in the runtime of this query.
    Plan { physical: Arc<dyn ExecutionPlan>, task: Arc<TaskContext>, runtime: QueryRuntime },
    /// A lookup of a few keys of one view, without a plan.
    Lookup(KeyLookup),
}

/// Plans a query of any form by DataFusion. `runtime` is that of this query.
async fn ready(
    runtime: &QueryRuntime,
    reader: TableReader<'_>,
    read_view: Arc<ReadView>,
    text: QueryText<'_>,
    params: Params,
) -> Result<Ready> {
    let types: Vec<Option<DataType>> = match &params {
        Params::Json(_) => Vec::new(),
        // A NULL may have no type.
        Params::Typed(values) => values.iter().map(|value| Some(value.data_type()).filter(|of| *of != DataType::Null)).collect(),
    };
    let PlannedQuery { session, state, context, plan, text_types, .. } =
        Box::pin(plan(PlanRequest { runtime, reader, text, types: &types }, read_view)).await?;
    let plan = state.optimize(&params::bind(plan, params)?)?;
    let tables = TablesRead::find(&plan, &context)?;
    let physical = state.query_planner().create_physical_plan(&plan, &state).await?;
    let work = Work::Plan { physical, task: session.task_ctx(), runtime: runtime.clone() };
    Ok(Ready { context, tables, work, text_types })
}

/// When a query began and when it has to end. It is measured until its stream is dropped.
struct Times {
    began: Instant,
    limit: QueryTime,
}

impl Times {
    fn begin(runtime: &QueryRuntime) -> Self {
        Self { began: Instant::now(), limit: QueryTime::begin(runtime.limits()) }
    }
}

impl Drop for Times {
    fn drop(&mut self) {
        static SECONDS: LazyLock<Histogram> = LazyLock::new(|| metrics::histogram!("basestream_serving_query_seconds"));
        SECONDS.record(self.began.elapsed().as_secs_f64());
    }
}

#[cfg(test)]
mod tests;
