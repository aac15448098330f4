//! A checkpoint's states for one view version, wherever they come from: the section of its states object, or, where that is
//! missing, of another format or damaged, the archive. A segment is a cache of Partial(its archive file).

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;

use crate::catalog::{CatalogState, CheckpointRecord, FileKind, FileRecord};
use crate::error::{ErrorKind, Result};
use crate::events::plan_schema;
use crate::registry::LiveView;
use crate::states::rows::conform;
use crate::states::{Partial, StateRows, merge_rows};
use crate::storage::{ObjectStorage, StatesObject, read_archive_as};

/// Where a checkpoint's states of one view version were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentSource {
    States,
    Archive,
}

/// Sorted and merged state rows at the view's finest level.
pub async fn segment_rows(
    storage: &ObjectStorage,
    session: &SessionContext,
    view: &LiveView,
    state: &CatalogState,
    checkpoint: &CheckpointRecord,
) -> Result<(StateRows, SegmentSource)> {
    let files: Vec<&FileRecord> = state.files.iter().filter(|file| file.checkpoint == Some(checkpoint.id) && !file.doomed).collect();
    for file in files.iter().filter(|file| file.kind == FileKind::States) {
        match section(storage, view, file).await {
            Ok(Some(batches)) => return Ok((merge_rows(&view.plan, &view.codec, &batches)?, SegmentSource::States)),
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::Unavailable => return Err(error),
            // Missing, damaged, or of a newer release.
            Err(error) => {
                tracing::warn!(view = %view.name, file = %file.path, %error, "a segment cannot be read; its states are computed from the archive");
            }
        }
    }
    Ok((from_archive(storage, session, view, &files).await?, SegmentSource::Archive))
}

async fn section(storage: &ObjectStorage, view: &LiveView, file: &FileRecord) -> Result<Option<Vec<RecordBatch>>> {
    let object = StatesObject::open(storage, file).await?;
    let Some(section) = object.section(&view.name, view.version) else { return Ok(None) };
    if section.stamp != view.plan.stamp {
        return Ok(None);
    }
    let batches = object.read_section(section).await?;
    Ok(Some(batches.iter().map(|batch| conform(view.plan.state_schema(), batch)).collect::<Result<_>>()?))
}

async fn from_archive(storage: &ObjectStorage, session: &SessionContext, view: &LiveView, files: &[&FileRecord]) -> Result<StateRows> {
    let mut partial = Partial::new(view.plan.clone(), session).await?;
    let mut made = Vec::new();
    for stream in &view.plan.streams {
        let of_stream = |file: &&&FileRecord| file.kind == FileKind::Archive && file.subject.as_deref() == Some(&*stream.name);
        for file in files.iter().filter(of_stream) {
            let mut events = read_archive_as(storage, file, plan_schema(stream)).await?;
            while let Some(batch) = events.try_next().await? {
                made.extend(partial.states(&stream.name, &[batch]).await?);
            }
        }
    }
    merge_rows(&view.plan, &view.codec, &made)
}

/// A session for computing segments: it shares its plans' settings with every other session.
pub fn segment_session(functions: &crate::functions::Functions) -> Result<Arc<SessionContext>> {
    Ok(Arc::new(crate::plan::planning_session(functions)?))
}
