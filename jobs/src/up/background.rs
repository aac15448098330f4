//! Threads of their own for what makes states and snapshots: on those that answer questions a request would wait behind a batch of
//! records that is read, or a file that is written.

use schemas::{Error, Result};
use tokio::runtime::{Builder, Handle, Runtime};

/// As the command line's own: planning recurses with the depth of a SELECT.
const STACK_BYTES: usize = 8 << 20;

/// A runtime beside the one that answers.
pub(super) struct Background(Option<Runtime>);

impl Background {
    pub(super) fn start() -> Result<Background> {
        let runtime = Builder::new_multi_thread().enable_all().thread_name("background").thread_stack_size(STACK_BYTES).build();
        Ok(Background(Some(runtime.map_err(|error| Error::from(error).with("while", "starting"))?)))
    }

    /// Where its work is spawned.
    pub(super) fn handle(&self) -> Handle {
        self.0.as_ref().map_or_else(Handle::current, |runtime| runtime.handle().clone())
    }
}

/// By then all work is done. A runtime that is dropped as such waits for its threads, which asynchronous code may not.
impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
