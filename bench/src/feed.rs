//! Appends events to the log at a given rate from this process, while something else is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use event_log::{Log, NewRecord};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use types::Result;

const TICK: Duration = Duration::from_millis(20);
/// The time after which the feed counts as running.
const BEGINNING: Duration = Duration::from_millis(500);

/// A source of events.
pub trait Source: Send + 'static {
    /// The next `count` records, with the topic of each part.
    fn take(&mut self, count: u64) -> Vec<(String, Vec<NewRecord>)>;
}

pub struct Feed {
    appended: Arc<AtomicU64>,
    began: Instant,
    before: u64,
    stop: CancellationToken,
    task: JoinHandle<Result<()>>,
}

/// What arrived.
#[derive(Debug, Clone, Copy)]
pub struct Fed {
    pub appended_per_second: f64,
    pub counted_per_second: f64,
}

impl Feed {
    /// Starts the feed, and waits until it runs.
    pub async fn start(log: Arc<dyn Log>, source: impl Source, rate: u64) -> Result<Feed> {
        let appended = Arc::new(AtomicU64::new(0));
        let stop = CancellationToken::new();
        let task = tokio::spawn(append(log, source, rate, appended.clone(), stop.clone()));
        tokio::time::sleep(BEGINNING).await;
        let before = appended.load(Ordering::Relaxed);
        Ok(Feed { appended, began: Instant::now(), before, stop, task })
    }

    /// The number of acknowledged events so far.
    pub fn appended(&self) -> u64 {
        self.appended.load(Ordering::Relaxed)
    }

    /// Stops the feed; returns how many events it appended.
    pub async fn stop(self) -> Result<u64> {
        self.stop.cancel();
        self.task.await??;
        Ok(self.appended.load(Ordering::Relaxed))
    }

    /// Stops the feed. `from` and `to` are how many events answers counted, and when.
    pub async fn finish(self, from: (u64, Instant), to: (u64, Instant)) -> Result<Fed> {
        let appended_per_second = (self.appended() - self.before) as f64 / self.began.elapsed().as_secs_f64();
        self.stop().await?;
        let counted_per_second = to.0.saturating_sub(from.0) as f64 / (to.1 - from.1).as_secs_f64().max(1e-9);
        Ok(Fed { appended_per_second, counted_per_second })
    }
}

async fn append(log: Arc<dyn Log>, mut source: impl Source, rate: u64, appended: Arc<AtomicU64>, stop: CancellationToken) -> Result<()> {
    let began = Instant::now();
    let mut made = 0u64;
    while !stop.is_cancelled() {
        let due = (began.elapsed().as_secs_f64() * rate as f64) as u64;
        // A delay is made up for, one tick's worth at a time.
        let now = due.saturating_sub(made).min(rate.div_ceil(10));
        for (topic, records) in source.take(now) {
            let count = records.len() as u64;
            log.append(&topic, records).await?;
            appended.fetch_add(count, Ordering::Relaxed);
        }
        made += now;
        if made >= due {
            tokio::time::sleep(TICK).await;
        }
    }
    Ok(())
}
