//! What is computed for each event: conditions and columns, over batches of events.
//!
//! An expression that fails on an event alone, as a division by zero does, fails the batch with an error for which
//! [`is_of_events`] holds.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, cast_with_options, filter_record_batch};
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, CaseExpr, Column, IsNotNullExpr, IsNullExpr, Literal, NotExpr};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use types::{Error, ErrorKind};

use crate::plan::tile_function::is_tile_function;

/// The greatest length of a reason.
pub(crate) const REASON_CHARACTERS: usize = 300;

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Filter(Arc<dyn PhysicalExpr>),
    Project(Vec<Arc<dyn PhysicalExpr>>, SchemaRef),
}

impl Step {
    pub(crate) fn exprs(&self) -> &[Arc<dyn PhysicalExpr>] {
        match self {
            Step::Filter(predicate) => std::slice::from_ref(predicate),
            Step::Project(exprs, _) => exprs,
        }
    }

    /// The last `carried` columns of a batch go through every step as they are.
    pub(crate) fn apply(&self, batch: &RecordBatch, carried: usize) -> DataFusionResult<RecordBatch> {
        let rows = batch.num_rows();
        match self {
            Step::Filter(predicate) => {
                let mask = predicate.evaluate(batch)?.into_array(rows)?;
                let mask = mask.as_boolean_opt().ok_or_else(|| ours("a condition is not BOOLEAN"))?;
                filter_record_batch(batch, mask).map_err(ours)
            }
            Step::Project(exprs, schema) => {
                let columns = exprs.iter().map(|expr| expr.evaluate(batch)?.into_array(rows)).collect::<DataFusionResult<Vec<_>>>()?;
                let mut columns = as_declared(columns, schema)?;
                let kept = batch.num_columns() - carried..;
                let fields = schema.fields().iter().chain(&batch.schema_ref().fields()[kept.clone()]).cloned().collect::<Vec<_>>();
                columns.extend_from_slice(&batch.columns()[kept]);
                let schema = if carried == 0 { schema.clone() } else { Arc::new(Schema::new(fields)) };
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                RecordBatch::try_new_with_options(schema, columns, &options).map_err(ours)
            }
        }
    }
}

/// Gives decimals the digits of their fields. The type of `round(x, 1)` follows from its constant, of which DataFusion
/// knows more once it has simplified the plan: then it has fewer digits than the fields, which were declared before.
pub(crate) fn as_declared(columns: Vec<ArrayRef>, schema: &Schema) -> DataFusionResult<Vec<ArrayRef>> {
    let with_digits = |(column, field): (ArrayRef, &FieldRef)| match (column.data_type(), field.data_type()) {
        (DataType::Decimal128(precision, scale), DataType::Decimal128(declared, digits))
            if (precision, scale) != (declared, digits) && scale <= digits =>
        {
            // What does not fit fails on its event.
            Ok(cast_with_options(&column, field.data_type(), &CastOptions { safe: false, ..CastOptions::default() })?)
        }
        _ => Ok(column),
    };
    columns.into_iter().zip(schema.fields()).map(with_digits).collect()
}

/// Whether an expression cannot fail on any event: it is a column, a constant, a comparison, a test for NULL, or made
/// of such by AND, OR, NOT and CASE.
pub(crate) fn is_total(expr: &Arc<dyn PhysicalExpr>) -> bool {
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
/// with the steps themselves, which has errors of the kind `Internal`.
pub(crate) fn is_of_events(error: &DataFusionError) -> bool {
    match Error::datafusion_root(error) {
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

/// Whatever fails beside the expressions themselves.
pub(crate) fn ours(error: impl std::fmt::Display) -> DataFusionError {
    Error::internal(format!("the events of a view are not of its plan: {error}")).into()
}

/// Why an event fails. A cast's error repeats the value that it found, which can be as long as an event.
pub(crate) fn reason(error: &DataFusionError) -> String {
    let reason = Error::plain_message(error);
    match reason.char_indices().nth(REASON_CHARACTERS) {
        Some((end, _)) => format!("{} ..", &reason[..end]),
        None => reason,
    }
}
