//! Lists the views and streams that the principal may read or append to: `GET /v1/views` and `GET /v1/streams`.

use std::collections::BTreeSet;
use std::sync::Arc;

use access::{Action, Object, Principal, may};
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use committed::registry::LiveView;
use definitions::{Column, StreamDefinition};
use serde_json::{Value, json};
use types::Error;

use super::App;
use super::apart::apart;
use super::input::Json;
use super::problem::HttpProblem;
use super::views::building;

/// `GET /v1/views`: each name once, in the version that is served. `GET /v1/views/{view}` says more of one.
pub(super) async fn views(State(app): State<App>, Extension(principal): Extension<Arc<Principal>>) -> Result<Response, HttpProblem> {
    apart(async move { all_views(&app, &principal) }).await
}

fn all_views(app: &App, principal: &Principal) -> Result<Response, HttpProblem> {
    let read_view = app.node.read_view()?;
    let registry = &read_view.loaded.registry;
    let is_readable = |name: &&Arc<str>| may(principal, Action::Read, Object::View(name));
    let names: BTreeSet<&Arc<str>> = registry.views.iter().map(|live| &live.name).filter(is_readable).collect();
    let served = names.into_iter().filter_map(|name| read_view.live(name).ok());
    let views: Vec<Value> = served.map(|live| view(live, read_view.loaded.refusal(&live.name), building(&read_view, live))).collect();
    Ok(Json(json!({ "views": views })).into_response())
}

/// `GET /v1/streams`
pub(super) async fn streams(State(app): State<App>, Extension(principal): Extension<Arc<Principal>>) -> Result<Response, HttpProblem> {
    apart(async move { all_streams(&app, &principal) }).await
}

fn all_streams(app: &App, principal: &Principal) -> Result<Response, HttpProblem> {
    let read_view = app.node.read_view()?;
    let registry = &read_view.loaded.registry;
    let is_known = |name: &str| [Action::Read, Action::Append].into_iter().any(|action| may(principal, action, Object::Stream(name)));
    let known = registry.streams.values().filter(|live| is_known(&live.definition.name));
    let streams: Vec<Value> = known.map(|live| stream(&live.definition)).collect();
    Ok(Json(json!({ "streams": streams })).into_response())
}

fn view(live: &LiveView, refusal: Option<&Error>, building: Option<Value>) -> Value {
    json!({
        "view": live.name,
        "version": live.version,
        "status": live.status,
        "building": building,
        "refused": refusal.map(Error::to_string),
        "keys": live.plan.answer_keys().iter().map(|key| key.name()).collect::<Vec<_>>(),
        "windows": live.definition.windows.iter().map(|window| &window.text).collect::<Vec<_>>(),
        "streams": live.plan.streams.iter().map(|stream| &stream.name).collect::<Vec<_>>(),
    })
}

fn stream(definition: &StreamDefinition) -> Value {
    let column = |column: &Column| json!({ "name": column.name, "type": column.column_type.to_string(), "nullable": column.nullable });
    json!({
        "stream": definition.name,
        "columns": definition.columns.iter().map(column).collect::<Vec<_>>(),
        "event_time": definition.event_time,
        "id": definition.id,
        "topic": definition.topic,
    })
}
