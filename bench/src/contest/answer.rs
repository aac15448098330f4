//! Reads answers and compares them with each other row by row.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::kernels::cmp::distinct;
use arrow::compute::{cast, concat_batches, sort_to_indices, take_record_batch};
use arrow::datatypes::{DataType, Field, Schema};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use types::{Error, Result};

use crate::installed::Pristine;

/// The columns of an answer: its key, a text, and its values with the types in which they are compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    pub key: String,
    pub values: Vec<(String, DataType)>,
}

/// Rows in the order of their keys.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Answer(RecordBatch);

/// The answer of the last batch run, from the table that has it.
pub(super) async fn served(installed: &Pristine, answered_by: &str, shape: &Shape) -> Result<Answer> {
    let installation = installed.open().await?;
    let node = installation.node(None).await?;
    let columns: Vec<&str> = shape.columns().map(|(name, _)| name).collect();
    let response = node.query(&format!("SELECT {} FROM {answered_by}", columns.join(", ")), Vec::new()).await?;
    let answer = shape.answer(&response.collect().await?)?;
    installation.close().await;
    Ok(answer)
}

pub(super) fn read(path: &Path, shape: &Shape) -> Result<Answer> {
    let file = std::fs::File::open(path).map_err(|error| Error::from(error).with("file", path.display()))?;
    let batches = ParquetRecordBatchReaderBuilder::try_new(file)?.build()?.collect::<Result<Vec<_>, _>>()?;
    shape.answer(&batches)
}

impl Shape {
    fn columns(&self) -> impl Iterator<Item = (&str, &DataType)> {
        [(&*self.key, &DataType::Utf8)].into_iter().chain(self.values.iter().map(|(name, data_type)| (&**name, data_type)))
    }

    fn answer(&self, batches: &[RecordBatch]) -> Result<Answer> {
        let fields: Vec<Field> = self.columns().map(|(name, data_type)| Field::new(name, data_type.clone(), true)).collect();
        let schema = Arc::new(Schema::new(fields));
        let typed = |batch: &RecordBatch| -> Result<RecordBatch> {
            let column = |(name, data_type): (&str, &DataType)| -> Result<ArrayRef> {
                let column = batch.column_by_name(name).ok_or_else(|| Error::internal("an answer lacks a column").with("column", name))?;
                Ok(cast(column, data_type)?)
            };
            Ok(RecordBatch::try_new(schema.clone(), self.columns().map(column).collect::<Result<_>>()?)?)
        };
        let rows = concat_batches(&schema, &batches.iter().map(typed).collect::<Result<Vec<_>>>()?)?;
        let order = sort_to_indices(rows.column(0), None, None)?;
        Ok(Answer(take_record_batch(&rows, &order)?))
    }
}

impl Answer {
    pub(super) fn len(&self) -> usize {
        self.0.num_rows()
    }

    fn row(&self, row: usize) -> Result<String> {
        Ok(serving::json::rows(&self.0.slice(row, 1))?.first().map_or_else(String::new, |row| row.get().to_owned()))
    }

    /// Errors at the first difference.
    pub(super) fn same(&self, other: &Answer) -> Result<()> {
        if self.len() != other.len() {
            return Err(Error::internal("two answers have other keys").with("one has", self.len()).with("the other", other.len()));
        }
        for (column, (one, two)) in self.0.columns().iter().zip(other.0.columns()).enumerate() {
            let differs = distinct(one, two)?;
            if let Some(row) = differs.values().set_indices().next() {
                return Err(Error::internal("two answers differ")
                    .with("column", self.0.schema().field(column).name())
                    .with("one has", self.row(row)?)
                    .with("the other", other.row(row)?));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, Int32Array, Int64Array, StringArray};

    use super::*;

    fn answer(rows: &[(&str, Option<i32>)]) -> Answer {
        let keys: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|(key, _)| key)));
        let values: ArrayRef = Arc::new(Int32Array::from_iter(rows.iter().map(|(_, value)| *value)));
        let batch = RecordBatch::try_from_iter([("v", values), ("k", keys)]).unwrap();
        Shape { key: "k".into(), values: vec![("v".into(), DataType::Int64)] }.answer(&[batch]).unwrap()
    }

    #[test]
    fn answers_are_the_same_in_any_order_and_any_type() {
        let one = answer(&[("a", Some(1)), ("b", None)]);
        assert!(one.same(&answer(&[("b", None), ("a", Some(1))])).is_ok());
        assert_eq!(one.0.column(1).as_ref(), &Int64Array::from(vec![Some(1), None]) as &dyn Array);
    }

    #[test]
    fn a_value_or_a_key_that_differs_is_found() {
        let one = answer(&[("a", Some(1)), ("b", None)]);
        for other in [[("a", Some(2)), ("b", None)], [("a", Some(1)), ("b", Some(0))], [("a", Some(1)), ("c", None)]] {
            let error = one.same(&answer(&other)).unwrap_err().to_string();
            assert!(error.contains("differ") && error.contains(r#"{"k":"#), "{error}");
        }
        assert!(one.same(&answer(&[("a", Some(1))])).is_err());
    }
}
