//! SQL over HTTP: rows as JSON, or an Arrow stream as they are made.

use std::sync::Arc;

use access::Principal;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::DataType;
use arrow_ipc::writer::StreamWriter;
use axum::Extension;
use axum::body::Body as Stream;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{StreamExt, stream};
use serde::Deserialize;
use types::{Error, Result};

use super::App;
use super::apart::{apart, made_apart};
use super::input::{Body, json_bytes, parse};
use super::problem::Problem;
use crate::json::RowWriter;
use crate::node::Node;
use crate::sql::QueryResponse;
use crate::value_errors::OnValueError;

const ARROW: &str = "application/vnd.apache.arrow.stream";
/// The fields of `meta` in a JSON answer.
const META_HEADER: &str = "basestream-meta";
/// A JSON answer is held in memory: it may have this many bytes.
const MAX_JSON_BYTES: usize = 64 << 20;
/// A row of fewer bytes takes little more than the room, however it is escaped.
const LARGE_ROW_BYTES: usize = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    query: String,
    #[serde(default)]
    params: Vec<serde_json::Value>,
    /// What happens to values that could not be computed.
    #[serde(default)]
    on_value_error: OnValueError,
}

/// `POST /v1/sql`
pub(super) async fn query(
    State(app): State<App>,
    Extension(principal): Extension<Arc<Principal>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    apart(answer(app.node.acting_for(principal), headers, body)).await
}

async fn answer(node: Node, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    let asked: Query = parse(&body, r#"{"query": "SELECT ..", "params": [..], "on_value_error": "fail"}"#)?;
    let wants_arrow = headers.get_all(ACCEPT).iter().any(|accept| accept.to_str().is_ok_and(|accept| accept.contains(ARROW)));
    if wants_arrow && asked.on_value_error == OnValueError::List {
        let message = "on_value_error is \"list\", and an Arrow stream has no place for a list that is known at its end: expected JSON";
        return Err(Error::input(message).into());
    }
    let response = node.query_with(&asked.query, asked.params, asked.on_value_error).await?;
    if wants_arrow { Ok(as_arrow(response).await?) } else { Ok(json_bytes(as_json(response).await?)) }
}

async fn as_json(mut response: QueryResponse) -> Result<Vec<u8>> {
    let writer = RowWriter::new(&response.schema);
    let mut out = b"{\"rows\":[".to_vec();
    let mut first = true;
    while let Some(batch) = response.batches.next().await {
        let batch = batch?;
        for row in 0..batch.num_rows() {
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            append(&mut out, &writer, &batch, row)?;
        }
    }
    out.extend_from_slice(b"],\"meta\":");
    serde_json::to_writer(&mut out, &response.meta_so_far())?;
    out.push(b'}');
    Ok(out)
}

/// Writes a row that the answer still has room for. One that it has none for is not begun: escaped, it could take six times its own bytes.
fn append(out: &mut Vec<u8>, writer: &RowWriter, batch: &RecordBatch, row: usize) -> Result<()> {
    let has_no_room = |more: usize| out.len() + more > MAX_JSON_BYTES;
    let raw = row_bytes(batch, row, str::len);
    if has_no_room(raw) || (raw > LARGE_ROW_BYTES && has_no_room(row_bytes(batch, row, escaped_bytes))) {
        return Err(too_large());
    }
    writer.write(out, batch, row)?;
    if out.len() > MAX_JSON_BYTES { Err(too_large()) } else { Ok(()) }
}

fn too_large() -> Error {
    Error::limit(format!("the answer has more than {MAX_JSON_BYTES} bytes: add a LIMIT, or ask for a stream with Accept: {ARROW}"))
}

/// What a row takes as JSON, at least, where a text takes what `text` says. Numbers and the like are not looked at: they are short.
fn row_bytes(batch: &RecordBatch, row: usize, text: fn(&str) -> usize) -> usize {
    let may_be_long = |column: &&ArrayRef| column.data_type().primitive_width().is_none();
    batch.columns().iter().filter(may_be_long).map(|column| json_bytes_of(&column.slice(row, 1), text)).sum()
}

fn json_bytes_of(values: &ArrayRef, text: fn(&str) -> usize) -> usize {
    let of = |value: ArrayRef| json_bytes_of(&value, text);
    match values.data_type() {
        DataType::Utf8 => values.as_string::<i32>().iter().flatten().map(text).sum(),
        DataType::LargeUtf8 => values.as_string::<i64>().iter().flatten().map(text).sum(),
        DataType::Utf8View => values.as_string_view().iter().flatten().map(text).sum(),
        DataType::Binary => values.as_binary::<i32>().iter().flatten().map(base64_bytes).sum(),
        DataType::LargeBinary => values.as_binary::<i64>().iter().flatten().map(base64_bytes).sum(),
        DataType::BinaryView => values.as_binary_view().iter().flatten().map(base64_bytes).sum(),
        DataType::List(_) => values.as_list::<i32>().iter().flatten().map(of).sum(),
        DataType::LargeList(_) => values.as_list::<i64>().iter().flatten().map(of).sum(),
        DataType::FixedSizeList(..) => values.as_fixed_size_list().iter().flatten().map(of).sum(),
        DataType::Map(..) => values.as_map().iter().flatten().map(|entries| of(Arc::new(entries))).sum(),
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

/// The stream's schema goes out with the first batch, then each batch as it is made. An error before the first batch is
/// answered as any other; a later one breaks the stream off before its end mark.
async fn as_arrow(mut response: QueryResponse) -> Result<Response> {
    let first = response.batches.next().await.transpose()?;
    let batches = stream::iter(first.map(Ok)).chain(response.batches);
    let meta = HeaderValue::try_from(serde_json::to_string(&response.meta)?)
        .map_err(|error| Error::internal("meta is no header").caused_by(error))?;
    let writer = StreamWriter::try_new(Vec::new(), &response.schema)?;
    let chunks = stream::try_unfold(Some((writer, batches)), |state| async move {
        let Some((mut writer, mut batches)) = state else { return Ok(None) };
        let next = batches.next().await.transpose().map_err(Error::from).and_then(|batch| match batch {
            Some(batch) => writer.write(&batch).map(|()| true).map_err(Error::from),
            None => writer.finish().map(|()| false).map_err(Error::from),
        });
        match next {
            Ok(more) => {
                let chunk = Bytes::from(std::mem::take(writer.get_mut()));
                Ok(Some((chunk, more.then_some((writer, batches)))))
            }
            Err(error) => {
                tracing::warn!(%error, "an Arrow stream broke off");
                Err(error)
            }
        }
    });
    let mut response = Stream::from_stream(made_apart(chunks)).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(ARROW));
    response.headers_mut().insert(META_HEADER, meta);
    Ok(response)
}

#[cfg(test)]
mod tests;
