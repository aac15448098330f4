//! Events in over HTTP: each is decoded as the speed layer will, then all good ones are appended durably.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use committed::log_check::check_still_read;
use engine::events::{Decoder, Event};
use event_log::NewRecord;
use serde::Serialize;
use types::vector::{PartitionId, Vector};
use types::{Error, ErrorKind, Result};

use super::App;
use super::apart::apart;
use super::event_texts::event_texts;
use super::input::{Body, Json, Name};
use super::problem::HttpProblem;

/// This many of the rejected events are named; all are counted.
const MOST_REJECTED_LISTED: usize = 1000;

/// The answer: what is durable in the log, and where.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Appended {
    accepted: usize,
    /// The first of them.
    rejected: Vec<RejectedEvent>,
    rejected_count: usize,
    /// Per partition written to, the offset after the last of these events.
    position: String,
}

/// An event that is not of its stream.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct RejectedEvent {
    /// Its place in the array, or among the lines, counted from 0.
    index: usize,
    error: String,
}

/// `POST /v1/streams/{stream}/events`
pub(super) async fn append(State(app): State<App>, Name(stream): Name, body: Body) -> Result<Response, HttpProblem> {
    apart(append_body(app, stream, body)).await
}

async fn append_body(app: App, stream: String, body: Body) -> Result<Response, HttpProblem> {
    let Ok(_permit) = app.appends.try_acquire() else {
        return Err(HttpProblem::plain(StatusCode::TOO_MANY_REQUESTS, "too many appends are under way: try again"));
    };
    let loaded = app.node.read_view()?.loaded;
    let live = loaded.registry.streams.get(stream.as_str()).ok_or_else(|| unknown(&stream, loaded.registry.streams.keys()))?;
    let decoder = Decoder::new(live.definition.clone())?;
    // The events take the body's room until they are in the log.
    let decoded = tokio::task::spawn_blocking(move || (decode(&decoder, &body.bytes), body.room));
    let (decoded, _room) = decoded.await.map_err(Error::from)?;
    let Decoded { records, rejected, rejected_count } = decoded?;
    let accepted = records.len();
    let places = match records.is_empty() {
        true => Vec::new(),
        false => {
            app.log_checks.check(&*app.log, &loaded.state, &live.definition).await?;
            let places = app.log.append(&live.definition.topic, records).await.map_err(not_appended)?;
            check_still_read(app.node.catalog(), Some((&*loaded.state, &*loaded.registry)), &live.definition).await?;
            places
        }
    };
    let mut position = Vector::new();
    for (partition, offset) in places {
        let partition = PartitionId::new(live.definition.name.clone(), partition);
        let next = position.get(&partition).max(offset.next());
        position.set(partition, next);
    }
    metrics::counter!("basestream_serving_events_appended_total", "stream" => stream).increment(accepted as u64);
    Ok((StatusCode::ACCEPTED, Json(Appended { accepted, rejected, rejected_count, position: position.to_string() })).into_response())
}

fn unknown<'a>(stream: &str, known: impl Iterator<Item = &'a std::sync::Arc<str>>) -> Error {
    let known: Vec<&str> = known.map(AsRef::as_ref).collect();
    Error::not_found(format!("there is no stream \"{stream}\": expected one of {}", known.join(", ")))
}

/// A topic that the speed layer has not created yet is worth another try. A record that is too large for the log is
/// not.
pub(super) fn not_appended(error: Error) -> HttpProblem {
    match error.kind() {
        ErrorKind::NotFound => HttpProblem::from(error).with_status(StatusCode::SERVICE_UNAVAILABLE),
        _ => error.into(),
    }
}

/// A body's events, apart.
#[derive(Default)]
struct Decoded {
    records: Vec<NewRecord>,
    /// The first of the rejected ones.
    rejected: Vec<RejectedEvent>,
    rejected_count: usize,
}

fn decode(decoder: &Decoder, body: &[u8]) -> Result<Decoded> {
    let mut decoded = Decoded::default();
    let texts = event_texts(body, "expected a JSON array of events, or one event per line")?;
    for (index, text) in texts.into_iter().enumerate() {
        match decoder.decode(Some(text)) {
            Ok(event) => decoded.records.push(record_of(&event, text)),
            Err(error) => {
                decoded.rejected_count += 1;
                if decoded.rejected.len() < MOST_REJECTED_LISTED {
                    decoded.rejected.push(RejectedEvent { index, error: error.to_string() });
                }
            }
        }
    }
    Ok(decoded)
}

/// An event as it is appended.
pub(super) fn record_of(event: &Event<'_>, text: &[u8]) -> NewRecord {
    NewRecord {
        key: event.key().map(|key| Bytes::copy_from_slice(key.as_bytes())),
        partition_by: event.id().map(|id| Bytes::copy_from_slice(id.as_bytes())),
        value: Some(Bytes::copy_from_slice(text)),
        headers: Vec::new(),
    }
}
