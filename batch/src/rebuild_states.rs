//! Rebuilds a damaged states object from the archive. The result is written under a fresh name and replaces the damaged
//! one in the catalog.
//!
//! This is not done by the node that found the damage: nodes only read, there may be many of them, and a rebuild needs
//! a memory limit and one writer. In the meantime a node computes the missing states for itself.

use std::sync::Arc;

use catalog::{CatalogState, CheckpointRecord, Commit, Remove, give_up_commit, replace_commit};
use committed::registry::{LiveView, Registry};
use committed::segment::{Segment, SegmentSession, segment_rows};
use storage::{Section, SegmentRange, check_file, write_states_object};
use tracing::{info, warn};
use types::files::FileRecord;
use types::files::ObjectName;
use types::{ErrorKind, Result};
use uuid::Uuid;

use crate::layer::Batch;

/// The outcome for a file that was reported damaged.
#[derive(Debug, Clone, PartialEq)]
pub enum RebuildOutcome {
    /// It was rebuilt; this file replaces it.
    Rebuilt(FileRecord),
    /// No live view needs it: it was removed from the catalog.
    Dropped,
    /// It turned out to be undamaged.
    Whole,
    /// Another process replaced or collected it.
    Gone,
}

impl Batch {
    /// Rebuilds the states object at `path` from its undamaged parts and the archive.
    ///
    /// Errors: `Corrupt` if the archive is damaged as well; the error names the file.
    pub async fn rebuild_states(&self, state: &CatalogState, registry: &Registry, path: &str) -> Result<RebuildOutcome> {
        let Some(file) = state.files.get(path).filter(|file| !file.marked_for_deletion) else {
            return Ok(RebuildOutcome::Gone);
        };
        match check_file(&self.storage, file, |_| {}).await {
            Ok(()) => return self.found_whole(path).await,
            Err(error) if error.kind() == ErrorKind::Corrupt => {}
            Err(error) => return Err(error),
        }
        let checkpoint = file.checkpoint.and_then(|id| state.checkpoints.get(id));
        let sections = match checkpoint {
            Some(checkpoint) => self.sections(state, registry, checkpoint).await?,
            None => Vec::new(),
        };
        let Some(checkpoint) = checkpoint.filter(|_| !sections.is_empty()) else {
            self.catalog.commit_with_retry(give_up_commit(Uuid::new_v4(), &[file], Vec::new())).await?;
            return Ok(RebuildOutcome::Dropped);
        };
        let name = ObjectName::RebuiltStates { checkpoint: checkpoint.id, rebuild: Uuid::now_v7() };
        let rebuilt = write_states_object(&self.storage, &name, sections, ranges_of(checkpoint)).await?;
        let commit = replace_commit(Uuid::new_v4(), file, rebuilt.clone());
        match self.catalog.commit_with_retry(commit).await {
            Ok(_) => {
                info!(file = path, rebuilt = %rebuilt.path, "a damaged states object was rebuilt from the archive");
                metrics::counter!("basestream_batch_states_rebuilt_total").increment(1);
                Ok(RebuildOutcome::Rebuilt(rebuilt))
            }
            Err(error) if error.kind() == ErrorKind::Conflict => {
                // No transaction will ever reference it.
                self.storage.delete(&rebuilt.path).await?;
                Ok(RebuildOutcome::Gone)
            }
            Err(error) => Err(error),
        }
    }

    async fn found_whole(&self, path: &str) -> Result<RebuildOutcome> {
        let commit = Commit { id: Uuid::new_v4(), remove: vec![Remove::Damage(path.to_owned())], ..Commit::default() };
        self.catalog.commit_with_retry(commit).await?;
        Ok(RebuildOutcome::Whole)
    }

    async fn sections(&self, state: &CatalogState, registry: &Registry, checkpoint: &CheckpointRecord) -> Result<Vec<Section>> {
        let session = SegmentSession::new(&self.functions, self.settings.memory_limit_bytes)?;
        let mut sections = Vec::new();
        for view in registry.views.iter().filter(|view| reads(view, checkpoint)) {
            let segment = match segment_rows(&self.storage, &session, view, state, checkpoint).await {
                Ok(segment) => segment,
                // The view is refused because of an event: the speed layer wrote no section for it either.
                Err(error) if error.kind() == ErrorKind::Input => {
                    warn!(view = %view.name, checkpoint = %checkpoint.id, %error, "a view's states cannot be rebuilt; the others are");
                    continue;
                }
                Err(error) => return Err(error),
            };
            sections.push(section(view, segment));
        }
        Ok(sections)
    }
}

fn section(view: &LiveView, segment: Segment) -> Section {
    Section {
        view: view.name.to_string(),
        version: view.version,
        stamp: view.plan.stamp.clone(),
        schema: view.plan.state_schema().clone(),
        batches: vec![segment.rows.batch().clone()],
        failures: segment.failures,
    }
}

fn reads(view: &LiveView, checkpoint: &CheckpointRecord) -> bool {
    let streams: Vec<&Arc<str>> = view.plan.streams.iter().map(|stream| &stream.name).collect();
    checkpoint.ranges.iter().any(|range| streams.contains(&&range.partition.stream))
}

fn ranges_of(checkpoint: &CheckpointRecord) -> Vec<SegmentRange> {
    let range = |range: &catalog::CheckpointRange| SegmentRange { partition: range.partition.clone(), start: range.start, end: range.end };
    checkpoint.ranges.iter().map(range).collect()
}
