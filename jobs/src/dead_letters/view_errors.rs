//! The events on which a view fails, and which it leaves out. They are archived and count in the other views.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, Int64Type, SchemaRef};
use catalog::{ArchiveBounds, CatalogState, archive_files};
use committed::registry::{LiveView, Registry};
use engine::events::plan_schema;
use engine::plan::planning_session;
use engine::states::PerEvent;
use futures::TryStreamExt;
use serde::Serialize;
use serde_json::value::RawValue;
use serving::WantedViews;
use storage::{ObjectStorage, read_archive_as};
use types::columns::{OFFSET, PARTITION};
use types::failures::{Failure, Failures};
use types::files::FileRecord;
use types::vector::Offset;
use types::{Error, Result};

use super::export::ExportTarget;
use super::{ExportSummary, PINNED_BY};
use crate::installation::Installation;
use crate::pin::pinned;

/// The result of `list --view`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ViewErrors {
    pub view: Arc<str>,
    pub version: u32,
    /// How many events the view leaves out.
    pub count: u64,
    /// The first of them. Of a snapshot, and of each checkpoint after it, at most [`types::failures::LISTED`] are
    /// known.
    pub events: Vec<ViewError>,
}

/// An event on which the view fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ViewError {
    pub stream: Arc<str>,
    pub partition: i32,
    pub offset: Offset,
    pub reason: String,
}

impl From<Failure> for ViewError {
    fn from(Failure { partition, offset, reason }: Failure) -> Self {
        Self { stream: partition.stream, partition: partition.partition, offset, reason }
    }
}

/// Returns the first `limit` events that the served version of a view leaves out, as its batch run and the checkpoints
/// after it recorded them.
pub async fn list_view(installation: &Installation, view: &str, limit: usize) -> Result<ViewErrors> {
    let node = installation.node_of_at_once(WantedViews::Named([view.to_owned()].into())).await?;
    let read_view = node.read_view()?;
    let loaded = read_view.view(view)?;
    let count = read_view.failures_of(loaded).map(Failures::count).sum();
    let mut events: Vec<Failure> = read_view.failures_of(loaded).flat_map(Failures::listed).collect();
    events.sort_by(|a, b| (&a.partition, a.offset).cmp(&(&b.partition, b.offset)));
    events.truncate(limit);
    let (view, version) = (loaded.live.name.clone(), loaded.live.version);
    Ok(ViewErrors { view, version, count, events: events.into_iter().map(ViewError::from).collect() })
}

/// Writes all events that the served version of a view leaves out, each with its columns: evaluates the view for every
/// archived event of its streams. `progress` is called with the number of events read.
///
/// The file appears once it is complete, and not at all where the view fails on no event. Errors: `Input` for a file
/// that already exists.
pub async fn export_view(installation: &Installation, view: &str, to: &str, progress: impl FnMut(u64)) -> Result<ExportSummary> {
    pinned(&installation.catalog, PINNED_BY, export_view_pinned(installation, view, to, progress)).await
}

async fn export_view_pinned(installation: &Installation, view: &str, to: &str, mut progress: impl FnMut(u64)) -> Result<ExportSummary> {
    let state = installation.catalog.state().await?;
    let live = served(installation, &state, view).await?;
    let mut target = ExportTarget::open(to)?;
    let (mut read, mut exported) = (0, 0);
    for per_event in PerEvent::plan(&live.plan, &planning_session(&installation.functions)?)? {
        for file in archive_files(&state, std::slice::from_ref(&per_event.stream.name), ArchiveBounds::default()) {
            let failing = Failing { live: &live, per_event: &per_event, schema: plan_schema(&per_event.stream) };
            exported += failing.write(&installation.storage, file, &mut target).await?;
            read += file.rows.max(0) as u64;
            progress(read);
        }
    }
    if exported > 0 {
        target.finish()?;
    }
    Ok(ExportSummary { exported, damaged: Vec::new() })
}

/// How many archived events [`export_view`] reads.
pub async fn events_read(installation: &Installation, view: &str) -> Result<u64> {
    let state = installation.catalog.state().await?;
    let live = served(installation, &state, view).await?;
    let files = archive_files(&state, &live.streams(), ArchiveBounds::default());
    Ok(files.into_iter().map(|file| file.rows.max(0) as u64).sum())
}

async fn served(installation: &Installation, state: &CatalogState, view: &str) -> Result<LiveView> {
    let registry = Registry::load(state, &installation.functions).await?;
    registry.served(view).cloned().ok_or_else(|| registry.no_view(view))
}

struct Failing<'a> {
    live: &'a LiveView,
    per_event: &'a PerEvent,
    schema: SchemaRef,
}

/// A line of an export.
#[derive(Serialize)]
struct Line<'a> {
    view: &'a str,
    version: u32,
    #[serde(flatten)]
    error: ViewError,
    event: &'a RawValue,
}

impl Failing<'_> {
    /// Writes those of a file. Returns how many.
    async fn write(&self, storage: &ObjectStorage, file: &FileRecord, target: &mut ExportTarget) -> Result<u64> {
        let mut events = read_archive_as(storage, file, self.schema.clone()).await?;
        let mut written = 0;
        while let Some(batch) = events.try_next().await? {
            let mut failures = Vec::new();
            self.per_event.evaluate(&batch.project(&self.per_event.columns)?, &mut |failure| failures.push(failure))?;
            for failure in failures {
                target.write(&self.line(&batch, failure)?)?;
                written += 1;
            }
        }
        Ok(written)
    }

    fn line(&self, batch: &RecordBatch, failure: Failure) -> Result<Vec<u8>> {
        let lost = || Error::internal("a failing event is not in its batch");
        let offsets = batch.column(self.schema.index_of(OFFSET)?).as_primitive::<Int64Type>();
        let partitions = batch.column(self.schema.index_of(PARTITION)?).as_primitive::<Int32Type>();
        let is_at = |row: &usize| offsets.value(*row) == failure.offset.0 && partitions.value(*row) == failure.partition.partition;
        let row = (0..batch.num_rows()).find(is_at).ok_or_else(lost)?;
        let columns: Vec<usize> = (0..self.per_event.stream.columns.len()).collect();
        let json = serving::json::rows(&batch.slice(row, 1).project(&columns)?)?;
        let event = json.first().ok_or_else(lost)?;
        let line = Line { view: &self.live.name, version: self.live.version, error: failure.into(), event };
        let mut line = serde_json::to_vec(&line)?;
        line.push(b'\n');
        Ok(line)
    }
}
