//! Whose turn it is to write the files of a checkpoint.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use types::{Error, Result};

/// The turns of a process's workers. To write the files of a checkpoint takes a processor for a second or so, and half
/// of the processors are left to the events that come in meanwhile. Cheap to clone; the workers share one.
#[derive(Debug, Clone)]
pub struct CheckpointWriters(Arc<Semaphore>);

impl Default for CheckpointWriters {
    fn default() -> Self {
        Self::new((available_parallelism().map_or(1, NonZero::get) / 2).max(1))
    }
}

impl CheckpointWriters {
    /// So many may write at a time.
    pub(crate) fn new(at_once: usize) -> Self {
        Self(Arc::new(Semaphore::new(at_once)))
    }

    /// Waits for its turn. Who asked first comes first.
    pub(crate) async fn turn(&self) -> Result<OwnedSemaphorePermit> {
        self.0.clone().acquire_owned().await.map_err(|_| Error::internal("checkpoints have no turns any more"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_processors_write_checkpoints_and_one_at_the_least() {
        let processors = available_parallelism().unwrap().get();
        assert_eq!(CheckpointWriters::default().0.available_permits(), if processors < 4 { 1 } else { processors / 2 });
    }
}
