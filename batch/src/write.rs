//! Writes the files of a tier from states by bucket: whole keys at a time, each with its coarser tiles.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::execution::TaskContext;
use engine::plan::ViewPlan;
use engine::states::{KeyCodec, RowOrder, StateRows, merge_rolled_up, rollup};
use futures::{StreamExt, TryStreamExt, stream};
use storage::{BucketFile, BucketWriter, ObjectStorage};
use tokio::sync::mpsc;
use types::files::FileRecord;
use types::files::ObjectName;
use types::tiles::Floors;
use types::{Error, Result, failpoint};
use uuid::Uuid;

use crate::bucket_partitioner::BucketRows;
use crate::bucket_sort::{ExternalSort, sort_in_memory};
use crate::join::{FinishedBucket, LocalBucket, LocalEdges};
use crate::sort_memory::SortMemory;

/// The kind of rows to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    /// States of events, each at one level: the coarser ones are rolled up from them.
    Events,
    /// States of the events in a slice of the archive. They are written as they are, and sorted later with those of all
    /// slices.
    Slice { number: u32 },
    /// Rows of tiers, at all levels.
    Tiers,
}

impl Rows {
    /// The order in which they are merged.
    fn order(self) -> RowOrder {
        match self {
            Rows::Events | Rows::Slice { .. } => RowOrder::ByTile,
            Rows::Tiers => RowOrder::ByLevel,
        }
    }
}

/// The files of a tier, as recorded in the manifest and the catalog.
#[derive(Default)]
pub(crate) struct Written {
    pub(crate) buckets: Vec<BucketFile>,
    pub(crate) files: Vec<FileRecord>,
    pub(crate) rows: i64,
    pub(crate) bytes: i64,
    /// A local copy of the same rows, if they will be walked.
    pub(crate) local: Vec<FinishedBucket>,
}

impl Written {
    /// Adds files with something else than state rows.
    pub(crate) fn add(&mut self, files: Vec<FileRecord>) {
        self.bytes += files.iter().map(|file| file.bytes).sum::<i64>();
        self.files.extend(files);
    }
}

#[derive(Clone)]
pub(crate) struct SnapshotWriter {
    pub(crate) storage: ObjectStorage,
    pub(crate) plan: Arc<ViewPlan>,
    pub(crate) codec: Arc<KeyCodec>,
    pub(crate) version: u32,
    pub(crate) run: Uuid,
    pub(crate) rows: Rows,
    /// Whether other runs of the version continue meanwhile.
    pub(crate) is_concurrent: bool,
    pub(crate) floors: Floors,
    pub(crate) limit_bytes: usize,
    /// The number of buckets that are processed in parallel.
    pub(crate) threads: usize,
    pub(crate) context: Arc<TaskContext>,
}

impl SnapshotWriter {
    /// Writes every bucket. Empty buckets get no file.
    pub(crate) async fn write(
        &self,
        buckets: Vec<BucketRows>,
        local: Option<&LocalEdges>,
        progress: &(dyn Fn(i64) + Send + Sync),
    ) -> Result<Written> {
        let parts = stream::iter((0u32..).zip(buckets).filter(|(_, rows)| rows.bytes > 0));
        let mut parts = std::pin::pin!(parts.map(|(bucket, rows)| self.written(bucket, rows, local)).buffered(self.threads));
        let mut written = Written::default();
        while let Some(part) = parts.try_next().await? {
            let Some(part) = part else { continue };
            written.rows += part.rows;
            written.bytes += part.record.bytes;
            written.buckets.push(part.file);
            written.files.push(part.record);
            written.local.extend(part.local);
            progress(written.rows);
        }
        Ok(written)
    }

    async fn written(&self, bucket: u32, rows: BucketRows, local: Option<&LocalEdges>) -> Result<Option<WrittenBucket>> {
        match self.rows {
            Rows::Slice { .. } => self.unsorted(bucket, rows).await.map(Some),
            Rows::Events | Rows::Tiers => self.bucket(bucket, rows, local).await,
        }
    }

    /// Writes the rows of a bucket as they are.
    async fn unsorted(&self, bucket: u32, mut rows: BucketRows) -> Result<WrittenBucket> {
        let mut open = self.open(bucket, None).await?;
        for batch in std::mem::take(&mut rows.in_memory) {
            open.push_batch(&batch).await?;
        }
        let (send, mut spilled) = mpsc::channel(2);
        let gone = |_| Error::internal("the writer of a bucket is gone");
        let reading = tokio::task::spawn_blocking(move || rows.read_spilled(&mut |batch| send.blocking_send(batch).map_err(gone)));
        while let Some(batch) = spilled.recv().await {
            open.push_batch(&batch).await?;
        }
        reading.await??;
        open.finish().await
    }

    /// Sorts a bucket and writes its rows as they come.
    async fn bucket(&self, bucket: u32, rows: BucketRows, local: Option<&LocalEdges>) -> Result<Option<WrittenBucket>> {
        let (send, mut chunks) = mpsc::channel(2);
        let sorting = self.clone().sort(rows, send);
        let writing = async move {
            let mut open: Option<OpenBucket> = None;
            while let Some(chunk) = chunks.recv().await {
                let mut current = match open.take() {
                    Some(current) => current,
                    None => self.open(bucket, local).await?,
                };
                current.push(&chunk).await?;
                open = Some(current);
            }
            Ok::<_, Error>(open)
        };
        // If the writer fails, the sort fails too, because its receiver is gone. The writer's error is the cause.
        let (sorted, open) = futures::join!(sorting, writing);
        let open = open?;
        sorted?;
        match open {
            Some(open) => open.finish().await.map(Some),
            None => Ok(None),
        }
    }

    /// Sorts a bucket and sends its rows, merged and rolled up.
    pub(crate) async fn sort(self, rows: BucketRows, send: mpsc::Sender<StateRows>) -> Result<()> {
        let gone = |_| Error::internal("the writer of a bucket is gone");
        let (order, memory) = (self.rows.order(), SortMemory::per_thread(self.limit_bytes, self.threads));
        if memory.is_enough_for(rows.bytes) {
            let sort = move || {
                sort_in_memory(order, &self.plan, &self.codec, rows, memory, &mut |sorted| {
                    self.finished(&sorted)?.map_or(Ok(()), |rows| send.blocking_send(rows).map_err(gone))
                })
            };
            return tokio::task::spawn_blocking(sort).await?;
        }
        let mut sorted = ExternalSort::start(order, &self.plan, self.codec.clone(), rows, (memory, self.context.clone()))?;
        while let Some(sorted) = sorted.next().await? {
            if let Some(rows) = self.finished(&sorted)? {
                send.send(rows).await.map_err(gone)?;
            }
        }
        Ok(())
    }

    /// Merges the rows, at all levels. `None` if the floors leave no row.
    fn finished(&self, sorted: &StateRows) -> Result<Option<StateRows>> {
        let rolled_up = match self.rows {
            Rows::Events | Rows::Slice { .. } => rollup(&self.plan, sorted, &self.floors)?,
            Rows::Tiers => merge_rolled_up(&self.plan, sorted, &self.floors)?,
        };
        Ok((!rolled_up.is_empty()).then_some(rolled_up))
    }

    async fn open(&self, bucket: u32, local: Option<&LocalEdges>) -> Result<OpenBucket> {
        let metadata = vec![("stamp".to_owned(), self.plan.stamp.clone())];
        let schema = self.plan.state_schema().clone();
        let (view, version, run) = (self.plan.view.clone(), self.version, self.run);
        let name = match self.rows {
            Rows::Slice { number } => ObjectName::SliceBucket { view, version, run, slice: number, bucket },
            _ if self.is_concurrent => ObjectName::Recomputed { view, version, run, bucket },
            Rows::Events => ObjectName::Bucket { view, version, run, bucket },
            Rows::Tiers => ObjectName::Merged { view, version, run, bucket },
        };
        let writer = BucketWriter::begin(&self.storage, name, bucket, schema, metadata).await?;
        Ok(OpenBucket { writer, local: local.map(|local| local.begin(bucket)).transpose()?, rows: 0 })
    }
}

/// A bucket that has been written.
struct WrittenBucket {
    file: BucketFile,
    record: FileRecord,
    local: Option<FinishedBucket>,
    rows: i64,
}

struct OpenBucket {
    writer: BucketWriter,
    local: Option<LocalBucket>,
    rows: i64,
}

impl OpenBucket {
    async fn push(&mut self, rows: &StateRows) -> Result<()> {
        let local = self.local.take();
        let kept = rows.clone();
        let locally = async move {
            let Some(mut local) = local else { return Ok(None) };
            tokio::task::spawn_blocking(move || local.push(&kept).map(|()| Some(local))).await?
        };
        let (pushed, local) = futures::join!(self.writer.push(rows.batch()), locally);
        pushed?;
        self.local = local?;
        failpoint::hit("run.bucket")?;
        self.rows += rows.len() as i64;
        Ok(())
    }

    async fn push_batch(&mut self, batch: &RecordBatch) -> Result<()> {
        self.writer.push(batch).await?;
        self.rows += batch.num_rows() as i64;
        Ok(())
    }

    async fn finish(self) -> Result<WrittenBucket> {
        let (file, record) = self.writer.finish().await?;
        let local = self.local.map(LocalBucket::finish).transpose()?;
        Ok(WrittenBucket { file, record, local, rows: self.rows })
    }
}
