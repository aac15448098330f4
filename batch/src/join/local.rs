//! A run's edges in local files: written along with the snapshot's buckets, and mapped to be walked.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use committed::registry::LiveView;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use engine::plan::links::LinkPlan;
use engine::states::{SortedFileWriter, SortedRun, StateRows, map_file};
use engine::walk::{NodeIndex, SnapshotEdges};
use futures::{StreamExt, TryStreamExt, stream};
use tracing::debug;
use types::{Error, Result};

/// Node indexes may take 1/`PART_OF_LIMIT` of the run's memory limit: the walk itself needs the rest.
const PART_OF_LIMIT: usize = 4;

/// Creates files without a name, so that nothing is left behind however the process ends.
pub(crate) struct LocalEdges {
    folder: PathBuf,
    view: LiveView,
    pub(crate) links: Arc<LinkPlan>,
    pool: Arc<dyn MemoryPool>,
}

/// The sorted rows of one bucket, while they are written.
pub(crate) struct LocalBucket {
    bucket: u32,
    writer: SortedFileWriter,
    file: File,
}

/// The finished file of one bucket.
pub(crate) struct FinishedBucket {
    bucket: u32,
    file: File,
}

/// All edges, mapped, with the memory reservations of their node indexes.
pub(crate) struct MappedEdges {
    pub(crate) buckets: SnapshotEdges,
    _reserved: Vec<MemoryReservation>,
}

type Indexed = (NodeIndex, MemoryReservation);

impl LocalEdges {
    /// Uses `folder`, or the system's temporary folder. `None` for a view without edges.
    pub(crate) fn of_linked(folder: Option<PathBuf>, view: &LiveView, pool: Arc<dyn MemoryPool>) -> Option<Self> {
        let links = view.plan.links().cloned()?;
        Some(Self { folder: folder.unwrap_or_else(std::env::temp_dir), view: view.clone(), links, pool })
    }

    pub(crate) fn begin(&self, bucket: u32) -> Result<LocalBucket> {
        let made = tempfile::tempfile_in(&self.folder).and_then(|file| Ok((file.try_clone()?, file)));
        let (to_write, file) = made.map_err(|error| Error::from(error).with("folder", self.folder.display()))?;
        Ok(LocalBucket { bucket, writer: SortedFileWriter::to_file(to_write, self.view.plan.state_schema())?, file })
    }

    /// Maps all buckets, `threads` at a time. Nothing is being sorted any more, so indexes take no memory that a sort
    /// needs.
    pub(crate) async fn mapped(&self, buckets: u32, threads: usize, finished: Vec<FinishedBucket>) -> Result<MappedEdges> {
        let mut mapped = MappedEdges { buckets: SnapshotEdges::default(), _reserved: Vec::new() };
        mapped.buckets.0.resize_with(buckets as usize, Default::default);
        let parts = finished.into_iter().map(|FinishedBucket { bucket, file }| async move {
            let (view, links, pool) = (self.view.clone(), self.links.clone(), self.pool.clone());
            let work = move || -> Result<(SortedRun, Option<Indexed>)> {
                let run = map_file(&file)?;
                let nodes = nodes_of((&view, &links), &run, &pool)?;
                Ok((run, nodes))
            };
            Ok::<_, Error>((bucket, tokio::task::spawn_blocking(work).await??))
        });
        let mut parts = std::pin::pin!(stream::iter(parts).buffered(threads));
        while let Some((bucket, (run, nodes))) = parts.try_next().await? {
            let (nodes, reservation) = nodes.unzip();
            mapped.buckets.0[bucket as usize] = (run, nodes);
            mapped._reserved.extend(reservation);
        }
        Ok(mapped)
    }
}

impl LocalBucket {
    pub(crate) fn push(&mut self, rows: &StateRows) -> Result<()> {
        self.writer.write(rows)
    }

    pub(crate) fn finish(self) -> Result<FinishedBucket> {
        self.writer.finish()?;
        Ok(FinishedBucket { bucket: self.bucket, file: self.file })
    }
}

/// Builds the index of a bucket's nodes. `None` if there is no room for it.
fn nodes_of((view, links): (&LiveView, &LinkPlan), run: &SortedRun, pool: &Arc<dyn MemoryPool>) -> Result<Option<Indexed>> {
    let most = match pool.memory_limit() {
        MemoryLimit::Finite(limit) => limit / PART_OF_LIMIT,
        _ => usize::MAX,
    };
    let (mut nodes, reservation) = (NodeIndex::default(), MemoryConsumer::new("index of nodes").register(pool));
    for rows in run.chunks() {
        nodes.add(&view.codec, links, rows)?;
        if reservation.try_resize(nodes.memory_bytes()).is_err() || pool.reserved() > most {
            debug!(view = %view.name, "no room for an index of a bucket's nodes: they are searched for");
            return Ok(None);
        }
    }
    Ok(Some((nodes, reservation)))
}
