//! The accepted events of checkpoints, as a replay reads them.

use arrow::array::RecordBatch;
use catalog::{CatalogState, CheckpointRecord, archive_file_of};
use committed::registry::LiveView;
use engine::events::plan_schema;
use futures::TryStreamExt;
use futures::future::BoxFuture;
use storage::{BatchStream, ObjectStorage, read_archive_as};
use types::Result;

/// The accepted events of checkpoints, in the order in which they are asked for.
pub trait CheckpointEvents: Send {
    /// Begins with the events that a checkpoint has of a stream.
    fn begin<'a>(&'a mut self, stream: &'a str, checkpoint: &'a CheckpointRecord) -> BoxFuture<'a, Result<()>>;

    /// Returns the next of them, with columns by name; `None` after the last.
    fn next(&mut self) -> BoxFuture<'_, Result<Option<RecordBatch>>>;
}

/// The log, as a source of checkpoints' events.
pub trait ReplayLog: Send + Sync {
    /// Begins one pass over the log.
    fn begin<'a>(&'a self, state: &'a CatalogState) -> Box<dyn CheckpointEvents + 'a>;
}

/// The archive, as a source of checkpoints' events.
pub(crate) struct FromArchive<'a> {
    storage: &'a ObjectStorage,
    state: &'a CatalogState,
    view: &'a LiveView,
    open: Option<BatchStream>,
}

impl<'a> FromArchive<'a> {
    pub(crate) fn new(storage: &'a ObjectStorage, state: &'a CatalogState, view: &'a LiveView) -> Self {
        Self { storage, state, view, open: None }
    }
}

impl CheckpointEvents for FromArchive<'_> {
    fn begin<'b>(&'b mut self, stream: &'b str, checkpoint: &'b CheckpointRecord) -> BoxFuture<'b, Result<()>> {
        Box::pin(async move {
            let file = archive_file_of(self.state, checkpoint.id, stream);
            let definition = self.view.plan.streams.iter().find(|known| &*known.name == stream);
            self.open = match file.zip(definition) {
                Some((file, definition)) => Some(read_archive_as(self.storage, file, plan_schema(definition)).await?),
                None => None,
            };
            Ok(())
        })
    }

    fn next(&mut self) -> BoxFuture<'_, Result<Option<RecordBatch>>> {
        Box::pin(async move {
            let Some(events) = &mut self.open else { return Ok(None) };
            events.try_next().await
        })
    }
}
