//! The served side over HTTP: answers of a running node, with the vector and the time they were computed from.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use engine::events::parse_timestamp;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use types::redact::redacted_url;
use types::vector::Vector;
use types::{Error, ErrorKind, Result};

use super::{FailedCells, Served, ServedAnswer};

mod json_rows;

/// A serving node at a URL such as `http://127.0.0.1:8080`.
#[derive(Debug, Clone)]
pub struct HttpServed {
    client: reqwest::Client,
    url: String,
    token: Option<String>,
}

#[derive(Deserialize)]
struct Response {
    rows: Vec<Map<String, Value>>,
    meta: Meta,
}

#[derive(Deserialize)]
struct Meta {
    cut: String,
    as_of: String,
    /// By view. Absent in the answers of earlier releases.
    #[serde(default)]
    versions: BTreeMap<String, u32>,
    /// Absent in the answers of earlier releases.
    #[serde(default)]
    errors: Vec<Value>,
}

impl HttpServed {
    /// `token` is sent to the node, if it requires one.
    pub fn new(url: &str, token: Option<String>) -> Result<Self> {
        let wrong = |why: String| {
            let shown = redacted_url(url);
            Error::input(format!("\"{shown}\" is not the URL of a serving node: {why}; expected http://host:port or https://host:port"))
        };
        let parsed = url::Url::parse(url).map_err(|error| wrong(error.to_string()))?;
        if !matches!(parsed.scheme(), "http" | "https") {
            return Err(wrong(format!("found the scheme \"{}\"", parsed.scheme())));
        }
        Ok(Self { client: reqwest::Client::new(), url: url.trim_end_matches('/').to_owned(), token })
    }
}

impl Served for HttpServed {
    fn answer<'a>(&'a self, view: &'a str, schema: &'a SchemaRef) -> BoxFuture<'a, Result<ServedAnswer>> {
        Box::pin(self.ask(view, schema))
    }
}

impl HttpServed {
    async fn ask(&self, view: &str, schema: &SchemaRef) -> Result<ServedAnswer> {
        let endpoint = format!("{}/v1/sql", self.url);
        let shown = redacted_url(&endpoint);
        let unavailable = |error: reqwest::Error| {
            Error::unavailable("the serving node did not answer").with("url", &shown).caused_by(error.without_url())
        };
        let request = self.client.post(&endpoint).json(&json!({ "query": query(view, schema), "on_value_error": "list" }));
        let request = match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let response = request.send().await.map_err(unavailable)?;
        let status = response.status();
        let body = response.bytes().await.map_err(unavailable)?;
        if !status.is_success() {
            return Err(refused(status.as_u16(), &body).with("url", &shown));
        }
        read(&body, view, schema).map_err(|error| error.with("url", &shown))
    }
}

/// Asks for all columns of the view. DOUBLE and REAL come as texts, because JSON has null for NaN and infinities.
fn query(view: &str, schema: &Schema) -> String {
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let floats = schema.fields().iter().filter(|field| field.data_type().is_floating()).map(|field| quoted(field.name()));
    let texts: Vec<String> = floats.map(|name| format!("CAST({name} AS VARCHAR) AS {name}")).collect();
    match texts.is_empty() {
        true => format!("SELECT * FROM {}", quoted(view)),
        false => format!("SELECT * REPLACE ({}) FROM {}", texts.join(", "), quoted(view)),
    }
}

fn read(body: &[u8], view: &str, schema: &SchemaRef) -> Result<ServedAnswer> {
    let wrong = |what: String| Error::corrupt(format!("the answer is not one of POST /v1/sql: {what}"));
    let response: Response = serde_json::from_slice(body).map_err(|error| wrong(error.to_string()))?;
    let t = parse_timestamp(&response.meta.as_of)
        .map_err(|_| wrong(format!("meta.as_of is \"{}\", expected RFC 3339 with a zone", response.meta.as_of)))?;
    let rows: Vec<RecordBatch> = vec![json_rows::batch(&response.rows, schema)?];
    let failed = listed_errors(&response.meta.errors, schema)?;
    let version = response.meta.versions.get(view).copied();
    Ok(ServedAnswer { version, vector: Vector::from_token(&response.meta.cut)?, t, as_of: false, rows, failed, without_nan: true })
}

/// Reads `meta.errors` of an answer. `schema` has the types of the keys.
pub fn listed_errors(errors: &[Value], schema: &SchemaRef) -> Result<Vec<FailedCells>> {
    if errors.is_empty() {
        return Ok(Vec::new());
    }
    let wrong = || Error::corrupt("meta.errors of an answer has an entry without key or column");
    let mut keys = Vec::with_capacity(errors.len());
    let mut cells = Vec::with_capacity(errors.len());
    for (row, error) in errors.iter().enumerate() {
        keys.push(error.get("key").and_then(Value::as_object).cloned().ok_or_else(wrong)?);
        cells.push((row, error.get("column").and_then(Value::as_str).map(str::to_owned).ok_or_else(wrong)?));
    }
    Ok(vec![FailedCells { keys: json_rows::batch(&keys, schema)?, cells }])
}

/// Converts a problem+json response to an error.
fn refused(status: u16, body: &[u8]) -> Error {
    let kind = match status {
        401 => ErrorKind::Unauthenticated,
        403 => ErrorKind::Forbidden,
        404 => ErrorKind::NotFound,
        400..=499 => ErrorKind::Input,
        _ => ErrorKind::Unavailable,
    };
    let problem: Option<Value> = serde_json::from_slice(body).ok();
    let said = |name: &str| problem.as_ref().and_then(|problem| problem.get(name)).and_then(Value::as_str);
    let message = said("detail").or_else(|| said("title")).unwrap_or("without a reason");
    let error = Error::new(kind, format!("the serving node refused the query: {message}")).with("status", status);
    match kind {
        ErrorKind::Unauthenticated => error.with("help", "put a token in the environment variable BASESTREAM_TOKEN"),
        _ => error,
    }
}

#[cfg(test)]
mod tests;
