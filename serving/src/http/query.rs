//! SQL over HTTP: rows as JSON, or an Arrow stream as they are made.

use arrow_ipc::writer::StreamWriter;
use axum::body::Body as Stream;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{StreamExt, stream};
use schemas::{Error, Result};
use serde::Deserialize;

use super::App;
use super::input::{Body, json_bytes, parse};
use super::problem::Problem;
use crate::json::RowWriter;
use crate::sql::QueryResponse;

const ARROW: &str = "application/vnd.apache.arrow.stream";
/// What stands in `meta` of a JSON answer.
const META_HEADER: &str = "basestream-meta";
/// A JSON answer is held in memory: it may have this many bytes.
const MAX_JSON_BYTES: usize = 64 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    query: String,
    #[serde(default)]
    params: Vec<serde_json::Value>,
}

/// `POST /v1/sql`
pub(super) async fn query(State(app): State<App>, headers: HeaderMap, Body(body): Body) -> Result<Response, Problem> {
    let asked: Query = parse(&body, r#"{"query": "SELECT ..", "params": [..]}"#)?;
    let response = app.node.query(&asked.query, asked.params).await?;
    let wants_arrow = headers.get_all(ACCEPT).iter().any(|accept| accept.to_str().is_ok_and(|accept| accept.contains(ARROW)));
    if wants_arrow { Ok(as_arrow(response)?) } else { Ok(json_bytes(as_json(response).await?)) }
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
            writer.write(&mut out, &batch, row)?;
            if out.len() > MAX_JSON_BYTES {
                return Err(Error::limit(format!(
                    "the answer has more than {MAX_JSON_BYTES} bytes: add a LIMIT, or ask for a stream with Accept: {ARROW}"
                )));
            }
        }
    }
    out.extend_from_slice(b"],\"meta\":");
    serde_json::to_writer(&mut out, &response.meta_so_far())?;
    out.push(b'}');
    Ok(out)
}

/// The stream's schema goes out at once, then each batch as it is made. An error breaks the stream off before its end mark.
fn as_arrow(response: QueryResponse) -> Result<Response> {
    let meta = HeaderValue::try_from(serde_json::to_string(&response.meta)?)
        .map_err(|error| Error::internal("meta is no header").caused_by(error))?;
    let writer = StreamWriter::try_new(Vec::new(), &response.schema)?;
    let chunks = stream::try_unfold(Some((writer, response.batches)), |state| async move {
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
    let mut response = Stream::from_stream(chunks).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(ARROW));
    response.headers_mut().insert(META_HEADER, meta);
    Ok(response)
}
