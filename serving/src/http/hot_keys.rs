//! The keys that are hot: once as JSON, or from then on as server-sent events, which name each key that becomes hot and
//! each that ceases.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use access::{Authenticator, Principal};
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use engine::events::format_timestamp;
use futures::Stream;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::debug;
use types::threads;

use super::App;
use super::apart::apart;
use super::input::{Json, NOT_BUFFERED, accepts_events};
use super::problem::HttpProblem;
use crate::hot_keys::HotKey;
use crate::hot_keys::changes::{HotKeyChange, KnownHotKeys};
use crate::node::Node;

/// How often a watcher looks for changes.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// While nothing changes, a comment says that the server is still there.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Then a watcher has to ask again, which browsers do by themselves.
const LONGEST: Duration = Duration::from_secs(600);

/// `GET /v1/hot-keys`
pub(super) async fn hot_keys(
    State(app): State<App>,
    Extension(principal): Extension<Arc<Principal>>,
    headers: HeaderMap,
) -> Result<Response, HttpProblem> {
    let node = app.node.acting_for(principal.clone());
    if !accepts_events(&headers) {
        return apart(async move {
            let hot_keys: Vec<Value> = node.hot_keys()?.iter().map(as_json).collect();
            Ok(Json(json!({ "hot_keys": hot_keys })).into_response())
        })
        .await;
    }
    let Ok(permit) = app.watchers.clone().try_acquire_owned() else {
        return Err(HttpProblem::plain(
            StatusCode::TOO_MANY_REQUESTS,
            "too many clients watch the hot keys: try again, or request them without events",
        ));
    };
    // An answer that fails has a status.
    recent(&node).await?;
    let watching = Watching {
        node,
        authenticator: app.protection.authenticator.clone(),
        principal,
        changes: KnownHotKeys::default(),
        waiting: VecDeque::new(),
        looked: false,
        ends_at: Instant::now() + LONGEST,
        stop: app.stop.clone(),
        _permit: permit,
    };
    let events = Sse::new(events(watching)).keep_alive(KeepAlive::new().interval(HEARTBEAT));
    Ok(([NOT_BUFFERED], events).into_response())
}

/// One client that watches. It holds its place until it goes.
struct Watching {
    node: Node,
    /// Says whether the principal's credential still counts.
    authenticator: Authenticator,
    principal: Arc<Principal>,
    changes: KnownHotKeys,
    /// What is not sent yet.
    waiting: VecDeque<HotKeyChange>,
    looked: bool,
    ends_at: Instant,
    stop: CancellationToken,
    _permit: OwnedSemaphorePermit,
}

fn events(watching: Watching) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    futures::stream::unfold(watching, |mut watching| async move {
        let change = watching.next().await?;
        Some((Ok(event(&change)), watching))
    })
}

impl Watching {
    /// `None` at the end: of the server, of the caller's rights, or of the time that one request may watch.
    async fn next(&mut self) -> Option<HotKeyChange> {
        loop {
            if !self.authenticator.is_still_valid(&self.principal) {
                return None;
            }
            if let Some(change) = self.waiting.pop_front() {
                return Some(change);
            }
            if Instant::now() >= self.ends_at {
                return None;
            }
            // The first look is at once.
            let pause = if std::mem::replace(&mut self.looked, true) { LOOK_EVERY } else { Duration::ZERO };
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return None,
                () = tokio::time::sleep(pause) => {}
            }
            match recent(&self.node).await {
                Ok(hot) => self.waiting.extend(self.changes.take(&hot, Instant::now())),
                Err(error) => debug!(%error, "the hot keys are not known at the moment"),
            }
        }
    }
}

/// The hot keys as they were listed at most a quarter of a second ago. The list is made apart.
async fn recent(node: &Node) -> types::Result<Vec<HotKey>> {
    let node = node.clone();
    AbortOnDropHandle::new(threads::QUERIES.spawn(async move { node.recent_hot_keys() })).await?
}

fn event(change: &HotKeyChange) -> Event {
    let (name, hot) = match change {
        HotKeyChange::Hot(hot) => ("hot", hot),
        HotKeyChange::Ceased(hot) => ("ceased", hot),
    };
    Event::default().event(name).data(as_json(hot).to_string())
}

fn as_json(hot: &HotKey) -> Value {
    json!({
        "view": hot.view,
        "key": hot.key,
        "seen_in": hot.seen_in.name(),
        "window": hot.window,
        "share": hot.share,
        "per_second": hot.per_second,
        "seen_at": format_timestamp(hot.seen_at),
    })
}

#[cfg(test)]
mod tests;
