//! Dead letters: records that could not become events, kept in full and with the reason.
//!
//! A file names the version of the stream's definition that decided its records (`basestream.decided_by`), unless an
//! earlier release wrote it.

use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use uuid::Uuid;

use crate::archive::DECIDED_BY;
use crate::parquet_file::{ParquetOptions, ParquetUpload, own_metadata, write_parquet};
use crate::scan::{BatchStream, read_file_as};
use crate::store::ObjectStorage;
use crate::verified::VerifiedReader;
use types::files::FileRecord;
use types::files::ObjectName;
use types::sql_types::timestamp_type;
use types::{Error, Result};

/// `source` (the topic), `partition`, `offset`, `timestamp` (the record's), `reason`, and the record's raw `key`,
/// `value` and `headers`.
pub fn dead_letter_schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
        Arc::new(Schema::new(vec![
            Field::new("source", DataType::Utf8, false),
            Field::new("partition", DataType::Int32, false),
            Field::new("offset", DataType::Int64, false),
            Field::new("timestamp", timestamp_type(), true),
            Field::new("reason", DataType::Utf8, false),
            Field::new("key", DataType::Binary, true),
            Field::new("value", DataType::Binary, true),
            Field::new("headers", DataType::Binary, true),
        ]))
    });
    SCHEMA.clone()
}

/// Writes a checkpoint's dead letters of one stream. Durable when it returns.
pub async fn write_dead_letters(
    storage: &ObjectStorage,
    stream: &Arc<str>,
    checkpoint: Uuid,
    decided_by: u32,
    batches: Vec<RecordBatch>,
) -> Result<FileRecord> {
    let name = ObjectName::DeadLetters { stream: stream.clone(), checkpoint };
    if batches.iter().any(|batch| batch.schema() != dead_letter_schema()) {
        return Err(Error::internal("dead letters are not of the dead-letter schema").with("file", &name));
    }
    let rows = batches.iter().map(|batch| batch.num_rows() as i64).sum();
    let options = options(stream, Some(decided_by));
    let file = tokio::task::spawn_blocking(move || write_parquet(&batches, dead_letter_schema(), &options)).await??;
    let stored = storage.put_new(&name, file).await?;
    Ok(name.record(stored, rows, None))
}

/// A file of dead letters that is written batch by batch, as it may be larger than memory.
pub struct DeadLettersUpload {
    name: ObjectName,
    upload: ParquetUpload,
}

impl DeadLettersUpload {
    /// The name is an [`ObjectName::DeadLetters`] or an [`ObjectName::RebuiltDeadLetters`].
    pub async fn begin(storage: &ObjectStorage, name: ObjectName, decided_by: Option<u32>) -> Result<Self> {
        let stream = name.subject().ok_or_else(|| Error::internal("dead letters are those of a stream").with("file", &name))?;
        let upload = ParquetUpload::begin(storage, &name, dead_letter_schema(), &options(stream, decided_by)).await?;
        Ok(Self { name, upload })
    }

    pub async fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        self.upload.push(batch).await
    }

    /// The file is durable when this returns.
    pub async fn finish(self) -> Result<FileRecord> {
        let (stored, rows) = self.upload.finish().await?;
        Ok(self.name.record(stored, rows, None))
    }
}

fn options(stream: &Arc<str>, decided_by: Option<u32>) -> ParquetOptions {
    let options = ParquetOptions { growing_columns: vec!["offset".to_owned()], field_ids: true, ..ParquetOptions::default() };
    let options = options.with("stream", stream);
    match decided_by {
        Some(version) => options.with(DECIDED_BY, version),
        None => options,
    }
}

/// Reads from the footer which version of the stream's definition decided the records of a file, if it says so.
pub async fn dead_letters_decided_by(storage: &ObjectStorage, file: &FileRecord) -> Result<Option<u32>> {
    let metadata = VerifiedReader::new(storage.clone(), file.into()).metadata().await?;
    Ok(own_metadata(metadata.file_metadata()).get(DECIDED_BY).and_then(|version| version.parse().ok()))
}

/// Reads the dead letters of one file.
pub async fn read_dead_letters(storage: &ObjectStorage, file: &FileRecord) -> Result<BatchStream> {
    read_file_as(storage, file.into(), dead_letter_schema()).await
}

/// Reads the column `reason` of the dead letters of one file.
pub async fn read_dead_letter_reasons(storage: &ObjectStorage, file: &FileRecord) -> Result<BatchStream> {
    let reason = dead_letter_schema().field_with_name("reason")?.clone();
    read_file_as(storage, file.into(), Arc::new(Schema::new(vec![reason]))).await
}
