//! A pool for blocking work, so that it does not run on the threads that answer HTTP. It runs as many jobs at a time as
//! there are processors, in the order of their requests. Unlike a future, a thread cannot be dropped: a job whose
//! future is dropped is cancelled, and has to check for that.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use types::{Error, Result, threads};

/// Runs such work. Cheap to clone; clones share the limit.
#[derive(Debug, Clone)]
pub(crate) struct BlockingPool {
    threads: &'static threads::Group,
    permits: Arc<Semaphore>,
    #[cfg(test)]
    jobs: Arc<std::sync::atomic::AtomicUsize>,
}

/// Cancelled when the future is dropped that waits for the outcome.
#[derive(Debug, Default)]
pub(crate) struct CancelOnDrop(CancellationToken);

impl BlockingPool {
    /// Work on threads of this group.
    pub(crate) fn new(threads: &'static threads::Group) -> Self {
        Self::with_size(threads, available_parallelism().map_or(4, NonZero::get))
    }

    fn with_size(threads: &'static threads::Group, jobs: usize) -> Self {
        Self {
            threads,
            permits: Arc::new(Semaphore::new(jobs)),
            #[cfg(test)]
            jobs: Arc::default(),
        }
    }

    /// Does the work once it is its turn.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl FnOnce(&CancelOnDrop) -> Result<T> + Send + 'static) -> Result<T> {
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| Error::internal("a semaphore was closed"))?;
        #[cfg(test)]
        self.jobs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let cancelled = CancelOnDrop::default();
        let _until_dropped = cancelled.0.clone().drop_guard();
        let outcome = self.threads.spawn_blocking(move || {
            let _until_done = permit;
            cancelled.check()?;
            work(&cancelled)
        });
        outcome.await?
    }

    /// As if work were under way on every thread.
    #[cfg(test)]
    pub(crate) fn occupied(&self) -> tokio::sync::OwnedSemaphorePermit {
        self.permits.clone().try_acquire_many_owned(self.permits.available_permits() as u32).unwrap()
    }

    /// How many jobs have begun.
    #[cfg(test)]
    pub(crate) fn jobs(&self) -> usize {
        self.jobs.load(std::sync::atomic::Ordering::Relaxed)
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
