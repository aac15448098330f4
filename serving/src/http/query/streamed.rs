//! Rows as a stream, each batch as it is made: Arrow, JSON lines or CSV. `meta` is in a header, because it is known
//! before the first row, and whole in the schema of an Arrow stream.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use access::{Authenticator, Principal};
use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Schema, SchemaRef};
use arrow_ipc::writer::StreamWriter;
use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{StreamExt, stream};
use serde_json::{Map, Value, json};
use types::{Error, Result};

use super::super::apart::made_apart;
use super::Deadline;
use crate::json::{self, RowWriter};
use crate::sql::QueryResponse;

/// The fields of `meta` in a JSON answer: the header's name, and the key in the metadata of an Arrow schema.
const META: &str = "basestream-meta";
/// Many clients and proxies take 8 KiB for all headers. The cut of a thousand partitions is longer than that.
const MAX_HEADER_BYTES: usize = 4 << 10;
/// The field that names those that a header has no room for.
const LEFT_OUT: &str = "left_out";

/// The forms of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Arrow,
    JsonLines,
    Csv,
}

impl Form {
    const ALL: [Form; 3] = [Form::Arrow, Form::JsonLines, Form::Csv];

    pub(super) fn media_type(self) -> &'static str {
        match self {
            Form::Arrow => "application/vnd.apache.arrow.stream",
            Form::JsonLines => "application/x-ndjson",
            Form::Csv => "text/csv",
        }
    }

    /// The form that these Accept headers prefer: of the media types that are known, the one with the greatest `q`, and
    /// of several the first. `None`: one JSON document.
    pub(super) fn accepted<'a>(headers: impl Iterator<Item = &'a str>) -> Option<Form> {
        let ranges = headers.flat_map(|header| header.split(',')).filter_map(|range| {
            let mut parts = range.split(';').map(str::trim);
            let media_type = parts.next()?;
            let form = Form::ALL.into_iter().find(|form| media_type.eq_ignore_ascii_case(form.media_type()));
            let is_known = form.is_some() || media_type.eq_ignore_ascii_case("application/json");
            let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok()).unwrap_or(1.0);
            (is_known && quality > 0.0).then_some((form, quality))
        });
        // Of equals, `max_by` would take the last.
        ranges.reduce(|best, other| if other.1 > best.1 { other } else { best }).and_then(|(form, _)| form)
    }
}

/// The head goes out with the first batch, then each batch as it is made. An error before the first batch is answered
/// as any other; a later one breaks the stream off before its end.
///
/// It ends with the rights of its caller: when a token is revoked, or a JWT expires.
pub(super) async fn answer(
    mut response: QueryResponse,
    form: Form,
    deadline: Option<Deadline>,
    (authenticator, principal): (Authenticator, Arc<Principal>),
) -> Result<Response> {
    let first = response.batches.next().await.transpose()?;
    let batches = stream::iter(first.map(Ok)).chain(response.batches);
    let meta = serde_json::to_string(&response.meta)?;
    let encoder = Encoder::new(form, &response.schema, &meta)?;
    let header = HeaderValue::try_from(header_text(meta)?).map_err(|error| Error::internal("meta is no header").caused_by(error))?;
    let allowed = Arc::new(move || authenticator.check_still_valid(&principal));
    let chunks = stream::try_unfold(Some((encoder, batches)), move |state| {
        let allowed = allowed.clone();
        async move {
            let Some((mut encoder, mut batches)) = state else { return Ok(None) };
            let next =
                in_time(deadline, while_allowed(&*allowed, batches.next())).await.and_then(|next| next).and_then(|batch| {
                    match batch.transpose()? {
                        Some(batch) => encoder.batch(&batch).map(|chunk| (chunk, true)),
                        None => encoder.end().map(|chunk| (chunk, false)),
                    }
                });
            match next {
                Ok((chunk, more)) => Ok(Some((chunk, more.then_some((encoder, batches))))),
                Err(error) => {
                    tracing::warn!(%error, media_type = form.media_type(), "a stream broke off");
                    Err(error)
                }
            }
        }
    });
    let mut response = Body::from_stream(made_apart(chunks, response.turn)).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(form.media_type()));
    response.headers_mut().insert(META, header);
    Ok(response)
}

/// `meta` as a header has it: in ASCII, and without its longest fields, if it is too long with them.
fn header_text(meta: String) -> Result<String> {
    let ascii = in_ascii(&meta);
    if ascii.len() <= MAX_HEADER_BYTES {
        return Ok(ascii);
    }
    let mut fields: Map<String, Value> = serde_json::from_str(&meta)?;
    let mut by_length: Vec<(usize, String)> =
        fields.iter().map(|(name, value)| (in_ascii(&value.to_string()).len(), name.clone())).collect();
    by_length.sort_unstable();
    let (mut text, mut left_out) = (ascii, Vec::new());
    while text.len() > MAX_HEADER_BYTES
        && let Some((_, name)) = by_length.pop()
    {
        fields.remove(&name);
        left_out.push(name);
        fields.insert(LEFT_OUT.to_owned(), json!(left_out));
        text = in_ascii(&serde_json::to_string(&fields)?);
    }
    Ok(text)
}

/// A JSON text whose other characters are escaped: many clients read a header as ISO 8859-1. They are in texts alone.
fn in_ascii(json: &str) -> String {
    let mut ascii = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            ' '..='~' => ascii.push(character),
            other => ascii.extend(other.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}"))),
        }
    }
    ascii
}

/// How often it is looked whether a caller still has its rights.
const LOOK: Duration = Duration::from_secs(1);

/// Waits for what comes next as long as its caller may have it.
async fn while_allowed<T>(allowed: &(impl Fn() -> Result<()> + ?Sized), next: impl Future<Output = T>) -> Result<T> {
    let mut next = pin!(next);
    loop {
        allowed()?;
        if let Ok(next) = tokio::time::timeout(LOOK, &mut next).await {
            return Ok(next);
        }
    }
}

async fn in_time<T>(deadline: Option<Deadline>, next: impl Future<Output = T>) -> Result<T> {
    match deadline {
        None => Ok(next.await),
        Some(deadline) => tokio::time::timeout_at(deadline.at, next).await.map_err(|_| deadline.passed()),
    }
}

/// Writes batches in one form.
enum Encoder {
    Arrow(Box<StreamWriter<Vec<u8>>>),
    JsonLines(RowWriter),
    /// With the line of names until it is written.
    Csv {
        names: Vec<u8>,
    },
}

impl Encoder {
    fn new(form: Form, schema: &SchemaRef, meta: &str) -> Result<Self> {
        Ok(match form {
            Form::Arrow => {
                let mut metadata = schema.metadata().clone();
                metadata.insert(META.to_owned(), meta.to_owned());
                let schema = Schema::new_with_metadata(schema.fields().clone(), metadata);
                Encoder::Arrow(Box::new(StreamWriter::try_new(Vec::new(), &schema)?))
            }
            Form::JsonLines => Encoder::JsonLines(RowWriter::new(schema)),
            Form::Csv => {
                let mut names = Vec::new();
                write_line(&mut names, schema.fields().iter().map(|field| Some(field.name().clone())));
                Encoder::Csv { names }
            }
        })
    }

    fn batch(&mut self, batch: &RecordBatch) -> Result<Bytes> {
        let mut out = Vec::new();
        match self {
            Encoder::Arrow(writer) => {
                writer.write(batch)?;
                out = std::mem::take(writer.get_mut());
            }
            Encoder::JsonLines(writer) => {
                for row in 0..batch.num_rows() {
                    writer.write(&mut out, batch, row)?;
                    out.push(b'\n');
                }
            }
            Encoder::Csv { names } => {
                out = std::mem::take(names);
                for row in 0..batch.num_rows() {
                    let values: Vec<Option<String>> = batch.columns().iter().map(|column| text_of(column, row)).collect::<Result<_>>()?;
                    write_line(&mut out, values.into_iter());
                }
            }
        }
        Ok(out.into())
    }

    fn end(&mut self) -> Result<Bytes> {
        match self {
            Encoder::Arrow(writer) => {
                writer.finish()?;
                Ok(std::mem::take(writer.get_mut()).into())
            }
            Encoder::JsonLines(_) => Ok(Bytes::new()),
            // Without any batch.
            Encoder::Csv { names } => Ok(std::mem::take(names).into()),
        }
    }
}

/// A value as in a JSON answer, but texts without quotes. `None` for NULL.
fn text_of(column: &ArrayRef, row: usize) -> Result<Option<String>> {
    let value = json::value(column, row)?;
    match value.get() {
        "null" => Ok(None),
        text if text.starts_with('"') => Ok(Some(serde_json::from_str(text)?)),
        text => Ok(Some(text.to_owned())),
    }
}

/// A line of CSV (RFC 4180). As PostgreSQL writes it: NULL is nothing, and an empty text a pair of quotes.
fn write_line(out: &mut Vec<u8>, values: impl Iterator<Item = Option<String>>) {
    for (place, value) in values.enumerate() {
        if place > 0 {
            out.push(b',');
        }
        match value {
            None => {}
            Some(value) if value.is_empty() || value.contains([',', '"', '\n', '\r']) => {
                out.push(b'"');
                out.extend_from_slice(value.replace('"', "\"\"").as_bytes());
                out.push(b'"');
            }
            Some(value) => out.extend_from_slice(value.as_bytes()),
        }
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
