//! Reports what a stop waits for, so that the user can decide whether to wait longer.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

/// How often a stop reports what it waits for.
const EVERY: Duration = Duration::from_secs(3);

/// A stop in progress.
#[derive(Debug)]
pub(super) struct StopWait {
    began: Instant,
    /// When the next report is due.
    next: Instant,
    every: Duration,
}

impl StopWait {
    /// Begins at a request to stop.
    pub(super) fn begin() -> Self {
        Self::reporting(EVERY)
    }

    fn reporting(every: Duration) -> Self {
        let now = Instant::now();
        Self { began: now, next: now + every, every }
    }

    /// Awaits `end`, and logs every few seconds that the stop waits for `what`.
    pub(super) async fn until<T>(&mut self, what: &str, end: impl Future<Output = T>) -> T {
        let began = self.began;
        let report = || {
            let seconds = began.elapsed().as_secs();
            warn!(seconds, "still stopping: waiting for {what}; a second signal ends the process at once, and nothing is lost by it");
        };
        self.until_reporting(end, report).await
    }

    async fn until_reporting<T>(&mut self, end: impl Future<Output = T>, mut report: impl FnMut()) -> T {
        let mut end = pin!(end);
        loop {
            tokio::select! {
                biased;
                ended = &mut end => return ended,
                () = tokio::time::sleep_until(self.next) => {
                    report();
                    self.next = Instant::now() + self.every;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
