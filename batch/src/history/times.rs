//! A column of times, as numbers.

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::TimestampMicrosecondType;
use types::tiles::Micros;
use types::{Error, Result};

/// A column of times.
pub(crate) fn micros<'e>(rows: &'e RecordBatch, name: &str) -> Result<&'e [Micros]> {
    let column = rows.column_by_name(name).and_then(|column| column.as_primitive_opt::<TimestampMicrosecondType>());
    Ok(column.ok_or_else(|| Error::internal(format!("the rows lack {name}")))?.values())
}
