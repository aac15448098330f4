//! The records of one partition in the archive and the dead letters.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, Int64Type, Schema};
use catalog::CatalogState;
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::SessionContext;
use definitions::StreamDefinition;
use engine::events::{canonical_text, event_schema, headers_to_json};
use futures::TryStreamExt;
use storage::{ObjectStorage, OffsetRanges, archive_plan, read_dead_letters};
use types::columns::{HEADERS, KEY, OFFSET, PARTITION, VALUE};
use types::files::{FileKind, FileRecord};
use types::record::Record;
use types::vector::{Offset, PartitionId, Vector};
use types::{Error, Result};

use super::LogReport;

/// A hash of a record's key, value and headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Raw(u64);

impl Raw {
    pub(super) fn from_record(record: &Record) -> Raw {
        let headers = headers_to_json(&record.headers);
        Raw::new(record.key.as_deref(), record.value.as_deref(), headers.as_deref().map(str::as_bytes))
    }

    fn new(key: Option<&[u8]>, value: Option<&[u8]>, headers: Option<&[u8]>) -> Raw {
        let mut hasher = DefaultHasher::new();
        (key, value, headers).hash(&mut hasher);
        Raw(hasher.finish())
    }

    fn read(batch: &RecordBatch, names: [&str; 3], row: usize) -> Raw {
        let bytes = |name: &str| {
            batch
                .column_by_name(name)
                .and_then(|column| column.as_binary_opt::<i32>())
                .filter(|column| column.is_valid(row))
                .map(|column| column.value(row))
        };
        Raw::new(bytes(names[0]), bytes(names[1]), bytes(names[2]))
    }
}

/// The files that hold one partition's records.
pub(super) struct RecordFiles<'a> {
    storage: &'a ObjectStorage,
    stream: &'a StreamDefinition,
    partition: i32,
    archive: Vec<FileRecord>,
    dead_letters: Vec<FileRecord>,
}

impl<'a> RecordFiles<'a> {
    pub(super) fn new(storage: &'a ObjectStorage, state: &CatalogState, stream: &'a StreamDefinition, partition: i32) -> Self {
        let of_kind = |kind| {
            let files = state.readable(kind).filter(|file| file.subject.as_ref() == Some(&stream.name));
            files.cloned().collect()
        };
        RecordFiles { storage, stream, partition, archive: of_kind(FileKind::Archive), dead_letters: of_kind(FileKind::DeadLetters) }
    }

    /// Returns the archived records by offset; a record that is archived twice is `extra`.
    pub(super) async fn archived(&self, from: Offset, to: Offset, report: &mut LogReport) -> Result<BTreeMap<i64, Raw>> {
        let raw: &[&str] = if self.stream.keep_raw { &[OFFSET, KEY, VALUE, HEADERS] } else { &[OFFSET] };
        let mut found = BTreeMap::new();
        self.scan(from, to, raw, |batch| {
            let offsets = column(batch, OFFSET)?.as_primitive::<Int64Type>();
            for row in 0..batch.num_rows() {
                if found.insert(offsets.value(row), Raw::read(batch, [KEY, VALUE, HEADERS], row)).is_some() {
                    report.extra.add(offsets.value(row));
                }
            }
            Ok(())
        })
        .await?;
        Ok(found)
    }

    pub(super) async fn dead_letters(&self, from: Offset, to: Offset, report: &mut LogReport) -> Result<BTreeMap<i64, Raw>> {
        let mut found = BTreeMap::new();
        for file in &self.dead_letters {
            let mut batches = read_dead_letters(self.storage, file).await?;
            while let Some(batch) = batches.try_next().await? {
                let partitions = column(&batch, "partition")?.as_primitive::<Int32Type>();
                let offsets = column(&batch, "offset")?.as_primitive::<Int64Type>();
                for row in 0..batch.num_rows() {
                    let offset = Offset(offsets.value(row));
                    let is_ours = partitions.value(row) == self.partition && from <= offset && offset < to;
                    if is_ours && found.insert(offset.0, Raw::read(&batch, ["key", "value", "headers"], row)).is_some() {
                        report.extra.add(offset.0);
                    }
                }
            }
        }
        Ok(found)
    }

    /// Returns the lowest offset below `before` at which each of `ids` is archived.
    pub(super) async fn first_offsets(&self, ids: &HashSet<&str>, before: Offset) -> Result<HashMap<String, i64>> {
        let mut first: HashMap<String, i64> = HashMap::new();
        let Some(id) = self.stream.id.as_deref() else { return Ok(first) };
        self.scan(Offset::ZERO, before, &[OFFSET, id], |batch| {
            let offsets = column(batch, OFFSET)?.as_primitive::<Int64Type>();
            let values = column(batch, id)?;
            for row in 0..batch.num_rows() {
                if let Some(text) = canonical_text(values, row).filter(|text| ids.contains(&**text)) {
                    let known = first.entry(text.into_owned()).or_insert(i64::MAX);
                    *known = offsets.value(row).min(*known);
                }
            }
            Ok(())
        })
        .await?;
        Ok(first)
    }

    async fn scan(&self, from: Offset, to: Offset, names: &[&str], mut each: impl FnMut(&RecordBatch) -> Result<()>) -> Result<()> {
        let schema = event_schema(self.stream);
        let mut columns = Vec::with_capacity(names.len());
        for name in names {
            columns.push(schema.index_of(name)?);
        }
        let schema = nullable_but_for_place(&schema);
        let partition = PartitionId::new(self.stream.name.clone(), self.partition);
        let at = |offset| Vector::from_iter([(partition.clone(), offset)]);
        let ranges = OffsetRanges { stream: self.stream.name.clone(), from: at(from), to: at(to) };
        let session = SessionContext::new_with_config(engine::plan::session_config());
        self.storage.register(&session.runtime_env());
        let plan = archive_plan(self.storage, &self.archive, schema, &ranges, Some(&columns), 1)?;
        let mut batches = execute_stream(plan, session.task_ctx())?;
        while let Some(batch) = batches.try_next().await? {
            each(&batch)?;
        }
        Ok(())
    }
}

/// A file of an older definition may lack a column that became NOT NULL later: records are compared here, not values.
fn nullable_but_for_place(schema: &Schema) -> Arc<Schema> {
    let place = [PARTITION, OFFSET];
    let fields = schema.fields().iter().map(|field| {
        if place.contains(&field.name().as_str()) { field.as_ref().clone() } else { field.as_ref().clone().with_nullable(true) }
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a Arc<dyn Array>> {
    batch.column_by_name(name).ok_or_else(|| Error::internal("a file's scan lost a column").with("column", name))
}
