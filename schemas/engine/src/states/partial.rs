//! Turns events into state rows, by DataFusion's own Partial aggregation over the prepared events.

use std::fmt;
use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, AsArray, RecordBatch, UInt8Array};
use arrow::datatypes::{SchemaRef, TimestampMicrosecondType};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, reset_plan_states};
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PhysicalExpr, PlanProperties,
};
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;

use crate::events::plan_schema;
use crate::plan::ViewPlan;
use crate::states::per_event::PerEvent;
use crate::states::per_event_exec::{FailureSink, PerEventExec};
use definitions::StreamDefinition;
use types::columns::TILE;
use types::failures::Failures;
use types::tiles::{Level, Micros, finest_kept};
use types::{Error, Result};

/// Returns the scan of a stream, with these columns of [`plan_schema`].
pub type EventSource<'a> = dyn Fn(&StreamDefinition, &[usize]) -> Result<Arc<dyn ExecutionPlan>> + Send + Sync + 'a;

/// Returns the physical plan from events to keys, tile and the inputs of the aggregates ([`PerEvent`]). Events that
/// fail go to `failures`; with `on_error = 'refuse'` the first of them ends the execution.
pub fn prepared_plan(
    plan: &ViewPlan,
    session: &SessionContext,
    source: &EventSource<'_>,
    failures: &FailureSink,
) -> Result<Arc<dyn ExecutionPlan>> {
    let mut scans: Vec<Arc<dyn ExecutionPlan>> = Vec::new();
    for per_event in PerEvent::plan(plan, session)? {
        let input = source(&per_event.stream, &per_event.columns)?;
        scans.push(Arc::new(PerEventExec::new(input, Arc::new(per_event), plan.on_error, failures.clone())));
    }
    match scans.as_slice() {
        [one] => Ok(one.clone()),
        _ => Ok(UnionExec::try_new(scans)?),
    }
}

/// Partial aggregation over prepared events. Returns state rows in no particular order, with `__level` at the view's
/// finest.
pub fn partial_exec(plan: &ViewPlan, prepared: Arc<dyn ExecutionPlan>) -> Result<Arc<AggregateExec>> {
    let schema = prepared.schema();
    let groups = (0..plan.keys.len()).map(|i| (format!("k{i}"), i)).chain([(TILE.to_owned(), plan.keys.len())]);
    let group_by = groups.map(|(name, index)| (Arc::new(Column::new(&name, index)) as Arc<dyn PhysicalExpr>, name)).collect();
    let aggregates = plan.states.iter().map(|state| state.aggregate.clone()).collect();
    let filters = plan.states.iter().map(|state| state.filter.clone()).collect();
    let exec =
        AggregateExec::try_new(AggregateMode::Partial, PhysicalGroupBy::new_single(group_by), aggregates, filters, prepared, schema)?;
    Ok(Arc::new(exec))
}

/// Converts a batch of Partial's output to the view's state schema. All rows are of the finest level.
pub fn state_rows_of(plan: &ViewPlan, batch: &RecordBatch) -> Result<RecordBatch> {
    with_levels(plan, batch, UInt8Array::from_value(plan.finest().code(), batch.num_rows()))
}

/// Like [`state_rows_of`], for a plan whose events went directly to the kept tiles ([`ViewPlan::kept_past`]).
pub fn kept_rows_of(plan: &ViewPlan, batch: &RecordBatch, floors: &[(Level, Option<Micros>)]) -> Result<RecordBatch> {
    let tiles = batch.column(plan.keys.len()).as_primitive_opt::<TimestampMicrosecondType>();
    let tiles = tiles.ok_or_else(|| Error::internal("tiles changed their type"))?;
    let levels = tiles.values().iter().map(|tile| finest_kept(floors, *tile).code());
    with_levels(plan, batch, UInt8Array::from_iter_values(levels))
}

fn with_levels(plan: &ViewPlan, batch: &RecordBatch, levels: UInt8Array) -> Result<RecordBatch> {
    let keys = plan.keys.len();
    let level: ArrayRef = Arc::new(levels);
    let mut columns: Vec<ArrayRef> = batch.columns()[..keys].to_vec();
    columns.push(level);
    columns.extend_from_slice(&batch.columns()[keys..]);
    RecordBatch::try_new(plan.state_schema().clone(), columns)
        .map_err(|error| Error::internal("an aggregate's state differs from what it declared").with("view", &plan.view).caused_by(error))
}

/// Computes states from small batches of events, one after another. The speed layer and the rebuild of a segment use
/// it.
pub struct Partial {
    plan: Arc<ViewPlan>,
    exec: Arc<dyn ExecutionPlan>,
    slots: Vec<(Arc<str>, Slot)>,
    context: Arc<TaskContext>,
    failures: FailureSink,
}

pub(super) type Slot = Arc<Mutex<Vec<RecordBatch>>>;

impl Partial {
    /// Plans the computation of a view's states.
    pub fn new(plan: Arc<ViewPlan>, session: &SessionContext) -> Result<Self> {
        let slots: Vec<(Arc<str>, Slot)> = plan.streams.iter().map(|stream| (stream.name.clone(), Slot::default())).collect();
        let find = |stream: &StreamDefinition, columns: &[usize]| -> Result<Arc<dyn ExecutionPlan>> {
            let slot = slots.iter().find(|(name, _)| *name == stream.name).map(|(_, slot)| slot.clone());
            Ok(Arc::new(SlotExec::new(Arc::new(plan_schema(stream).project(columns)?), slot.unwrap_or_default())))
        };
        let failures = FailureSink::default();
        let prepared = prepared_plan(&plan, session, &find, &failures)?;
        let exec = partial_exec(&plan, coalesced(prepared))?;
        Ok(Self { exec, slots, context: session.task_ctx(), plan, failures })
    }

    pub fn plan(&self) -> &Arc<ViewPlan> {
        &self.plan
    }

    /// Takes the events that failed since the last time.
    pub fn take_failures(&self) -> Failures {
        self.failures.take()
    }

    /// Returns the states of these accepted events of one stream (batches of its event schema), unsorted.
    pub async fn states(&mut self, stream: &str, events: &[RecordBatch]) -> Result<Vec<RecordBatch>> {
        let Some((_, slot)) = self.slots.iter().find(|(name, _)| &**name == stream) else { return Ok(Vec::new()) };
        *slot.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = events.to_vec();
        // Each execution gets plans with fresh metrics, which would otherwise grow with every micro-batch.
        self.exec = reset_plan_states(self.exec.clone())?;
        let made: Vec<RecordBatch> = self.exec.execute(0, self.context.clone())?.try_collect().await?;
        slot.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clear();
        made.iter().filter(|batch| batch.num_rows() > 0).map(|batch| state_rows_of(&self.plan, batch)).collect()
    }
}

fn coalesced(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    match plan.output_partitioning().partition_count() {
        1 => plan,
        _ => Arc::new(CoalescePartitionsExec::new(plan)),
    }
}

/// Selects the columns of `schema` by name.
pub(super) fn narrow(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = schema
        .fields()
        .iter()
        .map(|field| {
            batch
                .column_by_name(field.name())
                .cloned()
                .ok_or_else(|| Error::corrupt(format!("the events lack the column {}", field.name())))
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}

/// An operator that returns the batches which are in its slot when it is executed.
pub(super) struct SlotExec {
    slot: Slot,
    properties: Arc<PlanProperties>,
    schema: SchemaRef,
}

impl SlotExec {
    pub(super) fn new(schema: SchemaRef, slot: Slot) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self { slot, properties: Arc::new(properties), schema }
    }
}

impl fmt::Debug for SlotExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SlotExec")
    }
}

impl DisplayAs for SlotExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SlotExec")
    }
}

impl ExecutionPlan for SlotExec {
    fn name(&self) -> &str {
        "SlotExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DataFusionResult<TreeNodeRecursion>,
    ) -> DataFusionResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> DataFusionResult<SendableRecordBatchStream> {
        let events = self.slot.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        let batches = events.iter().map(|batch| narrow(batch, &self.schema)).collect::<Result<_>>()?;
        Ok(Box::pin(MemoryStream::try_new(batches, self.schema.clone(), None)?))
    }
}
