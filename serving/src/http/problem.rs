//! Errors as problem+json (RFC 9457): what happened, in the user's words, with its context.

use std::ops::RangeInclusive;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use committed::damage::with_help;
use serde_json::{Map, Value};
use types::{Error, ErrorKind};

/// An error on its way out.
#[derive(Debug)]
pub(super) struct HttpProblem {
    status: StatusCode,
    /// Names the kind of error for programs.
    kind: &'static str,
    detail: String,
    context: Vec<(&'static str, String)>,
}

impl HttpProblem {
    pub(super) fn plain(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, kind: "request", detail: detail.into(), context: Vec::new() }
    }

    /// A path is asked by a method that it does not answer: it answers these.
    pub(super) fn no_such_method(methods: &[&str]) -> Self {
        let expected = methods.join(" or ");
        Self::plain(StatusCode::METHOD_NOT_ALLOWED, format!("the path does not support this method: expected {expected}"))
    }

    /// The same error under another status.
    pub(super) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }
}

/// A problem repeats no more of a request, or of what is known, than this many characters in one member.
const MAX_SAID_CHARS: usize = 1_000;

/// The beginning of a text that is too long.
fn shortened(text: String) -> String {
    match text.char_indices().nth(MAX_SAID_CHARS) {
        None => text,
        Some((end, _)) => format!("{}..", &text[..end]),
    }
}

/// What a client is asked to wait for a view that is being built.
const RETRY_SECONDS: RangeInclusive<i64> = 1..=30;
/// Without a run under way.
const UNKNOWN_RETRY_SECONDS: i64 = 5;

/// Places and progress are numbers, all else is text.
fn fact(key: &str, value: String) -> Value {
    match key {
        "line" | "column" | "version" | "percent" | "events_read" | "events" | "seconds_left" => {
            value.parse::<u64>().map_or(Value::String(value), Value::from)
        }
        _ => Value::String(value),
    }
}

fn status_of(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::Input => StatusCode::BAD_REQUEST,
        ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
        ErrorKind::Forbidden => StatusCode::FORBIDDEN,
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::Conflict => StatusCode::CONFLICT,
        ErrorKind::Limit => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::Busy => StatusCode::TOO_MANY_REQUESTS,
        ErrorKind::Corrupt | ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn name_of(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Input => "input",
        ErrorKind::Unauthenticated => "unauthenticated",
        ErrorKind::Forbidden => "forbidden",
        ErrorKind::NotFound => "not-found",
        ErrorKind::Conflict => "conflict",
        ErrorKind::Limit => "limit",
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::Busy => "busy",
        ErrorKind::Corrupt => "corrupt",
        ErrorKind::Internal => "internal",
    }
}

impl From<Error> for HttpProblem {
    fn from(error: Error) -> Self {
        let error = with_help(error);
        if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Internal) {
            tracing::error!(%error, "a request failed");
        }
        let (status, kind, detail) = (status_of(error.kind()), name_of(error.kind()), error.message_with_cause());
        Self { status, kind, detail, context: error.context().to_vec() }
    }
}

impl HttpProblem {
    /// After how many seconds to ask again: a second, and for a view that is being built, what is left of that within
    /// bounds.
    fn retry_after(&self) -> i64 {
        let fact = |name: &str| self.context.iter().find(|(key, _)| *key == name).map(|(_, value)| value.parse::<i64>().ok());
        match (fact("percent"), fact("seconds_left").flatten()) {
            (None, _) => *RETRY_SECONDS.start(),
            (Some(_), None) => UNKNOWN_RETRY_SECONDS,
            (Some(_), Some(left)) => left.clamp(*RETRY_SECONDS.start(), *RETRY_SECONDS.end()),
        }
    }
}

impl IntoResponse for HttpProblem {
    fn into_response(self) -> Response {
        let retry_after = self.retry_after();
        let mut body = Map::new();
        for (key, value) in self.context {
            body.insert(key.replace(' ', "_"), fact(key, shortened(value)));
        }
        // Last: no context takes the place of these.
        body.insert("type".into(), format!("urn:basestream:problem:{}", self.kind).into());
        body.insert("title".into(), self.status.canonical_reason().unwrap_or("error").into());
        body.insert("status".into(), self.status.as_u16().into());
        body.insert("detail".into(), shortened(self.detail).into());
        let mut response = (self.status, Value::Object(body).to_string()).into_response();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"basestream\""));
        }
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(retry_after));
        }
        response
    }
}
