//! Wraps every request: measures it, limits its time, turns a panic into an error, and refuses requests that a page of
//! another site sends.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use definitions::durations::format_duration;
use futures::FutureExt;
use metrics::{Counter, Histogram};

use super::hosts::Hosts;
use super::problem::HttpProblem;
use super::{CURSOR_PATH, SQL_PATH};
use crate::sql::out_of_time;

/// A request other than a query is answered in this time.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(30);

/// What requests are guarded by.
#[derive(Debug, Clone)]
pub(super) struct Guarding {
    /// A query is answered (a stream begun) in this time.
    pub(super) query_timeout: Duration,
    pub(super) hosts: Hosts,
    pub(super) measures: Measures,
}

/// The metrics of each path. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Measures {
    by_path: Arc<HashMap<&'static str, Measure>>,
    other: Arc<Measure>,
}

/// Those of one path, as they are recorded from its first request on: to find them by their labels each time takes a
/// part of what a lookup does.
#[derive(Debug)]
struct Measure {
    path: &'static str,
    seconds: OnceLock<Histogram>,
    /// Requests that were answered with 200.
    answered: OnceLock<Counter>,
}

impl Measures {
    /// Requests for other paths are measured together.
    pub(super) fn for_paths(paths: impl IntoIterator<Item = &'static str>) -> Self {
        let by_path = paths.into_iter().map(|path| (path, Measure::new(path))).collect();
        Self { by_path: Arc::new(by_path), other: Arc::new(Measure::new("other")) }
    }

    fn measure_of(&self, path: Option<&MatchedPath>) -> &Measure {
        path.and_then(|path| self.by_path.get(path.as_str())).unwrap_or(&self.other)
    }
}

impl Measure {
    fn new(path: &'static str) -> Self {
        Self { path, seconds: OnceLock::new(), answered: OnceLock::new() }
    }

    fn record(&self, status: StatusCode, time: Duration) {
        let requests =
            || metrics::counter!("basestream_serving_http_requests_total", "path" => self.path, "status" => status.as_u16().to_string());
        let seconds = || metrics::histogram!("basestream_serving_http_request_seconds", "path" => self.path);
        match status {
            StatusCode::OK => self.answered.get_or_init(requests).increment(1),
            _ => requests().increment(1),
        }
        self.seconds.get_or_init(seconds).record(time.as_secs_f64());
    }
}

pub(super) async fn guard(State(guarding): State<Guarding>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let measure = guarding.measures.measure_of(request.extensions().get::<MatchedPath>());
    let response = if let Err(unknown_host) = guarding.hosts.check(&request) {
        unknown_host.into_response()
    } else if is_from_another_site(&request) {
        let detail = "the request came from a page of another site: only pages of this server and programs may write";
        HttpProblem::plain(StatusCode::FORBIDDEN, detail).into_response()
    } else {
        answered(measure.path, guarding.query_timeout, request, next).await
    };
    measure.record(response.status(), begun.elapsed());
    response
}

async fn answered(path: &str, query_timeout: Duration, request: Request, next: Next) -> Response {
    let is_query = path == SQL_PATH || path == CURSOR_PATH;
    let limit = if is_query { query_timeout } else { TIME_LIMIT };
    match tokio::time::timeout(limit, AssertUnwindSafe(next.run(request)).catch_unwind()).await {
        Ok(Ok(response)) => response,
        Ok(Err(_panic)) => {
            tracing::error!(path, "a request panicked");
            HttpProblem::plain(StatusCode::INTERNAL_SERVER_ERROR, "internal error: see the server's log").into_response()
        }
        Err(_) => {
            let limit = format_duration(limit);
            let detail = match is_query {
                true => {
                    let raise = "select less, raise the setting, or use `basestream query`, which has no limit";
                    out_of_time(&format!("{limit}, the setting serving.query_timeout: {raise}")).to_string()
                }
                false => format!("not answered within {limit}: request less, or try again"),
            };
            HttpProblem::plain(StatusCode::SERVICE_UNAVAILABLE, detail).into_response()
        }
    }
}

/// Browsers say where a request comes from; without this, any page a developer visits could post to localhost.
fn is_from_another_site(request: &Request) -> bool {
    let site = request.headers().get("sec-fetch-site").map(|site| site.as_bytes());
    !matches!(*request.method(), Method::GET | Method::HEAD) && site.is_some_and(|site| site != b"same-origin" && site != b"none")
}
