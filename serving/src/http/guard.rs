//! Wraps every request: measures it, limits its time, turns a panic into an error, and refuses requests that a page of
//! another site sends, or whose caller may not use the path.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use definitions::durations::format_duration;
use futures::FutureExt;
use metrics::{Counter, Histogram};

use super::hosts::Hosts;
use super::problem::HttpProblem;
use super::rights::{Protection, authorize};
use super::unread::watched;
use super::{CURSOR_PATH, SQL_PATH};
use crate::sql::out_of_time;

/// A request other than a query is answered in this time.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(30);

/// What requests are guarded by.
#[derive(Debug)]
pub(super) struct Guarding {
    /// A query is answered (a stream begun) in this time.
    pub(super) query_timeout: Duration,
    pub(super) hosts: Hosts,
    pub(super) measures: Measures,
    pub(super) protection: Arc<Protection>,
}

/// The metrics of each path.
#[derive(Debug)]
pub(super) struct Measures {
    by_path: HashMap<&'static str, Measure>,
    other: Measure,
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
        Self { by_path, other: Measure::new("other") }
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

pub(super) async fn guard(
    State(guarding): State<Arc<Guarding>>,
    path: Option<MatchedPath>,
    params: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response {
    let begun = Instant::now();
    let (request, body_read) = watched(request);
    let measure = guarding.measures.measure_of(path.as_ref());
    let response = if let Err(unknown_host) = guarding.hosts.check(&request) {
        unknown_host.into_response()
    } else if guarding.hosts.is_from_another_site(&request) {
        let detail = "the request came from a page of another site: only pages of this server and programs may write";
        HttpProblem::plain(StatusCode::FORBIDDEN, detail).into_response()
    } else {
        let path = path.as_ref().map(MatchedPath::as_str);
        let name = params.as_ref().ok().and_then(|params| params.iter().next()).map(|(_, value)| value);
        // No layer of its own: axum boxes the future of each twice, and copies the layers inside it.
        let answer = authorize(&guarding.protection, path, name, request, next);
        answered(measure.path, guarding.query_timeout, answer).await
    };
    measure.record(response.status(), begun.elapsed());
    body_read.answered(response)
}

async fn answered(path: &str, query_timeout: Duration, answer: impl Future<Output = Response>) -> Response {
    let is_query = path == SQL_PATH || path == CURSOR_PATH;
    let limit = if is_query { query_timeout } else { TIME_LIMIT };
    match tokio::time::timeout(limit, AssertUnwindSafe(answer).catch_unwind()).await {
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
