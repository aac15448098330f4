//! Accepted events as Arrow data, in the form that the archive stores. A stream's typed columns come first, in the
//! order of its definition, followed by hidden system columns.
//!
//! | column         | type                     | what it is                                                    |
//! |----------------|--------------------------|---------------------------------------------------------------|
//! | `__event_time` | Timestamp(us, UTC)       | the event time column's value; a DATE is midnight UTC         |
//! | `__source`     | Utf8                     | the stream's name                                             |
//! | `__partition`  | Int32                    | the partition the record came from                            |
//! | `__offset`     | Int64                    | its offset there                                              |
//! | `__timestamp`  | Timestamp(us, UTC)       | the log's time for the record                                 |
//! | `__key`        | Binary, with `keep_raw`  | the record's key                                              |
//! | `__value`      | Binary, with `keep_raw`  | the record's value                                            |
//! | `__headers`    | Binary, with `keep_raw`  | JSON text `[["name", "base64 of the value"], ..]`; null: none |

use std::sync::Arc;
use types::columns::{EVENT_TIME, HEADERS, KEY, OFFSET, PARTITION, SOURCE, TIMESTAMP, VALUE};

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use definitions::StreamDefinition;
use types::sql_types::timestamp_type;

mod build;
mod decode;
mod headers;
mod interval;
mod members;
mod number;
mod redecode;
pub(crate) mod spelling;
mod time;
pub(crate) mod value;

pub use build::EventBatchBuilder;
pub use decode::{DecodeError, Decoder, Event};
pub use headers::{headers_from_json, headers_to_json};
pub use interval::Interval;
pub use redecode::{Misfit, OnMisfit, RedecodedEvents, Redecoder, columns_to_decode};
pub use spelling::{asked_uuid, canonical_uuid, parse_boolean};
pub use time::{TimeError, format_date, format_timestamp, parse_date, parse_timestamp};
pub use value::{ColumnValue, canonical_text};

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

#[cfg(test)]
mod tests;
