//! One event of a key of its own, sent, and asked for until it counts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use schemas::log::Log;
use schemas::vector::Vector;
use schemas::{Error, Result};
use serde::Deserialize;
use tokio::task::JoinSet;

use crate::latencies::Latencies;
use crate::payments::{Payment, Payments};

/// How long until the same event is asked for again: at least this, and this share of how long it was waited for.
const ASK_AGAIN: Duration = Duration::from_millis(1);
const ASK_AGAIN_SHARE: f64 = 0.05;
const GIVE_UP: Duration = Duration::from_secs(60);

/// Who acknowledges an event.
#[derive(Clone)]
pub(super) enum Door {
    /// `up`, with a 202.
    Http(Http),
    /// The log: the broker.
    Log(Arc<dyn Log>, String),
}

#[derive(Clone)]
pub(super) struct Prober {
    pub(super) door: Door,
    pub(super) http: Http,
    pub(super) payments: Payments,
}

/// A serving node.
#[derive(Clone)]
pub(super) struct Http {
    client: reqwest::Client,
    row: String,
    events: String,
}

#[derive(Deserialize)]
struct RowAnswer {
    row: serde_json::Value,
    meta: RowMeta,
}

#[derive(Deserialize)]
struct RowMeta {
    cut: String,
}

impl Prober {
    /// Events for some time, so many a second; `first` numbers them. Each is sent when it is due, whether those before it count yet
    /// or not: while nothing is counted, all that come meanwhile wait.
    pub(super) async fn stretch(&self, per_second: f64, lasting: Duration, first: u64) -> Result<Latencies> {
        let (began, mut probes) = (Instant::now(), JoinSet::new());
        for nth in 0..((lasting.as_secs_f64() * per_second) as u64).max(1) {
            let payment = self.payments.probe(first + nth);
            // Not at the same moment of every micro-batch.
            let due = (nth as f64 + payment.pick(1_000) as f64 / 1e3) / per_second;
            let prober = self.clone();
            probes.spawn(async move {
                tokio::time::sleep_until((began + Duration::from_secs_f64(due)).into()).await;
                prober.probe(&payment).await
            });
        }
        let mut all = Latencies::begin()?;
        while let Some(took) = probes.join_next().await {
            all.add(took??);
        }
        Ok(all)
    }

    async fn probe(&self, payment: &Payment) -> Result<Duration> {
        match &self.door {
            Door::Http(http) => http.post(payment).await?,
            Door::Log(log, topic) => drop(log.append(topic, vec![payment.record()]).await?),
        }
        let acknowledged = Instant::now();
        let account = payment.account();
        while acknowledged.elapsed() < GIVE_UP {
            let events = self.http.row(&account).await?.row["events_1h"].clone();
            match events.as_u64() {
                Some(0) => tokio::time::sleep(ASK_AGAIN.max(acknowledged.elapsed().mul_f64(ASK_AGAIN_SHARE))).await,
                Some(1) => return Ok(acknowledged.elapsed()),
                _ => return Err(Error::internal("one event is counted otherwise").with("account", account).with("found", events)),
            }
        }
        Err(Error::unavailable("an event is not counted").with("account", account).with("after s", GIVE_UP.as_secs()))
    }
}

impl Http {
    pub(super) fn new(address: &str, view: &str, stream: &str) -> Result<Http> {
        let client = reqwest::Client::builder().build().map_err(failed)?;
        let row = format!("http://{address}/v1/views/{view}/row?account_id=");
        Ok(Http { client, row, events: format!("http://{address}/v1/streams/{stream}/events") })
    }

    async fn row(&self, account: &str) -> Result<RowAnswer> {
        let response = self.client.get(format!("{}{account}", self.row)).send().await.map_err(failed)?;
        let (status, body) = (response.status(), response.bytes().await.map_err(failed)?);
        let answer = serde_json::from_slice(&body).ok().filter(|_| status.is_success());
        answer.ok_or_else(|| Error::unavailable("a lookup failed").with("status", status).with("body", String::from_utf8_lossy(&body)))
    }

    async fn post(&self, payment: &Payment) -> Result<()> {
        let response = self.client.post(&self.events).body(payment.json()).send().await.map_err(failed)?;
        match response.status() {
            reqwest::StatusCode::ACCEPTED => Ok(()),
            status => Err(Error::unavailable("an event was not accepted").with("status", status)),
        }
    }

    /// Records that answers stand on.
    pub(super) async fn counted(&self) -> Result<u64> {
        let cut = Vector::from_token(&self.row("nobody").await?.meta.cut)?;
        Ok(cut.iter().map(|(_, offset)| offset.0 as u64).sum())
    }
}

fn failed(error: reqwest::Error) -> Error {
    Error::unavailable(format!("HTTP failed: {error}"))
}
