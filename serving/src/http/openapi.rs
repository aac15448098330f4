//! `GET /v1/openapi.json`: describes the HTTP interface to programs. The document is the file beside this one.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

const DOCUMENT: &str = include_str!("openapi.json");

pub(super) async fn document() -> Response {
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-cache")], DOCUMENT).into_response()
}

#[cfg(test)]
mod tests;
