//! `GET /v1/alerts`: the keys that satisfy the conditions of alerts now, in pages; or, for who accepts
//! `text/event-stream`, each transition as it is committed.
//!
//! ```text
//! open alerts --pages--> JSON
//! transitions --one poller--> subscriptions: the recent ones --> events of each subscriber
//!      +------------who is further behind---------------------------+
//! ```

use std::sync::Arc;

use access::Principal;
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use catalog::{OpenAlertName, TransitionPlace};
use types::{Error, Result};

use super::App;
use super::apart::apart;
use super::input::{EVENT_STREAM, accepts_events, json_bytes, parameters};
use super::problem::HttpProblem;
use crate::open_alerts::OpenAlerts;

mod events;
mod recent;
mod shown;
mod subscriptions;
mod visible;

pub(super) use subscriptions::Subscriptions;

/// Open alerts of a page.
const DEFAULT_LIMIT: u32 = 1_000;
const MAX_LIMIT: u32 = 10_000;
/// A page ends once it has this many bytes.
const PAGE_BYTES: usize = 16 << 20;

/// `GET /v1/alerts[?alert=..][&limit=..][&cursor=..]`, or as a stream `GET /v1/alerts[?alert=..][&after=..]`
pub(super) async fn alerts(
    State(app): State<App>,
    Extension(principal): Extension<Arc<Principal>>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpProblem> {
    let asked = AlertsQuery::read(query.as_deref().unwrap_or_default())?;
    if !accepts_events(&headers) {
        return apart(async move { Ok(json_bytes(page(&app, &principal, asked).await?)) }).await;
    }
    if asked.limit.is_some() || asked.cursor.is_some() {
        let message = format!("limit and cursor need JSON: found Accept: {EVENT_STREAM}, which takes alert and after");
        return Err(Error::input(message).into());
    }
    events::answer(&app, principal, (asked.alert, asked.after), &headers).await
}

/// What the address asks for.
#[derive(Debug, Default, PartialEq)]
struct AlertsQuery {
    alert: Option<String>,
    limit: Option<u32>,
    /// The open alert after which the page begins.
    cursor: Option<OpenAlertName>,
    /// The place after which events begin.
    after: Option<TransitionPlace>,
}

impl AlertsQuery {
    fn read(query: &str) -> Result<AlertsQuery> {
        let mut asked = AlertsQuery::default();
        for (name, value) in parameters(query)? {
            match &*name {
                "alert" => asked.alert = Some(value),
                "limit" => {
                    let wrong = || Error::input(format!("limit is '{value}': expected 1 to {MAX_LIMIT}"));
                    asked.limit = Some(value.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit)).ok_or_else(wrong)?);
                }
                "cursor" => asked.cursor = Some(read_cursor(&value)?),
                "after" => asked.after = Some(value.parse()?),
                other => {
                    return Err(Error::input(format!("there is no parameter '{other}': expected alert, limit, cursor or after")));
                }
            }
        }
        Ok(asked)
    }
}

/// The last open alert of a page as a cursor. It holds nothing here: a page is what is open when it is asked for.
fn cursor_text(last: &OpenAlertName) -> String {
    let text = serde_json::json!([last.alert, last.version, last.keys]).to_string();
    BASE64_URL_SAFE_NO_PAD.encode(text)
}

fn read_cursor(text: &str) -> Result<OpenAlertName> {
    let read = BASE64_URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let (alert, version, keys) = read.ok_or_else(|| Error::input(format!("'{text}' is not a cursor: expected the `next` of a page")))?;
    Ok(OpenAlertName { alert, version, keys })
}

async fn page(app: &App, principal: &Principal, asked: AlertsQuery) -> Result<Vec<u8>> {
    if asked.after.is_some() {
        return Err(Error::input(format!("after needs Accept: {EVENT_STREAM}; for the next page use cursor")));
    }
    let read_view = app.node.read_view()?;
    let versions = visible::versions(&read_view.loaded.registry, principal, asked.alert.as_deref())?;
    let limit = asked.limit.unwrap_or(DEFAULT_LIMIT);
    let mut open_alerts = OpenAlerts::new(app.node.catalog(), versions, asked.cursor);
    let mut read = open_alerts.next(limit).await?;
    let (revision, mut count) = (read.revision, 0);
    let mut out = b"{\"alerts\":[".to_vec();
    loop {
        for open in &read.open {
            if count > 0 {
                out.push(b',');
            }
            shown::open_alert(&mut out, open)?;
            count += 1;
        }
        if !read.may_have_next || count >= limit || out.len() >= PAGE_BYTES {
            break;
        }
        read = open_alerts.next(limit - count).await?;
    }
    let last = open_alerts.last().cloned();
    let has_next = read.may_have_next && !open_alerts.next(1).await?.open.is_empty();
    let next = last.filter(|_| has_next).as_ref().map(cursor_text);
    let ending = serde_json::json!({ "next": next, "event_id": TransitionPlace::after(revision).to_string() });
    out.extend_from_slice(b"],");
    out.extend_from_slice(&ending.to_string().as_bytes()[1..]);
    Ok(out)
}

#[cfg(test)]
mod tests;
