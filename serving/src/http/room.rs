//! Writes rows as JSON into an answer that is held in memory, up to a number of bytes.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::DataType;
use types::{Error, ErrorKind, Result};

use crate::json::RowWriter;

/// A JSON answer is held in memory: it may have this many bytes.
const MAX_JSON_BYTES: usize = 64 << 20;
/// A row of fewer bytes takes little more than the room, however it is escaped.
const LARGE_ROW_BYTES: usize = 1 << 20;

/// Writes a row that the answer still has room for. One that it has none for is not begun: escaped, it could take six
/// times its own bytes.
pub(super) fn append(out: &mut Vec<u8>, writer: &RowWriter, batch: &RecordBatch, row: usize) -> Result<()> {
    let has_no_room = |more: usize| out.len() + more > MAX_JSON_BYTES;
    let raw = row_bytes(batch, row, str::len);
    if has_no_room(raw) || (raw > LARGE_ROW_BYTES && has_no_room(row_bytes(batch, row, escaped_bytes))) {
        return Err(too_large());
    }
    writer.write(out, batch, row)?;
    if out.len() > MAX_JSON_BYTES { Err(too_large()) } else { Ok(()) }
}

/// Writes a row into a page of an answer. Returns false, and writes nothing, where other rows have taken the room: then
/// it is the first row of the next page.
pub(super) fn append_to_page(out: &mut Vec<u8>, writer: &RowWriter, batch: &RecordBatch, row: usize, is_first: bool) -> Result<bool> {
    let end = out.len();
    if !is_first {
        out.push(b',');
    }
    match append(out, writer, batch, row) {
        Ok(()) => Ok(true),
        Err(error) if !is_first && error.kind() == ErrorKind::Limit => {
            out.truncate(end);
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn too_large() -> Error {
    Error::limit(format!(
        "the answer has more than {MAX_JSON_BYTES} bytes: add a LIMIT, or ask for a stream with Accept: application/vnd.apache.arrow.stream"
    ))
}

/// What a row takes as JSON, at least, where a text takes what `text` says. Numbers and the like are not looked at:
/// they are short.
fn row_bytes(batch: &RecordBatch, row: usize, text: fn(&str) -> usize) -> usize {
    let may_be_long = |column: &&ArrayRef| column.data_type().primitive_width().is_none();
    batch.columns().iter().filter(may_be_long).map(|column| json_bytes_of(&column.slice(row, 1), text)).sum()
}

fn json_bytes_of(values: &ArrayRef, text: fn(&str) -> usize) -> usize {
    let bytes_of = |value: ArrayRef| json_bytes_of(&value, text);
    match values.data_type() {
        DataType::Utf8 => values.as_string::<i32>().iter().flatten().map(text).sum(),
        DataType::LargeUtf8 => values.as_string::<i64>().iter().flatten().map(text).sum(),
        DataType::Utf8View => values.as_string_view().iter().flatten().map(text).sum(),
        DataType::Binary => values.as_binary::<i32>().iter().flatten().map(base64_bytes).sum(),
        DataType::LargeBinary => values.as_binary::<i64>().iter().flatten().map(base64_bytes).sum(),
        DataType::BinaryView => values.as_binary_view().iter().flatten().map(base64_bytes).sum(),
        DataType::List(_) => values.as_list::<i32>().iter().flatten().map(bytes_of).sum(),
        DataType::LargeList(_) => values.as_list::<i64>().iter().flatten().map(bytes_of).sum(),
        DataType::FixedSizeList(..) => values.as_fixed_size_list().iter().flatten().map(bytes_of).sum(),
        DataType::Map(..) => values.as_map().iter().flatten().map(|entries| bytes_of(Arc::new(entries))).sum(),
        DataType::Struct(_) => values.as_struct().columns().iter().map(|column| json_bytes_of(column, text)).sum(),
        // A digit and a comma each.
        _ => 2 * values.len(),
    }
}

/// What a text takes between its quotes.
fn escaped_bytes(text: &str) -> usize {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(escaped).sum()
}

fn base64_bytes(bytes: &[u8]) -> usize {
    bytes.len().div_ceil(3) * 4
}

#[cfg(test)]
mod tests;
