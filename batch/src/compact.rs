//! Compaction: checkpoints that were committed one after another become one, and their archive files one per stream.
//! Which ones, and when: [`catalog::compactions`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, SchemaRef};
use catalog::{CatalogState, CheckpointRecord, DefinitionKind, compacted, compaction_commit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Literal, col};
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionContext;
use definitions::parse::parse_stream;
use engine::events::event_schema;
use futures::TryStreamExt;
use storage::{ArchiveUpload, ArchiveVersions, DeadLettersUpload, archive_facts, dead_letter_schema, scan_files};
use tracing::info;
use types::columns::{EVENT_TIME, OFFSET, PARTITION};
use types::files::{FileKind, FileRecord, ObjectName};
use types::tiles::Clock;
use types::{Error, ErrorKind, Result};
use uuid::Uuid;

use crate::layer::Batch;
use crate::lease::KeepLease;
use crate::memory::PeakPool;
use crate::session::open_session;

/// A compaction takes at most this part of a run's memory limit, as runs go on beside it.
const PART_OF_LIMIT: usize = 4;

const DAY_US: i64 = 24 * 3_600 * 1_000_000;

/// The lease under which one process at a time compacts.
pub const COMPACTION_LEASE: &str = "compaction";

/// How the compaction of a group ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compaction {
    Done(Compacted),
    /// Nothing was done: the files of these checkpoints were decoded or decided by other versions of their streams than
    /// the files before. They must begin groups of their own.
    Apart(BTreeSet<Uuid>),
}

/// What one compaction did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Compacted {
    pub checkpoints: usize,
    pub files_read: usize,
    pub files_written: usize,
    pub rows: i64,
    pub bytes_read: i64,
    pub bytes_written: i64,
}

impl Compacted {
    /// Returns what both did.
    pub fn and(&self, other: &Compacted) -> Compacted {
        Compacted {
            checkpoints: self.checkpoints + other.checkpoints,
            files_read: self.files_read + other.files_read,
            files_written: self.files_written + other.files_written,
            rows: self.rows + other.rows,
            bytes_read: self.bytes_read + other.bytes_read,
            bytes_written: self.bytes_written + other.bytes_written,
        }
    }
}

impl Batch {
    /// Compacts a group of checkpoints, which are in the order of their commits: writes their files anew, then commits.
    ///
    /// Errors: `Corrupt` when a file is damaged, `Conflict` when the lease is lost or a file of the group changed
    /// meanwhile. Nothing is changed then.
    pub async fn compact(&self, state: &CatalogState, group: &[&CheckpointRecord], lease: &KeepLease, clock: &Clock) -> Result<Compaction> {
        let ids: Vec<Uuid> = group.iter().map(|checkpoint| checkpoint.id).collect();
        let mut inputs: BTreeMap<(FileKind, Arc<str>), Vec<&FileRecord>> = BTreeMap::new();
        for file in ids.iter().flat_map(|id| state.files.of_checkpoint(*id)) {
            let stream = file.subject.clone().ok_or_else(|| Error::internal("an archive file names no stream").with("file", &file.path))?;
            inputs.entry((file.kind, stream)).or_default().push(file);
        }
        let (versions, apart) = self.versions(&inputs).await?;
        if !apart.is_empty() {
            return Ok(Compaction::Apart(apart));
        }
        let id = Uuid::now_v7();
        let record = compacted(id, group).ok_or_else(|| Error::internal("no checkpoint is compacted"))?;
        let mut done = Compacted { checkpoints: group.len(), ..Compacted::default() };
        let mut written: Vec<FileRecord> = Vec::new();
        for ((kind, stream), files) in &inputs {
            let file = match versions.get(stream).filter(|_| *kind == FileKind::Archive) {
                Some(versions) => self.write_events(state, (stream, id), *versions, files).await,
                None => self.write_dead_letters(stream, id, files).await,
            };
            let file = match file {
                Ok(file) => file,
                // Nothing names them: it is tried again, and each try would leave as many.
                Err(error) => {
                    self.delete(&written).await;
                    return Err(error);
                }
            };
            done.files_read += files.len();
            done.bytes_read += files.iter().map(|file| file.bytes).sum::<i64>();
            done.rows += file.rows;
            done.bytes_written += file.bytes;
            written.push(file);
        }
        done.files_written = written.len();
        let mut commit = compaction_commit(Uuid::now_v7(), state, record, &ids, written.clone());
        commit.expect.push(lease.expect(clock()));
        if let Err(error) = self.catalog.commit_with_retry(commit).await {
            if error.kind() == ErrorKind::Conflict {
                self.delete(&written).await;
            }
            return Err(error);
        }
        info!(
            checkpoints = done.checkpoints,
            files = done.files_read,
            rows = done.rows,
            bytes_read = done.bytes_read,
            bytes_written = done.bytes_written,
            "checkpoints compacted"
        );
        Ok(Compaction::Done(done))
    }

    /// Returns the versions of each stream's archive files, and the checkpoints where they change.
    async fn versions(
        &self,
        inputs: &BTreeMap<(FileKind, Arc<str>), Vec<&FileRecord>>,
    ) -> Result<(BTreeMap<Arc<str>, ArchiveVersions>, BTreeSet<Uuid>)> {
        let (mut versions, mut apart) = (BTreeMap::new(), BTreeSet::new());
        for ((_, stream), files) in inputs.iter().filter(|((kind, _), _)| *kind == FileKind::Archive) {
            for file in files {
                let found = archive_facts(&self.storage, file).await?.versions;
                let before = versions.insert(stream.clone(), found);
                if before.is_some_and(|before| before != found) {
                    apart.extend(file.checkpoint);
                }
            }
        }
        Ok((versions, apart))
    }

    /// Writes a stream's events by day, partition and offset.
    async fn write_events(
        &self,
        state: &CatalogState,
        (stream, checkpoint): (&Arc<str>, Uuid),
        versions: ArchiveVersions,
        files: &[&FileRecord],
    ) -> Result<FileRecord> {
        let schema = schema_of(state, stream, versions)?;
        let name = ObjectName::Archive { stream: stream.clone(), checkpoint };
        let order = [event_day(&schema)?, col(PARTITION, &schema)?, col(OFFSET, &schema)?];
        let (session, sorted) = self.sorted(files, schema.clone(), order.to_vec())?;
        let mut batches = execute_stream(sorted, session.task_ctx())?;
        let mut upload = ArchiveUpload::begin(&self.storage, name, versions, schema).await?;
        while let Some(batch) = batches.try_next().await? {
            upload.push(&batch).await?;
        }
        complete(files, upload.finish().await?)
    }

    async fn write_dead_letters(&self, stream: &Arc<str>, checkpoint: Uuid, files: &[&FileRecord]) -> Result<FileRecord> {
        let schema = dead_letter_schema();
        let order = [col("partition", &schema)?, col("offset", &schema)?];
        let (session, sorted) = self.sorted(files, schema.clone(), order.to_vec())?;
        let mut batches = execute_stream(sorted, session.task_ctx())?;
        let mut upload = DeadLettersUpload::begin(&self.storage, stream, checkpoint).await?;
        while let Some(batch) = batches.try_next().await? {
            upload.push(&batch).await?;
        }
        complete(files, upload.finish().await?)
    }

    /// Returns a plan for the rows of files in this order, and the session that it spills in.
    fn sorted(
        &self,
        files: &[&FileRecord],
        schema: SchemaRef,
        order: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<(SessionContext, Arc<dyn ExecutionPlan>)> {
        let mut settings = self.settings.clone();
        settings.memory_limit_bytes /= PART_OF_LIMIT;
        let pool = Arc::new(PeakPool::new(settings.memory_limit_bytes));
        let session = open_session(&settings, &self.storage, &self.functions, pool)?;
        let columns = (0..schema.fields().len()).collect();
        let rows = scan_files(&self.storage, files.iter().map(|file| (*file).into()).collect(), schema, columns, None, 1)?;
        let order = order.into_iter().map(|expr| PhysicalSortExpr::new(expr, SortOptions::default()));
        let order = LexOrdering::new(order).ok_or_else(|| Error::internal("a compacted file has an order"))?;
        Ok((session, Arc::new(SortExec::new(order, rows))))
    }

    /// Deletes files that no transaction will name; what is left by an error here, the collector finds.
    async fn delete(&self, files: &[FileRecord]) {
        for file in files {
            if let Err(error) = self.storage.delete(&file.path).await {
                tracing::debug!(file = %file.path, %error, "a file that was not committed is left to the collector");
            }
        }
    }
}

/// Returns the schema of the archive files that these versions made.
fn schema_of(state: &CatalogState, stream: &Arc<str>, versions: ArchiveVersions) -> Result<SchemaRef> {
    let is_version = |version: u32| version == versions.decoded_by;
    let mut of_stream = state.definitions.iter().filter(|record| record.kind == DefinitionKind::Stream && record.name == *stream);
    let record = of_stream.find(|record| is_version(record.version));
    let record = record.ok_or_else(|| {
        let error = Error::corrupt("the catalog does not have the definition that an archive file was decoded by");
        error.with("stream", stream).with("version", versions.decoded_by)
    })?;
    Ok(event_schema(&parse_stream(&record.sql)?))
}

/// The day of an event: days of microseconds since 1970-01-01 UTC.
fn event_day(schema: &SchemaRef) -> Result<Arc<dyn PhysicalExpr>> {
    let micros = Arc::new(CastExpr::new(col(EVENT_TIME, schema)?, DataType::Int64, None));
    let day = Arc::new(Literal::new(ScalarValue::Int64(Some(DAY_US))));
    Ok(Arc::new(BinaryExpr::new(micros, Operator::Divide, day)))
}

/// Checks that a file has all the rows of those that it takes the place of.
fn complete(of: &[&FileRecord], file: FileRecord) -> Result<FileRecord> {
    let expected: i64 = of.iter().map(|file| file.rows).sum();
    if file.rows == expected {
        return Ok(file);
    }
    Err(Error::corrupt("files do not have the rows that the catalog says")
        .with("files", of.len())
        .with("first", of.first().map_or("", |file| &*file.path))
        .with("expected rows", expected)
        .with("found", file.rows))
}
