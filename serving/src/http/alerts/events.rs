//! The events of one subscriber: what is at hand for all, or where it is further behind, what it reads from the
//! catalog.
//!
//! An event's id is its place among the transitions of all alerts. Whoever comes back with the id of the last event
//! that it got is sent what came after it, or, where some of that is not kept any more, the event `reset`. The id also
//! moves while there is nothing to send: an event without data, which clients do not pass on, carries it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use access::{Authenticator, Principal};
use axum::http::{HeaderMap, HeaderName};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use catalog::TransitionPlace;
use futures::{Stream, stream};
use serde_json::json;
use tokio::time::Instant;
use tracing::debug;
use types::{Error, Result};

use super::recent::TransitionEvent;
use super::subscriptions::{AlertSubscription, Read, RecentEvents};
use super::visible;
use crate::http::App;
use crate::http::input::NOT_BUFFERED;
use crate::http::problem::HttpProblem;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// After so long without an event the id is sent.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// How often it is looked whether the subscriber still has its rights.
const LOOK: Duration = Duration::from_secs(1);
/// How soon a client comes back.
const RETRY: Duration = Duration::from_secs(1);

pub(super) async fn answer(
    app: &App,
    principal: Arc<Principal>,
    (alert, after): (Option<String>, Option<TransitionPlace>),
    headers: &HeaderMap,
) -> Result<Response, HttpProblem> {
    let read_view = app.node.read_view()?;
    let registry = &read_view.loaded.registry;
    let alert = alert.map(|name| visible::one(registry, &principal, &name).map(|alert| alert.name.clone())).transpose()?;
    // A browser that comes back sends the header to the same address.
    let after = last_event_id(headers)?.or(after);
    let caller = Caller { authenticator: app.protection.authenticator.clone(), principal };
    let subscriber = Subscriber::new(app.alerts.subscribe()?, caller, alert, after).await?;
    Ok(([NOT_BUFFERED], Sse::new(subscriber.events())).into_response())
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<TransitionPlace>> {
    let Some(value) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let text = value.to_str().map_err(|_| Error::input("the header Last-Event-ID is not understood: expected an id like 571.12 or 571"))?;
    // What an EventSource has before its first event.
    if text.is_empty() { Ok(None) } else { text.parse().map(Some) }
}

/// Who subscribes, and what says whether its credential still counts.
struct Caller {
    authenticator: Authenticator,
    principal: Arc<Principal>,
}

struct Subscriber {
    subscription: AlertSubscription,
    caller: Caller,
    /// The one alert that is asked for.
    alert: Option<Arc<str>>,
    /// Everything up to here was sent, or is not for it.
    place: TransitionPlace,
    /// Whether what comes after the place is known to be kept.
    is_checked: bool,
    pending: VecDeque<Arc<TransitionEvent>>,
    /// The place after those that are pending.
    then: TransitionPlace,
    sent_at: Option<Instant>,
}

impl Subscriber {
    /// Begins after a place, or where the catalog is now.
    async fn new(
        subscription: AlertSubscription,
        caller: Caller,
        alert: Option<Arc<str>>,
        after: Option<TransitionPlace>,
    ) -> Result<Subscriber> {
        let is_checked = after.is_none();
        let place = match after {
            Some(place) => place,
            None => subscription.present().await?,
        };
        Ok(Subscriber { subscription, caller, alert, place, is_checked, pending: VecDeque::new(), then: place, sent_at: None })
    }

    fn events(self) -> impl Stream<Item = Result<Event, Infallible>> + Send + 'static {
        stream::unfold(self, |mut subscriber| async move { Some((Ok(subscriber.next().await?), subscriber)) })
    }

    /// The next event; `None` when the process stops, or the subscriber may not go on.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if self.subscription.stop().is_cancelled() || !self.caller.authenticator.is_still_valid(&self.caller.principal) {
                return None;
            }
            if self.sent_at.is_none() {
                return Some(self.heartbeat().retry(RETRY));
            }
            while let Some(event) = self.pending.pop_front() {
                self.place = event.place;
                if self.is_for_it(&event) {
                    self.sent_at = Some(Instant::now());
                    return Some(Event::default().id(event.place.to_string()).event(event.state).data(&event.json));
                }
            }
            let before = std::mem::replace(&mut self.place, self.then);
            if let Some(reset) = self.take_more().await {
                self.sent_at = Some(Instant::now());
                return Some(reset);
            }
            let has_moved = self.then > before || !self.pending.is_empty();
            if !has_moved {
                self.wait().await;
            }
            if self.sent_at.is_some_and(|at| at.elapsed() >= HEARTBEAT) && self.pending.is_empty() {
                return Some(self.heartbeat());
            }
        }
    }

    /// An event without data: it moves the id.
    fn heartbeat(&mut self) -> Event {
        self.sent_at = Some(Instant::now());
        Event::default().id(self.place.to_string())
    }

    fn is_for_it(&self, event: &TransitionEvent) -> bool {
        self.alert.as_ref().is_none_or(|alert| *alert == event.alert) && visible::is_visible(&self.caller.principal, event.view.as_ref())
    }

    /// Takes the next events, from memory or from the catalog. Returns an event where some of them are lost.
    async fn take_more(&mut self) -> Option<Event> {
        if self.is_checked {
            match self.subscription.recent_events(self.place) {
                RecentEvents::Events(piece) => {
                    (self.pending, self.then) = (piece.events.into(), piece.to);
                    return None;
                }
                RecentEvents::NotYet => return None,
                RecentEvents::Behind => {}
            }
        }
        let read = match self.subscription.read(self.place).await {
            Ok(read) => read,
            Err(error) => {
                debug!(%error, "a subscriber of alerts waits for the catalog");
                return None;
            }
        };
        self.is_checked = true;
        if !read.is_kept {
            let reset = reset(self.place, &read);
            self.place = TransitionPlace::after(read.present);
            self.then = self.place;
            return Some(reset);
        }
        (self.pending, self.then) = (read.piece.events.into(), read.piece.to);
        None
    }

    async fn wait(&mut self) {
        let stop = self.subscription.stop().clone();
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.subscription.moved() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// What lies between this place and the present cannot be sent.
fn reset(place: TransitionPlace, read: &Read) -> Event {
    let present = TransitionPlace::after(read.present);
    let reason = match place > present {
        true => "the catalog is not there yet: it is another one, or an earlier copy".to_owned(),
        false => format!("transitions up to {} are not kept any more, or an alert was replaced or dropped", read.forgotten),
    };
    let help = "read GET /v1/alerts again: what was open may have ceased";
    let data = json!({ "reason": reason, "found": place.to_string(), "continues_after": present.to_string(), "help": help });
    Event::default().id(present.to_string()).event("reset").data(data.to_string())
}

#[cfg(test)]
mod tests;
