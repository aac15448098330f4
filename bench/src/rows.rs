//! Generated events as Arrow rows: as the archive keeps them, and as peers get them.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use schemas::definitions::timestamp_type;
use schemas::{Error, Result};

use crate::graph::{Event, Graph, Stream, device_text, user_text};

/// The rows of some events of one partition, as the archive's schema has them.
pub fn archived(
    graph: &Graph,
    stream: Stream,
    schema: &SchemaRef,
    partition: i32,
    events: &[u64],
    first_offset: i64,
) -> Result<RecordBatch> {
    let rows: Vec<Event> = events.iter().map(|number| graph.event(stream, *number)).collect();
    let column = |field: &Arc<Field>| -> Result<ArrayRef> {
        Ok(match field.name().as_str() {
            schemas::events::SOURCE => Arc::new(StringArray::from_iter_values(rows.iter().map(|_| stream.name()))),
            schemas::events::PARTITION => Arc::new(Int32Array::from_iter_values(rows.iter().map(|_| partition))),
            schemas::events::OFFSET => Arc::new(Int64Array::from_iter_values((first_offset..).take(rows.len()))),
            schemas::events::EVENT_TIME | schemas::events::TIMESTAMP => times(&rows),
            name => own_column(name, stream, events, &rows)?,
        })
    };
    let columns = schema.fields().iter().map(column).collect::<Result<_>>()?;
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}

/// The rows of some events, with the stream's own columns alone.
pub fn plain(graph: &Graph, stream: Stream, events: &[u64]) -> Result<RecordBatch> {
    let rows: Vec<Event> = events.iter().map(|number| graph.event(stream, *number)).collect();
    let schema = plain_schema();
    let columns = schema.fields().iter().map(|field| own_column(field.name(), stream, events, &rows)).collect::<Result<_>>()?;
    Ok(RecordBatch::try_new(schema, columns)?)
}

pub fn plain_schema() -> SchemaRef {
    let text = |name| Field::new(name, DataType::Utf8, true);
    Arc::new(Schema::new(vec![text("event_id"), Field::new("ts", timestamp_type(), false), text("user_id"), text("device_id")]))
}

fn own_column(name: &str, stream: Stream, events: &[u64], rows: &[Event]) -> Result<ArrayRef> {
    Ok(match name {
        "event_id" => Arc::new(StringArray::from_iter_values(events.iter().map(|number| event_id(stream, *number)))),
        "ts" => times(rows),
        "user_id" => Arc::new(StringArray::from_iter_values(rows.iter().map(|row| user_text(row.user)))),
        "device_id" => Arc::new(StringArray::from_iter_values(rows.iter().map(|row| device_text(row.device)))),
        other => return Err(Error::internal("a stream has a column that is not generated").with("column", other)),
    })
}

fn event_id(stream: Stream, number: u64) -> String {
    format!("{}{number:09}", &stream.name()[..1])
}

fn times(rows: &[Event]) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from_iter_values(rows.iter().map(|row| row.ts)).with_timezone("UTC"))
}
