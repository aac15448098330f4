//! Reads our Parquet files: one file as a stream, or many as a DataFusion plan. Both check every byte they read.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::new_null_array;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use bytes::Bytes;
use datafusion::common::Result as DataFusionResult;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetFileReaderFactory, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::ObjectMeta;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderBuilder, ParquetRecordBatchReaderBuilder};
use parquet::arrow::async_reader::{AsyncFileReader, ParquetRecordBatchStreamBuilder};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::statistics::Statistics;

use crate::known_file::{KnownFile, object_path};
use crate::parquet_file::{check_format, own_metadata};
use crate::store::ObjectStorage;
use crate::verified::{VerifiedReader, from_parquet};
use types::files::FileRecord;
use types::{Error, ErrorKind, Result};

/// Batches of one file, in row order.
pub type BatchStream = BoxStream<'static, Result<RecordBatch>>;

impl From<&FileRecord> for KnownFile {
    fn from(record: &FileRecord) -> Self {
        KnownFile { path: record.path.clone(), bytes: record.bytes, checksum: record.checksum }
    }
}

/// Reads the rows of one file; `columns` (default: all) in the file's order. Errors for a column that the file lacks.
pub(crate) async fn read_file(storage: &ObjectStorage, file: KnownFile, columns: Option<&[String]>) -> Result<BatchStream> {
    read_file_from(storage, file, columns, None).await
}

/// The same, without the row groups that have no value from `least` on in a column of 64 bits, if one is named.
pub(crate) async fn read_file_from(
    storage: &ObjectStorage,
    file: KnownFile,
    columns: Option<&[String]>,
    from: Option<(&str, i64)>,
) -> Result<BatchStream> {
    let path: Arc<str> = file.path.as_str().into();
    let builder = begin(VerifiedReader::new(storage.clone(), file), &path).await?;
    let stream = chosen(builder, columns, from, &path)?.build().map_err(|error| from_parquet(error, &path))?;
    Ok(stream.map(move |batch| batch.map_err(|error| from_parquet(error, &path))).boxed())
}

/// Does so for several small files, which are read whole. Returns the rows of each, in the order of the files.
pub(crate) async fn read_files_from(
    storage: &ObjectStorage,
    files: Vec<KnownFile>,
    columns: Vec<String>,
    from: (&'static str, i64),
) -> Result<Vec<Vec<RecordBatch>>> {
    let contents = storage.get_each_checked(&files).await?;
    tokio::task::spawn_blocking(move || {
        let files = files.iter().zip(contents);
        files.map(|(file, content)| decoded(content, &columns, from, &file.path)).collect::<Result<Vec<_>>>()
    })
    .await?
}

/// Returns rows of a file whose bytes are checked.
fn decoded(content: Bytes, columns: &[String], from: (&str, i64), path: &str) -> Result<Vec<RecordBatch>> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(content).map_err(|error| from_parquet(error, path))?;
    check_format(&own_metadata(builder.metadata().file_metadata())).map_err(|error| error.with("file", path))?;
    let rows = chosen(builder, Some(columns), Some(from), path)?.build().map_err(|error| from_parquet(error, path))?;
    rows.collect::<Result<Vec<_>, _>>().map_err(|error| Error::restating(ErrorKind::Corrupt, error).with("file", path))
}

/// Chooses columns of a file, and the row groups that may have a value from the given one on.
fn chosen<T>(
    builder: ArrowReaderBuilder<T>,
    columns: Option<&[String]>,
    from: Option<(&str, i64)>,
    path: &str,
) -> Result<ArrowReaderBuilder<T>> {
    if let Some(missing) = columns.into_iter().flatten().find(|name| builder.schema().field_with_name(name).is_err()) {
        return Err(Error::input("a file lacks a column").with("file", path).with("column", missing));
    }
    let mask = projection(&builder, |name| columns.is_none_or(|columns| columns.contains(name)));
    let builder = builder.with_projection(mask);
    let Some((column, least)) = from else { return Ok(builder) };
    let groups = builder.metadata().row_groups().iter().enumerate();
    let wanted = groups.filter(|(_, group)| may_reach(group, column, least)).map(|(index, _)| index).collect();
    Ok(builder.with_row_groups(wanted))
}

/// False if the statistics of a row group say that all values of a column are less.
fn may_reach(group: &RowGroupMetaData, column: &str, least: i64) -> bool {
    let chunk = group.columns().iter().find(|chunk| chunk.column_path().parts() == [column]);
    match chunk.and_then(|chunk| chunk.statistics()) {
        Some(Statistics::Int64(values)) => values.max_opt().is_none_or(|greatest| *greatest >= least),
        _ => true,
    }
}

/// Reads the rows of one file in the schema `target`: its columns in its order, NULL where the file (of an older
/// definition) lacks one. A column of another type is an error that names it.
pub async fn read_file_as(storage: &ObjectStorage, file: KnownFile, target: SchemaRef) -> Result<BatchStream> {
    let path: Arc<str> = file.path.as_str().into();
    let reader = VerifiedReader::new(storage.clone(), file).expecting(target.clone());
    let builder = begin(reader, &path).await?;
    let mask = projection(&builder, |name| target.field_with_name(name).is_ok());
    let stream = builder.with_projection(mask).build().map_err(|error| from_parquet(error, &path))?;
    Ok(stream
        .map(move |batch| {
            let batch = batch.map_err(|error| from_parquet(error, &path))?;
            shape(&batch, &target).map_err(|error| error.with("file", &path))
        })
        .boxed())
}

/// Returns a plan that scans files in the schema `table`, with the columns `projection` (indices in `table`), in up to
/// `partitions` parts. `pruning` (over `table`) lets it skip row groups that cannot match; the result may still contain
/// rows that do not match.
///
/// The storage must be registered where the plan runs ([`ObjectStorage::register`]).
pub fn scan_files(
    storage: &ObjectStorage,
    files: Vec<KnownFile>,
    table: SchemaRef,
    projection: Vec<usize>,
    pruning: Option<Arc<dyn PhysicalExpr>>,
    partitions: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    if files.is_empty() {
        return Ok(Arc::new(EmptyExec::new(Arc::new(table.project(&projection)?))));
    }
    let groups = file_groups(&files, partitions)?;
    let readers = VerifiedReaders::new(storage.clone(), files, table.clone());
    let mut source = ParquetSource::new(table).with_parquet_file_reader_factory(Arc::new(readers));
    if let Some(pruning) = pruning {
        source = source.with_predicate(pruning);
    }
    let config = FileScanConfigBuilder::new(storage.object_store_url().clone(), Arc::new(source))
        .with_file_groups(groups)
        .with_projection_indices(Some(projection))?
        .build();
    Ok(DataSourceExec::from_data_source(config))
}

/// Distributes the files, each to the group with the fewest bytes so far. Files keep their order within a group.
fn file_groups(files: &[KnownFile], partitions: usize) -> Result<Vec<FileGroup>> {
    let mut groups: Vec<(i64, Vec<PartitionedFile>)> = vec![(0, Vec::new()); partitions.clamp(1, files.len().max(1))];
    for file in files {
        let Some(smallest) = groups.iter_mut().min_by_key(|(bytes, _)| *bytes) else { break };
        smallest.0 += file.bytes.max(1);
        smallest.1.push(partitioned_file(file)?);
    }
    Ok(groups.into_iter().map(|(_, files)| FileGroup::new(files)).collect())
}

fn partitioned_file(file: &KnownFile) -> Result<PartitionedFile> {
    Ok(PartitionedFile::new_from_meta(ObjectMeta {
        location: object_path(&file.path)?,
        last_modified: chrono::DateTime::UNIX_EPOCH,
        size: u64::try_from(file.bytes).unwrap_or_default(),
        e_tag: None,
        version: None,
    }))
}

/// Provides DataFusion's Parquet scans with readers that check what they read.
#[derive(Debug)]
struct VerifiedReaders {
    storage: ObjectStorage,
    files: HashMap<String, KnownFile>,
    table: SchemaRef,
}

impl VerifiedReaders {
    fn new(storage: ObjectStorage, files: Vec<KnownFile>, table: SchemaRef) -> Self {
        let files = files.into_iter().map(|file| (file.path.clone(), file)).collect();
        Self { storage, files, table }
    }
}

impl ParquetFileReaderFactory for VerifiedReaders {
    fn create_reader(
        &self,
        _partition: usize,
        file: PartitionedFile,
        _metadata_size_hint: Option<usize>,
        _metrics: &ExecutionPlanMetricsSet,
    ) -> DataFusionResult<Box<dyn AsyncFileReader + Send>> {
        let path = file.object_meta.location.as_ref();
        let known =
            self.files.get(path).ok_or_else(|| Error::internal("a scan was asked for a file it does not know").with("file", path))?;
        Ok(Box::new(VerifiedReader::new(self.storage.clone(), known.clone()).expecting(self.table.clone())))
    }
}

async fn begin(reader: VerifiedReader, path: &str) -> Result<ParquetRecordBatchStreamBuilder<VerifiedReader>> {
    ParquetRecordBatchStreamBuilder::new(reader).await.map_err(|error| from_parquet(error, path))
}

fn projection<T>(builder: &ArrowReaderBuilder<T>, wanted: impl Fn(&String) -> bool) -> ProjectionMask {
    let fields = builder.schema().fields().iter().enumerate();
    let roots: Vec<usize> = fields.filter(|(_, field)| wanted(field.name())).map(|(index, _)| index).collect();
    ProjectionMask::roots(builder.parquet_schema(), roots)
}

/// Returns the columns of `target` from a batch that has some of them.
fn shape(batch: &RecordBatch, target: &SchemaRef) -> Result<RecordBatch> {
    let rows = batch.num_rows();
    let column = |name: &str| batch.column_by_name(name).cloned();
    let columns = target.fields().iter().map(|field| column(field.name()).unwrap_or_else(|| new_null_array(field.data_type(), rows)));
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(target.clone(), columns.collect(), &options)
        .map_err(|error| Error::input("a file does not fit the schema it is read with").caused_by(error))
}
