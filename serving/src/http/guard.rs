//! Around every request: it is measured, it ends in time, it cannot bring the server down, and no other site's page sends it.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;

use super::problem::Problem;

/// A request is answered (a stream begun) in this time.
const TIME_LIMIT: Duration = Duration::from_secs(30);

pub(super) async fn guard(request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let path = request.extensions().get::<MatchedPath>().map_or_else(|| "other".to_owned(), |path| path.as_str().to_owned());
    let response = if is_from_another_site(&request) {
        let detail = "the request came from a page of another site: only pages of this server and programs may write";
        Problem::plain(StatusCode::FORBIDDEN, detail).into_response()
    } else {
        answered(&path, request, next).await
    };
    let status = response.status().as_u16().to_string();
    metrics::counter!("basestream_serving_http_requests_total", "path" => path.clone(), "status" => status).increment(1);
    metrics::histogram!("basestream_serving_http_request_seconds", "path" => path).record(begun.elapsed().as_secs_f64());
    response
}

async fn answered(path: &str, request: Request, next: Next) -> Response {
    match tokio::time::timeout(TIME_LIMIT, AssertUnwindSafe(next.run(request)).catch_unwind()).await {
        Ok(Ok(response)) => response,
        Ok(Err(_panic)) => {
            tracing::error!(path, "a request panicked");
            Problem::plain(StatusCode::INTERNAL_SERVER_ERROR, "internal error: see the server's log").into_response()
        }
        Err(_) => {
            let detail = format!("not answered within {} s: request less, or try again", TIME_LIMIT.as_secs());
            Problem::plain(StatusCode::SERVICE_UNAVAILABLE, detail).into_response()
        }
    }
}

/// Browsers say where a request comes from; without this, any page a developer visits could post to localhost.
fn is_from_another_site(request: &Request) -> bool {
    let site = request.headers().get("sec-fetch-site").map(|site| site.as_bytes());
    !matches!(*request.method(), Method::GET | Method::HEAD) && site.is_some_and(|site| site != b"same-origin" && site != b"none")
}
