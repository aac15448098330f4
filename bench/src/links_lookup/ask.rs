//! One client that asks for one key after the other.

use std::time::Instant;

use schemas::vector::Vector;
use schemas::{Error, Result};
use serde::Deserialize;
use serving::{Keys, Node};

use super::seconds;
use crate::graph::{Graph, device_text};
use crate::latencies::Latencies;
use crate::view::VIEW;

/// What is asked, and how long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lookups {
    pub(super) graph: Graph,
    /// Of each stretch.
    pub(super) seconds: f64,
    /// Of the time before the first, which does not count.
    pub(super) warm_up: f64,
}

/// Which stretch asks from which key on: none asks what the one before did.
const KEYS_OF_A_STRETCH: u64 = 1 << 32;

/// Who is asked.
#[derive(Clone)]
pub(super) enum Asked {
    /// The library.
    Node(Node),
    Http(Http),
}

/// Stretches of lookups.
pub(super) async fn stretches(lookups: Lookups, asked: Asked, repeats: usize) -> Result<Vec<Latencies>> {
    // On a thread of the runtime, as a handler would be.
    let asking = tokio::spawn(async move {
        stretch(&lookups, lookups.warm_up, 0, &asked).await?;
        let mut stretches = Vec::new();
        for repeat in 1..=repeats as u64 {
            stretches.push(stretch(&lookups, lookups.seconds, repeat * KEYS_OF_A_STRETCH, &asked).await?);
        }
        Ok(stretches)
    });
    asking.await?
}

async fn stretch(lookups: &Lookups, lasting: f64, first: u64, asked: &Asked) -> Result<Latencies> {
    let mut latencies = Latencies::begin()?;
    let began = Instant::now();
    for nth in first.. {
        let device = lookups.graph.device(nth);
        let begun = Instant::now();
        match asked {
            Asked::Node(node) => drop(node.lookup(VIEW, key_of(device), None).await?),
            Asked::Http(http) => drop(http.row(device).await?),
        }
        latencies.add(begun.elapsed());
        if began.elapsed() >= seconds(lasting) {
            break;
        }
    }
    Ok(latencies)
}

pub(super) fn key_of(device: u64) -> Keys {
    Keys::Text(vec![vec![("device_id".to_owned(), device_text(device))]])
}

/// One connection to a serving node.
#[derive(Clone)]
pub(super) struct Http {
    client: reqwest::Client,
    rows: String,
}

#[derive(Deserialize)]
struct RowAnswer {
    meta: RowMeta,
}

#[derive(Deserialize)]
struct RowMeta {
    cut: String,
}

impl Http {
    pub(super) fn new(address: &str) -> Result<Http> {
        let client = reqwest::Client::builder().pool_max_idle_per_host(1).build().map_err(failed)?;
        Ok(Http { client, rows: format!("http://{address}/v1/views/{VIEW}/row?device_id=") })
    }

    /// The answer's text.
    pub(super) async fn row(&self, device: u64) -> Result<String> {
        let response = self.client.get(format!("{}{}", self.rows, device_text(device))).send().await.map_err(failed)?;
        let (status, body) = (response.status(), response.text().await.map_err(failed)?);
        if status.is_success() { Ok(body) } else { Err(Error::unavailable("a lookup failed").with("status", status).with("body", body)) }
    }

    /// All events that answers count now, and when that is.
    pub(super) async fn counted(&self, graph: &Graph) -> Result<(u64, Instant)> {
        let body = self.row(graph.device(0)).await?;
        let answer: RowAnswer = serde_json::from_str(&body)
            .map_err(|error| Error::internal(format!("an answer is not as expected: {error}")).with("body", &body))?;
        let events = Vector::from_token(&answer.meta.cut)?.iter().map(|(_, offset)| offset.0 as u64).sum();
        Ok((events, Instant::now()))
    }
}

fn failed(error: reqwest::Error) -> Error {
    Error::unavailable(format!("HTTP failed: {error}"))
}
