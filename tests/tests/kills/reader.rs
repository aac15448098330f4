//! Queries and appends while processes die. Some answers are kept for the oracle, which compares each with the log up
//! to its vector.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, IteratorRandom};
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::records::Maker;
use crate::seats::Servers;
use crate::site::VIEWS;

const EVERY: Duration = Duration::from_millis(60);
/// How many answers are kept per view.
const KEPT: usize = 10;

/// An answer, as it is passed to the oracle.
#[derive(Debug, Clone)]
pub struct Sample {
    pub view: &'static str,
    pub of: String,
    pub cut: String,
    pub as_of: String,
    /// When the snapshot that it builds on was made; empty without one.
    pub snapshot_at: String,
    pub rows: Vec<Value>,
}

#[derive(Debug, Default)]
pub struct Seen {
    pub samples: Vec<Sample>,
    pub answers: u64,
    /// Ids of events that were acknowledged with 202.
    pub appended: Vec<String>,
    /// Error responses, by status and first words.
    pub errors: BTreeMap<String, u64>,
}

pub async fn read(servers: Servers, seed: u64, stop: Arc<AtomicBool>) -> Seen {
    let mut random = StdRng::seed_from_u64(seed);
    let mut maker = Maker::new("h", StdRng::seed_from_u64(seed + 1));
    let client = reqwest::Client::builder().timeout(Duration::from_secs(3)).build().unwrap_or_default();
    let mut seen = Seen::default();
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(EVERY).await;
        let server = servers.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).values().copied().choose(&mut random);
        let Some(port) = server else { continue };
        if random.random_bool(0.3) {
            append(&client, port, &mut maker, &mut seen).await;
            continue;
        }
        let view = VIEWS.choose(&mut random).copied().unwrap_or(VIEWS[0]);
        match ask(&client, port, view, "while everything died").await {
            Ok(sample) => {
                seen.answers += 1;
                keep(&mut seen.samples, sample, &mut random);
            }
            Err(error) => *seen.errors.entry(error).or_default() += 1,
        }
    }
    seen
}

/// All rows of a view.
pub async fn ask(client: &reqwest::Client, port: u16, view: &'static str, of: &str) -> Result<Sample, String> {
    let body = json!({"query": format!("SELECT * FROM {view}"), "params": []});
    let reply = client.post(format!("http://127.0.0.1:{port}/v1/sql")).json(&body).send().await.map_err(|_| "no reply".to_owned())?;
    let status = reply.status();
    let text = reply.text().await.map_err(|_| "half a reply".to_owned())?;
    if !status.is_success() {
        return Err(format!("{status} {}", text.chars().take(160).collect::<String>()));
    }
    let mut value: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let meta = |name: &str| value["meta"][name].as_str().unwrap_or_default().to_owned();
    let (cut, as_of, snapshot_at) = (meta("cut"), meta("as_of"), meta("snapshot_at"));
    let Value::Array(mut rows) = value["rows"].take() else { return Err("no rows".to_owned()) };
    rows.sort_by_cached_key(Value::to_string);
    Ok(Sample { view, of: of.to_owned(), cut, as_of, snapshot_at, rows })
}

async fn append(client: &reqwest::Client, port: u16, maker: &mut Maker, seen: &mut Seen) {
    let now_ms = chrono::Utc::now().timestamp_millis();
    let (ids, lines): (Vec<String>, Vec<String>) = (0..5).map(|_| maker.payment_line(now_ms)).unzip();
    let url = format!("http://127.0.0.1:{port}/v1/streams/payments/events");
    match client.post(url).body(lines.join("\n")).send().await {
        Ok(reply) if reply.status().as_u16() == 202 => seen.appended.extend(ids),
        Ok(reply) => *seen.errors.entry(format!("append: {}", reply.status())).or_default() += 1,
        Err(_) => *seen.errors.entry("append: no reply".to_owned()).or_default() += 1,
    }
}

/// Keeps a uniform random sample of all answers of a view.
fn keep(samples: &mut Vec<Sample>, sample: Sample, random: &mut StdRng) {
    let of_view: Vec<usize> = samples.iter().enumerate().filter(|(_, kept)| kept.view == sample.view).map(|(index, _)| index).collect();
    if of_view.len() < KEPT {
        samples.push(sample);
    } else if random.random_bool(0.2)
        && let Some(index) = of_view.choose(random)
    {
        samples[*index] = sample;
    }
}
