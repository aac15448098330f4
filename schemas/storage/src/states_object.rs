//! The states object: the states that a checkpoint holds, with a section (the *segment*) per view version.

use std::io::Cursor;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Int64Type, SchemaRef, TimeUnit, TimestampMicrosecondType};
use arrow::record_batch::RecordBatch;
use arrow_ipc::CompressionType;
use arrow_ipc::reader::FileReader;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use bytes::Bytes;
use crc32fast::Hasher;
use serde::{Deserialize, Serialize};

use crate::known_file::{damaged, known_to_be_there};
use crate::parquet_file::newer_release;
use crate::store::ObjectStorage;
use types::columns::TILE;
use types::failures::Failures;
use types::files::FileRecord;
use types::files::ObjectName;
use types::tiles::Micros;
use types::vector::{Offset, PartitionId};
use types::{Error, ErrorKind, Result};

/// Incremented when an older release could misread what we write.
pub(crate) const STATES_FORMAT: u32 = 1;

const MAGIC: &[u8; 8] = b"BSSTATES";
const TRAILER_BYTES: usize = 16;
const FIRST_READ_BYTES: u64 = 64 * 1024;

/// One view version's states, to be written.
#[derive(Debug, Clone)]
pub struct Section {
    pub view: String,
    pub version: u32,
    /// Names the format of the states: a reader that does not know it recomputes the section from the archive.
    pub stamp: String,
    pub schema: SchemaRef,
    pub batches: Vec<RecordBatch>,
    /// The events that are not in the states, because the view fails on them.
    pub failures: Failures,
}

/// A section's position in its object, and what it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SectionMeta {
    pub view: String,
    pub version: u32,
    pub stamp: String,
    /// In bytes from the start of the object.
    pub offset: u64,
    pub length: u64,
    pub crc32: u32,
    pub rows: u64,
    /// The least and the greatest value of the column `__tile`, if there are any.
    pub min_tile: Option<Micros>,
    pub max_tile: Option<Micros>,
    #[serde(default, skip_serializing_if = "Failures::is_empty")]
    pub failures: Failures,
}

/// The offsets `[start, end)` of a partition that an object's states cover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentRange {
    pub partition: PartitionId,
    pub start: Offset,
    pub end: Offset,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Footer {
    format: u32,
    sections: Vec<SectionMeta>,
    ranges: Vec<SegmentRange>,
}

/// A states object whose footer was read and checked.
///
/// The layout, numbers little-endian:
///
/// ```text
/// magic          8 bytes   "BSSTATES"
/// sections       one after the other, each an Arrow IPC file with LZ4-compressed buffers
/// footer         JSON: {"format", "sections": [{"view", "version", "stamp", "offset", "length", "crc32", "rows",
///                "min_tile", "max_tile", "failures": {"count", "first": [{"partition", "offset", "reason"}]}}],
///                "ranges": [{"partition": {"stream", "partition"}, "start", "end"}]}
/// footer length  u32       in bytes
/// footer crc32   u32       of the JSON
/// magic          8 bytes   "BSSTATES"
/// ```
///
/// The catalog's checksum of the object is the combination of the sections' checksums and that of the rest, so opening
/// an object verifies its footer, and reading a section verifies that section without reading the others.
#[derive(Debug, Clone)]
pub struct StatesObject {
    storage: ObjectStorage,
    path: String,
    bytes: i64,
    footer: Footer,
}

/// Writes an object with these sections, of which each is encoded before the next one is asked for. Durable when it
/// returns. The record's row count is that of all sections.
pub async fn write_states_object(
    storage: &ObjectStorage,
    name: &ObjectName,
    sections: impl IntoIterator<Item = Section> + Send + 'static,
    ranges: Vec<SegmentRange>,
) -> Result<FileRecord> {
    let (content, rows) = tokio::task::spawn_blocking(move || encode(sections, ranges)).await??;
    let stored = storage.put_new(name, content).await?;
    Ok(name.record(stored, rows, None))
}

impl StatesObject {
    /// Reads and checks the footer.
    pub async fn open(storage: &ObjectStorage, file: &FileRecord) -> Result<StatesObject> {
        let length = u64::try_from(file.bytes).unwrap_or_default();
        if length < (MAGIC.len() + TRAILER_BYTES) as u64 {
            return Err(damaged(&file.path, "its length in bytes", length, "more"));
        }
        let there = |error| known_to_be_there(error, &file.path, file.bytes);
        let mut tail = storage.get_range(&file.path, length.saturating_sub(FIRST_READ_BYTES)..length).await.map_err(there)?;
        let footer_bytes = footer_length(file, &tail)?;
        if footer_bytes > tail.len() {
            tail = storage.get_range(&file.path, length - footer_bytes as u64..length).await.map_err(there)?;
        }
        let footer = read_footer(file, &tail[tail.len() - footer_bytes..])?;
        Ok(StatesObject { storage: storage.clone(), path: file.path.clone(), bytes: file.bytes, footer })
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn sections(&self) -> &[SectionMeta] {
        &self.footer.sections
    }

    /// Returns the offsets that the states cover.
    pub fn ranges(&self) -> &[SegmentRange] {
        &self.footer.ranges
    }

    pub fn section(&self, view: &str, version: u32) -> Option<&SectionMeta> {
        self.footer.sections.iter().find(|section| section.view == view && section.version == version)
    }

    /// Reads the states of a section of this object, checked.
    pub async fn read_section(&self, section: &SectionMeta) -> Result<Vec<RecordBatch>> {
        let about = |error: Error| error.with("section", format_args!("{}-{}", section.view, section.version));
        let end = section.offset.saturating_add(section.length);
        let there = |error| about(known_to_be_there(error, &self.path, self.bytes));
        let content = self.storage.get_range(&self.path, section.offset..end).await.map_err(there)?;
        let found = crc32fast::hash(&content);
        if found != section.crc32 {
            let (found, expected) = (format!("{found:08x}"), format!("{:08x}", section.crc32));
            return Err(about(damaged(&self.path, "a section's checksum", found, expected)));
        }
        let undecodable = |error| about(Error::restating(ErrorKind::Corrupt, error).with("file", &self.path));
        let batches = decode_section(content).map_err(undecodable)?;
        let rows: u64 = batches.iter().map(|batch| batch.num_rows() as u64).sum();
        if rows != section.rows {
            return Err(about(damaged(&self.path, "a section's number of rows", rows, section.rows)));
        }
        Ok(batches)
    }
}

fn encode(sections: impl IntoIterator<Item = Section>, ranges: Vec<SegmentRange>) -> Result<(Bytes, i64)> {
    let mut content = MAGIC.to_vec();
    let mut footer = Footer { format: STATES_FORMAT, sections: Vec::new(), ranges };
    for section in sections {
        let start = content.len();
        encode_section(&section, &mut content)?;
        let (min_tile, max_tile) = tile_bounds(&section.batches);
        footer.sections.push(SectionMeta {
            view: section.view,
            version: section.version,
            stamp: section.stamp,
            offset: start as u64,
            length: (content.len() - start) as u64,
            crc32: crc32fast::hash(&content[start..]),
            rows: section.batches.iter().map(|batch| batch.num_rows() as u64).sum(),
            min_tile,
            max_tile,
            failures: section.failures,
        });
    }
    let json = serde_json::to_vec(&footer)?;
    let length = u32::try_from(json.len()).map_err(|_| Error::limit("a states object's footer is larger than 4 GiB"))?;
    content.extend_from_slice(&json);
    content.extend_from_slice(&length.to_le_bytes());
    content.extend_from_slice(&crc32fast::hash(&json).to_le_bytes());
    content.extend_from_slice(MAGIC);
    let rows = footer.sections.iter().map(|section| section.rows as i64).sum();
    Ok((content.into(), rows))
}

fn encode_section(section: &Section, content: &mut Vec<u8>) -> Result<()> {
    let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME))?;
    let mut writer = FileWriter::try_new_with_options(content, &section.schema, options)?;
    for batch in &section.batches {
        writer.write(batch)?;
    }
    Ok(writer.finish()?)
}

fn decode_section(content: Bytes) -> Result<Vec<RecordBatch>, arrow::error::ArrowError> {
    FileReader::try_new(Cursor::new(content), None)?.collect()
}

/// Returns the length of the footer including its trailer, as the trailer gives it.
fn footer_length(file: &FileRecord, tail: &[u8]) -> Result<usize> {
    let Some([length @ .., _, _, _, _, m0, m1, m2, m3, m4, m5, m6, m7]) = tail.last_chunk::<TRAILER_BYTES>() else {
        return Err(damaged(&file.path, "its length in bytes", tail.len(), "more"));
    };
    if [*m0, *m1, *m2, *m3, *m4, *m5, *m6, *m7] != *MAGIC {
        return Err(damaged(&file.path, "its last bytes", "others", "BSSTATES"));
    }
    let footer = u32::from_le_bytes(*length) as usize + TRAILER_BYTES;
    let largest = file.bytes - MAGIC.len() as i64;
    if footer as i64 > largest {
        return Err(damaged(&file.path, "the length of its footer", footer, format_args!("at most {largest}")));
    }
    Ok(footer)
}

/// Parses a footer (with its trailer) whose checksums are verified.
fn read_footer(file: &FileRecord, bytes: &[u8]) -> Result<Footer> {
    let (json, trailer) = bytes.split_at(bytes.len() - TRAILER_BYTES);
    let expected = u32::from_le_bytes([trailer[4], trailer[5], trailer[6], trailer[7]]);
    let found = crc32fast::hash(json);
    if found != expected {
        return Err(damaged(&file.path, "its footer's checksum", format_args!("{found:08x}"), format_args!("{expected:08x}")));
    }
    let about = |error: Error| error.with("file", &file.path);
    let format: Format = serde_json::from_slice(json).map_err(|error| about(error.into()))?;
    if format.format > STATES_FORMAT {
        return Err(about(newer_release(format.format, STATES_FORMAT)));
    }
    let footer: Footer = serde_json::from_slice(json).map_err(|error| about(error.into()))?;
    check_whole(file, &footer, bytes)?;
    Ok(footer)
}

/// Parsed first: a newer release's footer may not parse as a [`Footer`].
#[derive(Deserialize)]
struct Format {
    format: u32,
}

/// Checks that the sections fill the object up to the footer, and that all checksums combine to the catalog's.
fn check_whole(file: &FileRecord, footer: &Footer, footer_bytes: &[u8]) -> Result<()> {
    let mut combined = Hasher::new();
    combined.update(MAGIC);
    let mut end = MAGIC.len() as u64;
    for section in &footer.sections {
        if section.offset != end {
            return Err(damaged(&file.path, "the place of a section", section.offset, end));
        }
        combined.combine(&Hasher::new_with_initial_len(section.crc32, section.length));
        end = end.saturating_add(section.length);
    }
    let body = file.bytes as u64 - footer_bytes.len() as u64;
    if end != body {
        return Err(damaged(&file.path, "the end of its sections", end, body));
    }
    combined.update(footer_bytes);
    let found = combined.finalize();
    if found != file.checksum {
        return Err(damaged(&file.path, "its checksum", format_args!("{found:08x}"), format_args!("{:08x}", file.checksum)));
    }
    Ok(())
}

fn tile_bounds(batches: &[RecordBatch]) -> (Option<Micros>, Option<Micros>) {
    let tiles = || batches.iter().filter_map(|batch| batch.column_by_name(TILE)).flat_map(tile_values);
    (tiles().min(), tiles().max())
}

fn tile_values(column: &arrow::array::ArrayRef) -> Vec<Micros> {
    match column.data_type() {
        DataType::Int64 => column.as_primitive::<Int64Type>().iter().flatten().collect(),
        DataType::Timestamp(TimeUnit::Microsecond, _) => column.as_primitive::<TimestampMicrosecondType>().iter().flatten().collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
