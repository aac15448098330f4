//! `pg_class`, with the columns that it does not have by itself, all NULL, and with tables of no pages: DuckDB reads
//! pages by `ctid`, which no table here has.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, new_null_array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result as DataFusionResult;

use super::derived::{DerivedRows, all_rows};

#[derive(Debug)]
pub(super) struct Classes {
    classes: Arc<dyn TableProvider>,
    schema: SchemaRef,
}

impl Classes {
    pub(super) fn new(classes: Arc<dyn TableProvider>) -> Classes {
        let before = classes.schema();
        let options = DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)));
        let absent = [Field::new("relacl", DataType::Utf8, true), Field::new("reloptions", options, true)];
        let fields: Vec<_> = before.fields().iter().cloned().chain(absent.map(Arc::new)).collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, before.metadata().clone()));
        Classes { classes, schema }
    }
}

#[async_trait]
impl DerivedRows for Classes {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    async fn rows(&self, session: &dyn Session) -> DataFusionResult<RecordBatch> {
        let found = all_rows(session, &self.classes).await?;
        let column = |field: &Arc<Field>| -> ArrayRef {
            match (field.name().as_str(), found.column_by_name(field.name())) {
                ("relpages", _) => Arc::new(Int32Array::from(vec![0; found.num_rows()])),
                (_, Some(column)) => column.clone(),
                (_, None) => new_null_array(field.data_type(), found.num_rows()),
            }
        };
        Ok(RecordBatch::try_new(self.schema(), self.schema.fields().iter().map(column).collect())?)
    }
}
