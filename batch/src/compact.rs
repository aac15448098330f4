//! Compaction: checkpoints that were committed one after another become one, and their archive files one per stream.
//! Which ones, and when: [`catalog::compactions`].

use std::collections::btree_map::Entry;
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
use definitions::StreamDefinition;
use definitions::parse::parse_stream;
use engine::events::event_schema;
use futures::TryStreamExt;
use storage::{ArchiveUpload, ArchiveVersions, DeadLettersUpload, archive_facts, dead_letter_schema, dead_letters_decided_by, scan_files};
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

/// A compaction takes at most 1/`PART_OF_LIMIT` of a run's memory limit, because runs continue meanwhile.
const PART_OF_LIMIT: usize = 4;

const DAY_US: i64 = 24 * 3_600 * 1_000_000;

/// The lease under which one process at a time compacts.
pub const COMPACTION_LEASE: &str = "compaction";

/// How the compaction of a group ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compaction {
    Done(Compacted),
    /// Nothing was done: the files of these checkpoints were decoded or decided by other versions of their streams than
    /// the files before them. Each of these checkpoints has to begin a group of its own.
    MixedVersions(BTreeSet<Uuid>),
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
    /// Returns the sum of both.
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
        let inputs = inputs_of(state, &ids)?;
        let (versions, changed) = self.versions(state, group).await?;
        if !changed.is_empty() {
            return Ok(Compaction::MixedVersions(changed));
        }
        let id = Uuid::now_v7();
        let record = compacted(id, group).ok_or_else(|| Error::internal("no checkpoint is compacted"))?;
        let mut written = Vec::with_capacity(inputs.len());
        if let Err(error) = self.write(state, id, &inputs, &versions, &mut written).await {
            // Nothing names them: it is tried again, and each try would leave as many.
            self.delete(&written).await;
            return Err(error);
        }
        let mut commit = compaction_commit(Uuid::now_v7(), state, record, &ids, written.clone());
        commit.expect.push(lease.expect(clock()));
        if let Err(error) = self.catalog.commit_with_retry(commit).await {
            if error.kind() == ErrorKind::Conflict {
                self.delete(&written).await;
            }
            return Err(error);
        }
        let read = || inputs.values().flatten();
        let done = Compacted {
            checkpoints: group.len(),
            files_read: read().count(),
            files_written: written.len(),
            rows: written.iter().map(|file| file.rows).sum(),
            bytes_read: read().map(|file| file.bytes).sum(),
            bytes_written: written.iter().map(|file| file.bytes).sum(),
        };
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

    /// Returns the versions that wrote each stream's files, and the checkpoints at which they change.
    async fn versions(&self, state: &CatalogState, group: &[&CheckpointRecord]) -> Result<(BTreeMap<Arc<str>, Versions>, BTreeSet<Uuid>)> {
        let (mut before, mut changed) = (BTreeMap::new(), BTreeSet::new());
        for checkpoint in group {
            let mut found: BTreeMap<Arc<str>, Versions> = BTreeMap::new();
            for file in state.files.of_checkpoint(checkpoint.id) {
                let Some(stream) = &file.subject else { continue };
                let of_stream = found.entry(stream.clone()).or_default();
                if file.kind == FileKind::Archive {
                    let versions = archive_facts(&self.storage, file).await?.versions;
                    *of_stream = Versions { of_events: Some(versions), decided_by: Some(versions.decided_by) };
                } else if of_stream.decided_by.is_none() {
                    of_stream.decided_by = dead_letters_decided_by(&self.storage, file).await?.or_else(|| only_version(state, stream));
                }
            }
            for (stream, versions) in found {
                match before.entry(stream) {
                    Entry::Vacant(first) => {
                        first.insert(versions);
                    }
                    Entry::Occupied(mut before) => match before.get().and(versions) {
                        Some(both) => {
                            before.insert(both);
                        }
                        None => {
                            changed.insert(checkpoint.id);
                            before.insert(versions);
                        }
                    },
                }
            }
        }
        Ok((before, changed))
    }

    /// Writes one file of each kind and stream.
    async fn write(
        &self,
        state: &CatalogState,
        checkpoint: Uuid,
        inputs: &Inputs<'_>,
        versions: &BTreeMap<Arc<str>, Versions>,
        written: &mut Vec<FileRecord>,
    ) -> Result<()> {
        for ((kind, stream), files) in inputs {
            let versions = versions.get(stream).copied().unwrap_or_default();
            written.push(match versions.of_events.filter(|_| *kind == FileKind::Archive) {
                Some(versions) => self.write_events(state, stream, checkpoint, versions, files).await?,
                None => self.write_dead_letters(stream, checkpoint, versions.decided_by, files).await?,
            });
        }
        Ok(())
    }

    /// Writes a stream's events by day, the columns of the stream's `cluster_by`, partition and offset.
    async fn write_events(
        &self,
        state: &CatalogState,
        stream: &Arc<str>,
        checkpoint: Uuid,
        versions: ArchiveVersions,
        files: &[&FileRecord],
    ) -> Result<FileRecord> {
        let definition = definition_of(state, stream, versions)?;
        let schema = event_schema(&definition);
        let name = ObjectName::Archive { stream: stream.clone(), checkpoint };
        let mut order = vec![event_day(&schema)?];
        for column in definition.cluster_by.iter().map(String::as_str).chain([PARTITION, OFFSET]) {
            order.push(col(column, &schema)?);
        }
        let (session, sorted) = self.sorted(files, schema.clone(), order)?;
        let mut batches = execute_stream(sorted, session.task_ctx())?;
        let mut upload = ArchiveUpload::begin(&self.storage, name, versions, schema).await?;
        while let Some(batch) = batches.try_next().await? {
            upload.push(&batch).await?;
        }
        complete(files, upload.finish().await?)
    }

    async fn write_dead_letters(
        &self,
        stream: &Arc<str>,
        checkpoint: Uuid,
        decided_by: Option<u32>,
        files: &[&FileRecord],
    ) -> Result<FileRecord> {
        let schema = dead_letter_schema();
        let name = ObjectName::DeadLetters { stream: stream.clone(), checkpoint };
        let order = [col("partition", &schema)?, col("offset", &schema)?];
        let (session, sorted) = self.sorted(files, schema.clone(), order.to_vec())?;
        let mut batches = execute_stream(sorted, session.task_ctx())?;
        let mut upload = DeadLettersUpload::begin(&self.storage, name, decided_by).await?;
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

    /// Deletes files that no transaction will name. If that fails, the collector finds them.
    async fn delete(&self, files: &[FileRecord]) {
        for file in files {
            if let Err(error) = self.storage.delete(&file.path).await {
                tracing::debug!(file = %file.path, %error, "a file that was not committed is left to the collector");
            }
        }
    }
}

/// The files that are compacted, by their kind and stream.
type Inputs<'s> = BTreeMap<(FileKind, Arc<str>), Vec<&'s FileRecord>>;

fn inputs_of<'s>(state: &'s CatalogState, checkpoints: &[Uuid]) -> Result<Inputs<'s>> {
    let mut inputs = Inputs::new();
    for file in checkpoints.iter().flat_map(|id| state.files.of_checkpoint(*id)) {
        let stream = file.subject.clone().ok_or_else(|| Error::internal("an archive file names no stream").with("file", &file.path))?;
        inputs.entry((file.kind, stream)).or_default().push(file);
    }
    Ok(inputs)
}

/// The versions of a stream's definition that wrote the files of checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Versions {
    /// Those of the archive files, if there are any.
    of_events: Option<ArchiveVersions>,
    /// The version that decided events and dead letters. `None`: an earlier release wrote dead letters without it.
    decided_by: Option<u32>,
}

impl Versions {
    /// Returns the versions of both, or `None` if they differ or it is unknown whether they do.
    fn and(&self, after: Versions) -> Option<Versions> {
        let decided_by = self.decided_by.filter(|version| after.decided_by == Some(*version))?;
        let of_events = self.of_events.or(after.of_events);
        let is_as_before = after.of_events.is_none_or(|after| of_events == Some(after));
        is_as_before.then_some(Versions { of_events, decided_by: Some(decided_by) })
    }
}

/// Returns the version of a stream's definition, if it never had another one.
fn only_version(state: &CatalogState, stream: &Arc<str>) -> Option<u32> {
    let mut versions = state.definitions.versions(DefinitionKind::Stream, stream);
    versions.next().filter(|_| versions.next().is_none()).map(|record| record.version)
}

/// Returns the definition by which these versions' archive files were decoded.
fn definition_of(state: &CatalogState, stream: &Arc<str>, versions: ArchiveVersions) -> Result<StreamDefinition> {
    let record = state.definitions.get(DefinitionKind::Stream, stream, versions.decoded_by);
    let record = record.ok_or_else(|| {
        let error = Error::corrupt("the catalog does not have the definition that an archive file was decoded by");
        error.with("stream", stream).with("version", versions.decoded_by)
    })?;
    parse_stream(&record.sql)
}

/// The day of an event: days of microseconds since 1970-01-01 UTC.
fn event_day(schema: &SchemaRef) -> Result<Arc<dyn PhysicalExpr>> {
    let micros = Arc::new(CastExpr::new(col(EVENT_TIME, schema)?, DataType::Int64, None));
    let day = Arc::new(Literal::new(ScalarValue::Int64(Some(DAY_US))));
    Ok(Arc::new(BinaryExpr::new(micros, Operator::Divide, day)))
}

/// Checks that a file has all rows of those that it replaces.
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
