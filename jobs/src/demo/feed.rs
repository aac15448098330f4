//! Feeds the traffic into the log: history as fast as the script allows, then live traffic at its own rate.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use event_log::{Log, NewRecord};
use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use types::Result;

use super::traffic::{Traffic, TrafficStream};
use crate::installation::now;

/// Maximum records of one append, over all topics.
const CHUNK: usize = 1_000;
/// How often live traffic is appended.
const LIVE_EVERY: Duration = Duration::from_millis(50);

/// A handle to the feed.
#[derive(Clone)]
pub struct Feed {
    traffic: Arc<Mutex<Traffic>>,
    limit: watch::Sender<u64>,
    sent: Arc<AtomicU64>,
}

impl Feed {
    /// Creates a feed that waits for [`Feed::allow`]. Records go to the topics with the streams' names.
    pub fn new(traffic: Traffic) -> Feed {
        Feed { traffic: Arc::new(Mutex::new(traffic)), limit: watch::Sender::new(0), sent: Arc::default() }
    }

    /// Allows it to send this many records in total; live records are sent when they are due.
    pub fn allow(&self, records: u64) {
        self.limit.send_replace(records);
    }

    /// Returns how many records are in the log.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Pauses the traffic: nothing is sent until the guard is dropped. All traffic generated before is in the log.
    pub async fn pause(&self) -> OwnedMutexGuard<Traffic> {
        self.traffic.clone().lock_owned().await
    }

    /// Feeds until it is dropped or the log fails.
    pub async fn run(&self, log: Arc<dyn Log>) -> Result<()> {
        let mut limit = self.limit.subscribe();
        loop {
            let appended = self.append_due(&*log, *limit.borrow_and_update()).await?;
            if appended == CHUNK {
                continue;
            }
            tokio::select! {
                _ = limit.changed() => {}
                () = tokio::time::sleep(LIVE_EVERY) => {}
            }
        }
    }

    async fn append_due(&self, log: &dyn Log, limit: u64) -> Result<usize> {
        let mut traffic = self.traffic.lock().await;
        let mut batches: BTreeMap<TrafficStream, Vec<NewRecord>> = BTreeMap::new();
        let mut count = 0;
        let until = now();
        while count < CHUNK && traffic.sent() < limit && traffic.next_at() <= until {
            let Some(event) = traffic.next() else { break };
            batches.entry(event.stream).or_default().push(event.record());
            count += 1;
        }
        for (stream, records) in batches {
            log.append(stream.name(), records).await?;
        }
        self.sent.store(traffic.sent(), Ordering::Relaxed);
        Ok(count)
    }
}
