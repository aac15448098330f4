//! Merged values, and the evaluation of a view's columns over them.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::physical_expr::expressions::Column;

use crate::plan::{ColumnKind, ViewPlan};
use types::{Error, Result};

/// The columns of a value schema: keys, the time, the events of each range, the merged values. Columns that are not
/// needed are absent.
pub(crate) struct Values<'a> {
    schema: &'a SchemaRef,
    columns: Vec<Option<ArrayRef>>,
    rows: usize,
}

impl<'a> Values<'a> {
    pub(crate) fn new(schema: &'a SchemaRef, rows: usize) -> Self {
        Self { schema, columns: vec![None; schema.fields().len()], rows }
    }

    /// Wraps a batch that has all columns of a value schema.
    pub(crate) fn from_batch(batch: &'a RecordBatch) -> Self {
        Self { schema: batch.schema_ref(), columns: batch.columns().iter().cloned().map(Some).collect(), rows: batch.num_rows() }
    }

    /// Sets the columns from this position on.
    pub(crate) fn set(&mut self, place: usize, columns: impl IntoIterator<Item = ArrayRef>) {
        for (slot, column) in self.columns[place..].iter_mut().zip(columns) {
            *slot = Some(column);
        }
    }

    pub(crate) fn get(&self, place: usize) -> Option<&ArrayRef> {
        self.columns.get(place).and_then(Option::as_ref)
    }

    /// Evaluates the view's columns `wanted` over the values. Most are a single value; a batch of all values is built
    /// only for the others.
    pub(crate) fn project(&self, plan: &ViewPlan, wanted: &[usize]) -> Result<RecordBatch> {
        let mut batch = None;
        let mut columns = Vec::with_capacity(wanted.len());
        for column in wanted {
            let as_it_is = match &plan.columns[*column].kind {
                ColumnKind::Key(key) => Some(*key),
                ColumnKind::Value(value) => value.expr.downcast_ref::<Column>().map(Column::index),
            };
            columns.push(match (as_it_is.and_then(|place| self.get(place)), &plan.columns[*column].kind) {
                (Some(column), _) => column.clone(),
                (None, ColumnKind::Key(_)) => return Err(Error::internal("a view's values lack a key")),
                (None, ColumnKind::Value(value)) => {
                    let batch = match &batch {
                        Some(batch) => batch,
                        None => batch.insert(self.batch()?),
                    };
                    value.expr.evaluate(batch)?.into_array(self.rows)?
                }
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        Ok(RecordBatch::try_new_with_options(schema_of(plan, wanted), columns, &options)?)
    }

    /// Returns all columns. Absent ones are filled with NULLs or zeros.
    fn batch(&self) -> Result<RecordBatch> {
        let columns = self.columns.iter().zip(self.schema.fields()).map(|(column, field)| match (column, field.is_nullable()) {
            (Some(column), _) => Ok(column.clone()),
            (None, true) => Ok(new_null_array(field.data_type(), self.rows)),
            (None, false) if *field.data_type() == DataType::Int64 => Ok(Arc::new(Int64Array::from_value(0, self.rows)) as ArrayRef),
            (None, false) => Err(Error::internal(format!("a view's values lack {}", field.name()))),
        });
        Ok(RecordBatch::try_new(self.schema.clone(), columns.collect::<Result<_>>()?)?)
    }
}

fn schema_of(plan: &ViewPlan, wanted: &[usize]) -> SchemaRef {
    if wanted.iter().copied().eq(0..plan.columns.len()) {
        return plan.output_schema();
    }
    Arc::new(Schema::new(wanted.iter().map(|column| plan.columns[*column].field.clone()).collect::<Vec<_>>()))
}
