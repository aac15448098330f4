//! Payments that arrive: appended to the log at a rate, by this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use schemas::Result;
use schemas::log::{Log, NewRecord};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Payments, Topic};

const TICK: Duration = Duration::from_millis(20);
/// What is late is made up for, so much of a second at a time.
const MOST_AT_ONCE: u64 = 10;

/// Ends when it is dropped.
pub struct Feed {
    appended: Arc<AtomicU64>,
    stop: CancellationToken,
    task: JoinHandle<Result<()>>,
}

impl Feed {
    /// Begins with a topic's first payment.
    pub async fn start(topic: &Topic, rate: u64) -> Result<Feed> {
        let (appended, stop) = (Arc::new(AtomicU64::new(0)), CancellationToken::new());
        let source = Source { log: topic.open().await?, topic: topic.name.clone(), payments: topic.payments, appended: appended.clone() };
        let task = tokio::spawn(source.run(rate, stop.clone()));
        Ok(Feed { appended, stop, task })
    }

    /// Records that are in the log, and acknowledged.
    pub fn appended(&self) -> u64 {
        self.appended.load(Ordering::Relaxed)
    }

    /// Ends; answers how many records it appended.
    pub async fn finish(mut self) -> Result<u64> {
        self.stop.cancel();
        (&mut self.task).await??;
        Ok(self.appended())
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

struct Source {
    log: Arc<dyn Log>,
    topic: String,
    payments: Payments,
    appended: Arc<AtomicU64>,
}

impl Source {
    async fn run(self, rate: u64, stop: CancellationToken) -> Result<()> {
        let began = Instant::now();
        let mut made = 0u64;
        while !stop.is_cancelled() && made < self.payments.records {
            let due = (began.elapsed().as_secs_f64() * rate as f64) as u64;
            let until = due.min(made + rate.div_ceil(MOST_AT_ONCE)).min(self.payments.records);
            let records: Vec<NewRecord> = (made..until).map(|record| self.payments.record(record)).collect();
            self.log.append(&self.topic, records).await?;
            made = until;
            self.appended.store(made, Ordering::Relaxed);
            if made >= due {
                tokio::time::sleep(TICK).await;
            }
        }
        Ok(())
    }
}
