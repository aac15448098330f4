//! Builds Arrow rows from generated events: as the archive keeps them, and as peers get them.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{Field, SchemaRef};
use types::Result;

use crate::events::{Events, column_of, times};

/// The rows of some events of one partition, in the archive's schema.
pub fn archived(
    events: &impl Events,
    stream: &str,
    schema: &SchemaRef,
    partition: i32,
    numbers: &[u64],
    first_offset: i64,
) -> Result<RecordBatch> {
    let column = |field: &Arc<Field>| -> Result<ArrayRef> {
        Ok(match field.name().as_str() {
            types::columns::SOURCE => Arc::new(StringArray::from_iter_values(numbers.iter().map(|_| stream))),
            types::columns::PARTITION => Arc::new(Int32Array::from_iter_values(numbers.iter().map(|_| partition))),
            types::columns::OFFSET => Arc::new(Int64Array::from_iter_values((first_offset..).take(numbers.len()))),
            types::columns::EVENT_TIME | types::columns::TIMESTAMP => times(numbers.iter().map(|number| events.time(stream, *number))),
            name => column_of(events, stream, name, numbers)?,
        })
    };
    let columns = schema.fields().iter().map(column).collect::<Result<_>>()?;
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}

/// The rows of some events, with only the stream's own columns.
pub fn plain(events: &impl Events, stream: &str, schema: &SchemaRef, numbers: &[u64]) -> Result<RecordBatch> {
    let columns = schema.fields().iter().map(|field| column_of(events, stream, field.name(), numbers)).collect::<Result<_>>()?;
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}
