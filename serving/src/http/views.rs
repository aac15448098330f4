//! Views over HTTP: what they are, their rows, and runs asked for.

use std::sync::Arc;

use access::{Object, Principal, audit};
use arrow::array::{ArrayRef, RecordBatch};
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use catalog::{DefinitionKind, DefinitionRecord};
use committed::building::BuildProgress;
use committed::registry::LiveView;
use engine::events::format_timestamp;
use engine::plan::ColumnKind;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use types::sql_types::sql_name;
use types::tiles::Micros;
use types::vector::Vector;
use types::{Error, Result};

use super::App;
use super::apart::apart;
use super::input::{Body, Json, Name, json_bytes, parameters, parse, position};
use super::problem::HttpProblem;
use crate::json::{write_row, write_rows};
use crate::lookup::{self, AskedPaths, Keys, with_zones_plus};
use crate::meta::LookupMeta;
use crate::read_view::ReadView;
use crate::sql::parse_as_of;

/// A row of more bytes is written apart.
const LARGE_BYTES: usize = 256 << 10;
/// An answer of one row mostly takes no more.
const ROW_BYTES: usize = 2 << 10;

/// `GET /v1/views/{view}`
pub(super) async fn describe(State(app): State<App>, Name(view): Name) -> Result<Response, HttpProblem> {
    apart(async move { described(&app, &view) }).await
}

fn described(app: &App, view: &str) -> Result<Response, HttpProblem> {
    let read_view = app.node.read_view()?;
    let live = read_view.live(view)?;
    let building = building(&read_view, live);
    if building.is_none() {
        read_view.view(view)?;
    }
    Ok(Json(json!({
        "view": live.name,
        "version": live.version,
        "building": building,
        "versions": versions(&read_view, &live.name),
        "keys": live.plan.answer_keys().iter().map(|key| key.name()).collect::<Vec<_>>(),
        "columns": columns(live),
        "windows": live.definition.windows.iter().map(|window| &window.text).collect::<Vec<_>>(),
        "streams": live.plan.streams.iter().map(|stream| &stream.name).collect::<Vec<_>>(),
        "max_degree": live.plan.links().map(|links| links.max_degree),
        "schedule": live.definition.schedule.as_ref().map(|schedule| schedule.to_string()),
        "sql": live.definition.sql,
    }))
    .into_response())
}

/// The live versions of a view: the one that is served, one that is being built, those that are kept.
fn versions(read_view: &ReadView, view: &str) -> Vec<Value> {
    let of_view = |record: &&DefinitionRecord| &*record.name == view;
    let version = |record: &DefinitionRecord| {
        json!({
            "version": record.version,
            "status": record.status,
            "since": format_timestamp(record.since),
            "kept_until": record.kept_until.map(format_timestamp),
        })
    };
    read_view.loaded.state.live(DefinitionKind::View).filter(of_view).map(version).collect()
}

/// The version of a view that is being built, and how far: one beside the version that is served, or that one until it
/// can be.
pub(super) fn building(read_view: &ReadView, live: &LiveView) -> Option<Value> {
    let ReadView { loaded, now, .. } = read_view;
    let beside = loaded.registry.building(&live.name).filter(|other| other.version != live.version);
    let not_served = || loaded.building.contains_key(&live.view_version()).then_some(live);
    let built = beside.or_else(not_served)?;
    let progress = loaded.building.get(&built.view_version()).map(|building| building.progress);
    Some(progress_json(built, &progress.unwrap_or_else(|| BuildProgress::from_state(&loaded.state, built, *now)), *now))
}

pub(super) fn progress_json(live: &LiveView, progress: &BuildProgress, now: Micros) -> Value {
    json!({
        "version": live.version,
        "percent": progress.percent(),
        "events_read": progress.events_read,
        "events": progress.events,
        "seconds_left": progress.seconds_left(now),
    })
}

fn columns(live: &LiveView) -> Vec<Value> {
    let column = |column: &engine::plan::OutputColumn| {
        let (is_key, window, approximate) = match &column.kind {
            ColumnKind::Key(_) => (true, None, false),
            ColumnKind::Value(value) => (false, value.window.as_deref(), value.approximate),
        };
        let is_uuid = matches!(column.kind, ColumnKind::Key(key) if live.plan.is_uuid(key));
        json!({
            "name": column.field.name(),
            "type": if is_uuid { "UUID".to_owned() } else { sql_name(column.field.data_type()) },
            "key": is_key,
            "window": window,
            "approximate": approximate,
        })
    };
    live.plan.columns.iter().map(column).collect()
}

/// `GET /v1/views/{view}/row?<key>=<value>&..[&_as_of=..][&_after=..][&_paths=..[&_of=..]]`
pub(super) async fn row(
    State(app): State<App>,
    Extension(principal): Extension<Arc<Principal>>,
    Name(view): Name,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpProblem> {
    let AskedRow { key, as_of, after, paths } = key_of(query.as_deref().unwrap_or_default())?;
    let node = app.node.acting_for(principal);
    let response = node.lookup_after(&view, Keys::Text(vec![key]), as_of, paths, after.as_ref()).await?;
    match is_large(&response) {
        true => apart(async move { one_row(&response) }).await,
        false => one_row(&response),
    }
}

type LookupResponse = lookup::Response<LookupMeta>;

/// Whether it takes time to write: a row with lists of many values, or with many paths.
fn is_large(response: &LookupResponse) -> bool {
    let may_be_long = |column: &&ArrayRef| column.data_type().primitive_width().is_none();
    let of_row: usize = response.rows.columns().iter().filter(may_be_long).map(|column| column.get_array_memory_size()).sum();
    of_row + response.paths.as_ref().map_or(0, RecordBatch::get_array_memory_size) > LARGE_BYTES
}

fn one_row(response: &LookupResponse) -> Result<Response, HttpProblem> {
    let mut out = Vec::with_capacity(ROW_BYTES);
    out.extend_from_slice(b"{\"row\":");
    match response.rows.num_rows() {
        0 => out.extend_from_slice(b"null"),
        _ => write_row(&mut out, &response.rows, 0)?,
    }
    finish(out, &response.found.first().copied().unwrap_or_default(), response)
}

/// Ends an answer that began with its rows.
fn finish(mut out: Vec<u8>, found: &impl Serialize, response: &LookupResponse) -> Result<Response, HttpProblem> {
    write_member(&mut out, b",\"found\":", found)?;
    if let Some(paths) = &response.paths {
        out.extend_from_slice(b",\"paths\":");
        write_rows(&mut out, paths)?;
    }
    out.extend_from_slice(b",\"meta\":");
    response.meta.write(&mut out)?;
    out.push(b'}');
    Ok(json_bytes(out))
}

/// Appends a member of an object: what is before its value, as JSON, and the value.
pub(super) fn write_member(out: &mut Vec<u8>, name: &[u8], value: &impl Serialize) -> Result<()> {
    out.extend_from_slice(name);
    Ok(serde_json::to_writer(out, value)?)
}

type TextKey = Vec<(String, String)>;

/// What a query string asks.
#[derive(Default)]
struct AskedRow {
    key: TextKey,
    as_of: Option<Micros>,
    after: Option<Vector>,
    paths: AskedPaths,
}

/// The key columns of a query string; what begins with `_` is ours.
fn key_of(query: &str) -> Result<AskedRow> {
    let (mut asked, mut options) = (AskedRow::default(), Vec::new());
    for (name, value) in parameters(query)? {
        if name.starts_with('_') {
            if options.contains(&name) {
                return Err(Error::input(format!("the parameter \"{name}\" is given twice: expected it once")));
            }
            options.push(name.clone());
        }
        match &*name {
            "_as_of" => asked.as_of = Some(parse_as_of(&with_zones_plus(&value))?),
            "_after" => asked.after = Some(position(&value)?),
            "_paths" => {
                let wrong = |_| Error::input(format!("_paths is \"{value}\": expected a whole number, the most paths to return"));
                asked.paths.most = value.parse().map_err(wrong)?;
            }
            "_of" => asked.paths.of = Some(value),
            name if name.starts_with('_') => {
                return Err(Error::input(format!(
                    "unknown parameter \"{name}\": expected the view's keys, _as_of, _after, _paths and _of"
                )));
            }
            _ => asked.key.push((name, value)),
        }
    }
    Ok(asked)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    keys: Vec<Map<String, Value>>,
    #[serde(default)]
    as_of: Option<String>,
    /// The answer counts everything before this position, or waits until it does.
    #[serde(default)]
    after: Option<String>,
    /// How many paths are returned at most for each key of a linked view.
    #[serde(default)]
    paths: usize,
    /// Only those that count in this column.
    #[serde(default)]
    of: Option<String>,
}

/// `POST /v1/views/{view}/rows`
pub(super) async fn rows(
    State(app): State<App>,
    Extension(principal): Extension<Arc<Principal>>,
    Name(view): Name,
    body: Body,
) -> Result<Response, HttpProblem> {
    apart(many_rows(app, principal, view, body)).await
}

async fn many_rows(app: App, principal: Arc<Principal>, view: String, body: Body) -> Result<Response, HttpProblem> {
    let asked: Rows = parse(&body, r#"{"keys": [{"<key>": value, ..}, ..], "as_of": null, "after": null, "paths": 0, "of": null}"#)?;
    let as_of = asked.as_of.as_deref().map(parse_as_of).transpose()?;
    let paths = AskedPaths { most: asked.paths, of: asked.of };
    let after = asked.after.as_deref().map(position).transpose()?;
    let node = app.node.acting_for(principal);
    let response = node.lookup_after(&view, Keys::Json(asked.keys), as_of, paths, after.as_ref()).await?;
    let mut out = b"{\"rows\":".to_vec();
    write_rows(&mut out, &response.rows)?;
    finish(out, &response.found, &response)
}

/// `POST /v1/views/{view}/runs`: asks for a run, of the version being built where there is one. A run that waits
/// already is answered again.
pub(super) async fn ask_run(
    State(app): State<App>,
    Extension(principal): Extension<Arc<Principal>>,
    Name(view): Name,
) -> Result<Response, HttpProblem> {
    apart(async move {
        let requested = request_run(&app, &view).await;
        audit(&principal.name, "ask for a run of", &Object::View(&view).to_string(), &requested);
        Ok(requested?)
    })
    .await
}

async fn request_run(app: &App, view: &str) -> Result<Response> {
    let read_view = app.node.read_view()?;
    let registry = &read_view.loaded.registry;
    let asked = registry.building(view).or_else(|| registry.served(view)).ok_or_else(|| registry.no_view(view))?;
    let run = app.node.catalog().request_run(&asked.name, asked.version).await?;
    let body = json!({ "run": run.id.to_string(), "view": run.view, "version": run.version, "status": "requested" });
    Ok((StatusCode::ACCEPTED, Json(body)).into_response())
}
