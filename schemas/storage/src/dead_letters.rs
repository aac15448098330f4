//! Dead letters: records that could not become events, kept in full and with the reason.

use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use uuid::Uuid;

use crate::parquet_file::{ParquetOptions, ParquetUpload, write_parquet};
use crate::scan::{BatchStream, read_file_as};
use crate::store::ObjectStorage;
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
    batches: Vec<RecordBatch>,
) -> Result<FileRecord> {
    write_dead_letters_as(storage, &ObjectName::DeadLetters { stream: stream.clone(), checkpoint }, batches).await
}

/// Same as [`write_dead_letters`], under another name, such as [`ObjectName::RebuiltDeadLetters`].
pub async fn write_dead_letters_as(storage: &ObjectStorage, name: &ObjectName, batches: Vec<RecordBatch>) -> Result<FileRecord> {
    let stream = name.subject().ok_or_else(|| Error::internal("dead letters are those of a stream").with("file", name))?;
    if batches.iter().any(|batch| batch.schema() != dead_letter_schema()) {
        return Err(Error::internal("dead letters are not of the dead-letter schema").with("file", name));
    }
    let rows = batches.iter().map(|batch| batch.num_rows() as i64).sum();
    let options = options(stream);
    let file = tokio::task::spawn_blocking(move || write_parquet(&batches, dead_letter_schema(), &options)).await??;
    let stored = storage.put_new(name, file).await?;
    Ok(name.record(stored, rows, None))
}

/// A file of dead letters that is written batch by batch, as it may be larger than memory.
pub struct DeadLettersUpload {
    name: ObjectName,
    upload: ParquetUpload,
}

impl DeadLettersUpload {
    pub async fn begin(storage: &ObjectStorage, stream: &Arc<str>, checkpoint: Uuid) -> Result<Self> {
        let name = ObjectName::DeadLetters { stream: stream.clone(), checkpoint };
        let upload = ParquetUpload::begin(storage, &name, dead_letter_schema(), &options(stream)).await?;
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

fn options(stream: &Arc<str>) -> ParquetOptions {
    ParquetOptions { growing_columns: vec!["offset".to_owned()], field_ids: true, ..ParquetOptions::default() }.with("stream", stream)
}

/// Reads the dead letters of one file.
pub async fn read_dead_letters(storage: &ObjectStorage, file: &FileRecord) -> Result<BatchStream> {
    read_file_as(storage, file.into(), dead_letter_schema()).await
}
