use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType};
use arrow::json::ReaderBuilder;

use crate::column_builders::Failed;
use crate::events::user_schema;
use crate::records::{Records, value};

pub fn decode(records: &Records) -> Result<RecordBatch, Failed> {
    let schema = user_schema(&records.stream);
    let builder = ReaderBuilder::new(with_offset(&schema)).with_batch_size(records.records.len());
    let mut decoder = builder.build_decoder().map_err(|error| error.to_string())?;
    for record in &records.records {
        let read = decoder.decode(value(record)).map_err(|error| error.to_string())?;
        if read != value(record).len() {
            return Err("a record was not read to its end".into());
        }
    }
    let batch = decoder.flush().map_err(|error| error.to_string())?.ok_or("no batch")?;
    RecordBatch::try_new(schema, batch.columns().iter().map(named).collect()).map_err(|error| error.to_string())
}

/// It reads names of zones only with a table of them.
fn with_offset(schema: &SchemaRef) -> SchemaRef {
    let zoned = |field: &Field| match field.data_type() {
        DataType::Timestamp(..) => field.clone().with_data_type(DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into()))),
        _ => field.clone(),
    };
    Arc::new(Schema::new(schema.fields().iter().map(|field| zoned(field)).collect::<Vec<_>>()))
}

/// The same values in UTC.
fn named(array: &ArrayRef) -> ArrayRef {
    match array.as_primitive_opt::<TimestampMicrosecondType>() {
        Some(times) => Arc::new(times.clone().with_timezone("UTC")),
        None => array.clone(),
    }
}
