//! Health, readiness, metrics, and the page.

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};
use committed::registry::LiveView;
use engine::fresh::ViewVersion;
use serde_json::{Value, json};
use types::Error;

use super::App;
use super::input::Json;
use super::problem::Problem;

/// One file, nothing loaded from elsewhere: it works without a network.
const PAGE: &str = include_str!("page.html");
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// `GET /healthz`: the process answers.
pub(super) async fn healthz() -> Response {
    Json(json!({ "status": "ok" })).into_response()
}

/// `GET /readyz`: a catalog state is loaded, so that questions can be answered. Says which views are still being copied: a lookup of
/// one fetches what it needs, a scan waits for the rest. And which are refused, as they could not be loaded.
pub(super) async fn readyz(State(app): State<App>) -> Result<Response, Problem> {
    let read_view = app.node.read_view()?;
    let missing =
        read_view.loaded.registry.views.iter().filter(|view| !read_view.loaded.views.contains_key(&(view.name.clone(), view.version)));
    let missing: Vec<&str> = missing.map(|view| &*view.name).collect();
    let copying = read_view.loaded.views.values().filter_map(|view| view.copying().zip(Some(&view.live)));
    let copying: Vec<Value> = copying.map(|(copy, live)| how_far(live, copy.local())).collect();
    let refused =
        |((view, version), error): (&ViewVersion, &Error)| json!({ "view": view, "version": version, "error": error.to_string() });
    let refused: Vec<Value> = read_view.loaded.failed.iter().map(refused).collect();
    let revision = read_view.loaded.state.revision;
    let ready = json!({
        "status": "ready",
        "revision": revision,
        "views_not_loaded": missing,
        "views_refused": refused,
        "views_copying": copying,
    });
    Ok(Json(ready).into_response())
}

fn how_far(live: &LiveView, (local, of): (usize, usize)) -> Value {
    json!({ "view": live.name, "version": live.version, "buckets": of, "buckets_copied": local })
}

/// `GET /metrics`: as Prometheus reads them.
pub(super) async fn metrics(State(app): State<App>) -> Result<Response, Problem> {
    let handle = app.metrics.ok_or_else(|| Problem::plain(StatusCode::NOT_FOUND, "this process keeps no metrics"))?;
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], handle.render()).into_response())
}

/// `GET /`
pub(super) async fn page() -> Response {
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, PAGE).into_response()
}
