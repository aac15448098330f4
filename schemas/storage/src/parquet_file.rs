//! Writes our Parquet files and their metadata.
//!
//! Files use zstd level 1, dictionaries, statistics and a page index. A file of few values is not compressed: a reader
//! sets up zstd for each column, which takes about as long as all the rest. Their key-value metadata has
//! `basestream.format` (the version of this description), what the writer adds under `basestream.<key>`, and
//! `basestream.pieces`: the length and CRC-32 of each column chunk, by which [`verified`](crate::verified) finds damage
//! without reading a whole file.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use arrow::array::Array;
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::{ArrowSchemaConverter, ArrowWriter, PARQUET_FIELD_ID_META_KEY};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::{FileMetaData, KeyValue};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::{ColumnPath, SchemaDescriptor};
use xxhash_rust::xxh3::xxh3_64;

use crate::pieces::Piece;
use crate::store::ObjectStorage;
use crate::store::UploadWriter;
use types::files::ObjectName;
use types::files::StoredObject;
use types::{Error, Result};

/// Incremented when an older release could misread what we write.
pub(crate) const PARQUET_FORMAT: u32 = 1;

const KEY_PREFIX: &str = "basestream.";
const FORMAT_KEY: &str = "format";
const PIECES_KEY: &str = "pieces";
/// A row group ends at this size even if it has few rows: a reader holds about as much of a file.
pub const ROW_GROUP_BYTES: usize = 64 * 1024 * 1024;

/// A dictionary that grows past this is given up: its values hardly repeat, and looking up each one costs more than it
/// saves.
const DICTIONARY_BYTES: usize = 256 * 1024;

/// Up to this size, values are not compressed: two blocks of most file systems.
const FEW_BYTES: usize = 8 * 1024;

/// The options in which our Parquet files differ.
#[derive(Debug, Clone)]
pub struct ParquetOptions {
    pub row_group_rows: usize,
    /// Written under `basestream.<key>`.
    pub metadata: Vec<(String, String)>,
    /// Columns that grow from row to row; they are delta-encoded.
    pub growing_columns: Vec<String>,
    /// Columns of long texts that are never filtered by; they have no dictionary and no statistics.
    pub opaque_columns: Vec<String>,
    /// Whether columns have a [`field_id`], by which other programs match them over many files.
    pub field_ids: bool,
}

impl Default for ParquetOptions {
    fn default() -> Self {
        Self { row_group_rows: 128 * 1024, metadata: Vec::new(), growing_columns: Vec::new(), opaque_columns: Vec::new(), field_ids: false }
    }
}

impl ParquetOptions {
    pub fn with(mut self, key: &str, value: impl ToString) -> Self {
        self.metadata.push((key.to_string(), value.to_string()));
        self
    }

    fn properties(&self, compression: Compression) -> WriterProperties {
        let own = [(FORMAT_KEY.to_string(), PARQUET_FORMAT.to_string())];
        let metadata = own.iter().chain(&self.metadata).map(|(key, value)| key_value(key, value.clone())).collect();
        let mut builder = WriterProperties::builder()
            .set_created_by(format!("basestream {}", env!("CARGO_PKG_VERSION")))
            .set_compression(compression)
            .set_dictionary_enabled(true)
            .set_dictionary_page_size_limit(DICTIONARY_BYTES)
            .set_statistics_enabled(EnabledStatistics::Page)
            .set_max_row_group_row_count(Some(self.row_group_rows.max(1)))
            .set_max_row_group_bytes(Some(ROW_GROUP_BYTES))
            .set_key_value_metadata(Some(metadata));
        for column in &self.growing_columns {
            let path = ColumnPath::from(column.as_str());
            builder = builder.set_column_dictionary_enabled(path.clone(), false).set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
        for column in &self.opaque_columns {
            let path = ColumnPath::from(column.as_str());
            builder =
                builder.set_column_dictionary_enabled(path.clone(), false).set_column_statistics_enabled(path, EnabledStatistics::None);
        }
        builder.build()
    }
}

/// Returns the id of a column in a Parquet schema: the upper 31 bits of its name's XXH3-64 hash. A column has the same
/// id in every file, whatever other columns its stream's definition has. Files on disk depend on this function: it
/// never changes.
pub fn field_id(column: &str) -> i32 {
    (xxh3_64(column.as_bytes()) >> 33) as i32
}

/// The Parquet schema with ids. `None` if two columns have the same one: readers match such a file's columns by name.
fn with_field_ids(schema: &Schema) -> Result<Option<SchemaDescriptor>> {
    let ids: BTreeSet<i32> = schema.fields().iter().map(|field| field_id(field.name())).collect();
    if ids.len() < schema.fields().len() {
        return Ok(None);
    }
    let with_id = |field: &Field| {
        let id = field_id(field.name()).to_string();
        field.clone().with_metadata(HashMap::from([(PARQUET_FIELD_ID_META_KEY.to_owned(), id)]))
    };
    let fields: Vec<Field> = schema.fields().iter().map(|field| with_id(field)).collect();
    ArrowSchemaConverter::new().convert(&Schema::new(fields)).map(Some).map_err(not_written)
}

/// Returns a whole file in memory.
pub(crate) fn write_parquet(batches: &[RecordBatch], schema: SchemaRef, options: &ParquetOptions) -> Result<Bytes> {
    let compression = if has_few_values(batches) { Compression::UNCOMPRESSED } else { zstd() };
    let mut encoder = ParquetEncoder::new(schema, options, compression)?;
    let mut parts = batches.iter().map(|batch| encoder.push(batch)).collect::<Result<Vec<_>>>()?;
    parts.push(encoder.finish()?.0);
    parts.retain(|part| !part.is_empty());
    Ok(if parts.len() == 1 { parts.remove(0) } else { parts.concat().into() })
}

fn has_few_values(batches: &[RecordBatch]) -> bool {
    let columns = batches.iter().flat_map(|batch| batch.columns());
    // What cannot be sized is compressed.
    let sizes = columns.map(|column| column.to_data().get_slice_memory_size().unwrap_or(usize::MAX));
    sizes.fold(0, usize::saturating_add) <= FEW_BYTES
}

fn zstd() -> Compression {
    Compression::ZSTD(ZstdLevel::try_new(1).unwrap_or_default())
}

/// Reads a whole file whose bytes are already checked. Returns its `basestream.` metadata (keys without the prefix) and
/// its rows.
#[cfg(test)]
pub(crate) fn read_parquet(file: Bytes) -> Result<(BTreeMap<String, String>, Vec<RecordBatch>)> {
    let builder = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file)?;
    let metadata = own_metadata(builder.metadata().file_metadata());
    check_format(&metadata)?;
    let batches = builder.build()?.collect::<Result<Vec<_>, _>>().map_err(|error| Error::restating(types::ErrorKind::Corrupt, error))?;
    Ok((metadata, batches))
}

/// Writes a file that may be larger than memory to the object storage, one row group at a time.
pub struct ParquetUpload {
    /// `None` while it is encoding, and after it failed.
    encoder: Option<ParquetEncoder>,
    upload: UploadWriter,
}

impl ParquetUpload {
    pub async fn begin(storage: &ObjectStorage, name: &ObjectName, schema: SchemaRef, options: &ParquetOptions) -> Result<Self> {
        let encoder = ParquetEncoder::new(schema, options, zstd())?;
        Ok(Self { encoder: Some(encoder), upload: storage.upload_writer(name).await? })
    }

    pub async fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        let batch = batch.clone();
        let (encoder, encoded) = self.encode(move |mut encoder| encoder.push(&batch).map(|encoded| (encoder, encoded))).await?;
        self.encoder = Some(encoder);
        if encoded.is_empty() { Ok(()) } else { self.upload.write(encoded).await }
    }

    /// Runs outside the runtime's threads: encoding and compression take milliseconds.
    async fn encode<T: Send + 'static>(&mut self, work: impl FnOnce(ParquetEncoder) -> Result<T> + Send + 'static) -> Result<T> {
        let encoder = self.encoder.take().ok_or_else(|| Error::internal("a file is written to after an error"));
        let encoded = match encoder {
            Ok(encoder) => tokio::task::spawn_blocking(move || work(encoder)).await?,
            Err(error) => Err(error),
        };
        encoded.map_err(|error| error.with("file", self.upload.path()))
    }

    /// Makes the file visible; returns what was stored and its number of rows.
    pub async fn finish(mut self) -> Result<(StoredObject, i64)> {
        let (rest, rows) = self.encode(ParquetEncoder::finish).await?;
        self.upload.write(rest).await?;
        Ok((self.upload.finish().await?, rows))
    }
}

/// Encodes batches into the bytes of a file, piece by piece.
struct ParquetEncoder {
    writer: ArrowWriter<Vec<u8>>,
    pieces: Vec<Piece>,
    rows: i64,
}

impl ParquetEncoder {
    fn new(schema: SchemaRef, options: &ParquetOptions, compression: Compression) -> Result<Self> {
        let mut written = ArrowWriterOptions::new().with_properties(options.properties(compression));
        if options.field_ids
            && let Some(with_ids) = with_field_ids(&schema)?
        {
            written = written.with_parquet_schema(with_ids);
        }
        let writer = ArrowWriter::try_new_with_options(Vec::new(), schema, written).map_err(not_written)?;
        Ok(Self { writer, pieces: Vec::new(), rows: 0 })
    }

    /// Adds rows; returns the bytes of the row groups that became full (usually none).
    fn push(&mut self, batch: &RecordBatch) -> Result<Bytes> {
        let before = self.writer.flushed_row_groups().len();
        self.writer.write(batch).map_err(not_written)?;
        self.rows += batch.num_rows() as i64;
        if self.writer.flushed_row_groups().len() == before {
            return Ok(Bytes::new());
        }
        let encoded = self.drain(before)?;
        // The next row group will have about the same size.
        self.writer.inner_mut().reserve(encoded.len());
        Ok(encoded)
    }

    /// Returns the last bytes of the file, and its number of rows.
    fn finish(mut self) -> Result<(Bytes, i64)> {
        let before = self.writer.flushed_row_groups().len();
        self.writer.flush().map_err(not_written)?;
        let mut rest = Vec::from(self.drain(before)?);
        self.writer.append_key_value_metadata(key_value(PIECES_KEY, Piece::table(&self.pieces)));
        self.writer.finish().map_err(not_written)?;
        self.writer.sync()?;
        rest.append(self.writer.inner_mut());
        Ok((rest.into(), self.rows))
    }

    /// Takes the bytes written so far and records the pieces of the row groups after the first `known` ones.
    fn drain(&mut self, known: usize) -> Result<Bytes> {
        self.writer.sync()?;
        let encoded = Bytes::from(std::mem::take(self.writer.inner_mut()));
        let base = self.pieces.last().map_or(0, |piece| piece.range.end);
        let mut start = base;
        for group in &self.writer.flushed_row_groups()[known..] {
            for column in group.columns() {
                let (offset, length) = column.byte_range();
                let end = offset + length;
                let content = (start <= offset).then(|| encoded.get((start - base) as usize..(end - base) as usize)).flatten();
                let content = content.ok_or_else(|| Error::internal("the Parquet writer left column chunks out of order"))?;
                self.pieces.push(Piece { range: start..end, checksum: crc32fast::hash(content) });
                start = end;
            }
        }
        Ok(encoded)
    }
}

/// Returns the `basestream.` part of a file's metadata, without the prefix and the checksums.
pub(super) fn own_metadata(file: &FileMetaData) -> BTreeMap<String, String> {
    let all = file.key_value_metadata().into_iter().flatten();
    all.filter_map(|entry| Some((entry.key.strip_prefix(KEY_PREFIX)?.to_string(), entry.value.clone().unwrap_or_default())))
        .filter(|(key, _)| key != PIECES_KEY)
        .collect()
}

pub(super) fn check_format(metadata: &BTreeMap<String, String>) -> Result<()> {
    let found = metadata.get(FORMAT_KEY).ok_or_else(|| Error::corrupt("a Parquet file without basestream.format is not ours"))?;
    match found.parse::<u32>() {
        Ok(format) if format <= PARQUET_FORMAT => Ok(()),
        Ok(format) => Err(newer_release(format, PARQUET_FORMAT)),
        Err(_) => Err(Error::corrupt(format!("basestream.format is \"{found}\": expected a number"))),
    }
}

/// Returns the error for a file of a newer format.
pub(super) fn newer_release(found: u32, ours: u32) -> Error {
    Error::input("the file was made by a newer release of basestream").with("format", found).with("expected at most", ours)
}

fn key_value(key: &str, value: String) -> KeyValue {
    KeyValue::new(format!("{KEY_PREFIX}{key}"), value)
}

/// An error while writing does not mean that a stored file is damaged.
fn not_written(error: parquet::errors::ParquetError) -> Error {
    Error::internal("a Parquet file was not written").caused_by(error)
}

#[cfg(test)]
mod tests;
