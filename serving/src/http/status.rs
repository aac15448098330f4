//! Health, readiness, metrics, and the page.

use std::sync::Arc;

use access::tls::CERTIFICATE_EXPIRED;
use access::{ISSUER_UNREAD, Principal};
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};
use committed::registry::LiveView;
use engine::fresh::ViewVersion;
use feed::{Link, LinkState};
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::{Value, json};
use types::Error;
use types::clocks::is_of_clock;
use types::failures::Failures;
use types::outage::Outage;

use super::App;
use super::apart::apart;
use super::input::Json;
use super::problem::HttpProblem;
use super::rights::sees_details;
use super::views::progress_json;
use crate::copy::LocalFiles;
use crate::hot_keys::SeenIn;
use crate::read_view::{BuildingView, LoadedView, ReadView};

/// One file, nothing loaded from elsewhere: it works without a network.
const PAGE: &str = include_str!("page.html");
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// `GET /healthz`: the process answers.
pub(super) async fn healthz() -> Response {
    Json(json!({ "status": "ok" })).into_response()
}

/// `GET /readyz`: a catalog state is loaded, so that queries can be answered, and nothing that this process needs
/// fails: else 503, with what fails. Says which views are still being copied: a lookup of one fetches what it needs, a
/// scan waits for the rest. Which have to be built by a run first, with which the node is ready. And which are refused,
/// as they could not be loaded: the node is not ready then, unless `refused=ok` asks whether it can answer about the
/// others. Which workers it follows: after a start it is ready once it follows all, or after a few seconds. With one
/// that it does not reach later it stays ready, as it answers from what is committed. A caller that may not read the
/// process learns the status alone.
pub(super) async fn readyz(
    State(app): State<App>,
    Extension(principal): Extension<Arc<Principal>>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpProblem> {
    apart(async move { readiness(&app, &principal, query.as_deref()) }).await
}

fn readiness(app: &App, principal: &Principal, query: Option<&str>) -> Result<Response, HttpProblem> {
    let read_view = app.node.read_view()?;
    let outages = app.outages();
    let (status, code) = decide(&outages, is_whole(&read_view), app.node.awaits_workers(), allows_degraded(query));
    if sees_details(principal) {
        return Ok((code, Json(details(app, &read_view, status, &outages))).into_response());
    }
    let revision = read_view.loaded.state.revision;
    let ready = json!({ "status": status, "catalog": app.node.catalog().identity(), "revision": revision });
    Ok((code, Json(ready)).into_response())
}

/// What the node says of itself to those who may read the process.
pub(super) fn own_details(app: &App, read_view: &ReadView) -> Value {
    let outages = app.outages();
    let (status, _) = decide(&outages, is_whole(read_view), app.node.awaits_workers(), false);
    details(app, read_view, status, &outages)
}

/// Whether each view can be answered, now or once a run has built it.
fn is_whole(read_view: &ReadView) -> bool {
    read_view.loaded.registry.views.iter().all(|view| read_view.loaded.refusal(&view.name).is_none())
}

fn details(app: &App, read_view: &ReadView, status: &str, outages: &[Outage]) -> Value {
    let is_there = |version: &ViewVersion| read_view.loaded.views.contains_key(version) || read_view.loaded.building.contains_key(version);
    let missing = read_view.loaded.registry.views.iter().filter(|view| !is_there(&view.view_version()));
    let missing: Vec<&str> = missing.map(|view| &*view.name).collect();
    let copying = read_view.loaded.views.values().filter_map(|view| view.copying().zip(Some(&view.live)));
    let copying: Vec<Value> = copying.map(|(copy, live)| how_far(live, copy.local())).collect();
    let refused = |(view, error): (&ViewVersion, &Error)| json!({ "view": view.name, "version": view.version, "error": error.to_string() });
    let refused: Vec<Value> = read_view.loaded.failed.iter().map(refused).collect();
    let failing: Vec<Value> = read_view.loaded.views.values().filter_map(|view| failing_json(read_view, view)).collect();
    let building: Vec<Value> = read_view.loaded.building.values().map(|building| building_json(read_view, building)).collect();
    json!({
        "status": status,
        "catalog": app.node.catalog().identity(),
        "revision": read_view.loaded.state.revision,
        "outages": outages.iter().map(outage_json).collect::<Vec<_>>(),
        "views_not_loaded": missing,
        "views_building": building,
        "views_refused": refused,
        "views_failing": failing,
        "views_copying": copying,
        "workers": app.node.workers().iter().map(worker_json).collect::<Vec<_>>(),
    })
}

/// A node that answers but for some views, by a clock that is wrong, or without knowing JWTs, is degraded. One
/// that does not follow all workers yet would answer with less than another one did before.
fn decide(outages: &[Outage], is_whole: bool, is_starting: bool, allows_degraded: bool) -> (&'static str, StatusCode) {
    let answers = outages.iter().all(leaves_answers);
    match (answers, is_whole && outages.is_empty()) {
        (true, _) if is_starting => ("starting", StatusCode::SERVICE_UNAVAILABLE),
        (true, true) => ("ready", StatusCode::OK),
        (true, false) if allows_degraded => ("degraded", StatusCode::OK),
        (true, false) => ("degraded", StatusCode::SERVICE_UNAVAILABLE),
        (false, _) => ("not ready", StatusCode::SERVICE_UNAVAILABLE),
    }
}

/// Whether the node answers as before. All nodes have such an outage at the same time.
fn leaves_answers(outage: &Outage) -> bool {
    is_of_clock(outage) || [ISSUER_UNREAD, CERTIFICATE_EXPIRED].contains(&outage.what)
}

/// A balancer asks so: if one view is refused, every node refuses it, and all would leave the rotation. Likewise if the
/// clock of the catalog's database is wrong, the OIDC issuer does not answer, or a certificate has expired.
fn allows_degraded(query: Option<&str>) -> bool {
    url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()).any(|(name, value)| name == "refused" && value == "ok")
}

fn outage_json(outage: &Outage) -> Value {
    let mut json = json!({ "what": outage.what, "seconds": outage.lasting.as_secs(), "error": outage.error });
    if !outage.errors.is_empty() {
        json["errors"] = json!(outage.errors);
    }
    json
}

/// A worker's process that this node follows. While it is not reached, answers count what it committed.
fn worker_json(link: &Link) -> Value {
    let error = match &link.state {
        LinkState::Lost { error } => Some(error),
        LinkState::Begun | LinkState::Followed => None,
    };
    let is_followed = link.state == LinkState::Followed;
    json!({ "worker": link.worker, "address": link.address, "followed": is_followed, "seconds": link.since.elapsed().as_secs(), "error": error })
}

/// The events that a view leaves out; `None` if there are none.
fn failing_json(read_view: &ReadView, view: &LoadedView) -> Option<Value> {
    let first = read_view.failures_of(view).flat_map(Failures::listed).next()?;
    let failed: u64 = read_view.failures_of(view).map(Failures::count).sum();
    Some(json!({ "view": view.live.name, "version": view.live.version, "failed": failed, "first": first.to_string() }))
}

fn building_json(read_view: &ReadView, building: &BuildingView) -> Value {
    let mut json = progress_json(&building.held.live, &building.progress, read_view.now);
    json["view"] = (*building.held.live.name).into();
    json
}

fn how_far(live: &LiveView, files: LocalFiles) -> Value {
    json!({ "view": live.name, "version": live.version, "buckets": files.all, "buckets_copied": files.here })
}

/// `GET /metrics`: as Prometheus reads them.
pub(super) async fn metrics(State(app): State<App>) -> Result<Response, HttpProblem> {
    apart(async move {
        // Without a read view there are none to count.
        let hot = app.node.hot_keys().unwrap_or_default();
        for seen_in in [SeenIn::Events, SeenIn::Lookups] {
            let keys = hot.iter().filter(|hot| hot.seen_in == seen_in).count();
            metrics::gauge!("basestream_serving_hot_keys", "seen_in" => seen_in.name()).set(keys as f64);
        }
        rendered(app.outages().len(), app.metrics.as_ref())
    })
    .await
}

/// Renders all metrics of this process, of which `outages` is one.
pub(super) fn rendered(outages: usize, recorder: Option<&PrometheusHandle>) -> Result<Response, HttpProblem> {
    let recorder = recorder.ok_or_else(|| HttpProblem::plain(StatusCode::NOT_FOUND, "this process keeps no metrics"))?;
    metrics::gauge!("basestream_outages").set(outages as f64);
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], recorder.render()).into_response())
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use types::clocks::CLOCK_DIFFERS;

    use super::*;

    #[test]
    fn a_wrong_clock_or_an_issuer_that_is_away_degrades_a_node_and_keeps_it_among_those_of_a_balancer() {
        let outage = |what| Outage { what, lasting: Duration::ZERO, error: String::new(), errors: BTreeMap::new() };
        let (clock, catalog) = (outage(CLOCK_DIFFERS), outage("the catalog cannot be read"));
        let decided = |outages: &[Outage], is_whole| {
            [false, true].map(|allows| decide(outages, is_whole, false, allows)).map(|(status, code)| (status, code.as_u16()))
        };
        assert_eq!(decided(&[], true), [("ready", 200); 2]);
        assert_eq!(decided(&[], false), [("degraded", 503), ("degraded", 200)]);
        assert_eq!(decided(std::slice::from_ref(&clock), true), [("degraded", 503), ("degraded", 200)]);
        for is_whole in [false, true] {
            let started = decide(std::slice::from_ref(&clock), is_whole, true, true);
            assert_eq!((started.0, started.1.as_u16()), ("starting", 503), "its answers would go back");
        }
        assert_eq!(decide(std::slice::from_ref(&catalog), true, true, true).0, "not ready");
        for what in [ISSUER_UNREAD, CERTIFICATE_EXPIRED] {
            assert_eq!(decided(&[outage(what)], true), [("degraded", 503), ("degraded", 200)]);
        }
        assert_eq!(decided(&[clock, catalog], true), [("not ready", 503); 2]);
    }
}
