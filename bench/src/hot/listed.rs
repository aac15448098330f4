//! What `GET /v1/hot-keys` lists. A list without the key that is hot is an error of the benchmark.

use std::time::{Duration, Instant};

use serde::Deserialize;
use types::{Error, Result};

use super::visits::{HOT, VIEW};
use crate::asking::Http;

const LISTED_WITHIN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

#[derive(Debug, Deserialize)]
struct Listed {
    hot_keys: Vec<HotKey>,
}

#[derive(Debug, Deserialize)]
struct HotKey {
    view: String,
    key: Key,
    seen_in: String,
    window: String,
    share: f64,
}

#[derive(Debug, Deserialize)]
struct Key {
    shop_id: String,
}

/// The share of the view's events in the last ten seconds that are of the hot key; `None` where it is not hot.
pub(super) fn share_of_events(address: &str) -> Result<Option<f64>> {
    let wrong = |error: serde_json::Error| Error::internal(format!("the hot keys cannot be read: {error}"));
    let listed: Listed = serde_json::from_slice(Http::connect(address)?.get("/v1/hot-keys")?).map_err(wrong)?;
    let of_events = listed.hot_keys.iter().filter(|hot| hot.view == VIEW && hot.seen_in == "events" && hot.window == "10s");
    let others: Vec<&HotKey> = of_events.clone().filter(|hot| hot.key.shop_id != HOT).collect();
    match others.is_empty() {
        true => Ok(of_events.map(|hot| hot.share).next()),
        false => Err(Error::internal("a key is listed as hot that is not").with("found", format!("{others:?}"))),
    }
}

/// Waits until the hot key is listed while its events arrive: a busy machine takes them late. Errors unless it is
/// listed with about half of the events.
pub(super) async fn check_half_of_events(address: &str) -> Result<f64> {
    let began = Instant::now();
    loop {
        match share_of_events(address)? {
            Some(share) if (0.45..0.55).contains(&share) => return Ok(share),
            None if began.elapsed() < LISTED_WITHIN => tokio::time::sleep(POLL).await,
            found => return Err(Error::internal("the hot key has half of the events").with("found", format!("{found:?}"))),
        }
    }
}
