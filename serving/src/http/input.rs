//! Reads requests: names in the path, bodies up to their limit, JSON of a known form, and the requested form of the
//! answer. A mistake is answered as a problem.

use std::borrow::Cow;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;
use types::Error;
use types::vector::Vector;

use super::problem::HttpProblem;
use super::{App, MAX_BODY_BYTES};

/// Room for bodies is given out in pieces of this many bytes: small bodies take little of it.
pub(super) const ROOM_BYTES: usize = 64 << 10;

/// A body has at most about this many values. One may have two bytes there, and has hundreds in memory: `{"k":0}` does.
const MAX_VALUES: usize = 250_000;

/// A header of server-sent events: it makes proxies pass each event on as it comes.
pub(super) const NOT_BUFFERED: (HeaderName, HeaderValue) = (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
/// The media type of server-sent events.
pub(super) const EVENT_STREAM: &str = "text/event-stream";

/// Whether the Accept headers name server-sent events; otherwise the answer is JSON.
pub(super) fn accepts_events(headers: &HeaderMap) -> bool {
    let ranges = headers.get_all(ACCEPT).iter().filter_map(|accept| accept.to_str().ok()).flat_map(|accept| accept.split(','));
    ranges.filter_map(|range| range.split(';').next()).any(|name| name.trim().eq_ignore_ascii_case(EVENT_STREAM))
}

/// The one name in a path.
pub(super) struct Name(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, HttpProblem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(name)| Name(name)).map_err(|error| HttpProblem::plain(error.status(), error.body_text()))
    }
}

/// A whole body, and the room it takes among all that are under way.
pub(super) struct Body {
    pub(super) bytes: Bytes,
    pub(super) room: OwnedSemaphorePermit,
}

impl FromRequest<App> for Body {
    type Rejection = HttpProblem;

    async fn from_request(request: Request, app: &App) -> Result<Self, HttpProblem> {
        let encoding = request.headers().get(CONTENT_ENCODING).filter(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"));
        if let Some(encoding) = encoding {
            let found = encoding.to_str().unwrap_or_default();
            return Err(Error::input(format!("the body is compressed (Content-Encoding: {found}): expected it uncompressed")).into());
        }
        let room = app
            .room
            .clone()
            .try_acquire_many_owned(room_for(&request))
            .map_err(|_| HttpProblem::plain(StatusCode::TOO_MANY_REQUESTS, "too many bytes of requests are under way: try again"))?;
        let bytes = Bytes::from_request(request, app).await.map_err(|error| match error.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                HttpProblem::plain(error.status(), format!("the body is too large: expected at most {MAX_BODY_BYTES} bytes"))
            }
            status => HttpProblem::plain(status, error.body_text()),
        })?;
        Ok(Self { bytes, room })
    }
}

/// How many permits a body takes before any of it is read: the most that one can where it does not say how long it is.
fn room_for(request: &Request) -> u32 {
    let said =
        request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()).and_then(|length| length.parse::<usize>().ok());
    said.unwrap_or(MAX_BODY_BYTES).clamp(1, MAX_BODY_BYTES).div_ceil(ROOM_BYTES) as u32
}

/// Reads a body as JSON; `expected` shows its form.
///
/// Errors: `Input` for another form; `Limit` for too many values, before they are read.
pub(super) fn parse<'b, T: Deserialize<'b>>(body: &'b Body, expected: &str) -> Result<T, Error> {
    if body.bytes.len() > MAX_VALUES && commas(&body.bytes) > MAX_VALUES {
        return Err(Error::limit(format!("the body has too many values: expected at most {MAX_VALUES}")));
    }
    serde_json::from_slice(&body.bytes)
        .map_err(|error| Error::input(format!("the body is not of the expected form: {error}; expected {expected}")))
}

/// Returns how many commas a JSON text has between its values.
fn commas(json: &[u8]) -> usize {
    let (mut commas, mut is_in_text, mut is_escaped) = (0, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_in_text,
            b'"' => is_in_text = !is_in_text,
            b',' if !is_in_text => commas += 1,
            _ => {}
        }
    }
    commas
}

/// Takes a query string apart: the names and values of its parameters, in their order.
pub(super) fn parameters(query: &str) -> Result<Vec<(String, String)>, Error> {
    let parameter = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let expected = "expected each character as its bytes in UTF-8, such as %C3%A4 for ä";
        let name = decoded(name).ok_or_else(|| Error::input(format!("the name of the parameter \"{name}\" is not UTF-8: {expected}")))?;
        let value = decoded(value).ok_or_else(|| Error::input(format!("the parameter \"{name}\" is not UTF-8: {expected}")))?;
        Ok((name, value))
    };
    query.split('&').filter(|part| !part.is_empty()).map(parameter).collect()
}

/// Decodes `%C3%A4` and `+`; `None` for what is not UTF-8 then. A `%` without two digits stands for itself.
fn decoded(text: &str) -> Option<String> {
    if !text.contains(['+', '%']) {
        return Some(text.to_owned());
    }
    let text = text.replace('+', " ");
    percent_decode_str(&text).decode_utf8().ok().map(Cow::into_owned)
}

/// Reads a position: that of an append, or the cut of an answer.
pub(super) fn position(text: &str) -> Result<Vector, Error> {
    let wrong =
        |_| Error::input(format!("\"{text}\" is not a position: expected the `position` of an append, or the `meta.cut` of an answer"));
    text.parse().or_else(|_: Error| Vector::from_token(text)).map_err(wrong)
}

/// JSON out, made by hand or by serde.
pub(super) struct Json<T>(pub(super) T);

impl<T: serde::Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => json_bytes(body),
            Err(error) => HttpProblem::from(Error::internal("an answer could not be written as JSON").caused_by(error)).into_response(),
        }
    }
}

pub(super) fn json_bytes(body: Vec<u8>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;
    use types::ErrorKind;

    use super::*;

    #[test]
    fn a_body_of_too_many_values_is_refused_before_they_are_read() {
        let read = |text: String| {
            let room = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
            let body = Body { bytes: text.into(), room };
            parse::<serde_json::Value>(&body, "a list").map(drop).map_err(|error| error.kind())
        };
        let list = |items: usize, item: &str| format!("[{}]", vec![item; items].join(","));
        assert_eq!(read(list(MAX_VALUES, "0")), Ok(()));
        assert_eq!(read(list(MAX_VALUES + 2, "{}")), Err(ErrorKind::Limit));
        let text = format!(r#""{}""#, r#",\""#.repeat(MAX_VALUES + 1));
        assert_eq!(read(list(2, &text)), Ok(()), "what is in a text is one value");
    }

    #[test]
    fn query_strings_are_taken_apart_as_forms_are() {
        for query in ["", "k=a", "k=a&k=b+c&&_of", "k=%C3%a4=%3D&%6b=100%&x=%zz%4", "=v&k=", "k=%F0%9F%90%9A%2B+"] {
            let expected: Vec<(String, String)> =
                url::form_urlencoded::parse(query.as_bytes()).map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
            assert_eq!(parameters(query).unwrap(), expected, "{query}");
        }
    }

    #[test]
    fn what_is_not_utf8_is_refused_with_its_name() {
        let refused = |query: &str| parameters(query).unwrap_err().message().to_owned();
        assert!(refused("a=1&k=x%FFy").starts_with("the parameter \"k\" is not UTF-8: expected each character"));
        assert!(refused("k=%C3").starts_with("the parameter \"k\" is not UTF-8"), "a character that is cut off");
        assert!(refused("%FE=1").starts_with("the name of the parameter \"%FE\" is not UTF-8"));
    }
}
