//! Sorts the rows of one bucket, in memory or externally, and emits them in chunks of whole keys.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use engine::plan::ViewPlan;
use engine::states::{KeyCodec, RowOrder, StateRows};
use futures::TryStreamExt;
use types::{Error, ErrorKind, Result};

use crate::bucket_partitioner::{BucketRows, sliced_bytes};
use crate::external_sort::sorted;
use crate::sort_memory::{CHUNK_ROWS, SORTING, SortMemory};
use crate::temp_folder::at_folder;

/// Sorts a bucket in memory.
pub(crate) fn sort_in_memory(
    order: RowOrder,
    plan: &ViewPlan,
    codec: &KeyCodec,
    mut bucket: BucketRows,
    memory: SortMemory,
    each: &mut dyn FnMut(StateRows) -> Result<()>,
) -> Result<()> {
    let mut batches = std::mem::take(&mut bucket.in_memory);
    bucket.read_spilled(&mut |batch| {
        batches.push(batch);
        Ok(())
    })?;
    bucket.reservation.resize(bucket.bytes * SORTING);
    let sorted = StateRows::sort_in(order, plan, codec, &batches)?;
    drop(batches);
    bucket.reservation.resize(bucket.bytes);
    let (mut from, keys) = (0, sorted.keys());
    let of_a_row = (bucket.bytes / sorted.len().max(1)).max(1);
    let step = (memory.chunk_bytes() / of_a_row).clamp(1, CHUNK_ROWS);
    while from < sorted.len() {
        let mut to = (from + step).min(sorted.len());
        while to < sorted.len() && keys.value(to) == keys.value(to - 1) {
            to += 1;
        }
        each(sorted.slice(from..to))?;
        from = to;
    }
    Ok(())
}

/// Rows of a bucket, sorted by DataFusion's external sort.
pub(crate) struct ExternalSort {
    sorted: SendableRecordBatchStream,
    order: RowOrder,
    plan: Arc<ViewPlan>,
    codec: Arc<KeyCodec>,
    context: Arc<TaskContext>,
    /// Sorted rows that wait for their key to end.
    waiting: Vec<RecordBatch>,
    waiting_rows: usize,
    waiting_bytes: usize,
    /// How many rows or bytes must have been collected before the end of a key is looked for. It doubles while a key
    /// does not end, so that a long key is copied only a few times.
    worth_rows: usize,
    worth_bytes: usize,
    memory: SortMemory,
}

impl ExternalSort {
    pub(crate) fn start(
        order: RowOrder,
        plan: &Arc<ViewPlan>,
        codec: Arc<KeyCodec>,
        bucket: BucketRows,
        (memory, context): (SortMemory, Arc<TaskContext>),
    ) -> Result<Self> {
        let schema = plan.state_schema().clone();
        let keys = plan.keys.len();
        let (level, tile) = (keys, keys + 1);
        let in_key = match order {
            RowOrder::ByTile => [tile, level],
            RowOrder::ByLevel => [level, tile],
        };
        let sorted = sorted(rows_of(bucket, schema), (0..keys).chain(in_key), context.clone())?;
        Ok(Self {
            sorted,
            order,
            plan: plan.clone(),
            codec,
            context,
            waiting: Vec::new(),
            waiting_rows: 0,
            waiting_bytes: 0,
            worth_rows: CHUNK_ROWS,
            worth_bytes: memory.chunk_bytes(),
            memory,
        })
    }

    pub(crate) async fn next(&mut self) -> Result<Option<StateRows>> {
        while let Some(batch) = self.sorted.try_next().await.map_err(|error| self.at_its_folder(error))? {
            self.waiting_rows += batch.num_rows();
            self.waiting_bytes += sliced_bytes(&batch)?;
            self.waiting.push(batch);
            if (self.waiting_rows >= self.worth_rows || self.waiting_bytes >= self.worth_bytes)
                && let Some(rows) = self.take(false)?
            {
                return Ok(Some(rows));
            }
        }
        if self.waiting_rows == 0 { Ok(None) } else { self.take(true) }
    }

    /// Adds the folder for spilling to errors: while rows are sorted, only that can be unavailable.
    fn at_its_folder(&self, error: DataFusionError) -> Error {
        let error = Error::from(error);
        let folders = self.context.runtime_env().disk_manager.temp_dir_paths();
        match folders.first().filter(|_| error.kind() == ErrorKind::Unavailable) {
            Some(folder) => at_folder(folder, error),
            None => error,
        }
    }

    /// Returns whole keys; with `all`, the rest as well.
    fn take(&mut self, all: bool) -> Result<Option<StateRows>> {
        let joined = concat_batches(self.plan.state_schema(), &self.waiting)?;
        let whole = if all { joined.num_rows() } else { self.last_key_start(&joined)? };
        self.waiting_rows = joined.num_rows() - whole;
        let left = joined.slice(whole, self.waiting_rows);
        self.waiting_bytes = sliced_bytes(&left)?;
        self.waiting = if self.waiting_rows == 0 { Vec::new() } else { vec![left] };
        // A key that fills a whole chunk waits for its end.
        let is_longer = |one: usize, chunk: usize| if whole == 0 { (one * 2).max(chunk) } else { chunk };
        (self.worth_rows, self.worth_bytes) =
            (is_longer(self.waiting_rows, CHUNK_ROWS), is_longer(self.waiting_bytes, self.memory.chunk_bytes()));
        if whole == 0 { Ok(None) } else { StateRows::sort_in(self.order, &self.plan, &self.codec, &[joined.slice(0, whole)]).map(Some) }
    }

    /// Returns where the last key begins: its rows may continue in the next batch.
    fn last_key_start(&self, batch: &RecordBatch) -> Result<usize> {
        let keys = &batch.columns()[..self.plan.keys.len()];
        if keys.is_empty() {
            return Ok(0);
        }
        Ok(arrow::compute::partition(keys)?.ranges().last().map_or(0, |last| last.start))
    }
}

/// The rows of a bucket, as a sort reads them: first those in memory, which is released batch by batch.
fn rows_of(mut bucket: BucketRows, schema: SchemaRef) -> SendableRecordBatchStream {
    let mut rows = RecordBatchReceiverStream::builder(schema, 2);
    let send = rows.tx();
    rows.spawn_blocking(move || {
        // If the receiver is gone, no more rows are wanted.
        for batch in std::mem::take(&mut bucket.in_memory) {
            bucket.reservation.shrink(sliced_bytes(&batch)?);
            if send.blocking_send(Ok(batch)).is_err() {
                return Ok(());
            }
        }
        let read = bucket.read_spilled(&mut |batch| send.blocking_send(Ok(batch)).map_err(|_| Error::internal("the sort is gone")));
        read.map_err(DataFusionError::from)
    });
    rows.build()
}

#[cfg(test)]
mod tests;
