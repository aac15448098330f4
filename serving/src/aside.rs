//! Work that takes a while: off the asynchronous threads, as much of it at once as there are processors, and told when nobody waits for
//! it any more. A thread cannot be dropped as a future can.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use types::{Error, Result};

/// Where such work is done. Cheap to clone; clones share the threads.
#[derive(Debug, Clone)]
pub(crate) struct Aside(Arc<Semaphore>);

/// Whether somebody waits for the outcome.
#[derive(Debug, Default)]
pub(crate) struct Waiting(CancellationToken);

impl Aside {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(available_parallelism().map_or(4, NonZero::get))))
    }

    /// Does the work once it is its turn. Where the future is dropped, the work hears of it.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl FnOnce(&Waiting) -> Result<T> + Send + 'static) -> Result<T> {
        let permit = self.0.clone().acquire_owned().await.map_err(|_| Error::internal("a semaphore was closed"))?;
        let waiting = Waiting::default();
        let _until_dropped = waiting.0.clone().drop_guard();
        let outcome = tokio::task::spawn_blocking(move || {
            let _until_done = permit;
            waiting.check()?;
            work(&waiting)
        });
        outcome.await?
    }

    /// As if work were under way on every thread.
    #[cfg(test)]
    pub(crate) fn occupied(&self) -> tokio::sync::OwnedSemaphorePermit {
        self.0.clone().try_acquire_many_owned(self.0.available_permits() as u32).unwrap()
    }
}

impl Waiting {
    /// Errors: `Unavailable` once nobody waits. Nobody sees it.
    pub(crate) fn check(&self) -> Result<()> {
        match self.0.is_cancelled() {
            true => Err(Error::unavailable("nobody waits for the answer any more")),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
