//! Lets workers take turns at writing the files of their checkpoints.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use types::{Error, Result};

/// The turns of a process's workers. Writing the files of a checkpoint keeps a processor busy for a second or so; half
/// of the processors are left for the events that arrive meanwhile. Cheap to clone; the workers share one.
#[derive(Debug, Clone)]
pub struct CheckpointWriters(Arc<Semaphore>);

impl Default for CheckpointWriters {
    fn default() -> Self {
        Self::new(at_once(available_parallelism().map_or(1, NonZero::get)))
    }
}

/// How many workers may write at the same time on a machine with this number of processors.
fn at_once(processors: usize) -> usize {
    (processors / 2).max(1)
}

impl CheckpointWriters {
    /// Lets this many workers write at the same time.
    pub(crate) fn new(at_once: usize) -> Self {
        Self(Arc::new(Semaphore::new(at_once)))
    }

    /// Waits for a turn, first come, first served.
    pub(crate) async fn turn(&self) -> Result<OwnedSemaphorePermit> {
        self.0.clone().acquire_owned().await.map_err(|_| Error::internal("checkpoints have no turns any more"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_processors_write_checkpoints_and_one_at_the_least() {
        assert_eq!([1, 2, 3, 4, 9].map(at_once), [1, 1, 1, 2, 4]);
    }
}
