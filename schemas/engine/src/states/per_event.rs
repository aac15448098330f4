//! The expressions that a view evaluates for each event: its WHEREs, its keys and tile, and the inputs of its
//! aggregates.
//!
//! An event *fails* if one of these expressions fails on it alone, as a division by zero does. Such an event is left
//! out of the view. A failing batch is halved until it has few events, which are evaluated one by one. So the outcome
//! is a function of the event and the view's version, however events are batched.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Int32Type, Int64Type, Schema, SchemaRef};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;
use definitions::StreamDefinition;
use types::columns::{OFFSET, PARTITION};
use types::failures::Failure;
use types::vector::{Offset, PartitionId};
use types::{Error, Result};

use crate::checked::physical;
use crate::events::plan_schema;
use crate::plan::{ViewPlan, simplified_events};
use crate::steps::{Step, as_declared, is_of_events, is_total, ours, reason};

/// A failing batch of at most this many events is evaluated one by one.
const ONE_BY_ONE: usize = 64;

/// The name of the column that [`PerEvent::evaluate_indexed`] adds.
pub(crate) const EVENT_INDEX: &str = "__event";

/// The expressions that a view evaluates for each event of one stream.
#[derive(Debug)]
pub struct PerEvent {
    pub stream: Arc<StreamDefinition>,
    /// The columns that it reads: indices into [`plan_schema`], ascending.
    pub columns: Vec<usize>,
    /// The places of the event's partition and offset among `columns`.
    position: [usize; 2],
    /// One for each time that the view's FROM reads the stream.
    branches: Vec<Branch>,
    output: SchemaRef,
}

#[derive(Debug, Clone)]
struct Branch {
    /// Indices into [`PerEvent::columns`].
    columns: Vec<usize>,
    steps: Vec<Step>,
}

/// A scan of a stream and the steps above it.
struct Scanned {
    stream: String,
    /// Indices into [`plan_schema`].
    columns: Vec<usize>,
    steps: Vec<Step>,
}

impl PerEvent {
    /// Returns the expressions for each stream that the view reads. The output has the same schema for all of them.
    pub fn plan(plan: &ViewPlan, session: &SessionContext) -> Result<Vec<PerEvent>> {
        let logical = simplified_events(&plan.prepare, session)?;
        let output: SchemaRef = Arc::new(plan.prepare.schema().as_arrow().clone());
        let mut scans = Vec::new();
        collect_scans(&logical, &mut Vec::new(), &mut scans)?;
        let per_stream = |stream: &Arc<StreamDefinition>| PerEvent::new(stream, &scans, output.clone());
        plan.streams.iter().map(per_stream).collect()
    }

    fn new(stream: &Arc<StreamDefinition>, scans: &[Scanned], output: SchemaRef) -> Result<PerEvent> {
        let schema = plan_schema(stream);
        let position = [schema.index_of(PARTITION)?, schema.index_of(OFFSET)?];
        let scans: Vec<&Scanned> = scans.iter().filter(|scan| scan.stream == *stream.name).collect();
        let mut columns: Vec<usize> = scans.iter().flat_map(|scan| scan.columns.iter().copied()).chain(position).collect();
        columns.sort_unstable();
        columns.dedup();
        let place = |index: &usize| columns.partition_point(|known| known < index);
        let branch = |scan: &&Scanned| Branch { columns: scan.columns.iter().map(place).collect(), steps: scan.steps.clone() };
        let branches = scans.iter().map(branch).collect();
        Ok(PerEvent { stream: stream.clone(), position: position.map(|index| place(&index)), columns, branches, output })
    }

    /// Whether an event can fail. False if every expression is a column, a constant, a comparison, a test for NULL, or
    /// made of such by AND, OR, NOT and CASE.
    pub fn can_fail(&self) -> bool {
        let exprs = self.branches.iter().flat_map(|branch| &branch.steps).flat_map(Step::exprs);
        exprs.into_iter().any(|expr| !is_total(expr))
    }

    /// The schema of the output.
    pub fn output(&self) -> &SchemaRef {
        &self.output
    }

    /// Evaluates a batch of events, which has [`PerEvent::columns`]. Calls `failed` for each event that fails.
    ///
    /// Errors: those that no event causes, such as a memory limit.
    pub fn evaluate(&self, events: &RecordBatch, failed: &mut dyn FnMut(Failure)) -> DataFusionResult<RecordBatch> {
        self.evaluate_carrying(events, &[], failed)
    }

    /// The same, with one more column, [`EVENT_INDEX`]: the row of the event that each row is made from.
    pub(crate) fn evaluate_indexed(&self, events: &RecordBatch, failed: &mut dyn FnMut(Failure)) -> DataFusionResult<RecordBatch> {
        let index: ArrayRef = Arc::new(UInt32Array::from_iter_values(0..events.num_rows() as u32));
        self.evaluate_carrying(events, &[(Arc::new(Field::new(EVENT_INDEX, DataType::UInt32, false)), index)], failed)
    }

    fn evaluate_carrying(
        &self,
        events: &RecordBatch,
        carried: &[(Arc<Field>, ArrayRef)],
        failed: &mut dyn FnMut(Failure),
    ) -> DataFusionResult<RecordBatch> {
        let mut made = Vec::new();
        let with = |schema: &SchemaRef| match carried {
            [] => schema.clone(),
            _ => Arc::new(Schema::new(
                schema.fields().iter().chain(carried.iter().map(|(field, _)| field)).cloned().collect::<Vec<Arc<Field>>>(),
            )),
        };
        let columns = events.columns().iter().chain(carried.iter().map(|(_, column)| column)).cloned().collect();
        let options = RecordBatchOptions::new().with_row_count(Some(events.num_rows()));
        let events = RecordBatch::try_new_with_options(with(events.schema_ref()), columns, &options).map_err(ours)?;
        let output = with(&self.output);
        self.evaluate_halves(&events, (&output, carried.len()), &mut made, failed)?;
        match made.as_slice() {
            [one] => Ok(one.clone()),
            many => concat_batches(&output, many).map_err(ours),
        }
    }

    fn evaluate_halves(
        &self,
        events: &RecordBatch,
        (output, carried): (&SchemaRef, usize),
        made: &mut Vec<RecordBatch>,
        failed: &mut dyn FnMut(Failure),
    ) -> DataFusionResult<()> {
        let rows = events.num_rows();
        let error = match self.evaluate_whole(events, output, carried) {
            Ok(batches) => {
                made.extend(batches);
                return Ok(());
            }
            Err(error) if !is_of_events(&error) => return Err(error),
            Err(error) => error,
        };
        if rows == 1 {
            failed(self.failure(events, &error));
            return Ok(());
        }
        let step = if rows <= ONE_BY_ONE { 1 } else { rows.div_ceil(2) };
        let parts = (0..rows).step_by(step).map(|from| events.slice(from, step.min(rows - from)));
        parts.into_iter().try_for_each(|part| self.evaluate_halves(&part, (output, carried), made, failed))
    }

    fn evaluate_whole(&self, events: &RecordBatch, output: &SchemaRef, carried: usize) -> DataFusionResult<Vec<RecordBatch>> {
        let mut made = Vec::with_capacity(self.branches.len());
        let after_events = events.num_columns() - carried..events.num_columns();
        for branch in &self.branches {
            let columns: Vec<usize> = branch.columns.iter().copied().chain(after_events.clone()).collect();
            let mut batch = events.project(&columns).map_err(ours)?;
            for step in &branch.steps {
                if batch.num_rows() == 0 {
                    break;
                }
                batch = step.apply(&batch, carried)?;
            }
            if batch.num_rows() > 0 {
                let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                let columns = as_declared(batch.columns().to_vec(), output)?;
                made.push(RecordBatch::try_new_with_options(output.clone(), columns, &options).map_err(ours)?);
            }
        }
        Ok(made)
    }

    fn failure(&self, event: &RecordBatch, error: &DataFusionError) -> Failure {
        let [partition, offset] = self.position;
        let partition = event.column(partition).as_primitive::<Int32Type>().value(0);
        let offset = event.column(offset).as_primitive::<Int64Type>().value(0);
        Failure { partition: PartitionId::new(self.stream.name.clone(), partition), offset: Offset(offset), reason: reason(error) }
    }
}

/// Collects the scans below a node. `above` are the steps over it, the last one first.
fn collect_scans(node: &LogicalPlan, above: &mut Vec<Step>, scans: &mut Vec<Scanned>) -> Result<()> {
    match node {
        LogicalPlan::Projection(projection) => {
            let exprs = projection.expr.iter().map(|expr| physical(expr, projection.input.schema())).collect::<Result<Vec<_>>>()?;
            above.push(Step::Project(exprs, Arc::new(projection.schema.as_arrow().clone())));
            collect_scans(&projection.input, above, scans)?;
            above.pop();
        }
        LogicalPlan::Filter(filter) => {
            above.push(Step::Filter(physical(&filter.predicate, filter.input.schema())?));
            collect_scans(&filter.input, above, scans)?;
            above.pop();
        }
        LogicalPlan::SubqueryAlias(alias) => collect_scans(&alias.input, above, scans)?,
        LogicalPlan::Union(union) => union.inputs.iter().try_for_each(|input| collect_scans(input, above, scans))?,
        LogicalPlan::TableScan(scan) => {
            let columns = scan.projection.clone().unwrap_or_else(|| (0..scan.source.schema().fields().len()).collect());
            let steps = above.iter().rev().cloned().collect();
            scans.push(Scanned { stream: scan.table_name.table().to_owned(), columns, steps });
        }
        other => return Err(Error::internal(format!("a view's events pass {}", other.display()))),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
