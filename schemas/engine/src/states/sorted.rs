//! Sorted runs: state rows in key order, in memory or memory-mapped from a local file. Both use the same arrays.

use std::fs::File;
use std::sync::Arc;

use crate::states::first_rows::Probe;
use crate::states::nodes::NodeCodec;
use crate::states::rows::{StateRows, first_from, partition_point, prefix_end};
use arrow::array::{AsArray, BinaryArray, RecordBatch};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_ipc::convert::fb_to_schema;
use arrow_ipc::reader::{FileDecoder, read_footer_length};
use arrow_ipc::root_as_footer;
use arrow_ipc::writer::FileWriter;
use types::{Error, Result};

/// The first column of a local file: the encoded key of each row.
const ENCODED_KEY: &str = "__key";

/// State rows in chunks, sorted by key, then by level and tile. A key may continue in the next chunk.
#[derive(Debug, Clone)]
pub struct SortedRun {
    chunks: Vec<StateRows>,
    /// The last key of each chunk.
    last_keys: BinaryArray,
    mapped_bytes: usize,
}

impl Default for SortedRun {
    fn default() -> Self {
        Self::from_chunks(Vec::new(), 0)
    }
}

impl SortedRun {
    /// Creates a run of one chunk in memory.
    pub fn in_memory(rows: StateRows) -> Self {
        Self::from_chunks(if rows.is_empty() { Vec::new() } else { vec![rows] }, 0)
    }

    fn from_chunks(chunks: Vec<StateRows>, mapped_bytes: usize) -> Self {
        let last_keys = BinaryArray::from_iter_values(chunks.iter().map(|chunk| chunk.keys().value(chunk.len() - 1)));
        Self { chunks, last_keys, mapped_bytes }
    }

    /// Returns the first chunk that may hold this key, or any key with this prefix.
    fn first_chunk(&self, key: &[u8]) -> usize {
        partition_point(self.chunks.len(), |chunk| self.last_keys.value(chunk) < key)
    }

    pub fn chunks(&self) -> &[StateRows] {
        &self.chunks
    }

    /// The number of rows in all chunks.
    pub fn rows(&self) -> usize {
        self.chunks.iter().map(StateRows::len).sum()
    }

    /// Bytes of the process's own memory. Mapped pages belong to the system's cache.
    pub fn memory_bytes(&self) -> usize {
        let bytes = if self.mapped_bytes > 0 { StateRows::index_bytes } else { StateRows::memory_bytes };
        self.chunks.iter().map(bytes).sum()
    }

    /// Returns the rows of one key in each chunk: a binary search over the chunks, then within them.
    pub fn find<'a>(&'a self, key: &[u8]) -> impl Iterator<Item = (&'a StateRows, std::ops::Range<usize>)> {
        self.find_probe(Probe::new(key))
    }

    fn find_probe<'a>(&'a self, key: Probe<'_>) -> impl Iterator<Item = (&'a StateRows, std::ops::Range<usize>)> {
        let mut chunks = self.chunks[self.first_chunk(key.bytes())..].iter();
        let mut goes_on = true;
        std::iter::from_fn(move || {
            let chunk = if goes_on { chunks.next()? } else { return None };
            let rows = chunk.find_probe(key);
            goes_on = rows.end == chunk.len();
            Some((chunk, rows)).filter(|(_, rows)| !rows.is_empty())
        })
    }

    /// Returns the rows in each chunk whose keys begin with `prefix`.
    pub fn find_prefix<'a>(&'a self, prefix: &[u8]) -> Vec<(&'a StateRows, std::ops::Range<usize>)> {
        let chunk = self.first_chunk(prefix);
        let row = self.chunks.get(chunk).map_or(0, |rows| first_from(rows.keys(), prefix));
        self.prefix_from((chunk, row), prefix)
    }

    /// Calls `found` with the index of each key that has rows, and with its rows in each chunk.
    pub fn find_keys<'a>(&'a self, keys: &[Probe<'_>], mut found: impl FnMut(usize, &'a StateRows, std::ops::Range<usize>)) {
        if let [chunk] = self.chunks.as_slice() {
            return chunk.find_keys(keys, |index, rows| found(index, chunk, rows));
        }
        for (index, key) in keys.iter().enumerate() {
            self.find_probe(*key).for_each(|(chunk, rows)| found(index, chunk, rows));
        }
    }

    /// The same for nodes and the edges that leave them, which [`StateRows::find_nodes`] finds in a chunk.
    pub fn find_nodes<'a>(
        &'a self,
        nodes: &Arc<NodeCodec>,
        prefixes: &[Probe<'_>],
        mut found: impl FnMut(usize, &'a StateRows, std::ops::Range<usize>),
    ) {
        if let [chunk] = self.chunks.as_slice() {
            return chunk.find_nodes(nodes, prefixes, |index, rows| found(index, chunk, rows));
        }
        for (index, prefix) in prefixes.iter().enumerate() {
            let first = self.first_chunk(prefix.bytes());
            let Some(chunk) = self.chunks.get(first) else { continue };
            chunk.find_nodes(nodes, &[*prefix], |_, rows| {
                self.prefix_from((first, rows.start), prefix.bytes()).into_iter().for_each(|(chunk, rows)| found(index, chunk, rows));
            });
        }
    }

    /// Like [`SortedRun::find_prefix`], if the chunk and the index of the first such row (or of the place where it
    /// would be) are already known.
    pub(crate) fn prefix_from(&self, (chunk, mut row): (usize, usize), prefix: &[u8]) -> Vec<(&StateRows, std::ops::Range<usize>)> {
        let mut found = Vec::new();
        for chunk in &self.chunks[chunk..] {
            let rows = row..prefix_end(chunk.keys(), row, prefix);
            if rows.is_empty() {
                break;
            }
            let goes_on = rows.end == chunk.len();
            found.push((chunk, rows));
            if !goes_on {
                break;
            }
            row = 0;
        }
        found
    }
}

/// Writes chunks of sorted rows to a local file that can be mapped.
pub struct SortedFileWriter {
    writer: FileWriter<std::io::BufWriter<File>>,
    schema: SchemaRef,
}

impl SortedFileWriter {
    /// Writes to an open file, which has no name: see [`map_file`].
    pub fn to_file(file: File, state_schema: &SchemaRef) -> Result<Self> {
        let schema = file_schema(state_schema);
        Ok(Self { writer: FileWriter::try_new(std::io::BufWriter::new(file), &schema)?, schema })
    }

    /// Writes a chunk, whose keys follow those before it.
    pub fn write(&mut self, rows: &StateRows) -> Result<()> {
        let columns = [Arc::new(rows.keys().clone()) as _].into_iter().chain(rows.batch().columns().iter().cloned()).collect();
        self.writer.write(&RecordBatch::try_new(self.schema.clone(), columns)?)?;
        Ok(())
    }

    /// Completes the file.
    pub fn finish(mut self) -> Result<()> {
        self.writer.finish()?;
        Ok(())
    }
}

fn file_schema(state_schema: &SchemaRef) -> SchemaRef {
    let key = Arc::new(Field::new(ENCODED_KEY, DataType::Binary, false));
    Arc::new(Schema::new([key].into_iter().chain(state_schema.fields().iter().cloned()).collect::<Vec<_>>()))
}

/// Maps a file that [`SortedFileWriter`] finished. Only the last key of each chunk is read now; other pages are read on
/// first access. A file without a name cannot be truncated or changed while it is mapped, and its space is freed when
/// the last mapping is gone, however the process ends.
pub fn map_file(file: &File) -> Result<SortedRun> {
    let mapped = pages_of(file)?;
    let mapped_bytes = mapped.len();
    let buffer = Buffer::from(bytes::Bytes::from_owner(mapped));
    Ok(SortedRun::from_chunks(decode(&buffer)?, mapped_bytes))
}

/// Maps the file, which this process alone can find, was written once and never changes while it is mapped.
#[allow(unsafe_code)]
fn pages_of(file: &File) -> std::io::Result<memmap2::Mmap> {
    // SAFETY: the file has no name, so no other process opens it, and this one writes no more to it.
    unsafe { memmap2::Mmap::map(file) }
}

fn decode(buffer: &Buffer) -> Result<Vec<StateRows>> {
    let damaged = |what: &str| Error::corrupt(format!("a local copy is damaged: {what}"));
    let trailer = buffer.len().checked_sub(10).ok_or_else(|| damaged("too short"))?;
    let ending: [u8; 10] = buffer[trailer..].try_into().map_err(|_| damaged("no trailer"))?;
    let footer_bytes = read_footer_length(ending)?;
    let from = trailer.checked_sub(footer_bytes).ok_or_else(|| damaged("footer past the start"))?;
    let footer = root_as_footer(&buffer[from..trailer]).map_err(|error| damaged(&error.to_string()))?;
    let schema = fb_to_schema(footer.schema().ok_or_else(|| damaged("no schema"))?);
    let mut decoder = FileDecoder::new(Arc::new(schema), footer.version());
    for block in footer.dictionaries().iter().flatten() {
        decoder.read_dictionary(block, &slice(buffer, block)?)?;
    }
    let mut chunks = Vec::new();
    for block in footer.recordBatches().iter().flatten() {
        if let Some(batch) = decoder.read_record_batch(block, &slice(buffer, block)?)?
            && batch.num_rows() > 0
        {
            chunks.push(split_key(&batch)?);
        }
    }
    Ok(chunks)
}

fn slice(buffer: &Buffer, block: &arrow_ipc::Block) -> Result<Buffer> {
    let place = place_of(block).filter(|place| place.end <= buffer.len());
    let place = place.ok_or_else(|| Error::corrupt("a local copy is damaged: a block reaches past its end"))?;
    Ok(buffer.slice_with_length(place.start, place.len()))
}

/// Returns the byte range of a block. `None` if its numbers cannot be a range.
fn place_of(block: &arrow_ipc::Block) -> Option<std::ops::Range<usize>> {
    let from = usize::try_from(block.offset()).ok()?;
    let metadata = usize::try_from(block.metaDataLength()).ok()?;
    let body = usize::try_from(block.bodyLength()).ok()?;
    Some(from..from.checked_add(metadata.checked_add(body)?)?)
}

fn split_key(batch: &RecordBatch) -> Result<StateRows> {
    let keys: BinaryArray = batch.column(0).as_binary_opt::<i32>().cloned().ok_or_else(|| Error::corrupt("a local copy has no keys"))?;
    let rest: Vec<usize> = (1..batch.num_columns()).collect();
    Ok(StateRows::from_sorted(batch.project(&rest)?, keys))
}

#[cfg(test)]
mod tests;
