//! Partitions state rows by bucket: in memory while the run's limit allows it, then in the run's own files.
//!
//! ```text
//! Partial, unsorted --by bucket--> memory --when the pool is full: everything, bucket by bucket--> file
//!                                      \----------------------- one bucket's rows <----------------/
//! ```
//!
//! Each bucket is sorted separately and later, several in parallel. The rows are never sorted as a whole.

use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::interleave;
use arrow::datatypes::DataType;
use arrow_ipc::reader::FileReader;
use arrow_ipc::writer::FileWriter;
use datafusion::common::ScalarValue;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use engine::plan::ViewPlan;
use engine::states::{KeyCodec, bucket_of, is_constant, kept_rows_of};
use types::tiles::EdgesFrom;
use types::tiles::Floors;
use types::{Error, Result};

use crate::sort_memory::SortMemory;
use crate::temp_folder::at_folder;

/// This many rows or bytes are collected before they are partitioned: the larger the numbers, the fewer and larger are
/// a bucket's batches. It is always a small fraction of the run's limit, because an external sort has to hold some
/// batches.
const COLLECTED_ROWS: usize = 131_072;
const COLLECTED_BYTES: usize = 16 << 20;
const COLLECTED_PART_OF_LIMIT: usize = 128;

/// The context that all partitioners of a run share.
#[derive(Clone)]
pub(crate) struct ShuffleContext {
    pub(crate) plan: Arc<ViewPlan>,
    /// Rows before these are dropped.
    pub(crate) floors: Floors,
    pub(crate) edges_from: EdgesFrom,
    pub(crate) codec: Arc<KeyCodec>,
    pub(crate) buckets: u32,
    /// The number of parallel aggregations.
    pub(crate) threads: usize,
    /// The folder for files; the system's temporary folder if absent.
    pub(crate) temp_dir: Option<PathBuf>,
    pub(crate) pool: Arc<dyn MemoryPool>,
    pub(crate) limit_bytes: usize,
}

/// Distributes the rows of one partition of the plan to buckets.
pub(crate) struct BucketPartitioner {
    shuffle: ShuffleContext,
    reservation: MemoryReservation,
    waiting: Vec<RecordBatch>,
    waiting_bytes: usize,
    /// The (batch, row) positions of the waiting rows, by bucket.
    places: Vec<Vec<(usize, usize)>>,
    in_memory: Vec<Vec<RecordBatch>>,
    spilled: Vec<Arc<Spilled>>,
}

/// The rows of one bucket: those in memory, and the locations of the spilled ones.
pub(crate) struct BucketRows {
    pub(crate) in_memory: Vec<RecordBatch>,
    /// Covers the rows in memory.
    pub(crate) reservation: MemoryReservation,
    spilled: Vec<(Arc<Spilled>, u32)>,
    /// The size of all rows when they are in memory.
    pub(crate) bytes: usize,
}

/// A file of batches, bucket by bucket. It has no name, so that nothing is left behind however the process ends.
struct Spilled {
    reader: Mutex<FileReader<File>>,
    /// The range of batch numbers of each bucket.
    batches: Vec<Range<usize>>,
    bytes: Vec<usize>,
}

impl BucketPartitioner {
    pub(crate) fn new(shuffle: ShuffleContext) -> Self {
        let buckets = shuffle.buckets as usize;
        let consumer = MemoryConsumer::new("states by bucket").with_can_spill(true);
        Self {
            reservation: consumer.register(&shuffle.pool),
            waiting: Vec::new(),
            waiting_bytes: 0,
            places: vec![Vec::new(); buckets],
            in_memory: vec![Vec::new(); buckets],
            spilled: Vec::new(),
            shuffle,
        }
    }

    /// Adds a batch of Partial's output.
    pub(crate) fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        self.push_rows(kept_rows_of(&self.shuffle.plan, batch, &self.shuffle.floors)?)
    }

    /// Adds state rows.
    pub(crate) fn push_rows(&mut self, rows: RecordBatch) -> Result<()> {
        let keys = &rows.columns()[..self.shuffle.plan.keys.len()];
        let places = self.shuffle.codec.places(keys, rows.num_rows())?;
        for row in 0..rows.num_rows() {
            let bucket = bucket_of(places.value(row), self.shuffle.buckets);
            self.places[bucket as usize].push((self.waiting.len(), row));
        }
        self.waiting_bytes += sliced_bytes(&rows)?;
        self.waiting.push(rows);
        let rows: usize = self.waiting.iter().map(RecordBatch::num_rows).sum();
        let most_bytes = COLLECTED_BYTES.min(self.shuffle.limit_bytes / COLLECTED_PART_OF_LIMIT);
        if rows >= COLLECTED_ROWS || self.waiting_bytes >= most_bytes { self.partition_waiting() } else { Ok(()) }
    }

    /// Returns all rows, by bucket. Those in memory leave room for the sorts.
    pub(crate) fn finish(mut self) -> Result<Vec<BucketRows>> {
        self.partition_waiting()?;
        if self.shuffle.pool.reserved() + self.bytes_of_sorts()? > self.shuffle.limit_bytes {
            self.spill()?;
        }
        let mut buckets = Vec::with_capacity(self.in_memory.len());
        for (bucket, in_memory) in std::mem::take(&mut self.in_memory).into_iter().enumerate() {
            let held: usize = in_memory.iter().map(sliced_bytes).sum::<Result<usize>>()?;
            let spilled: usize = self.spilled.iter().map(|file| file.bytes[bucket]).sum();
            let of_bucket = self.spilled.iter().map(|file| (file.clone(), bucket as u32));
            buckets.push(BucketRows {
                in_memory,
                reservation: self.reservation.split(held),
                spilled: of_bucket.collect(),
                bytes: held + spilled,
            });
        }
        Ok(buckets)
    }

    /// The memory that the sorts of all threads take in addition to the rows, if this partitioner's largest bucket is
    /// as large in the others.
    fn bytes_of_sorts(&self) -> Result<usize> {
        let ShuffleContext { limit_bytes, threads, .. } = self.shuffle;
        let bytes = |bucket: usize| -> Result<usize> {
            let in_memory = self.in_memory[bucket].iter().map(sliced_bytes).sum::<Result<usize>>()?;
            Ok(in_memory + self.spilled.iter().map(|file| file.bytes[bucket]).sum::<usize>())
        };
        let largest = (0..self.in_memory.len()).map(bytes).try_fold(0, |largest, bytes| Ok::<_, Error>(largest.max(bytes?)))?;
        Ok(threads * SortMemory::per_thread(limit_bytes, threads).bytes_beside(threads * largest))
    }

    /// Moves the waiting rows to their buckets.
    fn partition_waiting(&mut self) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        let waiting: Vec<&RecordBatch> = waiting.iter().collect();
        self.waiting_bytes = 0;
        let most = self.places.iter().map(Vec::len).max().unwrap_or_default();
        let columns = Gathered::columns(&waiting, most)?;
        for bucket in 0..self.places.len() {
            if self.places[bucket].is_empty() {
                continue;
            }
            let rows = columns.iter().map(|column| column.rows(&self.places[bucket])).collect::<Result<_>>()?;
            let rows = RecordBatch::try_new(self.shuffle.plan.state_schema().clone(), rows)?;
            self.places[bucket].clear();
            let bytes = sliced_bytes(&rows)?;
            if self.reservation.try_grow(bytes).is_err() {
                self.spill()?;
                // One batch of a bucket is held regardless of the limit: it is in memory already.
                self.reservation.grow(bytes);
            }
            self.in_memory[bucket].push(rows);
        }
        Ok(())
    }

    /// Writes everything in memory to a file.
    fn spill(&mut self) -> Result<()> {
        let folder = self.shuffle.temp_dir.clone().unwrap_or_else(std::env::temp_dir);
        let at = |error: std::io::Error| at_folder(&folder, error);
        let file = tempfile::tempfile_in(&folder).map_err(at)?;
        let schema = self.shuffle.plan.state_schema();
        let full = |error: arrow::error::ArrowError| at_folder(&folder, error);
        let mut writer = FileWriter::try_new_buffered(file.try_clone().map_err(at)?, schema).map_err(full)?;
        let (mut batches, mut bytes, mut written) = (Vec::new(), Vec::new(), 0);
        for bucket in &mut self.in_memory {
            let rows = std::mem::take(bucket);
            for batch in &rows {
                writer.write(batch).map_err(full)?;
            }
            batches.push(written..written + rows.len());
            bytes.push(rows.iter().map(sliced_bytes).sum::<Result<usize>>()?);
            written += rows.len();
        }
        writer.finish().map_err(full)?;
        drop(writer);
        self.reservation.free();
        if written > 0 {
            let reader = Mutex::new(FileReader::try_new(file, None)?);
            self.spilled.push(Arc::new(Spilled { reader, batches, bytes }));
        }
        Ok(())
    }
}

/// A column of several batches, from which rows are gathered.
enum Gathered<'a> {
    Each(Vec<&'a dyn Array>),
    /// A column with a single value (the side of edges, the level of states with only one, NULL where the other side
    /// has its keys), as long as any bucket needs. All buckets share it.
    Same(ArrayRef),
}

impl<'a> Gathered<'a> {
    /// `most` is the greatest number of rows that will be requested at once.
    fn columns(batches: &[&'a RecordBatch], most: usize) -> Result<Vec<Gathered<'a>>> {
        let Some(first) = batches.first() else { return Ok(Vec::new()) };
        (0..first.num_columns()).map(|column| Self::column(batches.iter().map(|batch| &**batch.column(column)).collect(), most)).collect()
    }

    fn column(columns: Vec<&'a dyn Array>, most: usize) -> Result<Gathered<'a>> {
        let Some(first) = columns.iter().find(|column| !column.is_empty()) else { return Ok(Gathered::Each(columns)) };
        let is_same = |column: &&dyn Array| {
            column.is_empty() || (column.slice(0, 1).to_data() == first.slice(0, 1).to_data() && is_constant(*column))
        };
        match columns.iter().all(is_same) {
            true => Ok(Gathered::Same(ScalarValue::try_from_array(*first, 0)?.to_array_of_size(most)?)),
            false => Ok(Gathered::Each(columns)),
        }
    }

    /// Returns the rows at these (batch, row) positions.
    fn rows(&self, places: &[(usize, usize)]) -> Result<ArrayRef> {
        match self {
            Gathered::Each(columns) => Ok(interleave(columns, places)?),
            Gathered::Same(value) => Ok(value.slice(0, places.len())),
        }
    }
}

impl BucketRows {
    /// Joins the rows of one bucket from several partitioners.
    pub(crate) fn join(parts: Vec<BucketRows>) -> Option<BucketRows> {
        parts.into_iter().reduce(|mut all, mut part| {
            all.in_memory.append(&mut part.in_memory);
            all.reservation.grow(part.reservation.free());
            all.spilled.append(&mut part.spilled);
            all.bytes += part.bytes;
            all
        })
    }

    /// Reads the spilled rows batch by batch.
    pub(crate) fn read_spilled(&self, each: &mut dyn FnMut(RecordBatch) -> Result<()>) -> Result<()> {
        for (file, bucket) in &self.spilled {
            for number in file.batches[*bucket as usize].clone() {
                each(file.read(number)?)?;
            }
        }
        Ok(())
    }
}

impl Spilled {
    fn read(&self, number: usize) -> Result<RecordBatch> {
        let mut reader = self.reader.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        reader.set_index(number)?;
        let batch = reader.next().ok_or_else(|| Error::internal("a file of spilled states ends early"))?;
        Ok(batch?)
    }
}

/// Returns the bytes that only the rows of a batch take: Partial returns slices of one large batch, and buckets share
/// constant columns.
pub(crate) fn sliced_bytes(batch: &RecordBatch) -> Result<usize> {
    let column_bytes = |column: &ArrayRef| -> Result<usize> {
        let data = column.to_data();
        // The texts of view arrays are in separate buffers.
        let is_view = matches!(data.data_type(), DataType::Utf8View | DataType::BinaryView);
        let viewed = if is_view { data.buffers()[1..].iter().map(|buffer| buffer.len()).sum() } else { 0 };
        Ok(data.get_slice_memory_size()? + viewed)
    };
    batch.columns().iter().map(column_bytes).sum()
}

#[cfg(test)]
pub(crate) mod tests;
