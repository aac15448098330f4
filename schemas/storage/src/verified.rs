//! Reads Parquet files from the object storage and checks every byte against the catalog's checksum.
//!
//! A file's checksum combines those of its pieces and its tail. The footer holds the length and the CRC-32 of each
//! column chunk (a *piece*), and the tail (page index and footer) is read whole. If the CRC-32s of the pieces and of
//! the tail combine to the catalog's checksum, the table is right, and each piece can be checked when it is read. So a
//! scan that reads two columns of a large file checks these two columns, and never needs the whole file in memory.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use bytes::Bytes;
use datafusion::error::DataFusionError;
use futures::FutureExt;
use futures::future::BoxFuture;
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::arrow::parquet_to_arrow_schema;
use parquet::errors::ParquetError;
use parquet::file::metadata::{FileMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};

use crate::known_file::KnownFile;
use crate::known_file::{damaged, known_to_be_there};
use crate::parquet_file::{check_format, own_metadata};
use crate::pieces::{Piece, check_combined, find_table};
use crate::store::ObjectStorage;
use types::{Error, ErrorKind, Result};

/// The number of bytes in the first request; files up to this size need no other. No byte is read twice: of a larger
/// file, the pieces that came with the footer are taken from there.
const FIRST_READ_BYTES: u64 = 512 * 1024;
const MAGIC: &[u8; 4] = b"PAR1";

/// Reads one file. Cheap to clone; clones share the tail.
#[derive(Debug, Clone)]
pub struct VerifiedReader {
    storage: ObjectStorage,
    file: Arc<KnownFile>,
    /// The schema that the caller expects.
    expected: Option<SchemaRef>,
    opened: Option<Arc<Opened>>,
}

#[derive(Debug)]
struct Opened {
    pieces: Vec<Piece>,
    /// The file's bytes from `tail_start` on.
    tail: Bytes,
    tail_start: u64,
    /// The bytes before the tail that were read with it: the last pieces, not checked yet.
    ahead: Bytes,
    metadata: Arc<ParquetMetaData>,
}

impl VerifiedReader {
    pub fn new(storage: ObjectStorage, file: KnownFile) -> Self {
        Self { storage, file: Arc::new(file), expected: None, opened: None }
    }

    /// Makes the reader refuse a file whose columns do not fit `schema`: another type, or a missing column that must
    /// not be NULL.
    pub fn expecting(mut self, schema: SchemaRef) -> Self {
        self.expected = Some(schema);
        self
    }

    /// Returns the file's footer, checked.
    pub async fn metadata(&mut self) -> Result<Arc<ParquetMetaData>> {
        Ok(self.opened().await?.metadata.clone())
    }

    async fn opened(&mut self) -> Result<Arc<Opened>> {
        if let Some(opened) = &self.opened {
            return Ok(opened.clone());
        }
        let there = |error| known_to_be_there(error, &self.file.path, self.file.bytes);
        let opened = Arc::new(open(&self.storage, &self.file).await.map_err(there)?);
        let described = |error: Error| error.with("file", &self.file.path);
        let file_metadata = opened.metadata.file_metadata();
        check_format(&own_metadata(file_metadata)).map_err(described)?;
        if let Some(expected) = &self.expected {
            let found = arrow_schema(file_metadata).map_err(described)?;
            check_columns(&found, expected).map_err(described)?;
        }
        self.opened = Some(opened.clone());
        Ok(opened)
    }

    async fn read(&mut self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let opened = self.opened().await?;
        let mut needed: Vec<usize> = ranges.iter().flat_map(|range| opened.pieces_of(range)).collect();
        needed.sort_unstable();
        needed.dedup();
        let contents = self.contents(&opened, &needed).await?;
        for (piece, content) in needed.iter().zip(&contents) {
            self.check_piece(&opened.pieces[*piece], content)?;
        }
        let read = Read { opened: &opened, needed: &needed, contents: &contents };
        ranges.iter().map(|range| read.slice(range).ok_or_else(|| self.outside(range))).collect()
    }

    /// Returns the bytes of these pieces, unchecked. What was read with the tail is not read again.
    async fn contents(&self, opened: &Opened, pieces: &[usize]) -> Result<Vec<Bytes>> {
        let ranges: Vec<&Range<u64>> = pieces.iter().map(|piece| &opened.pieces[*piece].range).collect();
        let unread: Vec<Range<u64>> = ranges.iter().map(|range| opened.unread(range)).filter(|range| !range.is_empty()).collect();
        let there = |error| known_to_be_there(error, &self.file.path, self.file.bytes);
        let read = if unread.is_empty() { Vec::new() } else { self.storage.get_ranges(&self.file.path, &unread).await.map_err(there)? };
        let mut read = read.into_iter();
        let mut contents = Vec::with_capacity(ranges.len());
        for range in ranges {
            let ahead = opened.read_ahead(range);
            let before = if opened.unread(range).is_empty() { None } else { read.next() };
            contents.push(match before {
                None => ahead,
                Some(before) if ahead.is_empty() => before,
                Some(before) => [before, ahead].concat().into(),
            });
        }
        Ok(contents)
    }

    /// Reads every piece of the file in turn.
    pub(super) async fn check_all(&mut self) -> Result<()> {
        let opened = self.opened().await?;
        for piece in &opened.pieces {
            self.read(std::slice::from_ref(&piece.range)).await?;
        }
        Ok(())
    }

    fn check_piece(&self, piece: &Piece, content: &Bytes) -> Result<()> {
        let found = crc32fast::hash(content);
        if found == piece.checksum {
            return Ok(());
        }
        let what = format!("the checksum of its bytes {} to {}", piece.range.start, piece.range.end);
        Err(damaged(&self.file.path, &what, format_args!("{found:08x}"), format_args!("{:08x}", piece.checksum)))
    }

    fn outside(&self, range: &Range<u64>) -> Error {
        let found = format_args!("{} to {}", range.start, range.end).to_string();
        damaged(&self.file.path, "the place of a column chunk", found, format_args!("within {} bytes", self.file.bytes))
    }
}

/// The pieces that a read has fetched.
struct Read<'a> {
    opened: &'a Opened,
    needed: &'a [usize],
    contents: &'a [Bytes],
}

impl Read<'_> {
    /// Returns the bytes of a range, copied only if it spans several pieces; `None` if it exceeds the file.
    fn slice(&self, range: &Range<u64>) -> Option<Bytes> {
        if range.start >= range.end {
            return Some(Bytes::new());
        }
        let mut parts = Vec::new();
        for piece in self.opened.pieces_of(range) {
            let content = &self.contents[self.needed.binary_search(&piece).ok()?];
            parts.push(overlap(content, self.opened.pieces[piece].range.start, range)?);
        }
        if range.end > self.opened.tail_start {
            parts.push(overlap(&self.opened.tail, self.opened.tail_start, range)?);
        }
        let joined = if parts.len() == 1 { parts.remove(0) } else { parts.concat().into() };
        (joined.len() as u64 == range.end - range.start).then_some(joined)
    }
}

impl Opened {
    fn ahead_start(&self) -> u64 {
        self.tail_start - self.ahead.len() as u64
    }

    /// Returns the part of a piece that was not read with the tail.
    fn unread(&self, piece: &Range<u64>) -> Range<u64> {
        piece.start.min(self.ahead_start())..piece.end.min(self.ahead_start())
    }

    /// Returns the rest of it.
    fn read_ahead(&self, piece: &Range<u64>) -> Bytes {
        let place = |at: u64| at.saturating_sub(self.ahead_start()) as usize;
        self.ahead.slice(place(piece.start)..place(piece.end))
    }

    /// Returns the indices of the pieces that `range` touches.
    fn pieces_of(&self, range: &Range<u64>) -> Range<usize> {
        if range.start >= range.end {
            return 0..0;
        }
        let first = self.pieces.partition_point(|piece| piece.range.end <= range.start);
        let end = self.pieces.partition_point(|piece| piece.range.start < range.end);
        first..end.max(first)
    }
}

/// Returns the part of `content`, which begins at `start` in its file, that lies in `range`.
fn overlap(content: &Bytes, start: u64, range: &Range<u64>) -> Option<Bytes> {
    let from = range.start.max(start) - start;
    let to = range.end.min(start + content.len() as u64).checked_sub(start)?;
    (from <= to).then(|| content.slice(from as usize..to as usize))
}

impl AsyncFileReader for VerifiedReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
        async move { Ok(self.read(&[range]).await.map_err(to_parquet)?.pop().unwrap_or_default()) }.boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, parquet::errors::Result<Vec<Bytes>>> {
        async move { self.read(&ranges).await.map_err(to_parquet) }.boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, parquet::errors::Result<Arc<ParquetMetaData>>> {
        async move { self.metadata().await.map_err(to_parquet) }.boxed()
    }
}

/// Reads and checks a file's tail, then parses it.
async fn open(storage: &ObjectStorage, file: &KnownFile) -> Result<Opened> {
    let length = u64::try_from(file.bytes).unwrap_or_default();
    if length < 12 {
        return Err(damaged(&file.path, "its length in bytes", length, "at least 12"));
    }
    let start = length.saturating_sub(FIRST_READ_BYTES);
    let mut end = FileEnd { storage, file, start, bytes: storage.get_range(&file.path, start..length).await? };
    let (mut pieces, mut tail_start) = (Vec::new(), 0);
    if end.start > 0 {
        let footer_start = length - footer_length(file, &end.bytes)?;
        end.read_from(footer_start).await?;
        pieces = find_table(file, &end.bytes_from(footer_start))?;
        tail_start = pieces.last().map_or(0, |piece| piece.range.end);
        end.read_from(tail_start).await?;
    }
    let tail = end.bytes_from(tail_start);
    check_combined(file, &pieces, &tail)?;
    let metadata = parse_footer(&tail, length).map_err(|error| Error::from(error).with("file", &file.path))?;
    let ahead = end.bytes.slice(..end.bytes.len() - tail.len());
    Ok(Opened { pieces, tail, tail_start, ahead, metadata: Arc::new(metadata) })
}

/// The end of a file, as far as it has been read.
struct FileEnd<'f> {
    storage: &'f ObjectStorage,
    file: &'f KnownFile,
    start: u64,
    bytes: Bytes,
}

impl FileEnd<'_> {
    /// Reads what is missing from `start` on.
    async fn read_from(&mut self, start: u64) -> Result<()> {
        if start < self.start {
            let before = self.storage.get_range(&self.file.path, start..self.start).await?;
            self.bytes = [before, self.bytes.clone()].concat().into();
            self.start = start;
        }
        Ok(())
    }

    /// Returns the bytes from `start` on, which are read already.
    fn bytes_from(&self, start: u64) -> Bytes {
        self.bytes.slice((start - self.start) as usize..)
    }
}

/// Returns the length of the footer including its last 8 bytes, which give it.
fn footer_length(file: &KnownFile, tail: &Bytes) -> Result<u64> {
    match tail.last_chunk::<8>() {
        Some([a, b, c, d, magic @ ..]) if magic == MAGIC => {
            let footer = u64::from(u32::from_le_bytes([*a, *b, *c, *d])) + 8;
            let fits = footer + MAGIC.len() as u64 <= file.bytes as u64;
            if fits { Ok(footer) } else { Err(damaged(&file.path, "the length of its footer", footer, "less than the file's")) }
        }
        _ => Err(damaged(&file.path, "its last bytes", "others", "PAR1")),
    }
}

fn parse_footer(tail: &Bytes, length: u64) -> parquet::errors::Result<ParquetMetaData> {
    let mut reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Optional);
    reader.try_parse_sized(tail, length)?;
    reader.finish()
}

/// Returns the Arrow schema with which a file was written.
pub(super) fn arrow_schema(file: &FileMetaData) -> Result<Schema> {
    Ok(parquet_to_arrow_schema(file.schema_descr(), file.key_value_metadata())?)
}

/// A file of an older definition may lack columns, which read as NULL; its other columns must have the expected types.
fn check_columns(found: &Schema, expected: &Schema) -> Result<()> {
    for field in expected.fields() {
        let column = match found.field_with_name(field.name()) {
            Ok(column) => column,
            Err(_) if field.is_nullable() => continue,
            Err(_) => {
                return Err(Error::input("a file lacks a column that must not be NULL").with("column", field.name()));
            }
        };
        if !column.data_type().equals_datatype(field.data_type()) {
            return Err(Error::input("a column of a file is of another type")
                .with("column", field.name())
                .with("found", column.data_type())
                .with("expected", field.data_type()));
        }
    }
    Ok(())
}

/// Wrapped twice, so that `Error::from(DataFusionError)` finds our error kind below DataFusion's wrapping.
fn to_parquet(error: Error) -> ParquetError {
    ParquetError::External(Box::new(DataFusionError::from(error)))
}

/// Unwraps our error from a Parquet stream; any other error means damage.
pub(super) fn from_parquet(error: ParquetError, path: &str) -> Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<DataFusionError>() {
            Ok(wrapped) => match *wrapped {
                DataFusionError::External(ours) => match ours.downcast::<Error>() {
                    Ok(ours) => *ours,
                    Err(other) => Error::restating(ErrorKind::Corrupt, other).with("file", path),
                },
                other => Error::from(other).with("file", path),
            },
            Err(other) => Error::restating(ErrorKind::Corrupt, other).with("file", path),
        },
        other => Error::from(other).with("file", path),
    }
}

#[cfg(test)]
mod tests;
