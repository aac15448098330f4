//! Asks the node at `serving.http` what only it knows.

use std::error::Error as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use definitions::settings::ServingSettings;
use reqwest::{Response, StatusCode};
use serde::Deserialize;

use super::problems::{Failing, LeftOutEvents, RefusedView, UnaskedNode, WorkerLink};

/// How long to wait for a node's answer. It is short because often no node runs on this host.
const NODE_WAIT: Duration = Duration::from_secs(1);
/// A node's answer is far smaller, also with thousands of views.
const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;
const NO_NODE: &str = "what answers there is not a node of basestream";

/// What became of the request.
pub(super) enum NodeAnswer {
    Facts(Box<NodeFacts>),
    /// No node runs there, or it does not answer in time.
    Silent,
    /// Something answers, but not what was asked.
    Unasked(UnaskedNode),
}

/// What a node reports about itself.
#[derive(Default, Deserialize)]
pub(super) struct NodeFacts {
    /// The identity of its catalog.
    pub(super) catalog: String,
    pub(super) outages: Vec<Failing>,
    #[serde(default)]
    pub(super) workers: Vec<WorkerLink>,
    #[serde(default)]
    pub(super) views_refused: Vec<RefusedView>,
    #[serde(default)]
    pub(super) views_building: Vec<UnbuiltView>,
    #[serde(default)]
    pub(super) views_failing: Vec<FailingView>,
}

#[derive(Deserialize)]
pub(super) struct UnbuiltView {
    pub(super) view: Arc<str>,
    pub(super) version: u32,
}

#[derive(Deserialize)]
pub(super) struct FailingView {
    pub(super) view: Arc<str>,
    pub(super) version: u32,
    #[serde(flatten)]
    pub(super) left_out: LeftOutEvents,
}

/// What a node reports to those who may not read the process, or while it has not loaded a catalog state.
#[derive(Deserialize)]
struct Short {
    status: serde_json::Value,
}

/// Asks the node at this address, ready or not.
///
/// With a token in BASESTREAM_TOKEN also of one that reports little to others.
pub(super) async fn ask_node(serving: &ServingSettings) -> NodeAnswer {
    let scheme = if serving.tls.cert.is_some() { "https" } else { "http" };
    let address = format!("{scheme}://{}", serving.http);
    let unasked = |reason: String| NodeAnswer::Unasked(UnaskedNode { address: address.clone(), reason });
    let client = match reqwest::Client::builder().timeout(NODE_WAIT).no_proxy().build() {
        Ok(client) => client,
        Err(error) => return unasked(last_cause(&error)),
    };
    let request = client.get(format!("{address}/readyz"));
    let request = crate::tokens::from_environment().into_iter().fold(request, |request, token| request.bearer_auth(token));
    let response = match request.send().await {
        Ok(response) => response,
        Err(error) if is_of_certificate(&error) => return unasked(last_cause(&error)),
        Err(_) => return NodeAnswer::Silent,
    };
    let status = response.status();
    let body = match body_of(response, MAX_ANSWER_BYTES).await {
        Ok(Some(body)) => body,
        Ok(None) => return unasked(NO_NODE.to_owned()),
        Err(_) => return NodeAnswer::Silent,
    };
    match read(status, &body) {
        Ok(Some(node)) => NodeAnswer::Facts(Box::new(node)),
        Ok(None) => NodeAnswer::Silent,
        Err(reason) => unasked(reason),
    }
}

/// Returns the body of an answer, if it is not too large.
async fn body_of(mut response: Response, most_bytes: usize) -> reqwest::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > most_bytes {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

/// Reads what a node answered; `None` if it has not loaded a catalog state yet. The error says why it reports less.
fn read(status: StatusCode, body: &[u8]) -> Result<Option<NodeFacts>, String> {
    if let Ok(node) = serde_json::from_slice(body) {
        return Ok(Some(node));
    }
    match (status, serde_json::from_slice::<Short>(body)) {
        (StatusCode::UNAUTHORIZED, _) => Err("it asks for a token".into()),
        (StatusCode::FORBIDDEN, Ok(_)) => Err("the token may not read the process".into()),
        (StatusCode::MISDIRECTED_REQUEST, Ok(_)) => Err("it does not know its host by this name: serving.auth.hosts may list it".into()),
        (_, Ok(Short { status })) if status.is_string() => Err("it tells this caller its status alone".into()),
        // A problem, as long as nothing is loaded.
        (StatusCode::SERVICE_UNAVAILABLE, Ok(_)) => Ok(None),
        _ => Err(NO_NODE.to_owned()),
    }
}

/// Whether this side ended the connection, because it does not trust the certificate: the error of TLS is one of
/// reading, within one of connecting.
fn is_of_certificate(error: &reqwest::Error) -> bool {
    let is_of_tls = |error: &(dyn std::error::Error + 'static)| {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        inner.is_some_and(|inner| inner.is::<io::Error>())
    };
    causes(error).any(is_of_tls)
}

fn last_cause(error: &reqwest::Error) -> String {
    causes(error).last().map_or_else(|| error.to_string(), ToString::to_string)
}

fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    let mut next = error.source();
    std::iter::from_fn(move || {
        let cause = next?;
        next = cause.source();
        Some(cause)
    })
}

#[cfg(test)]
mod tests;
