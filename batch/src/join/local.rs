//! A run's edges in local files: written beside the snapshot's buckets, mapped to be walked.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use schemas::registry::LiveView;
use schemas::states::StateRows;
use schemas::states::sorted::{SortedFileWriter, map_file};
use schemas::walk::{Buckets, NodeIndex};
use schemas::{Error, Result};
use tracing::debug;

/// Where files without a name are made: nothing is left of them, however the process ends.
pub(crate) struct LocalEdges {
    folder: PathBuf,
    view: LiveView,
    pool: Arc<dyn MemoryPool>,
}

/// The sorted rows of one bucket, being written.
pub(crate) struct LocalBucket {
    bucket: u32,
    view: LiveView,
    writer: SortedFileWriter,
    file: File,
    /// `None` where the run's memory has no room for it.
    nodes: Option<(NodeIndex, MemoryReservation)>,
}

/// Likewise, written.
pub(crate) struct FinishedBucket {
    bucket: u32,
    file: File,
    nodes: Option<(NodeIndex, MemoryReservation)>,
}

/// All edges, mapped, and what their index takes of the run's memory.
pub(crate) struct MappedEdges {
    pub(crate) buckets: Buckets,
    _reserved: Vec<MemoryReservation>,
}

impl LocalEdges {
    /// In `folder`, or where the system's temporary files lie.
    pub(crate) fn new(folder: Option<PathBuf>, view: &LiveView, pool: Arc<dyn MemoryPool>) -> Self {
        Self { folder: folder.unwrap_or_else(std::env::temp_dir), view: view.clone(), pool }
    }

    pub(crate) fn begin(&self, bucket: u32) -> Result<LocalBucket> {
        let made = tempfile::tempfile_in(&self.folder).and_then(|file| Ok((file.try_clone()?, file)));
        let (to_write, file) = made.map_err(|error| Error::from(error).with("folder", self.folder.display()))?;
        let writer = SortedFileWriter::to_file(to_write, self.view.plan.state_schema())?;
        let reservation = MemoryConsumer::new("index of nodes").register(&self.pool);
        Ok(LocalBucket { bucket, view: self.view.clone(), writer, file, nodes: Some((NodeIndex::default(), reservation)) })
    }
}

impl LocalBucket {
    pub(crate) fn push(&mut self, rows: &StateRows) -> Result<()> {
        if let (Some((nodes, reservation)), Some(links)) = (&mut self.nodes, &self.view.plan.links) {
            nodes.add(&self.view.codec, links, rows)?;
            if reservation.try_resize(nodes.memory_bytes()).is_err() {
                debug!(view = %self.view.name, bucket = self.bucket, "no room for an index of the nodes: they are searched for");
                self.nodes = None;
            }
        }
        self.writer.write(rows)
    }

    pub(crate) fn finish(self) -> Result<FinishedBucket> {
        self.writer.finish()?;
        Ok(FinishedBucket { bucket: self.bucket, file: self.file, nodes: self.nodes })
    }
}

/// All of so many buckets, mapped.
pub(crate) fn mapped(buckets: u32, finished: Vec<FinishedBucket>) -> Result<MappedEdges> {
    let mut runs = Buckets::default();
    runs.0.resize_with(buckets as usize, Default::default);
    let mut reserved = Vec::new();
    for FinishedBucket { bucket, file, nodes } in finished {
        let (nodes, reservation) = nodes.unzip();
        runs.0[bucket as usize] = (map_file(&file)?, nodes);
        reserved.extend(reservation);
    }
    Ok(MappedEdges { buckets: runs, _reserved: reserved })
}
