//! Appends payments at a rate, and remembers when each was.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use event_log::NewRecord;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use types::Result;

use crate::payments::Topic;

const TICK: Duration = Duration::from_millis(5);

/// When the events without a record were appended, by partition and offset.
#[derive(Debug, Clone, Default)]
pub(super) struct Sent(Arc<Mutex<HashMap<(i32, i64), Instant>>>);

impl Sent {
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<(i32, i64), Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct Sender {
    appended: Arc<AtomicU64>,
    stop: CancellationToken,
    task: JoinHandle<Result<()>>,
}

impl Sender {
    pub(super) async fn start(topic: &Topic, sent: Sent, rate: u64) -> Result<Sender> {
        let (appended, stop) = (Arc::new(AtomicU64::new(0)), CancellationToken::new());
        let (log, topic, counted, stopped) = (topic.open().await?, topic.clone(), appended.clone(), stop.clone());
        let task = tokio::spawn(async move {
            let (began, mut next) = (Instant::now(), 0);
            while !stopped.is_cancelled() {
                let due = (began.elapsed().as_secs_f64() * rate as f64) as u64;
                // A delay is made up for, a twentieth of a second's worth at a time.
                let until = due.min(next + rate.div_ceil(20)).min(topic.payments.records);
                let records: Vec<NewRecord> = (next..until).map(|record| topic.payments.record(record)).collect();
                if !records.is_empty() {
                    let at = Instant::now();
                    let places = log.append(&topic.name, records).await?;
                    let mut sent = sent.lock();
                    sent.extend(places.into_iter().map(|(partition, offset)| ((partition, offset.0), at)));
                }
                next = until;
                counted.store(next, Ordering::Relaxed);
                tokio::time::sleep(TICK).await;
            }
            Ok(())
        });
        Ok(Sender { appended, stop, task })
    }

    /// The number of acknowledged events so far.
    pub(super) fn appended(&self) -> u64 {
        self.appended.load(Ordering::Relaxed)
    }

    /// Stops; returns how many events were appended.
    pub(super) async fn stop(self) -> Result<u64> {
        self.stop.cancel();
        self.task.await??;
        Ok(self.appended.load(Ordering::Relaxed))
    }
}
