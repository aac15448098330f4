//! Health, readiness and metrics of a process without a node: of the speed layer, or of the scheduler, alone.
//!
//! | path | what it does |
//! | --- | --- |
//! | `GET /healthz` | the process answers |
//! | `GET /readyz` | it can do its work: else 503, a problem that says why not |
//! | `GET /metrics` | its metrics, for Prometheus |

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::info;
use types::outage::Outage;
use types::{Error, Result};

use super::input::Json;
use super::problem::{self, Problem};
use super::{BoundListener, guard, status};

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
}

/// Answers until `stop`; then requests under way are finished. The task is to be waited for.
pub fn serve_health(
    process: Arc<dyn Readiness>,
    metrics: Option<PrometheusHandle>,
    bound: BoundListener,
    stop: CancellationToken,
) -> JoinHandle<Result<()>> {
    let router = routes(App { process, metrics });
    info!(address = %bound.address, "answering HTTP: health and metrics");
    tokio::spawn(
        async move { axum::serve(bound.listener, router).with_graceful_shutdown(stop.cancelled_owned()).await.map_err(Error::from) },
    )
}

fn routes(app: App) -> Router {
    Router::new()
        .route("/healthz", get(status::healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .fallback(async || Problem::plain(StatusCode::NOT_FOUND, "there is no such path: expected /healthz, /readyz or /metrics"))
        .method_not_allowed_fallback(problem::no_such_method)
        .layer(from_fn_with_state(guard::TIME_LIMIT, guard::guard))
        .with_state(app)
}

async fn readyz(State(app): State<App>) -> Result<Response, Problem> {
    Ok(Json(app.process.ready()?).into_response())
}

async fn metrics(State(app): State<App>) -> Result<Response, Problem> {
    status::rendered(app.process.outages().len(), app.metrics).await
}

#[cfg(test)]
mod tests;
