//! The archive: the accepted events of a stream, one file per checkpoint. The rows of a checkpoint that a worker
//! committed are in log order, those of a compacted one by day of event time, the columns of the stream's `cluster_by`,
//! partition and offset.
//!
//! A file's rows have the columns of the stream's event schema at the definition version in the file's metadata
//! (`basestream.definition_version`), including `__event_time`, `__partition` and `__offset`. A file whose events were
//! decoded again also names the version that decided its records (`basestream.decided_by`).

use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{SchemaRef, TimestampMicrosecondType};
use arrow::record_batch::RecordBatch;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Literal, col};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExecBuilder;
use uuid::Uuid;

use crate::parquet_file::{ParquetOptions, ParquetUpload, own_metadata, write_parquet};
use crate::scan::{BatchStream, read_file, read_file_as, read_file_from, read_files_from, scan_files};
use crate::store::ObjectStorage;
use crate::verified::VerifiedReader;
use types::columns::{EVENT_TIME, OFFSET, PARTITION, TIMESTAMP, VALUE};
use types::files::{EventTimeBounds, FileRecord, ObjectName};
use types::tiles::Micros;
use types::vector::{Offset, PartitionId, Vector};
use types::{Error, Result};

const DECODED_BY: &str = "definition_version";
pub(crate) const DECIDED_BY: &str = "decided_by";

/// The versions of the stream's definition behind an archive file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveVersions {
    /// Its columns are those of this version.
    pub decoded_by: u32,
    /// The version by which its records were accepted; another one if they were decoded again.
    pub decided_by: u32,
}

/// What the footer of an archive file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveFacts {
    pub versions: ArchiveVersions,
    /// Whether it has the raw records.
    pub keeps_raw: bool,
}

/// The rows of one stream from one vector to another: the offsets `[from, to)` of each partition. An absent partition
/// is at 0, so a partition that is absent from `to` has no rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetRanges {
    pub stream: Arc<str>,
    pub from: Vector,
    pub to: Vector,
}

/// Writes a checkpoint's archive file of one stream, from rows sorted by partition and offset. Durable when it returns.
pub async fn write_archive(
    storage: &ObjectStorage,
    stream: &Arc<str>,
    checkpoint: Uuid,
    definition_version: u32,
    batches: Vec<RecordBatch>,
) -> Result<FileRecord> {
    let name = ObjectName::Archive { stream: stream.clone(), checkpoint };
    let versions = ArchiveVersions { decoded_by: definition_version, decided_by: definition_version };
    let schema = batches.first().map(RecordBatch::schema);
    let schema = schema.ok_or_else(|| Error::internal("an archive file without rows is not written").with("file", &name))?;
    let options = options(&name, &schema, versions)?;
    let mut event_times = None;
    for batch in &batches {
        event_times = wider(event_times, event_time_bounds(batch).map_err(|error| error.with("file", &name))?);
    }
    let rows = batches.iter().map(|batch| batch.num_rows() as i64).sum();
    let file = tokio::task::spawn_blocking(move || write_parquet(&batches, schema, &options)).await??;
    let stored = storage.put_new(&name, file).await?;
    Ok(name.record(stored, rows, event_times))
}

/// An archive file that is written batch by batch, as it may be larger than memory.
pub struct ArchiveUpload {
    name: ObjectName,
    upload: ParquetUpload,
    event_times: Option<EventTimeBounds>,
}

impl ArchiveUpload {
    pub async fn begin(storage: &ObjectStorage, name: ObjectName, versions: ArchiveVersions, schema: SchemaRef) -> Result<Self> {
        let options = options(&name, &schema, versions)?;
        let upload = ParquetUpload::begin(storage, &name, schema, &options).await?;
        Ok(Self { name, upload, event_times: None })
    }

    pub async fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        let event_times = event_time_bounds(batch).map_err(|error| error.with("file", &self.name))?;
        self.event_times = wider(self.event_times, event_times);
        self.upload.push(batch).await
    }

    /// The file is durable when this returns.
    pub async fn finish(self) -> Result<FileRecord> {
        let (stored, rows) = self.upload.finish().await?;
        Ok(self.name.record(stored, rows, self.event_times))
    }
}

/// Reads the footer of an archive file.
pub async fn archive_facts(storage: &ObjectStorage, file: &FileRecord) -> Result<ArchiveFacts> {
    let metadata = VerifiedReader::new(storage.clone(), file.into()).metadata().await?;
    let own = own_metadata(metadata.file_metadata());
    let version = |key: &str| own.get(key).and_then(|version| version.parse().ok());
    let unnamed = || Error::corrupt("an archive file does not name its definition's version").with("file", &file.path);
    let decoded_by = version(DECODED_BY).ok_or_else(unnamed)?;
    let keeps_raw = metadata.file_metadata().schema_descr().columns().iter().any(|column| column.name() == VALUE);
    Ok(ArchiveFacts { versions: ArchiveVersions { decoded_by, decided_by: version(DECIDED_BY).unwrap_or(decoded_by) }, keeps_raw })
}

/// Reads the rows of an archive file, `columns` (default: all) in the file's order.
pub async fn read_archive(storage: &ObjectStorage, file: &FileRecord, columns: Option<&[String]>) -> Result<BatchStream> {
    read_file(storage, file.into(), columns).await
}

/// Reads these columns of an archive file, in the file's order, without parts of it whose records all have a timestamp
/// before `oldest`. The other parts may have such records too.
pub async fn read_archive_since(storage: &ObjectStorage, file: &FileRecord, columns: &[String], oldest: Micros) -> Result<BatchStream> {
    read_file_from(storage, file.into(), Some(columns), Some((TIMESTAMP, oldest))).await
}

/// Reads several small archive files like [`read_archive_since`], each whole. Returns the rows of each, in their order.
pub async fn read_archives_since(
    storage: &ObjectStorage,
    files: &[FileRecord],
    columns: &[String],
    oldest: Micros,
) -> Result<Vec<Vec<RecordBatch>>> {
    read_files_from(storage, files.iter().map(Into::into).collect(), columns.to_vec(), (TIMESTAMP, oldest)).await
}

/// Reads the rows of an archive file in the schema `target`; columns that its definition did not have yet are NULL.
pub async fn read_archive_as(storage: &ObjectStorage, file: &FileRecord, target: SchemaRef) -> Result<BatchStream> {
    read_file_as(storage, file.into(), target).await
}

/// Returns a plan for the rows of `ranges` in `files`, in the schema `schema` (which has `__partition` and `__offset`),
/// with the columns of `projection` (default: all) in that order. Rows are chosen by partition and offset, never by
/// file: files without such rows do no harm. The plan has up to `partitions` partitions.
pub fn archive_plan(
    storage: &ObjectStorage,
    files: &[FileRecord],
    schema: SchemaRef,
    ranges: &OffsetRanges,
    projection: Option<&[usize]>,
    partitions: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    pruned_archive_plan(storage, files, schema, ranges, projection, None, partitions)
}

/// The same, without some of the rows that do not meet `pruning`, a predicate over `schema`: parts of files are left
/// out whose least and greatest values say that none of their rows does.
pub fn pruned_archive_plan(
    storage: &ObjectStorage,
    files: &[FileRecord],
    schema: SchemaRef,
    ranges: &OffsetRanges,
    projection: Option<&[usize]>,
    pruning: Option<Arc<dyn PhysicalExpr>>,
    partitions: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let wanted: Vec<usize> = projection.map_or_else(|| (0..schema.fields().len()).collect(), <[usize]>::to_vec);
    let Some(in_ranges) = ranges.predicate(&schema)? else {
        return Ok(Arc::new(EmptyExec::new(Arc::new(schema.project(&wanted)?))));
    };
    let pruning = match pruning {
        Some(pruning) => binary(pruning, Operator::And, in_ranges),
        None => in_ranges,
    };
    let mut scanned = wanted.clone();
    for name in [PARTITION, OFFSET] {
        let index = schema.index_of(name)?;
        if !scanned.contains(&index) {
            scanned.push(index);
        }
    }
    let files = files.iter().map(Into::into).collect();
    let scan = scan_files(storage, files, schema, scanned, Some(pruning), partitions)?;
    let Some(predicate) = ranges.predicate(&scan.schema())? else { return Ok(scan) };
    let filter = FilterExecBuilder::new(predicate, scan).apply_projection(Some((0..wanted.len()).collect()))?.build()?;
    Ok(Arc::new(filter))
}

/// Returns the rows of `ranges` in what a plan returns, which has `__partition` and `__offset`.
pub fn only_rows_of(ranges: &OffsetRanges, input: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(predicate) = ranges.predicate(&input.schema())? else { return Ok(Arc::new(EmptyExec::new(input.schema()))) };
    Ok(Arc::new(FilterExecBuilder::new(predicate, input).build()?))
}

/// The rows of one partition from an offset on, up to another one.
struct PartitionRange {
    partition: i32,
    from: Offset,
    to: Offset,
}

impl OffsetRanges {
    /// Returns the ranges that hold all of these: in each partition from the least offset to the greatest.
    pub fn around<'r>(stream: Arc<str>, ranges: impl Iterator<Item = &'r OffsetRanges> + Clone) -> OffsetRanges {
        let mut around = OffsetRanges { stream, from: Vector::new(), to: Vector::new() };
        for (id, end) in ranges.clone().flat_map(|ranges| ranges.to.iter()) {
            let last = around.to.get(id).max(end);
            around.to.set(id.clone(), last);
        }
        let ends: Vec<PartitionId> = around.to.iter().map(|(id, _)| id.clone()).collect();
        for id in ends {
            let first = ranges.clone().map(|ranges| ranges.from.get(&id)).min().unwrap_or_default();
            around.from.set(id, first);
        }
        around
    }

    /// Returns the partitions that have rows.
    fn partitions(&self) -> impl Iterator<Item = PartitionRange> {
        let of_stream = self.to.iter().filter(move |(id, _)| id.stream == self.stream);
        of_stream
            .map(move |(id, to)| PartitionRange { partition: id.partition, from: self.from.get(id), to })
            .filter(|range| range.from < range.to)
    }

    /// Returns the predicate for the rows of these ranges; `None` if there are none.
    fn predicate(&self, schema: &SchemaRef) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        let (partition, offset) = (col(PARTITION, schema)?, col(OFFSET, schema)?);
        let compare = |column: &Arc<dyn PhysicalExpr>, operator, value| binary(column.clone(), operator, Arc::new(Literal::new(value)));
        let in_range = |PartitionRange { partition: number, from, to }| {
            let number = compare(&partition, Operator::Eq, ScalarValue::Int32(Some(number)));
            let below = binary(number, Operator::And, compare(&offset, Operator::Lt, ScalarValue::Int64(Some(to.0))));
            match from {
                Offset::ZERO => below,
                from => binary(below, Operator::And, compare(&offset, Operator::GtEq, ScalarValue::Int64(Some(from.0)))),
            }
        };
        Ok(any_of(self.partitions().map(in_range).collect()))
    }
}

/// Builds a balanced tree of ORs: a stream may have a thousand partitions, and expressions are traversed recursively.
fn any_of(mut terms: Vec<Arc<dyn PhysicalExpr>>) -> Option<Arc<dyn PhysicalExpr>> {
    while terms.len() > 1 {
        terms = terms
            .chunks(2)
            .map(|pair| match pair {
                [left, right] => binary(left.clone(), Operator::Or, right.clone()),
                rest => rest[0].clone(),
            })
            .collect();
    }
    terms.pop()
}

fn binary(left: Arc<dyn PhysicalExpr>, operator: Operator, right: Arc<dyn PhysicalExpr>) -> Arc<dyn PhysicalExpr> {
    Arc::new(BinaryExpr::new(left, operator, right))
}

fn options(name: &ObjectName, schema: &SchemaRef, versions: ArchiveVersions) -> Result<ParquetOptions> {
    let stream = name.subject().ok_or_else(|| Error::internal("an archive file is one of a stream").with("file", name))?;
    let opaque_columns = [VALUE.to_owned()].into_iter().filter(|name| schema.field_with_name(name).is_ok()).collect();
    let options = ParquetOptions { growing_columns: growing_columns(schema), opaque_columns, field_ids: true, ..ParquetOptions::default() };
    let options = options.with("stream", stream).with(DECODED_BY, versions.decoded_by);
    Ok(if versions.decided_by == versions.decoded_by { options } else { options.with(DECIDED_BY, versions.decided_by) })
}

/// Returns the columns by which events are roughly ordered.
fn growing_columns(schema: &SchemaRef) -> Vec<String> {
    [OFFSET, EVENT_TIME, TIMESTAMP].into_iter().filter(|name| schema.field_with_name(name).is_ok()).map(str::to_owned).collect()
}

/// `None` without rows.
fn event_time_bounds(batch: &RecordBatch) -> Result<Option<EventTimeBounds>> {
    let times = batch.column_by_name(EVENT_TIME).and_then(|column| column.as_primitive_opt::<TimestampMicrosecondType>());
    let times = times.ok_or_else(|| Error::internal("archived rows need the column __event_time in microseconds"))?;
    if times.null_count() > 0 {
        return Err(Error::internal("an archived row has no event time"));
    }
    let bounds = arrow::compute::min(times).zip(arrow::compute::max(times));
    Ok(bounds.map(|(min, max)| EventTimeBounds { min, max }))
}

/// Returns the bounds that cover both.
fn wider(one: Option<EventTimeBounds>, other: Option<EventTimeBounds>) -> Option<EventTimeBounds> {
    match (one, other) {
        (Some(one), Some(other)) => Some(EventTimeBounds { min: one.min.min(other.min), max: one.max.max(other.max) }),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests;
