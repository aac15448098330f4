//! Which columns a stream's events have: as users see them, as the archive stores them, and as views are planned over.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use definitions::StreamDefinition;
use types::columns::{EVENT_TIME, HEADERS, KEY, OFFSET, PARTITION, SOURCE, TIMESTAMP, VALUE};
use types::sql_types::timestamp_type;

/// Returns the schema of the stream's own columns, as users see them.
pub fn user_schema(stream: &StreamDefinition) -> SchemaRef {
    Arc::new(Schema::new(user_fields(stream)))
}

/// Returns the schema of the archive: typed columns, then all hidden ones (the raw ones with `keep_raw`).
pub fn event_schema(stream: &StreamDefinition) -> SchemaRef {
    let mut fields = user_fields(stream);
    fields.extend(position_fields());
    fields.push(Field::new(TIMESTAMP, timestamp_type(), false));
    if stream.keep_raw {
        fields.extend([KEY, VALUE, HEADERS].map(|name| Field::new(name, DataType::Binary, true)));
    }
    Arc::new(Schema::new(fields))
}

/// Returns the schema that views are planned over: typed columns, then event time and position.
pub fn plan_schema(stream: &StreamDefinition) -> SchemaRef {
    let mut fields = user_fields(stream);
    fields.extend(position_fields());
    Arc::new(Schema::new(fields))
}

fn user_fields(stream: &StreamDefinition) -> Vec<Field> {
    stream.columns.iter().map(|column| column.field()).collect()
}

fn position_fields() -> [Field; 4] {
    [
        Field::new(EVENT_TIME, timestamp_type(), false),
        Field::new(SOURCE, DataType::Utf8, false),
        Field::new(PARTITION, DataType::Int32, false),
        Field::new(OFFSET, DataType::Int64, false),
    ]
}
