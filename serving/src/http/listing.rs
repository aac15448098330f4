//! What there is to ask, of what the principal may read or append to: `GET /v1/views` and `GET /v1/streams`;
//! and what it is asked for most: `GET /v1/hot-keys`.

use std::collections::BTreeSet;
use std::sync::Arc;

use access::{Action, Object, Principal, may};
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use committed::registry::LiveView;
use definitions::{Column, StreamDefinition};
use engine::events::format_timestamp;
use serde_json::{Value, json};
use types::Error;

use super::App;
use super::input::Json;
use super::problem::Problem;
use super::views::building;
use crate::hot_keys::HotKey;

/// `GET /v1/views`: each name once, in the version that is served. `GET /v1/views/{view}` says more of one.
pub(super) async fn views(State(app): State<App>, Extension(principal): Extension<Arc<Principal>>) -> Result<Response, Problem> {
    let read_view = app.node.read_view()?;
    let registry = &read_view.loaded.registry;
    let is_readable = |name: &&Arc<str>| may(&principal, Action::Read, Object::View(name));
    let names: BTreeSet<&Arc<str>> = registry.views.iter().map(|live| &live.name).filter(is_readable).collect();
    let served = names.into_iter().filter_map(|name| registry.served(name));
    let views: Vec<Value> = served.map(|live| view(live, read_view.loaded.refusal(&live.name), building(&read_view, live))).collect();
    Ok(Json(json!({ "views": views })).into_response())
}

/// `GET /v1/streams`
pub(super) async fn streams(State(app): State<App>, Extension(principal): Extension<Arc<Principal>>) -> Result<Response, Problem> {
    let read_view = app.node.read_view()?;
    let registry = &read_view.loaded.registry;
    let is_known = |name: &str| [Action::Read, Action::Append].into_iter().any(|action| may(&principal, action, Object::Stream(name)));
    let known = registry.streams.values().filter(|live| is_known(&live.definition.name));
    let streams: Vec<Value> = known.map(|live| stream(&live.definition)).collect();
    Ok(Json(json!({ "streams": streams })).into_response())
}

/// `GET /v1/hot-keys`
pub(super) async fn hot_keys(State(app): State<App>, Extension(principal): Extension<Arc<Principal>>) -> Result<Response, Problem> {
    let keys = app.node.acting_for(principal).hot_keys()?;
    let hot_keys: Vec<Value> = keys.iter().map(hot_key).collect();
    Ok(Json(json!({ "hot_keys": hot_keys })).into_response())
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

fn hot_key(hot: &HotKey) -> Value {
    json!({
        "view": hot.view,
        "key": hot.key,
        "counted": "lookups",
        "window": hot.window,
        "share": hot.share,
        "per_second": hot.per_second,
        "seen_at": format_timestamp(hot.seen_at),
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
