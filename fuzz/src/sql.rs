//! Fuzzes SQL: a query's text up to the start of its physical plan, and bodies of `POST /v1/sql` up to the same point.

use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::installation::{node, runtime};

/// The body of `POST /v1/sql`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    query: String,
    #[serde(default)]
    params: Vec<serde_json::Value>,
}

pub fn run(data: &[u8]) {
    let (query, params) = match data.first() {
        Some(b'{') => match serde_json::from_slice::<Body>(data) {
            Ok(body) => (body.query, body.params),
            Err(_) => return,
        },
        _ => match std::str::from_utf8(data) {
            Ok(text) => (text.to_owned(), Vec::new()),
            Err(_) => return,
        },
    };
    let begun = Instant::now();
    let answered = runtime().block_on(async { node().await.query(&query, params).await.map(|answer| answer.schema) });
    assert!(begun.elapsed() < Duration::from_secs(20), "planned for {:?}", begun.elapsed());
    match answered {
        Ok(schema) => drop(schema.to_string()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
