//! Blocking work: off the asynchronous threads, as many jobs at once as there are processors. A thread cannot be
//! dropped as a future can: a job whose future is dropped is cancelled, and has to check for that.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use types::{Error, Result};

/// Runs such work. Cheap to clone; clones share the limit.
#[derive(Debug, Clone)]
pub(crate) struct BlockingPool(Arc<Semaphore>);

/// Cancelled when the future is dropped that waits for the outcome.
#[derive(Debug, Default)]
pub(crate) struct CancelOnDrop(CancellationToken);

impl BlockingPool {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(available_parallelism().map_or(4, NonZero::get))))
    }

    /// Does the work once it is its turn.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl FnOnce(&CancelOnDrop) -> Result<T> + Send + 'static) -> Result<T> {
        let permit = self.0.clone().acquire_owned().await.map_err(|_| Error::internal("a semaphore was closed"))?;
        let cancelled = CancelOnDrop::default();
        let _until_dropped = cancelled.0.clone().drop_guard();
        let outcome = tokio::task::spawn_blocking(move || {
            let _until_done = permit;
            cancelled.check()?;
            work(&cancelled)
        });
        outcome.await?
    }

    /// As if work were under way on every thread.
    #[cfg(test)]
    pub(crate) fn occupied(&self) -> tokio::sync::OwnedSemaphorePermit {
        self.0.clone().try_acquire_many_owned(self.0.available_permits() as u32).unwrap()
    }
}

impl CancelOnDrop {
    /// Errors: `Unavailable` once it is cancelled. No caller is left to see it.
    pub(crate) fn check(&self) -> Result<()> {
        match self.0.is_cancelled() {
            true => Err(Error::unavailable("the caller no longer waits for the answer")),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
