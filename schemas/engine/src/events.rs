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

mod build;
mod decode;
mod headers;
mod interval;
mod members;
mod number;
mod redecode;
mod schemas;
pub(crate) mod spelling;
mod time;
pub(crate) mod value;

pub use build::EventBatchBuilder;
pub use decode::{DecodeError, Decoder, Event};
pub use headers::{headers_from_json, headers_to_json};
pub use interval::Interval;
pub use redecode::{Misfit, OnMisfit, RedecodedEvents, Redecoder, columns_to_decode};
pub use schemas::{event_schema, plan_schema, user_schema};
pub use spelling::{asked_uuid, canonical_uuid, parse_boolean};
pub use time::{TimeError, format_date, format_timestamp, parse_date, parse_timestamp};
pub use value::{ColumnValue, canonical_text};

#[cfg(test)]
mod tests;
