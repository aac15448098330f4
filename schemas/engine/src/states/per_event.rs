//! What a view computes for each event: its WHEREs, its keys and tile, and the inputs of its aggregates.
//!
//! An event *fails* if one of these expressions fails on it alone, as a division by zero does. It is left out of the
//! view. A failing batch is halved, and one of a few events is evaluated event by event, so that the outcome is a
//! function of the event and the view's version, however events are batched.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::{DataType, Int32Type, Int64Type, SchemaRef};
use arrow::error::ArrowError;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, LogicalPlan, Operator};
use datafusion::optimizer::Optimizer;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, CaseExpr, Column, IsNotNullExpr, IsNullExpr, Literal, NegativeExpr, NotExpr};
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use datafusion::prelude::SessionContext;
use definitions::StreamDefinition;
use types::columns::{OFFSET, PARTITION};
use types::failures::Failure;
use types::vector::{Offset, PartitionId};
use types::{Error, ErrorKind, Result};

use crate::events::plan_schema;
use crate::plan::ViewPlan;
use crate::plan::tile_function::is_tile_function;
use within_digits::WithinDigits;

/// A failing batch of at most this many events is evaluated one by one.
const ONE_BY_ONE: usize = 64;
/// The greatest length of a reason.
const REASON_CHARACTERS: usize = 300;

/// What a view computes for each event of one stream.
#[derive(Debug)]
pub struct PerEvent {
    pub stream: Arc<StreamDefinition>,
    /// The columns that it reads: indices into [`plan_schema`], ascending.
    pub columns: Vec<usize>,
    /// Where the event's partition and offset are among `columns`.
    position: [usize; 2],
    /// One for each time the view's FROM reads the stream.
    branches: Vec<Branch>,
    output: SchemaRef,
}

#[derive(Debug, Clone)]
struct Branch {
    /// Indices into [`PerEvent::columns`].
    columns: Vec<usize>,
    steps: Vec<Step>,
}

#[derive(Debug, Clone)]
enum Step {
    Filter(Arc<dyn PhysicalExpr>),
    Project(Vec<Arc<dyn PhysicalExpr>>, SchemaRef),
}

/// A scan of a stream and the steps above it.
struct Scanned {
    stream: String,
    /// Indices into [`plan_schema`].
    columns: Vec<usize>,
    steps: Vec<Step>,
}

impl PerEvent {
    /// Returns what the view computes, for each stream that it reads. The batches that are made have the same schema
    /// for all.
    pub fn plan(plan: &ViewPlan, session: &SessionContext) -> Result<Vec<PerEvent>> {
        // Without the rules that move predicates: WHERE guards the expressions above it.
        let rules = Optimizer::with_rules(vec![Arc::new(SimplifyExpressions::new()), Arc::new(OptimizeProjections::new())]);
        let logical = rules.optimize(plan.prepare.clone(), &session.state(), |_, _| {})?;
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

    /// The schema of what is made from events.
    pub fn output(&self) -> &SchemaRef {
        &self.output
    }

    /// Evaluates a batch of events, which has [`PerEvent::columns`]. Calls `failed` for each that fails.
    ///
    /// Errors: those that are no event's fault, such as a memory limit.
    pub fn evaluate(&self, events: &RecordBatch, failed: &mut dyn FnMut(Failure)) -> DataFusionResult<RecordBatch> {
        let mut made = Vec::new();
        self.evaluate_halves(events, &mut made, failed)?;
        match made.as_slice() {
            [one] => Ok(one.clone()),
            many => concat_batches(&self.output, many).map_err(ours),
        }
    }

    fn evaluate_halves(&self, events: &RecordBatch, made: &mut Vec<RecordBatch>, failed: &mut dyn FnMut(Failure)) -> DataFusionResult<()> {
        let rows = events.num_rows();
        let error = match self.evaluate_whole(events) {
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
        (0..rows).step_by(step).try_for_each(|from| self.evaluate_halves(&events.slice(from, step.min(rows - from)), made, failed))
    }

    fn evaluate_whole(&self, events: &RecordBatch) -> DataFusionResult<Vec<RecordBatch>> {
        let mut made = Vec::with_capacity(self.branches.len());
        for branch in &self.branches {
            let mut batch = events.project(&branch.columns).map_err(ours)?;
            for step in &branch.steps {
                if batch.num_rows() == 0 {
                    break;
                }
                batch = step.apply(&batch)?;
            }
            if batch.num_rows() > 0 {
                let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                made.push(RecordBatch::try_new_with_options(self.output.clone(), batch.columns().to_vec(), &options).map_err(ours)?);
            }
        }
        Ok(made)
    }

    fn failure(&self, event: &RecordBatch, error: &DataFusionError) -> Failure {
        let [partition, offset] = self.position;
        let partition = event.column(partition).as_primitive::<Int32Type>().value(0);
        let offset = event.column(offset).as_primitive::<Int64Type>().value(0);
        let reason = shortened(&error.find_root().strip_backtrace());
        Failure { partition: PartitionId::new(self.stream.name.clone(), partition), offset: Offset(offset), reason }
    }
}

/// A cast's error repeats the value that it found, which can be as long as an event.
fn shortened(reason: &str) -> String {
    match reason.char_indices().nth(REASON_CHARACTERS) {
        Some((end, _)) => format!("{} ..", &reason[..end]),
        None => reason.to_owned(),
    }
}

impl Step {
    fn exprs(&self) -> &[Arc<dyn PhysicalExpr>] {
        match self {
            Step::Filter(predicate) => std::slice::from_ref(predicate),
            Step::Project(exprs, _) => exprs,
        }
    }

    fn apply(&self, batch: &RecordBatch) -> DataFusionResult<RecordBatch> {
        let rows = batch.num_rows();
        match self {
            Step::Filter(predicate) => {
                let mask = predicate.evaluate(batch)?.into_array(rows)?;
                let mask = mask.as_boolean_opt().ok_or_else(|| ours("a condition is not BOOLEAN"))?;
                filter_record_batch(batch, mask).map_err(ours)
            }
            Step::Project(exprs, schema) => {
                let columns = exprs.iter().map(|expr| expr.evaluate(batch)?.into_array(rows)).collect::<DataFusionResult<Vec<_>>>()?;
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                RecordBatch::try_new_with_options(schema.clone(), columns, &options).map_err(ours)
            }
        }
    }
}

fn is_total(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let any: &dyn std::any::Any = expr.as_ref();
    let is_leaf = any.is::<Column>() || any.is::<Literal>();
    let is_test = any.is::<IsNullExpr>() || any.is::<IsNotNullExpr>() || any.is::<NotExpr>() || any.is::<CaseExpr>();
    let is_comparison = any.downcast_ref::<BinaryExpr>().is_some_and(|binary| compares(*binary.op()));
    let is_tile = any.downcast_ref::<ScalarFunctionExpr>().is_some_and(|call| is_tile_function(call.fun()));
    (is_leaf || is_test || is_comparison || is_tile) && expr.children().into_iter().all(is_total)
}

fn compares(operator: Operator) -> bool {
    use Operator::{And, Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq, Or};
    matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom | And | Or)
}

/// Whether an event's values can be the cause. What the machine lacks is not left out with an event, nor what is wrong
/// in this module, which has errors of the kind `Internal`.
fn is_of_events(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::ResourcesExhausted(_)
        | DataFusionError::IoError(_)
        | DataFusionError::ObjectStore(_)
        | DataFusionError::ParquetError(_)
        | DataFusionError::ExecutionJoin(_) => false,
        DataFusionError::ArrowError(error, _) => !matches!(**error, ArrowError::IoError(..) | ArrowError::MemoryError(_)),
        DataFusionError::External(error) => error.downcast_ref::<Error>().is_none_or(|error| error.kind() == ErrorKind::Input),
        _ => true,
    }
}

/// Whatever fails beside the view's own expressions.
fn ours(error: impl std::fmt::Display) -> DataFusionError {
    Error::internal(format!("the events of a view are not of its plan: {error}")).into()
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

fn physical(expr: &Expr, schema: &DFSchema) -> Result<Arc<dyn PhysicalExpr>> {
    let expr = create_physical_expr(expr, schema, &ExecutionProps::new(), &PhysicalPlanningContext::default())?;
    Ok(expr.transform_up(|node| checked(node, schema))?.data)
}

/// Makes arithmetic fail where integers would wrap around, and decimals have more digits than their type.
fn checked(node: Arc<dyn PhysicalExpr>, schema: &DFSchema) -> DataFusionResult<Transformed<Arc<dyn PhysicalExpr>>> {
    let any: &dyn std::any::Any = node.as_ref();
    if let Some(binary) = any.downcast_ref::<BinaryExpr>()
        && matches!(binary.op(), Operator::Plus | Operator::Minus | Operator::Multiply)
    {
        let checked: Arc<dyn PhysicalExpr> = Arc::new(binary.clone().with_fail_on_overflow(true));
        return Ok(Transformed::yes(match within_digits::is_clipped(&checked.data_type(schema.as_arrow())?) {
            true => Arc::new(WithinDigits::new(checked)),
            false => checked,
        }));
    }
    if let Some(negative) = any.downcast_ref::<NegativeExpr>() {
        let data_type = negative.arg().data_type(schema.as_arrow())?;
        if is_signed_integer(&data_type) {
            let zero: Arc<dyn PhysicalExpr> = Arc::new(Literal::new(ScalarValue::new_zero(&data_type)?));
            let difference = BinaryExpr::new(zero, Operator::Minus, negative.arg().clone());
            return Ok(Transformed::yes(Arc::new(difference.with_fail_on_overflow(true))));
        }
    }
    Ok(Transformed::no(node))
}

fn is_signed_integer(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64)
}

mod within_digits;

#[cfg(test)]
mod tests;
