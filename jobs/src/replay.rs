//! The log as a source of a replay's events: batch runs ask for them, and the speed layer's code decides the records
//! again.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use batch::{CheckpointEvents, ReplayLog};
use catalog::{CatalogState, CheckpointRecord};
use event_log::Log;
use futures::future::BoxFuture;
use speed::{DedupSettings, IdSpace, Replay};
use storage::ObjectStorage;
use types::{Error, ErrorKind, Result};

/// The log of an installation.
pub struct FromLog {
    storage: ObjectStorage,
    log: Arc<dyn Log>,
    max_future: Duration,
    ids: IdSpace,
}

impl FromLog {
    /// Creates a source that decides records again, with memory and files for ids as in `dedup`.
    pub fn new(storage: ObjectStorage, log: Arc<dyn Log>, max_future: Duration, dedup: DedupSettings) -> FromLog {
        FromLog { storage, log, max_future, ids: IdSpace::new(dedup) }
    }
}

impl ReplayLog for FromLog {
    fn begin<'a>(&'a self, state: &'a CatalogState) -> Box<dyn CheckpointEvents + 'a> {
        Box::new(Pass(Replay::new(&self.storage, &*self.log, state, self.max_future, &self.ids)))
    }
}

struct Pass<'a>(Replay<'a>);

impl CheckpointEvents for Pass<'_> {
    fn begin<'a>(&'a mut self, stream: &'a str, checkpoint: &'a CheckpointRecord) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.0.begin(stream, checkpoint).await.map_err(with_way_out) })
    }

    fn next(&mut self) -> BoxFuture<'_, Result<Option<RecordBatch>>> {
        Box::pin(async move { self.0.next().await.map_err(with_way_out) })
    }
}

/// Names what works where the log cannot be replayed.
fn with_way_out(error: Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::Corrupt => {
            error.with("help", "`basestream replay VIEW --from archive` takes the events as they are archived")
        }
        _ => error,
    }
}
