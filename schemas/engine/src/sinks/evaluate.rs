//! Evaluating a sink over a batch of events and the rows that belong to them.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, StringArray, UInt32Array, new_null_array};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt32Type};
use datafusion::error::DataFusionError;
use types::{Error, Result};

use super::{JoinedView, SinkPlan};
use crate::events::user_schema;
use crate::steps::{is_of_events, reason};

const EVENT_INDEX: &str = "__event";
/// A failing batch of at most this many events is evaluated one by one.
const ONE_BY_ONE: usize = 64;

/// What a sink puts out for a batch of events, in their order.
#[derive(Debug, Clone)]
pub struct OutputRecords {
    /// The columns of [`SinkPlan::output`].
    pub rows: RecordBatch,
    /// The event of each row: a row of the batch.
    pub events: Vec<u32>,
    /// The events on which the SELECT fails. They have no row.
    pub failed: Vec<Failed>,
}

/// An event on which the SELECT fails, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    pub event: u32,
    pub reason: String,
}

impl JoinedView {
    /// The keys of the view's rows for these events, and whether each event has one: a key that is NULL is equal to
    /// none.
    ///
    /// An event on which a key's expression fails has none either.
    pub fn keys(&self, stream: &definitions::StreamDefinition, events: &RecordBatch) -> Result<(Vec<ArrayRef>, BooleanArray)> {
        let rows = events.num_rows();
        let own = own_columns(stream, events)?;
        let columns = self.keys.iter().map(|key| evaluated_key(&**key, &own)).collect::<Result<Vec<ArrayRef>>>()?;
        let has_key = (0..rows).map(|row| columns.iter().all(|column| column.is_valid(row)));
        Ok((columns.clone(), BooleanArray::from_iter(has_key.map(Some))))
    }
}

/// Evaluates a key for all events, or one by one where one of them fails.
fn evaluated_key(key: &dyn datafusion::physical_expr::PhysicalExpr, own: &RecordBatch) -> Result<ArrayRef> {
    let rows = own.num_rows();
    let whole = key.evaluate(own).and_then(|value| value.into_array(rows));
    let error = match whole {
        Ok(column) => return Ok(column),
        Err(error) if !is_of_events(&error) => return Err(error.into()),
        Err(error) => error,
    };
    if rows <= 1 {
        tracing::debug!(%error, "an event has no key");
        return Ok(new_null_array(&key.data_type(own.schema_ref())?, rows));
    }
    let parts = (0..rows).map(|row| evaluated_key(key, &own.slice(row, 1))).collect::<Result<Vec<_>>>()?;
    Ok(arrow::compute::concat(&parts.iter().map(|part| &**part).collect::<Vec<_>>())?)
}

impl SinkPlan {
    /// Evaluates events (a batch of the stream's event schema). `rows` has a batch for each of [`SinkPlan::joins`] with
    /// its wanted columns, a row for each event; `as_of` is the time for which they were read, and `position` from
    /// where.
    ///
    /// Errors: those that are no event's fault, such as a memory limit.
    pub fn records(&self, events: &RecordBatch, rows: &[RecordBatch], position: &str, as_of: &ArrayRef) -> Result<OutputRecords> {
        let joined = self.joined(events, rows, position, as_of)?;
        let (mut made, mut failed) = (Vec::new(), Vec::new());
        self.evaluate_halves(&joined, &mut made, &mut failed)?;
        let schema = with_index(&self.output);
        let made = concat_batches(&schema, &made)?;
        let columns = self.output.fields().len();
        let events = made.column(columns).as_primitive::<UInt32Type>().values().to_vec();
        let rows = made.project(&(0..columns).collect::<Vec<_>>())?;
        let rows = RecordBatch::try_new_with_options(
            self.output.clone(),
            rows.columns().to_vec(),
            &RecordBatchOptions::new().with_row_count(Some(events.len())),
        )?;
        Ok(OutputRecords { rows, events, failed })
    }

    /// The joined rows, each with the index of its event.
    fn joined(&self, events: &RecordBatch, rows: &[RecordBatch], position: &str, as_of: &ArrayRef) -> Result<RecordBatch> {
        let count = events.num_rows();
        let mut columns: Vec<ArrayRef> = own_columns(&self.stream, events)?.columns().to_vec();
        columns.push(Arc::new(StringArray::from_iter_values(std::iter::repeat_n(position, count))));
        columns.push(as_of.clone());
        for (join, rows) in self.joins.iter().zip(rows) {
            let mut wanted = join.wanted.iter().zip(rows.columns()).peekable();
            for (index, column) in join.plan.columns.iter().enumerate() {
                columns.push(match wanted.next_if(|(of, _)| **of == index) {
                    Some((_, values)) => values.clone(),
                    None => new_null_array(column.field.data_type(), count),
                });
            }
        }
        columns.push(Arc::new(UInt32Array::from_iter_values(0..count as u32)));
        if columns.len() != self.row.fields().len() + 1 {
            return Err(Error::internal("the rows of a sink's views are not those of its plan"));
        }
        let nullable = self.row.fields().iter().map(|field| Arc::new(field.as_ref().clone().with_nullable(true)));
        let schema = with_index(&Arc::new(Schema::new(nullable.collect::<Vec<_>>())));
        Ok(RecordBatch::try_new(schema, columns)?)
    }

    fn evaluate_halves(&self, joined: &RecordBatch, made: &mut Vec<RecordBatch>, failed: &mut Vec<Failed>) -> Result<()> {
        let rows = joined.num_rows();
        let error = match self.evaluate_whole(joined) {
            Ok(batch) => {
                made.extend(batch);
                return Ok(());
            }
            Err(error) if !is_of_events(&error) => return Err(error.into()),
            Err(error) => error,
        };
        if rows == 1 {
            let event = joined.columns().last().map_or(0, |index| index.as_primitive::<UInt32Type>().value(0));
            failed.push(Failed { event, reason: reason(&error) });
            return Ok(());
        }
        let step = if rows <= ONE_BY_ONE { 1 } else { rows.div_ceil(2) };
        (0..rows).step_by(step).try_for_each(|from| self.evaluate_halves(&joined.slice(from, step.min(rows - from)), made, failed))
    }

    fn evaluate_whole(&self, joined: &RecordBatch) -> Result<Option<RecordBatch>, DataFusionError> {
        let mut batch = joined.clone();
        for step in &self.steps {
            if batch.num_rows() == 0 {
                return Ok(None);
            }
            batch = step.apply(&batch, 1)?;
        }
        if batch.num_rows() == 0 {
            return Ok(None);
        }
        // The names of the output, and nullable as the values are.
        Ok(Some(RecordBatch::try_new(with_index(&self.output), batch.columns().to_vec())?))
    }
}

/// The stream's own columns of a batch of events.
fn own_columns(stream: &definitions::StreamDefinition, events: &RecordBatch) -> Result<RecordBatch> {
    let schema = user_schema(stream);
    let column = |field: &Arc<Field>| {
        let found = events.column_by_name(field.name()).cloned();
        found.ok_or_else(|| Error::corrupt(format!("the events lack the column {}", field.name())))
    };
    let columns = schema.fields().iter().map(column).collect::<Result<Vec<_>>>()?;
    Ok(RecordBatch::try_new(schema, columns)?)
}

fn with_index(schema: &SchemaRef) -> SchemaRef {
    let index = Arc::new(Field::new(EVENT_INDEX, DataType::UInt32, false));
    Arc::new(Schema::new(schema.fields().iter().cloned().chain([index]).collect::<Vec<_>>()))
}
