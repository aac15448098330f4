//! Health, readiness and metrics of a process without a node: of the speed layer, or of the scheduler, alone.
//!
//! | path | what it does |
//! | --- | --- |
//! | `GET /healthz` | the process answers |
//! | `GET /readyz` | it can do its work: else 503, a problem that says why not |
//! | `GET /metrics` | its metrics, for Prometheus |

use std::sync::Arc;

use access::{ISSUER_UNREAD, Principal};
use axum::extract::State;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use axum::{Extension, Router};
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::info;
use types::outage::Outage;
use types::{Error, Result};

use super::apart::apart;
use super::connections::Limits;
use super::guard::{Guarding, Measures};
use super::hosts::Hosts;
use super::input::Json;
use super::problem::HttpProblem;
use super::rights::{Protection, sees_details};
use super::{BoundListener, connections, guard, status};
use crate::limits::ServingLimits;

/// What a process knows of its own health.
pub trait Readiness: Send + Sync + 'static {
    /// What the process cannot do at the moment.
    fn outages(&self) -> Vec<Outage>;

    /// Returns facts about a process that can do its work. The error says why it cannot.
    fn ready(&self) -> Result<Value>;
}

#[derive(Clone)]
struct App {
    process: Arc<dyn Readiness>,
    metrics: Option<PrometheusHandle>,
    protection: Arc<Protection>,
}

/// Answers until `stop`; then requests under way are finished. The task is to be waited for.
pub fn serve_health(
    process: Arc<dyn Readiness>,
    metrics: Option<PrometheusHandle>,
    protection: Protection,
    bound: BoundListener,
    limits: &ServingLimits,
    stop: CancellationToken,
) -> JoinHandle<()> {
    let (tls, limits) = (protection.tls.clone(), Limits::from_settings(limits));
    let (hosts, measures) = (Hosts::new(&protection, Some(bound.address)), Measures::for_paths(table().map(|(path, _)| path)));
    let protection = Arc::new(protection);
    let guarding = Guarding { query_timeout: guard::TIME_LIMIT, hosts, measures, protection: protection.clone() };
    let router = routes(App { process, metrics, protection }, guarding);
    info!(address = %bound.address, tls = tls.is_some(), "answering HTTP: health and metrics");
    tokio::spawn(connections::serve(bound.listener, router, tls, limits, stop))
}

/// All there is, and what answers `GET` of it.
fn table() -> [(&'static str, MethodRouter<App>); 3] {
    [("/healthz", get(status::healthz)), ("/readyz", get(readyz)), ("/metrics", get(metrics))]
}

fn routes(app: App, guarding: Guarding) -> Router {
    let router = table().into_iter().fold(Router::new(), |router, (path, handler)| router.route(path, handler));
    router
        .fallback(async || HttpProblem::plain(StatusCode::NOT_FOUND, "there is no such path: expected /healthz, /readyz or /metrics"))
        .method_not_allowed_fallback(async || HttpProblem::no_such_method(&["GET"]))
        .layer(from_fn_with_state(Arc::new(guarding), guard::guard))
        .with_state(app)
}

/// A caller that may not read the process learns whether it is ready, and no more.
async fn readyz(State(app): State<App>, Extension(principal): Extension<Arc<Principal>>) -> Result<Response, HttpProblem> {
    match ready(&app) {
        ready if sees_details(&principal) => Ok(Json(ready?).into_response()),
        Ok(_) => Ok(Json(json!({ "status": "ready" })).into_response()),
        Err(_) => Err(HttpProblem::plain(StatusCode::SERVICE_UNAVAILABLE, "not ready")),
    }
}

fn ready(app: &App) -> Result<Value> {
    let ready = app.process.ready()?;
    // It does its work without an issuer.
    let Some(Outage { what, lasting, error, .. }) = app.protection.outages().find(|outage| outage.what != ISSUER_UNREAD) else {
        return Ok(ready);
    };
    Err(Error::unavailable(format!("the process is not ready: {what} ({} s: {error})", lasting.as_secs())))
}

async fn metrics(State(app): State<App>) -> Result<Response, HttpProblem> {
    apart(async move { status::rendered(app.process.outages().len() + app.protection.outages().count(), app.metrics.as_ref()) }).await
}

#[cfg(test)]
mod tests;
