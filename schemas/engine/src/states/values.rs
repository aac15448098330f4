//! Merged values, and the evaluation of a view's columns over them. If a value could not be computed, the columns that
//! are computed from it are NULL in its row, and the failure is reported.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int8Array, Int64Array, RecordBatch, RecordBatchOptions, TimestampMicrosecondArray, UInt32Array,
    new_null_array,
};
use arrow::compute::{concat, take, take_record_batch};
use arrow::datatypes::{DataType, Int8Type, Schema, SchemaRef};
use datafusion::physical_expr::expressions::Column;

use crate::functions::Flaw;
use crate::functions::judged::taken_apart;
use crate::plan::{ColumnKind, StateExpr, UseIndex, ValueColumn, ViewPlan};
use types::columns::AS_OF;
use types::tiles::Micros;
use types::{Error, Result};

/// A value of a row that could not be computed, and is NULL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedValue {
    pub row: usize,
    /// An index of the plan's columns.
    pub column: usize,
    /// The cause, and what to do.
    pub why: Arc<str>,
}

/// Values that could not be computed, with the keys of their rows.
#[derive(Debug, Clone, Default)]
pub struct FailedRows {
    /// A column for each key of the view. [`FailedValue::row`] counts in them.
    pub keys: Vec<ArrayRef>,
    pub values: Vec<FailedValue>,
}

impl FailedRows {
    /// Keeps only the rows that have failed values. `keys` returns the keys of these rows.
    pub fn new(mut values: Vec<FailedValue>, keys: impl FnOnce(&[usize]) -> Result<Vec<ArrayRef>>) -> Result<FailedRows> {
        if values.is_empty() {
            return Ok(FailedRows::default());
        }
        let mut rows: Vec<usize> = values.iter().map(|value| value.row).collect();
        rows.sort_unstable();
        rows.dedup();
        for value in &mut values {
            value.row = rows.partition_point(|row| *row < value.row);
        }
        Ok(FailedRows { keys: keys(&rows)?, values })
    }

    /// Combines parts.
    pub fn together(parts: Vec<FailedRows>) -> Result<FailedRows> {
        let mut all = FailedRows::default();
        for part in parts.into_iter().filter(|part| !part.values.is_empty()) {
            let before = all.keys.first().map_or(0, |key| key.len());
            all.keys = match all.values.is_empty() {
                true => part.keys,
                false => all.keys.iter().zip(&part.keys).map(|(known, more)| Ok(concat(&[known, more])?)).collect::<Result<_>>()?,
            };
            all.values.extend(part.values.into_iter().map(|value| FailedValue { row: before + value.row, ..value }));
        }
        Ok(all)
    }

    /// The same for rows whose keys are these columns.
    pub fn among(keys: &[ArrayRef], values: Vec<FailedValue>) -> Result<FailedRows> {
        Self::new(values, |rows| {
            let rows = UInt32Array::from_iter_values(rows.iter().map(|row| *row as u32));
            keys.iter().map(|key| Ok(take(key, &rows, None)?)).collect()
        })
    }
}

/// The merged values of a state, one per key.
#[derive(Debug, Clone)]
pub(crate) struct MergedColumn {
    pub(crate) values: ArrayRef,
    /// The flaws of values that could not be computed, as codes. `None` if all could be computed.
    pub(crate) flaws: Option<ArrayRef>,
}

impl MergedColumn {
    /// Splits the result of a state's aggregate into values and flaws.
    pub(crate) fn new(state: &StateExpr, merged: ArrayRef) -> Result<MergedColumn> {
        if !state.is_judged {
            return Ok(MergedColumn { values: merged, flaws: None });
        }
        let (values, flaws) = taken_apart(&merged)?;
        let has_flaws = flaws.null_count() < flaws.len();
        Ok(MergedColumn { values, flaws: has_flaws.then(|| Arc::new(flaws) as ArrayRef) })
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.values.get_array_memory_size() + self.flaws.as_ref().map_or(0, |flaws| flaws.get_array_memory_size())
    }
}

/// The columns of a value schema: keys, the time, the events of each range, the merged values. Columns that are not
/// needed are absent.
pub(crate) struct Values<'a> {
    schema: &'a SchemaRef,
    columns: Vec<Option<ArrayRef>>,
    rows: usize,
    /// The time of each row. A column of times is built only where an expression may need it.
    times: &'a [Micros],
    /// The flaws of uses, where they have any.
    flaws: BTreeMap<UseIndex, Int8Array>,
}

impl<'a> Values<'a> {
    /// Begins a row for each of these times.
    pub(crate) fn new(schema: &'a SchemaRef, times: &'a [Micros]) -> Self {
        Self { schema, columns: vec![None; schema.fields().len()], rows: times.len(), times, flaws: BTreeMap::new() }
    }

    /// Wraps a batch that has all columns of a value schema.
    pub(crate) fn from_batch(batch: &'a RecordBatch) -> Self {
        let columns = batch.columns().iter().cloned().map(Some).collect();
        Self { schema: batch.schema_ref(), columns, rows: batch.num_rows(), times: &[], flaws: BTreeMap::new() }
    }

    /// Adds the flaws of uses.
    pub(crate) fn with_flaws(mut self, flaws: Vec<(UseIndex, Int8Array)>) -> Self {
        self.flaws.extend(flaws);
        self
    }

    /// Sets the columns from this position on.
    pub(crate) fn set(&mut self, place: usize, columns: impl IntoIterator<Item = ArrayRef>) {
        for (slot, column) in self.columns[place..].iter_mut().zip(columns) {
            *slot = Some(column);
        }
    }

    /// Sets the column of a use.
    pub(crate) fn set_merged(&mut self, place: usize, usage: UseIndex, merged: MergedColumn) {
        self.set(place, [merged.values]);
        self.flaws.extend(merged.flaws.map(|flaws| (usage, flaws.as_primitive::<Int8Type>().clone())));
    }

    pub(crate) fn get(&self, place: usize) -> Option<&ArrayRef> {
        self.columns.get(place).and_then(Option::as_ref)
    }

    /// Evaluates the view's columns `wanted` over the values. Most are a single value; a batch of all values is built
    /// only for the others.
    pub(crate) fn project(&self, plan: &ViewPlan, wanted: &[usize]) -> Result<(RecordBatch, Vec<FailedValue>)> {
        let mut batch = None;
        let mut columns = Vec::with_capacity(wanted.len());
        let mut failed = Vec::new();
        for column in wanted {
            let failed_rows = match &plan.columns[*column].kind {
                ColumnKind::Key(_) => BTreeMap::new(),
                ColumnKind::Value(value) => self.failed_rows(value),
            };
            failed.extend(failed_rows.iter().map(|(row, (usage, flaw))| {
                let why = plan.why(*usage, *flaw).into();
                FailedValue { row: *row, column: *column, why }
            }));
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
                    evaluated(value, batch, &failed_rows)?
                }
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        Ok((RecordBatch::try_new_with_options(schema_of(plan, wanted), columns, &options)?, failed))
    }

    /// The rows in which a value that the column is computed from failed, with the first that did.
    fn failed_rows(&self, column: &ValueColumn) -> BTreeMap<usize, (UseIndex, Flaw)> {
        let mut rows = BTreeMap::new();
        for usage in &column.uses {
            for (row, flaw) in self.flaws.get(usage).into_iter().flat_map(|flaws| flaws.iter().enumerate()) {
                if let Some(flaw) = flaw {
                    rows.entry(row).or_insert((*usage, Flaw::from_code(flaw)));
                }
            }
        }
        rows
    }

    /// Returns all columns. Absent ones are filled with the times, NULLs or zeros.
    fn batch(&self) -> Result<RecordBatch> {
        let columns = self.columns.iter().zip(self.schema.fields()).map(|(column, field)| match (column, field.is_nullable()) {
            (Some(column), _) => Ok(column.clone()),
            (None, _) if field.name() == AS_OF => {
                Ok(Arc::new(TimestampMicrosecondArray::from(self.times.to_vec()).with_timezone("UTC")) as ArrayRef)
            }
            (None, true) => Ok(new_null_array(field.data_type(), self.rows)),
            (None, false) if *field.data_type() == DataType::Int64 => Ok(Arc::new(Int64Array::from_value(0, self.rows)) as ArrayRef),
            (None, false) => Err(Error::internal(format!("a view's values lack {}", field.name()))),
        });
        Ok(RecordBatch::try_new(self.schema.clone(), columns.collect::<Result<_>>()?)?)
    }
}

/// Evaluates a column, except in the rows that failed: there it is NULL.
fn evaluated(column: &ValueColumn, batch: &RecordBatch, failed: &BTreeMap<usize, (UseIndex, Flaw)>) -> Result<ArrayRef> {
    let rows = batch.num_rows();
    if failed.is_empty() {
        return Ok(column.expr.evaluate(batch)?.into_array(rows)?);
    }
    let others: UInt32Array = (0..rows).filter(|row| !failed.contains_key(row)).map(|row| row as u32).collect();
    let of_others = column.expr.evaluate(&take_record_batch(batch, &others)?)?.into_array(others.len())?;
    let mut next = 0..others.len() as u32;
    let places: UInt32Array = (0..rows).map(|row| if failed.contains_key(&row) { None } else { next.next() }).collect();
    Ok(take(&of_others, &places, None)?)
}

fn schema_of(plan: &ViewPlan, wanted: &[usize]) -> SchemaRef {
    if plan.are_all(wanted) {
        return plan.output_schema();
    }
    Arc::new(Schema::new(wanted.iter().map(|column| plan.columns[*column].field.clone()).collect::<Vec<_>>()))
}
