//! Sinks over HTTP: their list, and the record of one event, on request.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use access::{Action, Object, Principal, allow, may};
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use committed::registry::LiveSink;
use definitions::Features;
use engine::events::Decoder;
use engine::parameters::UsedParameters;
use engine::sinks::SinkPlan;
use event_log::NewRecord;
use serde_json::{Value, json};
use types::sql_types::sql_name;
use types::suggest::expected;
use types::vector::Vector;
use types::{Error, Result};

use super::App;
use super::apart::apart;
use super::event_texts::event_texts;
use super::events::{not_appended, record_of};
use super::input::{Body, Json, Name, json_bytes, parameters};
use super::problem::HttpProblem;
use super::rights::sees_details;
use crate::node::Node;
use crate::read_view::ReadView;
use crate::scoring::{EventOutcome, RepeatedEvent, Scorer, StoredEvent};

/// How long a stored event's record is waited for, at first and at most.
const PATIENCE: Duration = Duration::from_secs(5);
const MOST_PATIENCE: Duration = Duration::from_secs(25);
/// An event of this length is decoded in much less than a millisecond.
const SHORT_EVENT_BYTES: usize = 16 << 10;

/// `GET /v1/sinks`: those that the principal may ask.
pub(super) async fn sinks(State(app): State<App>, Extension(principal): Extension<Arc<Principal>>) -> Result<Response, HttpProblem> {
    apart(async move { all_sinks(&app, &principal) }).await
}

fn all_sinks(app: &App, principal: &Principal) -> Result<Response, HttpProblem> {
    let read_view = app.node.read_view()?;
    let sinks = read_view.loaded.registry.sinks.iter();
    // What one cannot be planned from is not known: only who may read the process sees it.
    let is_known = |sink: &&LiveSink| match &sink.plan {
        Ok(plan) => allow_asking(principal, plan).is_ok(),
        Err(_) => may(principal, Action::Read, Object::Process),
    };
    let sinks: Vec<Value> = sinks.filter(is_known).map(summary).collect();
    Ok(Json(json!({ "sinks": sinks })).into_response())
}

/// `GET /v1/sinks/{sink}`
pub(super) async fn describe(
    State(app): State<App>,
    Extension(principal): Extension<Arc<Principal>>,
    Name(name): Name,
) -> Result<Response, HttpProblem> {
    let read_view = app.node.read_view()?;
    let (sink, plan) = asked(&read_view, &principal, &name)?;
    let column = |field: &Arc<arrow::datatypes::Field>| json!({ "name": field.name(), "type": sql_name(field.data_type()) });
    let mut described = summary(sink);
    described["columns"] = plan.output.fields().iter().map(column).collect();
    described["sql"] = json!(sink.definition.sql);
    Ok(Json(described).into_response())
}

/// `POST /v1/sinks/{sink}[?store=true][&timeout_ms=..]`
pub(super) async fn score(
    State(app): State<App>,
    Extension(principal): Extension<Arc<Principal>>,
    Name(name): Name,
    RawQuery(query): RawQuery,
    body: Body,
) -> Result<Response, HttpProblem> {
    let options = Options::read(query.as_deref().unwrap_or_default())?;
    let is_short = body.bytes.len() <= SHORT_EVENT_BYTES;
    let (stores, work) = (options.store, score_event(app, principal, name, options, body));
    // A short event that is stored takes no time here, it waits: first for the log, then for a worker. On threads that
    // leave busy processors to others it would wait for these too, before the append and again before the answer.
    if stores && is_short { work.await } else { apart(work).await }
}

async fn score_event(app: App, principal: Arc<Principal>, name: String, options: Options, body: Body) -> Result<Response, HttpProblem> {
    let read_view = app.node.read_view()?;
    let (sink, plan) = asked(&read_view, &principal, &name)?;
    let scorer = app.node.scorer().ok_or_else(|| Error::internal("this process scores no events"))?;
    refuse_paused(sink)?;
    let event = one_event(plan, &body)?;
    match options.store {
        false => ask(&app.node.acting_for(principal), scorer, (sink, plan), &event).await,
        true => {
            allow(&principal, Action::Append, Object::Stream(&plan.stream.name))?;
            store(&app, scorer, &principal, (sink, event), options.within).await
        }
    }
}

async fn ask(
    node: &Node,
    scorer: &Arc<dyn Scorer>,
    (sink, plan): (&LiveSink, &SinkPlan),
    event: &NewRecord,
) -> Result<Response, HttpProblem> {
    let views: BTreeSet<Arc<str>> = plan.joins.iter().map(|join| join.plan.view.clone()).collect();
    let read_view = node.read_view_of(&views.into_iter().collect::<Vec<_>>()).await?;
    // It may have been changed meanwhile: the answer is of one catalog state.
    let sink = live(&read_view, &sink.name)?;
    refuse_paused(sink)?;
    let mut scored = scorer.score(&read_view, sink, event).await?;
    node.hide_other_streams(&mut scored.meta.cut)?;
    count(&sink.name, "ask", scored.outcome.name());
    let meta = serde_json::to_value(&scored.meta).map_err(|error| Error::internal(error.to_string()))?;
    Ok(answer(scored.outcome.name(), scored.outcome.row(), &[("meta", meta)]))
}

async fn store(
    app: &App,
    scorer: &Arc<dyn Scorer>,
    principal: &Principal,
    (sink, event): (&LiveSink, NewRecord),
    within: Duration,
) -> Result<Response, HttpProblem> {
    let Ok(_permit) = app.scored.try_acquire() else {
        return Err(HttpProblem::plain(StatusCode::TOO_MANY_REQUESTS, "too many events wait for their records: try again"));
    };
    let begun = Instant::now();
    let elsewhere = scorer.listen(sink).await.map_err(|error| without_workers(error, principal))?;
    // An answer after the limit of the request would not say that the event is stored.
    let left = within.min(MOST_PATIENCE.saturating_sub(begun.elapsed()));
    let stored = scorer.append(sink, event, elsewhere, left).await.map_err(not_appended)?;
    let stored = without_other_version(stored, sink, principal);
    let mut position = Vector::new();
    position.set(stored.partition.clone(), stored.offset.next());
    let Some(outcome) = &stored.outcome else {
        let message = format!(
            "the event is stored at {}, offset {}, but what the sink made of it was not known within {} ms: its record is put out in the \
             topic '{}'",
            stored.partition,
            stored.offset,
            within.as_millis(),
            sink.definition.topic
        );
        return Err(HttpProblem::plain(StatusCode::GATEWAY_TIMEOUT, message));
    };
    count(&sink.name, "store", outcome.name());
    let first = stored.first.as_ref();
    let (version, parameters) = first.map_or((stored.version, &stored.parameters), |first| (first.version, &first.parameters));
    let mut meta = json!({ "sink": format!("{}@{version}", sink.name) });
    if !parameters.is_empty() {
        meta["parameters"] = json!(parameters);
    }
    let mut others = vec![("position", json!(position.to_string())), ("meta", meta)];
    if *outcome == EventOutcome::Duplicate {
        others.extend(repeated(sink, &stored)?);
    }
    Ok(answer(outcome.name(), first.map_or(outcome, |first| &first.outcome).row(), &others))
}

/// Why a worker is not reached names it, its address and the token of this node: only who may read the process learns
/// that.
fn without_workers(error: Error, principal: &Principal) -> Error {
    if sees_details(principal) {
        return error;
    }
    let plain = Error::new(error.kind(), error.message());
    error.context().iter().cloned().fold(plain, |plain, (key, value)| plain.with(key, value))
}

/// The caller has the right to what this version of the sink reads. A worker may have decided by another one, which may
/// have joined other views: what that made is for those who may read everything.
fn without_other_version(stored: StoredEvent, sink: &LiveSink, principal: &Principal) -> StoredEvent {
    if stored.outcome.is_none() || stored.version == sink.version || may(principal, Action::Read, Object::Process) {
        return stored;
    }
    StoredEvent { outcome: Some(EventOutcome::Unknown), parameters: UsedParameters::new(), ..stored }
}

/// What an answer says of the event that a duplicate repeats: what became of it, or where its record is.
fn repeated(sink: &LiveSink, stored: &StoredEvent) -> Result<Vec<(&'static str, Value)>> {
    let topic = &sink.definition.topic;
    let help = format!(
        "this process does not know what this sink made of the earlier event with this id, or that was not the same event as this one: \
         if the sink made a record of it, that is in the topic '{topic}' (`basestream sink read {}`)",
        sink.name
    );
    Ok(match &stored.first {
        Some(RepeatedEvent { offset, outcome, .. }) => {
            let event = format!("{}/{}/{offset}", sink.planned()?.stream.topic, stored.partition.partition);
            vec![("first", json!({ "status": outcome.name(), "event": event }))]
        }
        None => vec![("first", Value::Null), ("help", json!(help))],
    })
}

/// The record's bytes are those that the sink puts out.
fn answer(status: &str, row: Option<&Bytes>, others: &[(&str, Value)]) -> Response {
    let mut out = format!("{{\"status\":\"{status}\",\"row\":").into_bytes();
    out.extend_from_slice(row.map_or(b"null", |row| row));
    for (name, value) in others {
        out.extend_from_slice(format!(",\"{name}\":{value}").as_bytes());
    }
    out.push(b'}');
    json_bytes(out)
}

fn count(sink: &Arc<str>, how: &'static str, outcome: &'static str) {
    metrics::counter!("basestream_serving_scored_events_total", "sink" => sink.to_string(), "how" => how, "outcome" => outcome)
        .increment(1);
}

/// What is asked beside the event.
struct Options {
    store: bool,
    within: Duration,
}

impl Options {
    fn read(query: &str) -> Result<Options> {
        let mut options = Options { store: false, within: PATIENCE };
        for (name, value) in parameters(query)? {
            match (&*name, &*value) {
                ("store", "true") => options.store = true,
                ("store", "false") => options.store = false,
                ("store", other) => return Err(Error::input(format!("store is '{other}': expected true or false"))),
                ("timeout_ms", text) => {
                    let most = MOST_PATIENCE.as_millis();
                    let wrong = || Error::input(format!("timeout_ms is '{text}': expected milliseconds, 1 to {most}"));
                    let given = text.parse::<u64>().ok().filter(|given| (1..=most).contains(&u128::from(*given)));
                    options.within = Duration::from_millis(given.ok_or_else(wrong)?);
                }
                (other, _) => return Err(Error::input(format!("there is no parameter '{other}': expected store or timeout_ms"))),
            }
        }
        Ok(options)
    }
}

fn live<'r>(read_view: &'r ReadView, name: &str) -> Result<&'r LiveSink> {
    let sinks = &read_view.loaded.registry.sinks;
    sinks.iter().find(|sink| &*sink.name == name).ok_or_else(|| {
        let known: Vec<&str> = sinks.iter().map(|sink| &*sink.name).collect();
        let expected = expected(name, &known, "CREATE SINK makes one");
        Error::not_found(format!("there is no sink \"{name}\": {expected}"))
    })
}

/// What nobody puts out is not computed either: an answer would be taken for a decision.
fn refuse_paused(sink: &LiveSink) -> Result<()> {
    let Some(since) = sink.paused_since else { return Ok(()) };
    let message = format!("the sink \"{}\" is paused: it scores no events", sink.name);
    Err(Error::conflict(message)
        .with("paused_since", engine::events::format_timestamp(since))
        .with("help", format!("`basestream resume {}` ends the pause", sink.name)))
}

/// A sink that the principal may ask. One that may not read the process does not learn which sinks there are.
fn asked<'r>(read_view: &'r ReadView, principal: &Principal, name: &str) -> Result<(&'r LiveSink, &'r SinkPlan)> {
    let found = find(read_view, principal, name);
    found.map_err(|error| match may(principal, Action::Read, Object::Process) {
        true => error,
        false => {
            let message = format!("\"{}\" may not ask the sink \"{name}\": expected a role that reads what it joins", principal.name);
            Error::forbidden(message).with("principal", &principal.name).with("roles", principal.roles())
        }
    })
}

fn find<'r>(read_view: &'r ReadView, principal: &Principal, name: &str) -> Result<(&'r LiveSink, &'r SinkPlan)> {
    let sink = live(read_view, name)?;
    let plan = sink.planned()?;
    allow_asking(principal, plan)?;
    Ok((sink, plan))
}

/// A record shows what the views have of the event's keys: who asks has to be allowed to read them. Without views, to
/// read or to append to the stream.
fn allow_asking(principal: &Principal, plan: &SinkPlan) -> Result<()> {
    for join in &plan.joins {
        allow(principal, Action::Read, Object::View(&join.plan.view))?;
    }
    let stream = Object::Stream(&plan.stream.name);
    match may(principal, Action::Append, stream) {
        true => Ok(()),
        false if !plan.joins.is_empty() => Ok(()),
        false => allow(principal, Action::Read, stream),
    }
}

fn summary(sink: &LiveSink) -> Value {
    let plan = sink.plan.as_ref().ok();
    json!({
        "sink": sink.name,
        "version": sink.version,
        "topic": sink.definition.topic,
        "key": sink.definition.key,
        "features": match sink.definition.features { Features::Inclusive => "inclusive", Features::Exclusive => "exclusive" },
        "stream": plan.map(|plan| &plan.stream.name),
        "views": plan.map(|plan| plan.joins.iter().map(|join| &join.plan.view).collect::<BTreeSet<_>>()),
        "paused_since": sink.paused_since.map(engine::events::format_timestamp),
        "parameters": plan.map(|plan| &plan.parameters),
        "refused": sink.plan.as_ref().err(),
    })
}

/// The one event of a body, as it is appended.
fn one_event(plan: &SinkPlan, body: &Body) -> Result<NewRecord> {
    let expected = format!("expected one JSON object of the columns of the stream \"{}\"", plan.stream.name);
    let events = event_texts(&body.bytes, &expected)?;
    let [text] = events.as_slice() else {
        return Err(Error::input(format!("the body has {} events: {expected}", events.len())));
    };
    let decoder = Decoder::new(plan.stream.clone())?;
    let event = decoder.decode(Some(text)).map_err(|error| Error::input(format!("the event does not fit the stream: {error}")))?;
    Ok(record_of(&event, text))
}

#[cfg(test)]
mod tests;
