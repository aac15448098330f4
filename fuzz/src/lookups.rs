//! Fuzzes lookups over HTTP: a path with its query string, and a body for lookups of many keys.

use axum::body::Body;
use axum::http::Request;

use crate::installation::{answer, runtime};

pub fn run(data: &[u8]) {
    let (line, body) = match data.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&data[..end], Some(&data[end + 1..])),
        None => (data, None),
    };
    let Ok(line) = std::str::from_utf8(line) else { return };
    let (method, path) = match body {
        Some(_) => ("POST", format!("/v1/views/{line}/rows")),
        None => ("GET", format!("/v1/views/{line}")),
    };
    let request = Request::builder().method(method).uri(path).body(body.map_or_else(Body::empty, |body| Body::from(body.to_vec())));
    // Some lines are not URIs. hyper rejects those before the handler is called.
    let Ok(request) = request else { return };
    let (status, body) = runtime().block_on(answer(request));
    assert!(status < 500, "{status}: {}", String::from_utf8_lossy(&body));
}
