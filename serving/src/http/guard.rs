//! Around every request: it is measured, it ends in time, it cannot bring the server down, and no other site's page
//! sends it.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use definitions::durations::format_duration;
use futures::FutureExt;

use super::hosts::Hosts;
use super::problem::Problem;
use super::{CURSOR_PATH, SQL_PATH};

/// A request other than a query is answered in this time.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(30);

/// What requests are guarded by.
#[derive(Debug, Clone)]
pub(super) struct Guarding {
    /// A query is answered (a stream begun) in this time.
    pub(super) query_timeout: Duration,
    pub(super) hosts: Hosts,
}

pub(super) async fn guard(State(guarding): State<Guarding>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let path = request.extensions().get::<MatchedPath>().map_or_else(|| "other".to_owned(), |path| path.as_str().to_owned());
    let response = if let Err(unknown_host) = guarding.hosts.check(&request) {
        unknown_host.into_response()
    } else if is_from_another_site(&request) {
        let detail = "the request came from a page of another site: only pages of this server and programs may write";
        Problem::plain(StatusCode::FORBIDDEN, detail).into_response()
    } else {
        answered(&path, guarding.query_timeout, request, next).await
    };
    let status = response.status().as_u16().to_string();
    metrics::counter!("basestream_serving_http_requests_total", "path" => path.clone(), "status" => status).increment(1);
    metrics::histogram!("basestream_serving_http_request_seconds", "path" => path).record(begun.elapsed().as_secs_f64());
    response
}

async fn answered(path: &str, query_timeout: Duration, request: Request, next: Next) -> Response {
    let is_query = path == SQL_PATH || path == CURSOR_PATH;
    let limit = if is_query { query_timeout } else { TIME_LIMIT };
    match tokio::time::timeout(limit, AssertUnwindSafe(next.run(request)).catch_unwind()).await {
        Ok(Ok(response)) => response,
        Ok(Err(_panic)) => {
            tracing::error!(path, "a request panicked");
            Problem::plain(StatusCode::INTERNAL_SERVER_ERROR, "internal error: see the server's log").into_response()
        }
        Err(_) => {
            let limit = format_duration(limit);
            let detail = match is_query {
                true => format!(
                    "the query was stopped after {limit}, the setting serving.query_timeout: select less, raise the setting, \
                     or use `basestream query`, which has no limit"
                ),
                false => format!("not answered within {limit}: request less, or try again"),
            };
            Problem::plain(StatusCode::SERVICE_UNAVAILABLE, detail).into_response()
        }
    }
}

/// Browsers say where a request comes from; without this, any page a developer visits could post to localhost.
fn is_from_another_site(request: &Request) -> bool {
    let site = request.headers().get("sec-fetch-site").map(|site| site.as_bytes());
    !matches!(*request.method(), Method::GET | Method::HEAD) && site.is_some_and(|site| site != b"same-origin" && site != b"none")
}
