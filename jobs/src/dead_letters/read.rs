//! Reads the dead-letter files that the catalog names and checks every byte against its checksum.

use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, Int64Type, TimestampMicrosecondType};
use bytes::Bytes;
use catalog::{CatalogState, DefinitionKind};
use engine::events::headers_from_json;
use futures::TryStreamExt;
use storage::{BatchStream, ObjectStorage, read_dead_letters};
use types::files::{FileKind, FileRecord};
use types::vector::Offset;
use types::{Error, ErrorKind, Result};

use super::{DamagedFile, DeadLetter};

/// Returns the dead-letter files of one stream, or of all, in the order of their checkpoints.
///
/// Errors: `NotFound` for a stream that the catalog does not know.
pub(super) fn files_of<'s>(state: &'s CatalogState, stream: Option<&str>) -> Result<Vec<&'s FileRecord>> {
    let of_stream = |file: &&FileRecord| stream.is_none_or(|stream| file.subject.as_deref() == Some(stream));
    let dead = state.readable(FileKind::DeadLetters);
    let mut files: Vec<&FileRecord> = dead.filter(of_stream).collect();
    files.sort_by_key(|file| (file.checkpoint, file.subject.clone()));
    if let Some(name) = stream.filter(|name| files.is_empty() && state.served_or_building(DefinitionKind::Stream, name).is_none()) {
        let known: Vec<&str> = state.live(DefinitionKind::Stream).map(|record| &*record.name).collect();
        let expected = if known.is_empty() { "`basestream apply` first".to_owned() } else { known.join(", ") };
        return Err(Error::not_found(format!("there is no stream \"{name}\" in the catalog")).with("expected", expected));
    }
    Ok(files)
}

/// Reads the dead letters of one file in batches.
pub(super) struct Letters {
    stream: Arc<str>,
    file: FileRecord,
    batches: Option<BatchStream>,
}

impl Letters {
    pub(super) fn new(file: &FileRecord) -> Self {
        Self { stream: file.subject.clone().unwrap_or_else(|| "".into()), file: file.clone(), batches: None }
    }

    /// Returns the next batch; `None` at the end.
    pub(super) async fn next(&mut self, storage: &ObjectStorage) -> Result<Option<Vec<DeadLetter>>> {
        let batches = match &mut self.batches {
            Some(batches) => batches,
            None => self.batches.insert(read_dead_letters(storage, &self.file).await?),
        };
        let Some(batch) = batches.try_next().await? else { return Ok(None) };
        letters(&batch, &self.stream).map_err(|error| error.with("file", &self.file.path)).map(Some)
    }

    /// Returns the next batch; `None` at the end, and also where the file cannot be read further, which is noted.
    /// `Err`: the file is not the cause.
    pub(super) async fn next_or_note(
        &mut self,
        storage: &ObjectStorage,
        damaged: &mut Vec<DamagedFile>,
    ) -> Result<Option<Vec<DeadLetter>>> {
        match self.next(storage).await {
            Ok(some) => Ok(some),
            Err(error) => {
                damaged.push(self.damaged(error)?);
                Ok(None)
            }
        }
    }

    /// Returns the report on a file that could not be read further.
    fn damaged(&self, error: Error) -> Result<DamagedFile> {
        match error.kind() {
            ErrorKind::Corrupt | ErrorKind::NotFound => {
                tracing::warn!(file = %self.file.path, %error, "a dead-letter file is damaged; the others are read");
                Ok(DamagedFile { file: self.file.path.clone(), rows: self.file.rows, error: error.to_string() })
            }
            _ => Err(error),
        }
    }
}

fn letters(batch: &RecordBatch, stream: &Arc<str>) -> Result<Vec<DeadLetter>> {
    let lacks = |name: &str| Error::corrupt("a dead-letter file lacks a column").with("column", name);
    let column = |name: &str| batch.column_by_name(name).ok_or_else(|| lacks(name));
    let text = |name: &str| column(name)?.as_string_opt::<i32>().ok_or_else(|| lacks(name));
    let binary = |name: &str| column(name)?.as_binary_opt::<i32>().ok_or_else(|| lacks(name));
    let (sources, reasons) = (text("source")?, text("reason")?);
    let (keys, values, headers) = (binary("key")?, binary("value")?, binary("headers")?);
    let partitions = column("partition")?.as_primitive_opt::<Int32Type>().ok_or_else(|| lacks("partition"))?;
    let offsets = column("offset")?.as_primitive_opt::<Int64Type>().ok_or_else(|| lacks("offset"))?;
    let times = column("timestamp")?.as_primitive_opt::<TimestampMicrosecondType>().ok_or_else(|| lacks("timestamp"))?;
    let bytes = |array: &arrow::array::BinaryArray, row: usize| array.is_valid(row).then(|| Bytes::copy_from_slice(array.value(row)));
    let letter = |row: usize| -> Result<DeadLetter> {
        Ok(DeadLetter {
            stream: stream.clone(),
            source: sources.value(row).into(),
            partition: partitions.value(row),
            offset: Offset(offsets.value(row)),
            timestamp: times.is_valid(row).then(|| times.value(row)),
            reason: reasons.value(row).to_owned(),
            key: bytes(keys, row),
            value: bytes(values, row),
            headers: headers_from_json(headers.is_valid(row).then(|| headers.value(row)))?,
        })
    };
    (0..batch.num_rows()).map(letter).collect()
}
