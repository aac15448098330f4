//! SQL over HTTP: rows as one JSON document, or as a stream of Arrow, JSON lines or CSV as they are made.

use std::sync::Arc;
use std::time::Duration;

use access::Principal;
use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use axum::response::Response;
use futures::StreamExt;
use serde::Deserialize;
use tokio::time::Instant;
use types::vector::Vector;
use types::{Error, Result};

use super::App;
use super::apart::apart;
use super::cursors::{MAX_PAGE_ROWS, Pages};
use super::input::{Body, json_bytes, parse, position};
use super::problem::HttpProblem;
use super::room::append;
use crate::json::RowWriter;
use crate::sql::{QueryResponse, out_of_time};
use crate::value_errors::OnValueError;

mod streamed;

use streamed::Form;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    query: String,
    #[serde(default)]
    params: Vec<serde_json::Value>,
    /// What happens to values that could not be computed.
    #[serde(default)]
    on_value_error: OnValueError,
    /// The answer counts everything before this position, or waits until it does.
    after: Option<String>,
    /// The query is stopped after this, where the server's own limit is longer.
    timeout_ms: Option<u64>,
    /// The answer comes in pages of this many rows.
    page_rows: Option<usize>,
}

const EXPECTED: &str =
    r#"{"query": "SELECT ..", "params": [..], "on_value_error": "fail", "after": "<position>", "timeout_ms": 1000, "page_rows": 1000}"#;

/// `POST /v1/sql`
pub(super) async fn query(
    State(app): State<App>,
    Extension(principal): Extension<Arc<Principal>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, HttpProblem> {
    apart(answer(app, principal, headers, body)).await
}

async fn answer(app: App, principal: Arc<Principal>, headers: HeaderMap, body: Body) -> Result<Response, HttpProblem> {
    // It keeps its room until the answer has begun.
    let asked: Query = parse(&body, EXPECTED)?;
    let form = Form::accepted(headers.get_all(ACCEPT).iter().filter_map(|accept| accept.to_str().ok()));
    if form.is_some() && asked.on_value_error == OnValueError::List {
        let message = "on_value_error is \"list\", and a stream has no place for a list that is known at its end: expected JSON";
        return Err(Error::input(message).into());
    }
    if let Some(page_rows) = asked.page_rows {
        check_pages(page_rows, form)?;
        app.cursors.check_room(&principal)?;
    }
    let after = asked.after.as_deref().map(position).transpose()?;
    let Some(limit) = asked.timeout_ms else { return Ok(rows(app, principal, asked, after, form, None).await?) };
    let deadline = Deadline::in_ms(limit);
    match tokio::time::timeout_at(deadline.at, rows(app, principal, asked, after, form, Some(deadline))).await {
        Ok(response) => Ok(response?),
        Err(_) => Err(deadline.passed().into()),
    }
}

fn check_pages(page_rows: usize, form: Option<Form>) -> Result<()> {
    if !(1..=MAX_PAGE_ROWS).contains(&page_rows) {
        return Err(Error::input(format!("page_rows is {page_rows}: expected 1 to {MAX_PAGE_ROWS}")));
    }
    match form {
        None => Ok(()),
        Some(form) => Err(Error::input(format!("page_rows needs JSON: found Accept: {}", form.media_type()))),
    }
}

/// When a query is stopped, because its client said so.
#[derive(Debug, Clone, Copy)]
struct Deadline {
    at: Instant,
    limit_ms: u64,
}

/// For ever, for a clock.
const YEAR_MS: u64 = 31_536_000_000;

impl Deadline {
    fn in_ms(limit_ms: u64) -> Self {
        Self { at: Instant::now() + Duration::from_millis(limit_ms.min(YEAR_MS)), limit_ms }
    }

    fn passed(self) -> Error {
        out_of_time(&format!("its timeout_ms of {}: select less, or wait longer", self.limit_ms))
    }
}

async fn rows(
    app: App,
    principal: Arc<Principal>,
    asked: Query,
    after: Option<Vector>,
    form: Option<Form>,
    deadline: Option<Deadline>,
) -> Result<Response> {
    let node = app.node.acting_for(principal.clone());
    let response = node.query_after(&asked.query, asked.params, asked.on_value_error, after).await?;
    match (form, asked.page_rows) {
        (Some(form), _) => streamed::answer(response, form, deadline, (app.protection.authenticator.clone(), principal)).await,
        (None, Some(page_rows)) => Ok(json_bytes(app.cursors.first(principal, Pages::new(response, page_rows)).await?)),
        (None, None) => Ok(json_bytes(as_json(response).await?)),
    }
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

#[cfg(test)]
mod tests;
