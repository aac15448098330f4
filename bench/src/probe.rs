//! Sends events with new keys and queries each key until its event counts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use event_log::{Log, NewRecord};
use serde::Deserialize;
use serde_json::Value;
use tokio::task::JoinSet;
use types::vector::Vector;
use types::{Error, Result};

use crate::asking::Stretches;
use crate::events::mix;
use crate::latencies::Latencies;

/// The interval between two queries for the same probe: at least this, and at least this share of the time waited so
/// far.
const ASK_AGAIN: Duration = Duration::from_millis(1);
const ASK_AGAIN_SHARE: f64 = 0.05;
const GIVE_UP: Duration = Duration::from_secs(60);

/// Events that are sent in order, each after the previous one is acknowledged.
#[derive(Debug, Clone)]
pub struct Probe {
    /// Each record with its destination: a stream of `up`, or a topic of the log.
    pub sends: Vec<(String, NewRecord)>,
    /// The key whose row counts them.
    pub key: String,
}

/// What is queried: a view's value that is 0 until a key's probe counts, and 1 then.
#[derive(Debug, Clone, Copy)]
pub struct ProbedValue {
    pub view: &'static str,
    /// The key's column.
    pub key: &'static str,
    /// The value's column.
    pub value: &'static str,
}

/// Where events are sent, and what acknowledges them.
#[derive(Clone)]
pub enum Sink {
    /// The queried `up`, with a 202.
    Http,
    /// The log: the broker.
    Log(Arc<dyn Log>),
}

/// Sends probes, and measures each: from the acknowledgement of its last event to the answer that counts it.
pub struct Prober<P> {
    sink: Sink,
    http: Http,
    probe: P,
    sent: u64,
}

/// An HTTP client of a serving node.
#[derive(Clone)]
pub struct Http {
    client: reqwest::Client,
    address: String,
    probed: ProbedValue,
}

#[derive(Deserialize)]
struct RowAnswer {
    row: Value,
    meta: RowMeta,
}

#[derive(Deserialize)]
struct RowMeta {
    cut: String,
}

impl<P: Fn(u64) -> Probe> Prober<P> {
    /// `probe` creates the probe with a given number. Each probe has its own key.
    pub fn new(sink: Sink, http: Http, probe: P) -> Prober<P> {
        Prober { sink, http, probe, sent: 0 }
    }

    /// The number of probes sent: the numbers of probes are below it.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Several stretches in turn, with this many probes per second.
    pub async fn stretches(&mut self, per_second: f64, stretches: Stretches) -> Result<Vec<Latencies>> {
        let mut measured = Vec::new();
        for _ in 0..stretches.repeats.max(1) {
            measured.push(self.stretch(per_second, stretches.seconds).await?);
        }
        Ok(measured)
    }

    /// Sends probes for some time, at this rate per second. Each is sent when it is due, whether or not earlier ones
    /// count yet: if counting stalls, all probes of that time wait.
    pub async fn stretch(&mut self, per_second: f64, seconds: f64) -> Result<Latencies> {
        let (began, mut probes) = (Instant::now(), JoinSet::new());
        for nth in 0..((seconds * per_second) as u64).max(1) {
            let probe = (self.probe)(self.sent);
            // Spread the probes, so that they do not fall on the same moment of every micro-batch.
            let due = (nth as f64 + (mix(20, self.sent) % 1_000) as f64 / 1e3) / per_second;
            let (sink, http) = (self.sink.clone(), self.http.clone());
            probes.spawn(async move {
                tokio::time::sleep_until((began + Duration::from_secs_f64(due)).into()).await;
                time(&sink, &http, probe).await
            });
            self.sent += 1;
        }
        let mut all = Latencies::begin()?;
        while let Some(took) = probes.join_next().await {
            all.add(took??);
        }
        Ok(all)
    }
}

async fn time(sink: &Sink, http: &Http, probe: Probe) -> Result<Duration> {
    let Probe { sends, key } = probe;
    for (to, record) in sends {
        match sink {
            Sink::Http => http.post(&to, record.value.unwrap_or_default()).await?,
            Sink::Log(log) => drop(log.append(&to, vec![record]).await?),
        }
    }
    let acknowledged = Instant::now();
    while acknowledged.elapsed() < GIVE_UP {
        let value = http.row(&key).await?[http.probed.value].clone();
        match value.as_u64() {
            Some(0) => tokio::time::sleep(ASK_AGAIN.max(acknowledged.elapsed().mul_f64(ASK_AGAIN_SHARE))).await,
            Some(1) => return Ok(acknowledged.elapsed()),
            _ => return Err(Error::internal("a probe is counted otherwise").with("key", key).with("found", value)),
        }
    }
    Err(Error::unavailable("a probe is not counted").with("key", key).with("after s", GIVE_UP.as_secs()))
}

impl Http {
    pub fn new(address: &str, probed: ProbedValue) -> Result<Http> {
        let client = reqwest::Client::builder().build().map_err(failed)?;
        Ok(Http { client, address: address.to_owned(), probed })
    }

    /// The view's row of a key.
    pub async fn row(&self, key: &str) -> Result<Value> {
        Ok(self.ask(key).await?.row)
    }

    /// The number of records that answers include.
    pub async fn counted(&self) -> Result<u64> {
        let cut = Vector::from_token(&self.ask("nobody").await?.meta.cut)?;
        Ok(cut.iter().map(|(_, offset)| offset.0 as u64).sum())
    }

    async fn ask(&self, key: &str) -> Result<RowAnswer> {
        let ProbedValue { view, key: column, .. } = self.probed;
        let row = format!("http://{}/v1/views/{view}/row?{column}={key}", self.address);
        let response = self.client.get(row).send().await.map_err(failed)?;
        let (status, body) = (response.status(), response.bytes().await.map_err(failed)?);
        let answer = serde_json::from_slice(&body).ok().filter(|_| status.is_success());
        answer.ok_or_else(|| Error::unavailable("a lookup failed").with("status", status).with("body", String::from_utf8_lossy(&body)))
    }

    async fn post(&self, stream: &str, event: Bytes) -> Result<()> {
        let events = format!("http://{}/v1/streams/{stream}/events", self.address);
        let response = self.client.post(events).body(event).send().await.map_err(failed)?;
        let (status, body) = (response.status(), response.bytes().await.map_err(failed)?);
        match status {
            reqwest::StatusCode::ACCEPTED => Ok(()),
            _ => Err(Error::unavailable("an event was not accepted").with("status", status).with("body", String::from_utf8_lossy(&body))),
        }
    }
}

fn failed(error: reqwest::Error) -> Error {
    Error::unavailable(format!("HTTP failed: {error}"))
}
