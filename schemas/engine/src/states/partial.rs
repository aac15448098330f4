//! Turns events into state rows, by DataFusion's own Partial aggregation over the prepared events.

use std::fmt;
use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, AsArray, RecordBatch, UInt8Array};
use arrow::datatypes::{SchemaRef, TimestampMicrosecondType};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::provider_as_source;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableType};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, reset_plan_states};
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PhysicalExpr, PlanProperties,
};
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;

use crate::events::plan_schema;
use crate::plan::ViewPlan;
use definitions::StreamDefinition;
use types::columns::TILE;
use types::tiles::{Level, Micros, finest_kept};
use types::{Error, Result};

/// Returns the physical plan from events to keys, tile and arguments. `source` returns the scan of each stream; its
/// schema must have the columns of [`plan_schema`], and may have more.
pub async fn prepared_plan(
    plan: &ViewPlan,
    session: &SessionContext,
    source: &(dyn Fn(&StreamDefinition) -> Result<Arc<dyn ExecutionPlan>> + Send + Sync),
) -> Result<Arc<dyn ExecutionPlan>> {
    let logical = plan.prepare.clone().transform_down(|node| match node {
        LogicalPlan::TableScan(scan) => {
            let name = scan.table_name.table();
            let stream = plan.streams.iter().find(|stream| &*stream.name == name);
            let stream = stream.ok_or_else(|| DataFusionError::Internal(format!("the plan scans an unknown stream {name}")))?;
            let table = PlanTable { schema: plan_schema(stream), plan: source(stream)? };
            let scan = LogicalPlanBuilder::scan(scan.table_name.clone(), provider_as_source(Arc::new(table)), None)?.build()?;
            Ok(Transformed::yes(scan))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(session.state().create_physical_plan(&logical.data).await?)
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

/// Computes states from small batches of events, again and again. The speed layer uses it, and the rebuild of a
/// segment.
pub struct Partial {
    plan: Arc<ViewPlan>,
    exec: Arc<dyn ExecutionPlan>,
    slots: Vec<(Arc<str>, Slot)>,
    context: Arc<TaskContext>,
}

type Slot = Arc<Mutex<Vec<RecordBatch>>>;

impl Partial {
    pub async fn new(plan: Arc<ViewPlan>, session: &SessionContext) -> Result<Self> {
        let slots: Vec<(Arc<str>, Slot)> = plan.streams.iter().map(|stream| (stream.name.clone(), Slot::default())).collect();
        let find = |stream: &StreamDefinition| -> Result<Arc<dyn ExecutionPlan>> {
            let slot = slots.iter().find(|(name, _)| *name == stream.name).map(|(_, slot)| slot.clone());
            Ok(Arc::new(SlotExec::new(plan_schema(stream), slot.unwrap_or_default())))
        };
        let prepared = prepared_plan(&plan, session, &find).await?;
        let exec = partial_exec(&plan, coalesced(prepared))?;
        Ok(Self { exec, slots, context: session.task_ctx(), plan })
    }

    pub fn plan(&self) -> &Arc<ViewPlan> {
        &self.plan
    }

    /// Returns the states of these accepted events of one stream (batches of its event schema), unsorted.
    pub async fn states(&mut self, stream: &str, events: &[RecordBatch]) -> Result<Vec<RecordBatch>> {
        let Some((_, slot)) = self.slots.iter().find(|(name, _)| &**name == stream) else { return Ok(Vec::new()) };
        let definition = self.plan.streams.iter().find(|definition| &*definition.name == stream);
        let definition = definition.ok_or_else(|| Error::internal(format!("the plan lost its stream {stream}")))?;
        let schema = plan_schema(definition);
        let narrowed = events.iter().map(|batch| narrow(batch, &schema)).collect::<Result<Vec<_>>>()?;
        *slot.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = narrowed;
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
fn narrow(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
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

/// A table whose scan is an existing plan.
#[derive(Debug)]
struct PlanTable {
    schema: SchemaRef,
    plan: Arc<dyn ExecutionPlan>,
}

#[async_trait]
impl TableProvider for PlanTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let input = self.plan.schema();
        let wanted: Vec<usize> = projection.cloned().unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        let exprs = wanted
            .into_iter()
            .map(|index| {
                let name = self.schema.field(index).name();
                let column = Column::new(name, input.index_of(name)?);
                Ok((Arc::new(column) as Arc<dyn PhysicalExpr>, name.clone()))
            })
            .collect::<DataFusionResult<Vec<_>>>()?;
        Ok(Arc::new(datafusion::physical_plan::projection::ProjectionExec::try_new(exprs, self.plan.clone())?))
    }
}

/// Returns the batches that are in its slot when it is executed.
struct SlotExec {
    slot: Slot,
    properties: Arc<PlanProperties>,
    schema: SchemaRef,
}

impl SlotExec {
    fn new(schema: SchemaRef, slot: Slot) -> Self {
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
        let batches = self.slot.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        Ok(Box::pin(MemoryStream::try_new(batches, self.schema.clone(), None)?))
    }
}
