//! From sorted states to a snapshot's files: whole keys at a time, each with its ladder of tiles.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{SchemaRef, UInt32Type};
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use schemas::catalog::FileRecord;
use schemas::plan::ViewPlan;
use schemas::states::partial::state_rows_of;
use schemas::states::{KeyCodec, climb, merge_rows};
use schemas::storage::{BucketFile, BucketWriter, ObjectName, ObjectStorage};
use schemas::tiles::{Level, Micros};
use schemas::{Error, Result, failpoint};
use uuid::Uuid;

use crate::join::LocalEdges;

/// A chunk is handed on when it holds this many rows and a key ends.
const CHUNK_ROWS: usize = 65_536;

/// The files of a snapshot, as the manifest and the catalog name them.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) buckets: Vec<BucketFile>,
    pub(crate) files: Vec<FileRecord>,
    pub(crate) rows: i64,
    pub(crate) bytes: i64,
}

pub(crate) struct SnapshotWriter<'a> {
    pub(crate) storage: &'a ObjectStorage,
    pub(crate) plan: &'a Arc<ViewPlan>,
    pub(crate) codec: &'a Arc<KeyCodec>,
    pub(crate) version: u32,
    pub(crate) run: Uuid,
    pub(crate) floors: Vec<(Level, Option<Micros>)>,
}

impl SnapshotWriter<'_> {
    /// Writes every bucket of `states` (the output of the recompute plan). Buckets without a row have no file.
    /// `local` takes the same rows, where they are walked afterwards.
    pub(crate) async fn write(
        &self,
        mut states: SendableRecordBatchStream,
        local: Option<&mut LocalEdges>,
        progress: &(dyn Fn(i64) + Send + Sync),
    ) -> Result<Written> {
        let mut out = Output { written: Written::default(), open: None, local };
        let mut pending = Pending::new(states.schema());
        while let Some(batch) = states.next().await {
            pending.push(batch?);
            while let Some((bucket, chunk)) = pending.take_chunk(false)? {
                self.append(&mut out, bucket, &chunk).await?;
                progress(out.written.rows);
            }
        }
        while let Some((bucket, chunk)) = pending.take_chunk(true)? {
            self.append(&mut out, bucket, &chunk).await?;
        }
        out.close().await?;
        Ok(out.written)
    }

    async fn append(&self, out: &mut Output<'_>, bucket: u32, chunk: &RecordBatch) -> Result<()> {
        let without_bucket = chunk.project(&(1..chunk.num_columns()).collect::<Vec<_>>())?;
        let rows = state_rows_of(self.plan, &without_bucket)?;
        let merged = merge_rows(self.plan, self.codec, &[rows])?;
        let laddered = climb(self.plan, self.codec, &merged, &self.floors)?;
        if laddered.is_empty() {
            return Ok(());
        }
        if out.open.as_ref().is_none_or(|current| current.bucket != bucket) {
            out.close().await?;
            let metadata = vec![("stamp".to_owned(), self.plan.stamp.clone())];
            let schema = self.plan.state_schema().clone();
            let name = ObjectName::Bucket { view: self.plan.view.clone(), version: self.version, run: self.run, bucket };
            let writer = BucketWriter::begin(self.storage, (name, bucket), schema, metadata).await?;
            out.open = Some(OpenBucket { bucket, writer });
        }
        if let Some(current) = &mut out.open {
            current.writer.push(laddered.batch()).await?;
            failpoint::hit("run.bucket")?;
            out.written.rows += laddered.len() as i64;
        }
        match &mut out.local {
            Some(local) => local.push(bucket, &laddered),
            None => Ok(()),
        }
    }
}

/// What is being written.
struct Output<'a> {
    written: Written,
    open: Option<OpenBucket>,
    local: Option<&'a mut LocalEdges>,
}

struct OpenBucket {
    bucket: u32,
    writer: BucketWriter,
}

impl Output<'_> {
    async fn close(&mut self) -> Result<()> {
        if let Some(open) = self.open.take() {
            let (bucket, file) = open.writer.finish().await?;
            self.written.bytes += file.bytes;
            self.written.buckets.push(bucket);
            self.written.files.push(file);
        }
        Ok(())
    }
}

/// Sorted rows that wait for their key, or their bucket, to end.
struct Pending {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    rows: usize,
    /// How many rows are worth looking at: doubled while a key does not end, so that a long key is copied a few times only.
    worth: usize,
    keys: usize,
}

impl Pending {
    fn new(schema: SchemaRef) -> Self {
        let keys = schema.fields().iter().position(|field| field.name() == schemas::plan::TILE).unwrap_or(1) - 1;
        Self { schema, batches: Vec::new(), rows: 0, worth: CHUNK_ROWS, keys }
    }

    fn push(&mut self, batch: RecordBatch) {
        self.rows += batch.num_rows();
        self.batches.push(batch);
    }

    /// Whole keys of one bucket; with `all`, what is left as well.
    fn take_chunk(&mut self, all: bool) -> Result<Option<(u32, RecordBatch)>> {
        if self.rows == 0 || (!all && self.rows < self.worth) {
            return Ok(None);
        }
        let joined = concat_batches(&self.schema, &self.batches)?;
        let bucket_of = joined.column(0).as_primitive_opt::<UInt32Type>().ok_or_else(|| Error::internal("the bucket changed its type"))?;
        let bucket = bucket_of.value(0);
        let bucket_end = bucket_of.values().partition_point(|other| *other == bucket);
        let whole = if bucket_end < joined.num_rows() || all { bucket_end } else { self.last_key_start(&joined)? };
        self.rows = joined.num_rows() - whole;
        self.batches = if self.rows == 0 { Vec::new() } else { vec![joined.slice(whole, self.rows)] };
        // A key that fills a whole chunk waits for its end.
        self.worth = if whole == 0 { self.rows * 2 } else { CHUNK_ROWS };
        Ok((whole > 0).then(|| (bucket, joined.slice(0, whole))))
    }

    /// Where the last key begins: its rows may go on in the next batch.
    fn last_key_start(&self, batch: &RecordBatch) -> Result<usize> {
        if self.keys == 0 {
            return Ok(0);
        }
        let keys = &batch.columns()[1..=self.keys];
        let ranges = arrow::compute::partition(keys)?.ranges();
        Ok(ranges.last().map_or(0, |last| last.start))
    }
}
