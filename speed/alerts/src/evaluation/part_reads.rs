//! Reads parts one after the other: the next part on another thread while what was read of one is used.

use std::sync::Arc;
use std::vec::IntoIter;

use tokio_util::task::AbortOnDropHandle;
use types::{Result, threads};

pub(super) struct PartReads<P, R> {
    left: IntoIter<P>,
    read: Arc<dyn Fn(P) -> Result<R> + Send + Sync>,
    /// The read that is under way; `None` after the last part.
    reading: Option<AbortOnDropHandle<Result<R>>>,
}

impl<P: Send + 'static, R: Send + 'static> PartReads<P, R> {
    /// Begins to read the first of these parts.
    pub(super) fn begin(parts: Vec<P>, read: impl Fn(P) -> Result<R> + Send + Sync + 'static) -> Self {
        let mut reads = Self { left: parts.into_iter(), read: Arc::new(read), reading: None };
        reads.begin_next();
        reads
    }

    /// Returns what was read of the next part, and begins to read the one after it; `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<R>> {
        let Some(reading) = self.reading.take() else { return Ok(None) };
        let found = reading.await??;
        self.begin_next();
        Ok(Some(found))
    }

    fn begin_next(&mut self) {
        let Some(part) = self.left.next() else { return };
        let read = self.read.clone();
        self.reading = Some(AbortOnDropHandle::new(threads::SPEED.spawn_blocking(move || read(part))));
    }
}

#[cfg(test)]
mod tests;
