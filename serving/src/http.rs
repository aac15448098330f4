//! HTTP: lookups, SQL, events in, runs asked for, health, metrics, and one page that shows it all.
//!
//! | path | what it does |
//! | --- | --- |
//! | `GET /v1/views`, `/v1/streams` | what there is |
//! | `GET /v1/hot-keys` | the keys that are hot, once or as events |
//! | `GET /v1/views/{view}` | what a view is |
//! | `GET /v1/views/{view}/row?<key>=<value>` | one row |
//! | `POST /v1/views/{view}/rows` | rows of many keys |
//! | `POST /v1/rows` | rows of keys of several views |
//! | `POST /v1/views/{view}/runs` | asks the scheduler for a run |
//! | `POST /v1/sql` | a query |
//! | `POST`, `DELETE /v1/sql/cursors/{cursor}` | the next page of its answer; its end |
//! | `POST /v1/streams/{stream}/events` | events into the log |
//! | `GET /v1/sinks`, `/v1/sinks/{sink}` | the sinks |
//! | `POST /v1/sinks/{sink}` | the record of one event, stored or not |
//! | `GET /v1/parameters` | the parameters of sinks and alerts |
//! | `PUT /v1/parameters/{parameter}` | gives one another value |
//! | `GET /v1/alerts` | the open alerts; as a stream, their transitions |
//! | `GET /v1/status` | what is wrong, and how far everything is |
//! | `GET /v1/openapi.json` | all of this, for programs |
//! | `GET /healthz`, `/readyz`, `/metrics`, `/` | for machines and people |
//!
//! Errors are problem+json (RFC 9457). Who may ask for what is in `rights`.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath};
use axum::handler::Handler;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, delete, get, post, put};
use event_log::Log;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::util::MapResponseLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};
use tracing::info;
use types::outage::Outage;
use types::{Error, Result};

use crate::node::Node;

mod alerts;
mod apart;
mod connections;
mod cursors;
mod event_texts;
mod events;
mod guard;
mod health;
mod hosts;
mod hot_keys;
mod input;
mod listing;
mod log_checks;
mod openapi;
mod parameters;
mod problem;
mod query;
mod report;
mod rights;
mod room;
mod rows;
mod sinks;
mod stalled;
mod status;
mod unread;
mod views;

use alerts::Subscriptions;
use connections::Limits;
use cursors::Cursors;
use guard::{Guarding, Measures};
pub use health::{Readiness, serve_health};
use hosts::Hosts;
use log_checks::LogChecks;
use problem::HttpProblem;
use report::Reports;
pub use rights::{Protection, PublicPaths};

const SQL_PATH: &str = "/v1/sql";
const CURSOR_PATH: &str = "/v1/sql/cursors/{cursor}";
const OPENAPI_PATH: &str = "/v1/openapi.json";
/// A request's body may have this many bytes.
const MAX_BODY_BYTES: usize = 16 << 20;
/// A smaller answer is not compressed for a client that accepts it: a row takes longer to compress than to send.
const MIN_COMPRESSED_BYTES: u16 = 1 << 12;
/// This many appends may be under way; more are answered with 429.
const MAX_APPENDS: usize = 64;
/// This many events may wait for the records of sinks; more are answered with 429.
const MAX_SCORED: usize = 1_024;
/// This many clients may watch which keys are hot; more are answered with 429.
const MAX_WATCHERS: usize = 64;
/// All bodies under way may have this many bytes together; more are answered with 429.
const MAX_BODIES_BYTES: usize = 256 << 20;

/// What every handler has at hand. Cheap to clone: a request does so twice.
#[derive(Clone)]
struct App(Arc<AppParts>);

struct AppParts {
    node: Node,
    log: Arc<dyn Log>,
    metrics: Option<PrometheusHandle>,
    appends: Arc<Semaphore>,
    /// Of events that are stored and wait for their records.
    scored: Arc<Semaphore>,
    /// Of clients that watch which keys are hot.
    watchers: Arc<Semaphore>,
    /// Ends streams of events, which have no end of their own.
    stop: CancellationToken,
    /// Room for bodies, a permit for each [`input::ROOM_BYTES`].
    room: Arc<Semaphore>,
    log_checks: LogChecks,
    cursors: Cursors,
    alerts: Subscriptions,
    reports: Reports,
    protection: Arc<Protection>,
}

impl App {
    /// `stop` ends answers that have no end of their own.
    fn new(node: Node, log: Arc<dyn Log>, metrics: Option<PrometheusHandle>, protection: Arc<Protection>, stop: CancellationToken) -> Self {
        let places = |places: usize| Arc::new(Semaphore::new(places));
        let (appends, scored, watchers) = (places(MAX_APPENDS), places(MAX_SCORED), places(MAX_WATCHERS));
        let room = places(MAX_BODIES_BYTES / input::ROOM_BYTES);
        let (cursors, alerts) = (Cursors::new(node.limits()), Subscriptions::new(node.clone(), stop.clone()));
        Self(Arc::new(AppParts {
            node,
            log,
            metrics,
            appends,
            scored,
            watchers,
            stop,
            room,
            log_checks: LogChecks::default(),
            cursors,
            alerts,
            reports: Reports::default(),
            protection,
        }))
    }

    /// What this process cannot do at the moment.
    fn outages(&self) -> Vec<Outage> {
        let mut outages = self.node.outages();
        outages.extend(self.log.outages());
        outages.extend(self.protection.outages());
        outages
    }
}

impl Deref for App {
    type Target = AppParts;

    fn deref(&self) -> &AppParts {
        &self.0
    }
}

/// An address that is listened on. Connections made before [`serve`] wait.
#[derive(Debug)]
pub struct BoundListener {
    listener: TcpListener,
    pub address: SocketAddr,
}

/// Listens at `address` (port 0: any free one).
///
/// Errors: `Unavailable` when it cannot be listened on.
pub async fn listen(address: SocketAddr) -> Result<BoundListener> {
    let cannot = |error: std::io::Error| Error::unavailable("cannot listen for HTTP").with("address", address).caused_by(error);
    let listener = TcpListener::bind(address).await.map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    Ok(BoundListener { listener, address })
}

/// Answers until `stop`; then requests under way are finished. The task is to be waited for.
pub fn serve(
    node: Node,
    log: Arc<dyn Log>,
    metrics: Option<PrometheusHandle>,
    protection: Protection,
    bound: BoundListener,
    stop: CancellationToken,
) -> JoinHandle<()> {
    node.attach_log(log.clone());
    let tls = protection.tls.clone();
    let limits = Limits::from_settings(node.limits());
    let router = routes_at(Some(bound.address), node, log, metrics, protection, stop.clone());
    info!(address = %bound.address, tls = tls.is_some(), "answering HTTP");
    tokio::spawn(connections::serve(bound.listener, router, tls, limits, stop))
}

/// The paths alone, for a caller without a listener.
pub fn routes(node: Node, log: Arc<dyn Log>, metrics: Option<PrometheusHandle>, protection: Protection) -> Router {
    routes_at(None, node, log, metrics, protection, CancellationToken::new())
}

fn routes_at(
    address: Option<SocketAddr>,
    node: Node,
    log: Arc<dyn Log>,
    metrics: Option<PrometheusHandle>,
    protection: Protection,
    stop: CancellationToken,
) -> Router {
    let (hosts, measures) = (Hosts::new(&protection, address), Measures::for_paths(table().iter().map(|route| route.path)));
    let protection = Arc::new(protection);
    let guarding = Guarding { query_timeout: node.query_timeout(), hosts, measures, protection: protection.clone() };
    let router = table().into_iter().fold(Router::new(), |router, route| router.route(route.path, route.handler));
    router
        .fallback(async || HttpProblem::plain(StatusCode::NOT_FOUND, "there is no such path: GET /v1/openapi.json lists them"))
        .method_not_allowed_fallback(no_such_method)
        // The first is the outermost. They are one layer, since axum puts a boxed route around each that it is given.
        .layer((
            from_fn_with_state(Arc::new(guarding), guard::guard),
            MapResponseLayer::new(apart::compressed_apart),
            CompressionLayer::new().compress_when(SizeAbove::new(MIN_COMPRESSED_BYTES).and(NotForContentType::SSE)),
            DefaultBodyLimit::max(MAX_BODY_BYTES),
        ))
        .with_state(App::new(node, log, metrics, protection, stop))
}

/// A path, what may be asked of it, and what answers.
struct Route {
    method: &'static str,
    path: &'static str,
    handler: MethodRouter<App>,
}

/// All there is. `openapi.json` beside this file describes it: a test compares them.
fn table() -> Vec<Route> {
    vec![
        Route::get("/", status::page),
        Route::get("/healthz", status::healthz),
        Route::get("/readyz", status::readyz),
        Route::get("/metrics", status::metrics),
        Route::get(OPENAPI_PATH, openapi::document),
        Route::get("/v1/status", report::status),
        Route::get("/v1/views", listing::views),
        Route::get("/v1/hot-keys", hot_keys::hot_keys),
        Route::get("/v1/views/{view}", views::describe),
        Route::get("/v1/views/{view}/row", views::row),
        Route::post("/v1/views/{view}/rows", views::rows),
        Route::post("/v1/rows", rows::rows),
        Route::post("/v1/views/{view}/runs", views::ask_run),
        Route::post(SQL_PATH, query::query),
        Route::post(CURSOR_PATH, cursors::next),
        Route::delete(CURSOR_PATH, cursors::end),
        Route::get("/v1/streams", listing::streams),
        Route::post("/v1/streams/{stream}/events", events::append),
        Route::get("/v1/sinks", sinks::sinks),
        Route::get("/v1/sinks/{sink}", sinks::describe),
        Route::post("/v1/sinks/{sink}", sinks::score),
        Route::get("/v1/parameters", parameters::parameters),
        Route::put("/v1/parameters/{parameter}", parameters::put),
        Route::get("/v1/alerts", alerts::alerts),
    ]
}

async fn no_such_method(path: Option<MatchedPath>) -> HttpProblem {
    let path = path.as_ref().map_or("", MatchedPath::as_str);
    let routes = table().into_iter().filter(|route| route.path == path);
    HttpProblem::no_such_method(&routes.map(|route| route.method).collect::<Vec<_>>())
}

impl Route {
    fn get<H: Handler<T, App>, T: 'static>(path: &'static str, handler: H) -> Self {
        Self { method: "GET", path, handler: get(handler) }
    }

    fn post<H: Handler<T, App>, T: 'static>(path: &'static str, handler: H) -> Self {
        Self { method: "POST", path, handler: post(handler) }
    }

    fn put<H: Handler<T, App>, T: 'static>(path: &'static str, handler: H) -> Self {
        Self { method: "PUT", path, handler: put(handler) }
    }

    fn delete<H: Handler<T, App>, T: 'static>(path: &'static str, handler: H) -> Self {
        Self { method: "DELETE", path, handler: delete(handler) }
    }
}

#[cfg(test)]
mod tests;
