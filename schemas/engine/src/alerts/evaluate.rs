//! Evaluating an alert over rows of its view.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, TimestampMicrosecondArray, UInt32Array, new_null_array,
};
use arrow::compute::take_record_batch;
use arrow::datatypes::{Schema, TimestampMicrosecondType};
use datafusion::error::DataFusionError;
use datafusion::physical_expr::PhysicalExpr;
use types::tiles::Micros;
use types::{Error, Result};

use super::AlertPlan;
use super::first_changes::first_changes;
use crate::steps::{is_of_events, reason};

/// Which rows satisfy an alert's condition.
#[derive(Debug, Clone)]
pub struct ConditionResults {
    pub holds: Vec<bool>,
    /// The rows on which the condition fails. They do not satisfy it.
    pub failed: Vec<FailedRow>,
}

/// The records of some rows.
#[derive(Debug, Clone)]
pub struct AlertRecords {
    /// The columns of [`AlertPlan::output`].
    pub columns: RecordBatch,
    /// The rows that they are of, in the order of the records.
    pub rows: Vec<u32>,
    /// The rows on which a column fails. They have no record.
    pub failed: Vec<FailedRow>,
}

/// A row on which an alert fails, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedRow {
    pub row: u32,
    pub reason: String,
}

impl AlertPlan {
    /// Which of these rows satisfy the condition, each at its time. `rows` has the wanted columns of the view.
    ///
    /// Errors: those that are no row's fault, such as a memory limit.
    pub fn held(&self, rows: &RecordBatch, times: &[Micros]) -> Result<ConditionResults> {
        let timed = self.timed(rows, times)?;
        let (mut holds, mut failed) = (vec![false; rows.num_rows()], Vec::new());
        each(&self.condition, &timed, 0, &mut |row, value| match value {
            Ok(values) => {
                let values = values.as_boolean();
                (0..values.len()).for_each(|offset| holds[row + offset] = values.is_valid(offset) && values.value(offset));
                Ok(())
            }
            Err(reason) => {
                failed.push(FailedRow { row: row as u32, reason });
                Ok(())
            }
        })?;
        Ok(ConditionResults { holds, failed })
    }

    /// The records of these of the rows, each at its time.
    pub fn records(&self, rows: &RecordBatch, times: &[Micros], wanted: &[u32]) -> Result<AlertRecords> {
        let timed = self.timed(rows, times)?;
        let (mut kept, mut failed) = (wanted.to_vec(), Vec::new());
        let columns = match self.columns_of(&timed, &kept) {
            Ok(columns) => columns,
            Err(error) if !is_of_events(&error) => return Err(error.into()),
            Err(_) => {
                // Some row fails: each is looked at alone.
                kept.retain(|row| match self.columns_of(&timed, &[*row]) {
                    Ok(_) => true,
                    Err(error) => {
                        failed.push(FailedRow { row: *row, reason: reason(&error) });
                        false
                    }
                });
                self.columns_of(&timed, &kept)?
            }
        };
        let options = RecordBatchOptions::new().with_row_count(Some(kept.len()));
        let nullable = self.output.fields().iter().map(|field| Arc::new(field.as_ref().clone().with_nullable(true)));
        let schema = Arc::new(Schema::new(nullable.collect::<Vec<_>>()));
        Ok(AlertRecords { columns: RecordBatch::try_new_with_options(schema, columns, &options)?, rows: kept, failed })
    }

    /// For each of these rows, the first time after its own at which a comparison with the time has another outcome
    /// than then; `None` if there is none. Up to that time, the condition over the same row has the same outcome.
    pub fn next_change(&self, rows: &RecordBatch, times: &[Micros]) -> Result<Vec<Option<Micros>>> {
        let mut next: Vec<Option<Micros>> = vec![None; rows.num_rows()];
        for comparison in &self.comparisons {
            for (next, changes) in next.iter_mut().zip(self.changes(comparison, rows, times)?) {
                *next = (*next).into_iter().chain(changes).min();
            }
        }
        Ok(next)
    }

    fn changes(&self, comparison: &Arc<dyn PhysicalExpr>, rows: &RecordBatch, t: &[Micros]) -> Result<Vec<Option<Micros>>> {
        let columns = rows.columns().iter().filter_map(|column| column.as_primitive_opt::<TimestampMicrosecondType>());
        let columns: Vec<&TimestampMicrosecondArray> = columns.collect();
        first_changes(t, &columns, |of, times| self.outcomes(comparison, &rows.slice(of.start, of.len()), times))
    }

    /// A comparison's outcome for each row at its time; `None` where it is NULL or fails.
    pub(super) fn outcomes(&self, comparison: &Arc<dyn PhysicalExpr>, rows: &RecordBatch, times: &[Micros]) -> Result<Vec<Option<bool>>> {
        let mut outcomes = vec![None; rows.num_rows()];
        each(comparison, &self.timed(rows, times)?, 0, &mut |row, value| {
            if let Ok(values) = value {
                let values: &BooleanArray = values.as_boolean();
                values.iter().enumerate().for_each(|(of, value)| outcomes[row + of] = value);
            }
            Ok(())
        })?;
        Ok(outcomes)
    }

    fn columns_of(&self, timed: &RecordBatch, rows: &[u32]) -> Result<Vec<ArrayRef>, DataFusionError> {
        let kept = take_record_batch(timed, &UInt32Array::from(rows.to_vec()))?;
        self.columns.iter().map(|column| column.evaluate(&kept)?.into_array(rows.len())).collect()
    }

    /// The rows with all columns of the view (those that are not wanted are NULL) and the time.
    fn timed(&self, rows: &RecordBatch, times: &[Micros]) -> Result<RecordBatch> {
        let mut wanted = self.wanted.iter().zip(rows.columns()).peekable();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.row.fields().len());
        for (index, column) in self.view.columns.iter().enumerate() {
            columns.push(match wanted.next_if(|(of, _)| **of == index) {
                Some((_, values)) => values.clone(),
                None => new_null_array(column.field.data_type(), rows.num_rows()),
            });
        }
        columns.push(Arc::new(TimestampMicrosecondArray::from(times.to_vec()).with_timezone("UTC")));
        if columns.len() != self.row.fields().len() {
            return Err(Error::internal("the rows of an alert's view are not those of its plan"));
        }
        let nullable = self.row.fields().iter().map(|field| Arc::new(field.as_ref().clone().with_nullable(true)));
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(nullable.collect::<Vec<_>>())), columns, &options)?)
    }
}

/// Evaluates an expression over all rows, or over ever smaller parts where it fails on one; `take` gets each part with
/// the place of its first row, and a row that fails alone with its reason.
fn each(
    expr: &Arc<dyn PhysicalExpr>,
    rows: &RecordBatch,
    first: usize,
    take: &mut dyn FnMut(usize, Result<ArrayRef, String>) -> Result<()>,
) -> Result<()> {
    let count = rows.num_rows();
    match expr.evaluate(rows).and_then(|value| value.into_array(count)) {
        Ok(values) => take(first, Ok(values)),
        Err(error) if !is_of_events(&error) => Err(error.into()),
        Err(error) if count <= 1 => take(first, Err(reason(&error))),
        Err(_) => {
            let half = count / 2;
            each(expr, &rows.slice(0, half), first, take)?;
            each(expr, &rows.slice(half, count - half), first + half, take)
        }
    }
}
