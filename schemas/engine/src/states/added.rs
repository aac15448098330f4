//! The states that single events add. With these, each event of a batch sees the events before it, without a layer for
//! each event.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use arrow::array::{AsArray, BinaryArray, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt32Type};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::PhysicalExpr;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;

use crate::plan::ViewPlan;
use crate::states::keys::KeyCodec;
use crate::states::order::sorted_rows;
use crate::states::partial::{Slot, SlotExec, narrow, state_rows_of};
use crate::states::per_event::{EVENT_INDEX, PerEvent};
use crate::states::rows::{StateRows, find_key, find_prefix, taken, tiles};
use types::columns::TILE;
use types::failures::Failure;
use types::{Error, Result};

/// Computes what each event of a stream adds to one view, batch after batch.
pub struct PerEventStates {
    plan: Arc<ViewPlan>,
    codec: Arc<KeyCodec>,
    per_event: PerEvent,
    exec: Arc<dyn ExecutionPlan>,
    slot: Slot,
    context: Arc<TaskContext>,
}

/// State rows, sorted by key, and for each the event that adds it. Rows of one key are in the order of their events.
#[derive(Debug, Clone)]
pub struct AddedStates {
    rows: StateRows,
    events: Vec<u32>,
}

impl PerEventStates {
    /// `None` if the view does not read the stream.
    pub fn new(plan: Arc<ViewPlan>, codec: Arc<KeyCodec>, stream: &str, session: &SessionContext) -> Result<Option<Self>> {
        let Some(per_event) = PerEvent::plan(&plan, session)?.into_iter().find(|per_event| &*per_event.stream.name == stream) else {
            return Ok(None);
        };
        let fields = per_event.output().fields().iter().cloned();
        let schema: SchemaRef =
            Arc::new(Schema::new(fields.chain([Arc::new(Field::new(EVENT_INDEX, DataType::UInt32, false))]).collect::<Vec<_>>()));
        let slot = Slot::default();
        let input = Arc::new(SlotExec::new(schema.clone(), slot.clone()));
        let exec = partial_by_event(&plan, input, &schema)?;
        Ok(Some(Self { plan, codec, per_event, exec, slot, context: session.task_ctx() }))
    }

    /// Computes what these events (a batch of the stream's event schema) add. Each is identified by its row number. An
    /// event on which the view fails adds nothing.
    pub async fn compute(&mut self, events: &RecordBatch) -> Result<AddedStates> {
        self.compute_reporting(events, &mut |_| {}).await
    }

    /// The same, and calls `failed` for each event on which the view fails.
    pub async fn compute_reporting(&mut self, events: &RecordBatch, failed: &mut (dyn FnMut(Failure) + Send)) -> Result<AddedStates> {
        let columns = Arc::new(crate::events::plan_schema(&self.per_event.stream).project(&self.per_event.columns)?);
        let prepared = self.per_event.evaluate_indexed(&narrow(events, &columns)?, &mut |failure| failed(failure))?;
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = vec![prepared];
        // Each execution gets plans with fresh metrics, which would otherwise grow with every batch.
        self.exec = reset_plan_states(self.exec.clone())?;
        let made: Vec<RecordBatch> = self.exec.execute(0, self.context.clone())?.try_collect().await?;
        self.slot.lock().unwrap_or_else(PoisonError::into_inner).clear();
        AddedStates::sorted(&self.plan, &self.codec, &made)
    }
}

impl std::fmt::Debug for PerEventStates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PerEventStates({})", displayable(&*self.exec).one_line())
    }
}

/// Partial aggregation as in [`super::partial::partial_exec`], but also by event: the groups are keys, tile and event.
fn partial_by_event(plan: &ViewPlan, input: Arc<dyn ExecutionPlan>, schema: &SchemaRef) -> Result<Arc<dyn ExecutionPlan>> {
    let keys = plan.keys.len();
    let event = (EVENT_INDEX.to_owned(), schema.index_of(EVENT_INDEX)?);
    let groups = (0..keys).map(|i| (format!("k{i}"), i)).chain([(TILE.to_owned(), keys), event]);
    let group_by = groups.map(|(name, index)| (Arc::new(Column::new(&name, index)) as Arc<dyn PhysicalExpr>, name)).collect();
    let aggregates = plan.states.iter().map(|state| state.aggregate.clone()).collect();
    let filters = plan.states.iter().map(|state| state.filter.clone()).collect();
    let group_by = PhysicalGroupBy::new_single(group_by);
    Ok(Arc::new(AggregateExec::try_new(AggregateMode::Partial, group_by, aggregates, filters, input, schema.clone())?))
}

impl AddedStates {
    fn sorted(plan: &ViewPlan, codec: &KeyCodec, made: &[RecordBatch]) -> Result<AddedStates> {
        let place = plan.keys.len() + 1;
        let (mut batches, mut events) = (Vec::new(), Vec::new());
        for batch in made {
            let of_batch = batch.column(place).as_primitive_opt::<UInt32Type>();
            events.extend_from_slice(of_batch.ok_or_else(|| Error::internal("the index of an event changed its type"))?.values());
            let others: Vec<usize> = (0..batch.num_columns()).filter(|column| *column != place).collect();
            batches.push(state_rows_of(plan, &batch.project(&others)?)?);
        }
        Self::in_order(plan, codec, (&batches, events))
    }

    /// Combines what the events of several batches add. Each batch comes with the places of its events among all
    /// events.
    pub fn together(plan: &ViewPlan, codec: &KeyCodec, parts: &[(AddedStates, &[u32])]) -> Result<AddedStates> {
        let batches: Vec<RecordBatch> = parts.iter().map(|(added, _)| added.rows.batch().clone()).collect();
        let placed = parts.iter().flat_map(|(added, places)| added.events.iter().map(|event| places[*event as usize]));
        Self::in_order(plan, codec, (&batches, placed.collect()))
    }

    /// Sorts rows of the plan's state schema, with the event of each.
    fn in_order(plan: &ViewPlan, codec: &KeyCodec, (batches, events): (&[RecordBatch], Vec<u32>)) -> Result<AddedStates> {
        let batch = arrow::compute::concat_batches(plan.state_schema(), batches)?;
        let keys = codec.encode(&batch.columns()[..plan.keys.len()], batch.num_rows())?;
        let times = tiles(&batch)?;
        let place = |row: u32| (events[row as usize], times[row as usize]);
        let order = UInt32Array::from(sorted_rows(&keys, &|a, b| place(a).cmp(&place(b))));
        let sorted = order.values().iter().map(|row| events[*row as usize]).collect();
        let keys: BinaryArray = take(&keys, &order, None)?.as_binary::<i32>().clone();
        Ok(AddedStates { rows: StateRows::from_sorted(taken(&batch, &order)?, keys), events: sorted })
    }

    pub fn rows(&self) -> &StateRows {
        &self.rows
    }

    /// Returns only the rows of keys for which `is_wanted` holds.
    pub fn of_keys(&self, is_wanted: impl Fn(&[u8]) -> bool) -> Result<AddedStates> {
        let wanted: Vec<u32> = (0..self.rows.len() as u32).filter(|row| is_wanted(self.rows.keys().value(*row as usize))).collect();
        if wanted.len() == self.rows.len() {
            return Ok(self.clone());
        }
        let wanted = UInt32Array::from(wanted);
        let keys: BinaryArray = take(self.rows.keys(), &wanted, None)?.as_binary::<i32>().clone();
        let events = wanted.values().iter().map(|row| self.events[*row as usize]).collect();
        Ok(AddedStates { rows: StateRows::from_sorted(taken(self.rows.batch(), &wanted)?, keys), events })
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows of one key, in the order of the events.
    pub(super) fn of_key(&self, key: &[u8]) -> Range<usize> {
        find_key(self.rows.keys(), key)
    }

    /// Returns those of some rows of one key that the events before `event` add.
    pub(super) fn before(&self, of_key: &Range<usize>, event: u32) -> Range<usize> {
        of_key.start..of_key.start + self.events[of_key.clone()].partition_point(|other| *other < event)
    }

    /// The event that adds each row.
    pub(super) fn events(&self) -> &[u32] {
        &self.events
    }

    /// Whether one of these events adds to a key that begins with `prefix`.
    pub fn adds_to_prefix(&self, prefix: &[u8], events: Range<u32>) -> bool {
        !events.is_empty() && find_prefix(self.rows.keys(), prefix).any(|row| events.contains(&self.events[row]))
    }

    /// The rows that the events before `event` add to keys that begin with `prefix`, one by one.
    pub fn of_prefix_before(&self, prefix: &[u8], event: u32) -> impl Iterator<Item = Range<usize>> {
        let rows = find_prefix(self.rows.keys(), prefix);
        rows.filter(move |row| self.events[*row] < event).map(|row| row..row + 1)
    }
}

#[cfg(test)]
mod tests;
