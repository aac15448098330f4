//! The accepted events of checkpoints, as a replay reads them.

use arrow::array::RecordBatch;
use async_trait::async_trait;
use catalog::{CatalogState, CheckpointRecord, archive_file_of};
use committed::registry::LiveView;
use engine::events::plan_schema;
use futures::TryStreamExt;
use storage::{BatchStream, ObjectStorage, read_archive_as};
use types::Result;

/// The accepted events of checkpoints, in the order in which they are asked for.
#[async_trait]
pub trait CheckpointEvents: Send {
    /// Begins with the events that a checkpoint has of a stream.
    async fn begin(&mut self, stream: &str, checkpoint: &CheckpointRecord) -> Result<()>;

    /// Returns the next of them, with columns by name; `None` after the last.
    async fn next(&mut self) -> Result<Option<RecordBatch>>;
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

#[async_trait]
impl CheckpointEvents for FromArchive<'_> {
    async fn begin(&mut self, stream: &str, checkpoint: &CheckpointRecord) -> Result<()> {
        let file = archive_file_of(self.state, checkpoint.id, stream);
        let definition = self.view.plan.streams.iter().find(|known| &*known.name == stream);
        self.open = match file.zip(definition) {
            Some((file, definition)) => Some(read_archive_as(self.storage, file, plan_schema(definition)).await?),
            None => None,
        };
        Ok(())
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(events) = &mut self.open else { return Ok(None) };
        events.try_next().await
    }
}
