//! What comes in: names out of the path, bodies up to their limit, JSON of a known form. What is wrong is answered as a problem.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use schemas::Error;
use serde::de::DeserializeOwned;

use super::MAX_BODY_BYTES;
use super::problem::Problem;

/// The one name in a path.
pub(super) struct Name(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(name)| Name(name)).map_err(|error| Problem::plain(error.status(), error.body_text()))
    }
}

/// A whole body.
pub(super) struct Body(pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        Bytes::from_request(request, state).await.map(Body).map_err(|error| match error.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                Problem::plain(error.status(), format!("the body is too large: expected at most {MAX_BODY_BYTES} bytes"))
            }
            status => Problem::plain(status, error.body_text()),
        })
    }
}

/// Reads a body as JSON; `expected` shows its form.
pub(super) fn parse<T: DeserializeOwned>(body: &Bytes, expected: &str) -> Result<T, Error> {
    serde_json::from_slice(body)
        .map_err(|error| Error::input(format!("the body is not of the expected form: {error}; expected {expected}")))
}

/// JSON out, made by hand or by serde.
pub(super) struct Json<T>(pub(super) T);

impl<T: serde::Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => json_bytes(body),
            Err(error) => Problem::from(Error::internal("an answer did not become JSON").caused_by(error)).into_response(),
        }
    }
}

pub(super) fn json_bytes(body: Vec<u8>) -> Response {
    ([(axum::http::header::CONTENT_TYPE, "application/json")], body).into_response()
}
