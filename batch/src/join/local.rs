//! A run's edges in local files: written along with the snapshot's buckets, or copied from them, and mapped to be
//! walked.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use committed::registry::LiveView;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use engine::plan::links::LinkPlan;
use engine::states::{SortedFileWriter, SortedRun, StateRows, conform, map_file};
use engine::walk::{NodeIndex, SnapshotEdges, TierEdges};
use futures::{StreamExt, TryStreamExt, stream};
use storage::{BucketFile, ObjectStorage, Tier, read_bucket};
use tracing::debug;
use types::Result;

use crate::temp_folder::at_folder;

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
    folder: PathBuf,
}

/// The finished file of one bucket.
pub(crate) struct FinishedBucket {
    bucket: u32,
    file: File,
}

/// The edges of one tier, mapped, bucket by bucket.
#[derive(Debug)]
pub(crate) struct LocalTier(pub(crate) Vec<Arc<SortedRun>>);

/// Edges with the indexes of their nodes, and with these indexes' memory reservations.
pub(crate) struct IndexedEdges {
    pub(crate) edges: SnapshotEdges,
    pub(crate) reserved: Vec<MemoryReservation>,
}

type Indexed = (NodeIndex, MemoryReservation);

impl LocalEdges {
    /// Uses `folder`, or the system's temporary folder. `None` for a view without edges.
    pub(crate) fn for_linked_view(folder: Option<PathBuf>, view: &LiveView, pool: Arc<dyn MemoryPool>) -> Option<Self> {
        let links = view.plan.links().cloned()?;
        Some(Self { folder: folder.unwrap_or_else(std::env::temp_dir), view: view.clone(), links, pool })
    }

    pub(crate) fn begin(&self, bucket: u32) -> Result<LocalBucket> {
        let made = tempfile::tempfile_in(&self.folder).and_then(|file| Ok((file.try_clone()?, file)));
        let (to_write, file) = made.map_err(|error| at_folder(&self.folder, error))?;
        let writer = SortedFileWriter::to_file(to_write, self.view.plan.state_schema())?;
        Ok(LocalBucket { bucket, writer, file, folder: self.folder.clone() })
    }

    /// Maps the buckets of a tier that was written.
    pub(crate) async fn mapped(&self, bucket_count: u32, finished: Vec<FinishedBucket>) -> Result<LocalTier> {
        let mut buckets = vec![Arc::default(); bucket_count as usize];
        for FinishedBucket { bucket, file } in finished {
            buckets[bucket as usize] = Arc::new(tokio::task::spawn_blocking(move || map_file(&file)).await??);
        }
        Ok(LocalTier(buckets))
    }

    /// Copies a tier, `threads` buckets at a time.
    pub(crate) async fn copied(&self, storage: &ObjectStorage, tier: &Tier, threads: usize) -> Result<LocalTier> {
        // Collected first: a closure in the stream would make this future one that cannot be spawned.
        let copies: Vec<_> = tier.files.iter().map(|file| self.copied_bucket(storage, file)).collect();
        self.mapped(tier.bucket_count, stream::iter(copies).buffered(threads).try_collect().await?).await
    }

    async fn copied_bucket(&self, storage: &ObjectStorage, file: &BucketFile) -> Result<FinishedBucket> {
        let mut copy = self.begin(file.bucket)?;
        let mut batches = read_bucket(storage, file).await?;
        let plan = &self.view.plan;
        while let Some(batch) = batches.try_next().await? {
            let batch = conform(plan.state_schema(), &batch)?;
            let keys = self.view.codec.encode(&batch.columns()[..plan.keys.len()], batch.num_rows())?;
            let rows = StateRows::from_sorted(batch, keys);
            copy = tokio::task::spawn_blocking(move || copy.push(&rows).map(|()| copy)).await??;
        }
        copy.finish()
    }

    /// Builds indexes of the nodes, for `threads` buckets at a time, as far as memory allows. No sort is running any
    /// more that would need this memory.
    pub(crate) async fn indexed(&self, edges: &SnapshotEdges, threads: usize) -> Result<IndexedEdges> {
        let mut indexed = IndexedEdges { edges: SnapshotEdges::default(), reserved: Vec::new() };
        for tier in &edges.0 {
            let parts: Vec<_> = tier.0.iter().map(|(run, _)| self.index(run.clone())).collect();
            let parts: Vec<(Arc<SortedRun>, Option<Indexed>)> = stream::iter(parts).buffered(threads).try_collect().await?;
            let mut buckets = TierEdges::default();
            for (run, index) in parts {
                let (nodes, reservation) = index.unzip();
                buckets.0.push((run, nodes));
                indexed.reserved.extend(reservation);
            }
            indexed.edges.0.push(buckets);
        }
        Ok(indexed)
    }

    async fn index(&self, run: Arc<SortedRun>) -> Result<(Arc<SortedRun>, Option<Indexed>)> {
        let (view, links, pool) = (self.view.clone(), self.links.clone(), self.pool.clone());
        tokio::task::spawn_blocking(move || {
            let nodes = nodes_of((&view, &links), &run, &pool)?;
            Ok((run, nodes))
        })
        .await?
    }
}

impl LocalTier {
    pub(crate) fn rows(&self) -> usize {
        self.0.iter().map(|run| run.rows()).sum()
    }
}

/// These tiers as a walk finds them, without indexes.
pub(crate) fn edges_of<'t>(tiers: impl IntoIterator<Item = &'t LocalTier>) -> SnapshotEdges {
    let tier = |tier: &LocalTier| TierEdges(tier.0.iter().map(|run| (run.clone(), None)).collect());
    SnapshotEdges(tiers.into_iter().map(tier).collect())
}

impl LocalBucket {
    pub(crate) fn push(&mut self, rows: &StateRows) -> Result<()> {
        self.writer.write(rows).map_err(|error| at_folder(&self.folder, error))
    }

    pub(crate) fn finish(self) -> Result<FinishedBucket> {
        self.writer.finish().map_err(|error| at_folder(&self.folder, error))?;
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
