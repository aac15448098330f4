//! Runs that recompute views over one stream at the same time read its archive together: a file is read and decoded
//! once, and each run gets the batches of those files that it reads.
//!
//! ```text
//! files that all of them read --scan--> batches --+--> columns and rows of one run --Partial--> its states
//! files that some of them read --scan--^          +--> columns and rows of another --Partial--> its states
//! ```
//!
//! The result of a run does not depend on this: it reads the files that it would read alone, and their rows within its
//! own vectors. Runs that read the archive in slices share a scan of each slice. A scan begins once each of the runs
//! has joined or left (a run leaves if it failed, reads no archive, or has read its last slice), and continues without
//! runs that end. The slowest run sets the pace, because only a few batches are queued for each.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result as DataFusionResult;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties};
use futures::{StreamExt, stream};
use storage::{ObjectStorage, OffsetRanges, archive_plan, only_rows_of};
use tokio::sync::mpsc;
use types::files::FileRecord;
use types::{Error, Result};

use crate::slices::Slice;

/// This many batches wait for each partition of each run.
const WAITING: usize = 2;

/// The place of one run in a scan that several share. By default there is no place, and the run reads the archive
/// alone. Clones are the same place.
#[derive(Clone, Default)]
pub(crate) struct SharedScan(Option<Arc<Membership>>);

/// The run leaves the scans when this is dropped.
struct Membership {
    gathering: Arc<Gathering>,
    /// The slice that it joined last; [`NO_SLICE`] before the first.
    joined: AtomicI64,
    has_left: AtomicBool,
}

const NO_SLICE: i64 = -1;

/// The runs that share scans.
struct Gathering {
    stream: Arc<str>,
    members: Mutex<Members>,
    /// The runtime of the scan, because a thread without a runtime may leave a place.
    runtime: tokio::runtime::Handle,
}

struct Members {
    /// How many runs have not left.
    active: usize,
    /// The runs whose next slice is not scanned yet.
    waiting: Vec<(u32, Member)>,
}

/// The part of the stream's archive that a run reads.
pub(crate) struct ArchiveRead<'a> {
    pub(crate) storage: &'a ObjectStorage,
    pub(crate) stream: &'a str,
    pub(crate) files: Vec<FileRecord>,
    /// The schema of the columns that the run reads of the stream, including partition and offset.
    pub(crate) schema: SchemaRef,
    pub(crate) columns: &'a [usize],
    pub(crate) slice: &'a Slice,
    pub(crate) threads: usize,
    pub(crate) context: Arc<TaskContext>,
}

/// A run that joined.
struct Member {
    storage: ObjectStorage,
    files: Vec<FileRecord>,
    schema: SchemaRef,
    columns: Vec<usize>,
    ranges: OffsetRanges,
    context: Arc<TaskContext>,
    /// One sink for each partition. `None` marks its end: without it, the scan ended early.
    sinks: Vec<mpsc::Sender<Result<Option<RecordBatch>>>>,
}

impl SharedScan {
    /// Creates places for this many runs in scans of a stream's archive. Must be called within a runtime.
    pub(crate) fn for_runs(stream: &Arc<str>, runs: usize) -> Vec<SharedScan> {
        let members = Mutex::new(Members { active: runs, waiting: Vec::new() });
        let gathering = Arc::new(Gathering { stream: stream.clone(), members, runtime: tokio::runtime::Handle::current() });
        let place = || Membership { gathering: gathering.clone(), joined: AtomicI64::new(NO_SLICE), has_left: AtomicBool::new(false) };
        (0..runs).map(|_| SharedScan(Some(Arc::new(place())))).collect()
    }

    /// Leaves the scans: the others no longer wait for this run.
    pub(crate) fn leave(&self) {
        if let Some(place) = &self.0 {
            place.leave();
        }
    }

    /// Joins the scan of a slice, and returns the rows that the run reads, in one partition for each thread. `None` if
    /// the run has no place in scans of exactly this stream, in which case it leaves; also for a second scan of the
    /// same slice.
    pub(crate) fn join(&self, reads: ArchiveRead<'_>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(place) = &self.0 else { return Ok(None) };
        let schema = Arc::new(reads.schema.project(reads.columns)?);
        let number = i64::from(reads.slice.number);
        if place.has_left.load(Ordering::SeqCst) || place.joined.swap(number, Ordering::SeqCst) == number {
            return Ok(None);
        }
        let gathering = &place.gathering;
        let mut members = gathering.lock();
        let has_schema = |(_, other): &(u32, Member)| other.schema == reads.schema;
        if reads.stream != &*gathering.stream || !members.waiting.first().is_none_or(has_schema) {
            drop(members);
            place.leave();
            return Ok(None);
        }
        let (sinks, sources): (Vec<_>, Vec<_>) = (0..reads.threads).map(|_| mpsc::channel(WAITING)).unzip();
        let ranges = reads.slice.ranges(&gathering.stream);
        let rows = only_rows_of(&ranges, Arc::new(SharedScanExec::new(schema, sources)));
        let member = Member {
            storage: reads.storage.clone(),
            files: reads.files,
            schema: reads.schema,
            columns: reads.columns.to_vec(),
            ranges,
            context: reads.context,
            sinks,
        };
        members.waiting.push((reads.slice.number, member));
        gathering.begin_if_all_wait(&mut members);
        rows.map(Some)
    }
}

impl Membership {
    fn leave(&self) {
        if !self.has_left.swap(true, Ordering::SeqCst) {
            let mut members = self.gathering.lock();
            members.active = members.active.saturating_sub(1);
            self.gathering.begin_if_all_wait(&mut members);
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Gathering {
    /// Begins a scan if all runs that have not left wait for one. It is for those that wait for the earliest slice.
    fn begin_if_all_wait(&self, members: &mut Members) {
        let Some(first) = members.waiting.iter().map(|(slice, _)| *slice).min().filter(|_| members.waiting.len() >= members.active) else {
            return;
        };
        let (joined, later) = std::mem::take(&mut members.waiting).into_iter().partition(|(slice, _)| *slice == first);
        members.waiting = later;
        let joined: Vec<(u32, Member)> = joined;
        let joined = Arc::new(joined.into_iter().map(|(_, member)| member).collect::<Vec<_>>());
        let partitions = joined.iter().map(|member| member.sinks.len()).max().unwrap_or_default();
        let parts = match parts(&joined, &self.stream, partitions) {
            Ok(parts) => Arc::new(parts),
            Err(error) => return self.fail(joined, &error),
        };
        for partition in 0..partitions {
            self.runtime.spawn(read(joined.clone(), parts.clone(), partition));
        }
    }

    fn fail(&self, members: Arc<Vec<Member>>, error: &Error) {
        let error = error.copied();
        self.runtime.spawn(async move {
            for sink in members.iter().flat_map(|member| &member.sinks) {
                let _ = sink.send(Err(error.copied())).await;
            }
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Files that the same runs read.
struct SharedFiles {
    plan: Arc<dyn ExecutionPlan>,
    /// The indices of the runs, each with the places of its columns among those of the plan.
    readers: Vec<(usize, Vec<usize>)>,
}

/// The scans of all files, each file once. Files that most runs read come first, so that runs which read little finish
/// early.
fn parts(members: &[Member], stream: &Arc<str>, partitions: usize) -> Result<Vec<SharedFiles>> {
    let files: Vec<&[FileRecord]> = members.iter().map(|member| &*member.files).collect();
    let part = |(readers, files): (Vec<usize>, Vec<FileRecord>)| {
        let first = &members[readers[0]];
        let mut columns: Vec<usize> = readers.iter().flat_map(|reader| members[*reader].columns.iter().copied()).collect();
        columns.sort_unstable();
        columns.dedup();
        let ranges = OffsetRanges::around(stream.clone(), readers.iter().map(|reader| &members[*reader].ranges));
        let plan = archive_plan(&first.storage, &files, first.schema.clone(), &ranges, Some(&columns), partitions)?;
        let place = |column: &usize| columns.binary_search(column).map_err(|_| Error::internal("a column is not scanned"));
        let of_reader =
            |reader: usize| Ok::<_, Error>((reader, members[reader].columns.iter().map(place).collect::<Result<Vec<usize>>>()?));
        Ok::<_, Error>(SharedFiles { plan, readers: readers.into_iter().map(of_reader).collect::<Result<_>>()? })
    };
    by_readers(&files).into_iter().map(part).collect()
}

/// Groups files by who reads them. Files that more read come first.
fn by_readers(files: &[&[FileRecord]]) -> Vec<(Vec<usize>, Vec<FileRecord>)> {
    let mut readers: BTreeMap<&str, (Vec<usize>, &FileRecord)> = BTreeMap::new();
    for (reader, file) in files.iter().enumerate().flat_map(|(reader, files)| files.iter().map(move |file| (reader, file))) {
        readers.entry(&file.path).or_insert_with(|| (Vec::new(), file)).0.push(reader);
    }
    let mut groups: BTreeMap<Vec<usize>, Vec<FileRecord>> = BTreeMap::new();
    for (readers, file) in readers.into_values() {
        groups.entry(readers).or_default().push(file.clone());
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(readers, _)| std::cmp::Reverse(readers.len()));
    groups
}

/// Reads one partition of all parts, and hands each batch to those who read it.
async fn read(members: Arc<Vec<Member>>, parts: Arc<Vec<SharedFiles>>, partition: usize) {
    let sinks: Vec<_> = members.iter().map(|member| member.sinks.get(partition)).collect();
    let is_open = |reader: usize| sinks[reader].is_some_and(|sink| !sink.is_closed());
    for part in &*parts {
        // What cannot be read ends the runs that need it, and no others.
        let of_part: Vec<_> = part.readers.iter().map(|(reader, _)| sinks[*reader]).collect();
        let mut batches = match part.plan.output_partitioning().partition_count() {
            count if partition < count => match part.plan.execute(partition, members[part.readers[0].0].context.clone()) {
                Ok(batches) => batches,
                Err(error) => {
                    fail(&of_part, &Error::from(error)).await;
                    continue;
                }
            },
            _ => continue,
        };
        while part.readers.iter().any(|(reader, _)| is_open(*reader)) {
            let batch = match batches.next().await {
                None => break,
                Some(Ok(batch)) => batch,
                Some(Err(error)) => {
                    fail(&of_part, &Error::from(error)).await;
                    break;
                }
            };
            for (reader, columns) in part.readers.iter().filter(|(reader, _)| is_open(*reader)) {
                let Some(sink) = sinks[*reader] else { continue };
                // A run that has ended does not hear of it.
                let _ = sink.send(batch.project(columns).map(Some).map_err(Error::from)).await;
            }
        }
    }
    for sink in sinks.into_iter().flatten() {
        let _ = sink.send(Ok(None)).await;
    }
}

async fn fail(sinks: &[Option<&mpsc::Sender<Result<Option<RecordBatch>>>>], error: &Error) {
    for sink in sinks.iter().flatten() {
        let _ = sink.send(Err(error.copied())).await;
    }
}

type BatchReceiver = mpsc::Receiver<Result<Option<RecordBatch>>>;

/// The batches that a shared scan hands to one run.
struct SharedScanExec {
    /// One for each partition, until it is executed.
    sources: Vec<Mutex<Option<BatchReceiver>>>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl SharedScanExec {
    fn new(schema: SchemaRef, sources: Vec<BatchReceiver>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            Partitioning::UnknownPartitioning(sources.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let sources = sources.into_iter().map(|source| Mutex::new(Some(source))).collect();
        Self { sources, schema, properties: Arc::new(properties), metrics: ExecutionPlanMetricsSet::new() }
    }

    fn take(&self, partition: usize) -> Result<BatchReceiver> {
        let source = self.sources.get(partition).and_then(|source| source.lock().unwrap_or_else(PoisonError::into_inner).take());
        source.ok_or_else(|| Error::internal("a shared scan is read once"))
    }
}

impl fmt::Debug for SharedScanExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedScanExec")
    }
}

impl DisplayAs for SharedScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedScanExec")
    }
}

impl ExecutionPlan for SharedScanExec {
    fn name(&self) -> &str {
        "SharedScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DataFusionResult<TreeNodeRecursion>,
    ) -> DataFusionResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> DataFusionResult<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let batches = stream::try_unfold((self.take(partition)?, metrics), |(mut source, metrics)| async move {
            let early = || Err(Error::internal("a shared scan of the archive ended early"));
            let Some(batch) = source.recv().await.unwrap_or_else(early)? else { return Ok(None) };
            metrics.record_output(batch.num_rows());
            Ok::<_, DataFusionError>(Some((batch, (source, metrics))))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches)))
    }
}

#[cfg(test)]
mod tests;
