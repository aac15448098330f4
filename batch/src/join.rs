//! The materialised join of a linked view: its rows as of a run's cut and time, walked along the edges of its snapshot.
//!
//! ```text
//! full run:         edges, mapped --diff with the previous snapshot--+
//! incremental run:  delta, and what time has passed over ------------+-> keys with a changed row, maybe --walk--> rows
//!                                                                        the other keys' rows --carried over--------^
//! ```
//!
//! The edges are deduplicated and stored in local files. Memory is bounded by `max_degree` and, after the first run, by
//! one bucket of the previous snapshot per thread. It does not grow with the number of pairs.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use catalog::CatalogState;
use committed::registry::LiveView;
use datafusion::physical_expr::utils::collect_columns;
use engine::plan::links::{LinkPlan, PairRange};
use engine::plan::{ColumnKind, ViewPlan};
use engine::states::{FailedRows, SortedRun, StateRows, conform};
use engine::walk::{EdgeLayers, EdgeStarts, SnapshotEdges};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use storage::{BucketFile, BucketWriter, ESTIMATED, JOIN_FORMAT, Manifest, MaterialisedJoin, ObjectStorage, read_bucket, read_file_as};
use tokio::sync::mpsc;
use tracing::{info, warn};
use types::files::FileRecord;
use types::files::ObjectName;
use types::tiles::Micros;
use types::{Error, Result};
use uuid::Uuid;

mod changed;
mod copies;
mod expired;
mod local;

use crate::basis::is_lost_to;
use changed::{Added, JoinChanges, JoinTimes, by_part, changed, keys_of};
pub(crate) use copies::CopiedTier;
pub use copies::LocalCopies;
pub(crate) use expired::without_expired;
pub(crate) use local::{FinishedBucket, LocalBucket, LocalEdges, LocalTier, edges_of};

/// If more keys and nodes than this changed, all rows are joined again: tracking them would cost more than it saves.
const MOST_CHANGED: usize = 500_000;
/// A delta of at least this many edges, and one in `LARGE_PART` of all, changes most keys: all are joined again.
const LARGE_DELTA: usize = 10_000;
const LARGE_PART: usize = 8;
/// From this many changed keys and nodes on, nodes are indexed before they are walked: an index reads all edges once.
const INDEXED_FROM: usize = 50_000;

/// A join in progress.
#[derive(Clone)]
pub(crate) struct Join {
    pub(crate) storage: ObjectStorage,
    pub(crate) view: LiveView,
    pub(crate) links: Arc<LinkPlan>,
    pub(crate) edges: Arc<SnapshotEdges>,
    pub(crate) t: Micros,
    pub(crate) run: Uuid,
    /// Whether other runs of the version continue meanwhile.
    pub(crate) is_concurrent: bool,
    /// The number of buckets that are walked in parallel.
    pub(crate) threads: usize,
}

/// The result of a join.
#[derive(Debug)]
pub(crate) struct WrittenJoin {
    pub(crate) joined: MaterialisedJoin,
    pub(crate) files: Vec<FileRecord>,
    /// The files of the previous join that are kept as they are, because all of their rows are carried over.
    pub(crate) carried_over: Vec<String>,
}

impl Join {
    /// Compares the edges of one tier with those of the previous snapshot. `None` if all keys have to be joined.
    pub(crate) async fn compared(&self, state: &CatalogState, before: Option<&Manifest>) -> Option<JoinChanges> {
        let (before, joined) = self.followed(before?)?;
        if !before.deltas.is_empty() {
            return None;
        }
        // Collected first: a closure in the stream would make this future one that cannot be spawned.
        let parts: Vec<_> = (0..self.edges.parts()).map(|part| self.changed_in(part, before.base.file_of(part), joined.t)).collect();
        let changed = stream::iter(parts).buffered(self.threads);
        self.changes(state, joined, if_readable(all(changed).await)?)
    }

    /// Determines the changes by a delta, and by the time since the join of the previous snapshot. `None` if all keys
    /// have to be joined.
    pub(crate) async fn changed_by<'t>(
        &self,
        state: &CatalogState,
        before: &Manifest,
        tiers_before: impl IntoIterator<Item = &'t LocalTier>,
        delta: &LocalTier,
    ) -> Result<Option<JoinChanges>> {
        let Some((_, joined)) = self.followed(before) else { return Ok(None) };
        let added_rows = delta.rows();
        if added_rows >= LARGE_DELTA && added_rows >= rows_of(&self.edges) / LARGE_PART {
            return Ok(None);
        }
        let times = JoinTimes { before: joined.t, now: self.t };
        let added = Arc::new(Added::new(&self.view, &self.links, edges_of(tiers_before), edges_of([delta]), times));
        let runs: Vec<_> = added.runs().into_iter().map(|run| changed_in_run(added.clone(), run)).collect();
        let changed = all(stream::iter(runs).buffered(self.threads)).await?;
        Ok(self.changes(state, joined, changed))
    }

    /// Returns the previous snapshot and its join, if rows of it may be carried over: its edges have the same format,
    /// it has as many parts, and no column uses the time itself.
    fn followed<'m>(&self, before: &'m Manifest) -> Option<(&'m Manifest, &'m MaterialisedJoin)> {
        let plan = &self.view.plan;
        let joined = before.joined.as_ref().filter(|joined| joined.format == JOIN_FORMAT)?;
        let follows = before.stamp == plan.stamp
            && before.parts() == self.edges.parts()
            && self.keys_shown().is_some()
            && !names_time(plan, &self.links);
        follows.then_some((before, joined))
    }

    /// `changed` is `None` if too much changed.
    fn changes(&self, state: &CatalogState, joined: &MaterialisedJoin, changed: Option<EdgeStarts>) -> Option<JoinChanges> {
        let EdgeStarts { near, far } = changed?;
        let near = if_readable(by_part(&self.view, near, self.edges.parts()))?;
        let lost = joined.files.iter().filter(|file| is_lost_to(self.run, state, &file.path)).map(|file| file.bucket).collect();
        Some(JoinChanges { near, far, joined: joined.clone(), lost })
    }

    async fn changed_in(&self, part: u32, old: Option<&BucketFile>, t: Micros) -> Result<EdgeStarts> {
        let plan = &self.view.plan;
        let mut rows = Vec::new();
        if let Some(file) = old {
            let mut batches = read_bucket(&self.storage, file).await?;
            while let Some(batch) = batches.try_next().await? {
                let batch = conform(plan.state_schema(), &batch)?;
                let keys = self.view.codec.encode(&batch.columns()[..plan.keys.len()], batch.num_rows())?;
                rows.push(StateRows::from_sorted(batch, keys));
            }
        }
        let join = self.clone();
        tokio::task::spawn_blocking(move || {
            let new: Vec<StateRows> = join.edges.chunks(part).into_iter().map(|chunk| chunk.rows.clone()).collect();
            changed(&join.view, &join.links, &rows, &new, JoinTimes { before: t, now: join.t })
        })
        .await?
    }

    /// Joins the keys that changed, or every key.
    pub(crate) async fn write(mut self, local: &LocalEdges, changes: Option<JoinChanges>) -> Result<WrittenJoin> {
        let indexed = match changes.as_ref().map(JoinChanges::count) {
            Some(0..INDEXED_FROM) => None,
            _ => Some(local.indexed(&self.edges, self.threads).await?),
        };
        let _reserved = indexed.map(|indexed| {
            self.edges = Arc::new(indexed.edges);
            indexed.reserved
        });
        let changes = changes.map(Arc::new);
        let parts = stream::iter((0..self.edges.parts()).map(|part| self.clone().part(part, changes.clone())));
        let written: Vec<Part> = parts.buffered(self.threads).try_collect().await?;
        let sum = |count: fn(&Part) -> i64| written.iter().map(count).sum::<i64>();
        let (walked, carried) = (sum(|part| part.walked), sum(|part| part.carried));
        info!(view = %self.view.name, run = %self.run, walked, carried, "the join is written");
        metrics::counter!("basestream_batch_joined_rows_total", "view" => self.view.name.to_string(), "how" => "walked")
            .increment(walked as u64);
        metrics::counter!("basestream_batch_joined_rows_total", "view" => self.view.name.to_string(), "how" => "carried")
            .increment(carried as u64);
        let estimated = written.iter().any(|part| part.estimated);
        let mut join = WrittenJoin {
            joined: MaterialisedJoin { format: JOIN_FORMAT, t: self.t, files: Vec::new(), rows: walked + carried, carried, estimated },
            files: Vec::new(),
            carried_over: Vec::new(),
        };
        for file in written.into_iter().filter_map(|part| part.file) {
            match file {
                PartFile::Written(file, record) => {
                    join.joined.files.push(file);
                    join.files.push(record);
                }
                PartFile::Unchanged(file) => {
                    join.carried_over.push(file.path.clone());
                    join.joined.files.push(file);
                }
            }
        }
        Ok(join)
    }

    /// Writes one part: first the rows that are carried over, then those that are walked again. A part in which nothing
    /// changed keeps its file.
    async fn part(self, part: u32, changes: Option<Arc<JoinChanges>>) -> Result<Part> {
        let carried = match changes.filter(|changes| !changes.lost.contains(&part)) {
            Some(changes) => if_readable(self.carry(part, changes).await),
            None => None,
        };
        let (again, carried) = match carried {
            Some(Carried::Whole(kept)) => return Ok(kept),
            Some(Carried::Some { again, rows }) => (Some(again), rows),
            None => (None, Vec::new()),
        };
        let mut output = PartOutput { join: &self, part, writer: None, estimated: false };
        for batch in &carried {
            output.push(batch).await?;
        }
        let (send, mut rows) = mpsc::channel(2);
        let join = self.clone();
        let walking = tokio::task::spawn_blocking(move || join.walk(part, again.as_ref(), &send));
        let mut walked = 0;
        while let Some(batch) = rows.recv().await {
            walked += batch.num_rows() as i64;
            output.push(&batch).await?;
        }
        walking.await??;
        let carried = carried.iter().map(|batch| batch.num_rows() as i64).sum();
        let estimated = output.estimated;
        let file = output.finish().await?.map(|(file, record)| PartFile::Written(file, record));
        Ok(Part { file, walked, carried, estimated })
    }

    /// Returns the rows of a part that are carried over. They are read completely before any is written, so that a
    /// damaged file contributes none.
    async fn carry(&self, part: u32, changes: Arc<JoinChanges>) -> Result<Carried> {
        let (join, known) = (self.clone(), changes.clone());
        let again = tokio::task::spawn_blocking(move || {
            keys_of(&join.view, &join.links, &join.edges, part, &known.near[part as usize], &known.far)
        })
        .await??;
        let file = changes.joined.files.iter().find(|file| file.bucket == part);
        if again.is_empty() {
            let (carried, estimated) = (file.map_or(0, |file| file.rows), file.is_some() && changes.joined.estimated);
            return Ok(Carried::Whole(Part { file: file.cloned().map(PartFile::Unchanged), walked: 0, carried, estimated }));
        }
        let mut rows = Vec::new();
        let Some(file) = file else { return Ok(Carried::Some { again, rows }) };
        let codec = self.view.codec.nodes()?;
        let keys = self.keys_shown().ok_or_else(|| Error::internal("a group key is no column of its view"))?;
        let mut batches = read_file_as(&self.storage, file.into(), self.schema()).await?;
        while let Some(batch) = batches.try_next().await? {
            let groups: Vec<_> = keys.iter().map(|column| batch.column(*column).clone()).collect();
            let near = codec.near(&groups, batch.num_rows())?;
            let stays: BooleanArray = near.iter().map(|key| key.map(|key| !again.contains(key))).collect();
            rows.push(filter_record_batch(&batch, &stays)?);
        }
        Ok(Carried::Some { again, rows })
    }

    /// The view's columns, and a flag for rows that are estimates.
    fn schema(&self) -> SchemaRef {
        let columns = self.view.plan.output_schema().fields().clone();
        let estimated = Arc::new(Field::new(ESTIMATED, DataType::Boolean, false));
        Arc::new(Schema::new(columns.iter().cloned().chain([estimated]).collect::<Vec<_>>()))
    }

    /// Returns the positions of the group keys among the view's columns, in the order of the keys.
    fn keys_shown(&self) -> Option<Vec<usize>> {
        let columns = &self.view.plan.columns;
        let place = |key: usize| columns.iter().position(|column| matches!(column.kind, ColumnKind::Key(shown) if shown == key));
        (0..self.links.keys.len()).map(place).collect()
    }

    /// Walks the keys of a part, or only those in `only`.
    fn walk(&self, part: u32, only: Option<&HashSet<Vec<u8>>>, send: &mpsc::Sender<RecordBatch>) -> Result<()> {
        let wanted: Vec<usize> = (0..self.view.plan.columns.len()).collect();
        let is_asked = |key: &[u8]| only.is_none_or(|only| only.contains(key));
        let schema = self.schema();
        self.view.walk(&self.links, &*self.edges, self.t).scan(part, &wanted, &is_asked, &mut |batch, estimated, failed| {
            self.warn_of(&failed);
            let columns = batch.columns().iter().cloned().chain([Arc::new(estimated) as ArrayRef]).collect();
            let batch = RecordBatch::try_new(schema.clone(), columns)?;
            send.blocking_send(batch).map_err(|_| Error::internal("the join's writer is gone"))
        })
    }

    /// Warns of values that could not be computed, which are NULL in the join.
    fn warn_of(&self, failed: &FailedRows) {
        if let Some(first) = failed.values.first() {
            let column = self.view.plan.columns[first.column].field.name();
            warn!(view = %self.view.name, column, reason = %first.why, "a value of the join could not be computed: it is NULL");
        }
    }
}

fn rows_of(edges: &SnapshotEdges) -> usize {
    edges.0.iter().flat_map(|tier| &tier.0).map(|(run, _)| run.rows()).sum()
}

async fn changed_in_run(added: Arc<Added>, (run, is_added): (Arc<SortedRun>, bool)) -> Result<EdgeStarts> {
    tokio::task::spawn_blocking(move || added.changed_in(&run, is_added)).await?
}

/// Collects the changes. `None` if there are too many.
async fn all(changed: impl Stream<Item = Result<EdgeStarts>>) -> Result<Option<EdgeStarts>> {
    let mut changed = std::pin::pin!(changed);
    let mut all = EdgeStarts::default();
    while let Some(EdgeStarts { near, far }) = changed.try_next().await? {
        all.near.extend(near);
        all.far.extend(far);
        if all.near.len() + all.far.len() > MOST_CHANGED {
            return Ok(None);
        }
    }
    Ok(Some(all))
}

/// The rows of a part that are carried over.
enum Carried {
    Whole(Part),
    Some {
        /// The keys that must be walked again.
        again: HashSet<Vec<u8>>,
        rows: Vec<RecordBatch>,
    },
}

struct Part {
    file: Option<PartFile>,
    walked: i64,
    carried: i64,
    estimated: bool,
}

enum PartFile {
    Written(BucketFile, FileRecord),
    /// The file of the previous join, which is kept as it is.
    Unchanged(BucketFile),
}

/// A part's file, created when its first row is written.
struct PartOutput<'a> {
    join: &'a Join,
    part: u32,
    writer: Option<BucketWriter>,
    /// Whether any row written so far is an estimate.
    estimated: bool,
}

impl PartOutput<'_> {
    async fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        if self.writer.is_none() {
            let view = &self.join.view;
            let (view, version, run, bucket) = (view.name.clone(), view.version, self.join.run, self.part);
            let name = match self.join.is_concurrent {
                true => ObjectName::RecomputedJoined { view, version, run, bucket },
                false => ObjectName::Joined { view, version, run, bucket },
            };
            self.writer = Some(BucketWriter::begin(&self.join.storage, name, self.part, self.join.schema(), Vec::new()).await?);
        }
        self.estimated |= batch.columns().last().and_then(|flags| flags.as_boolean_opt()).is_some_and(|flags| flags.true_count() > 0);
        match &mut self.writer {
            Some(writer) => writer.push(batch).await,
            None => Ok(()),
        }
    }

    async fn finish(self) -> Result<Option<(BucketFile, FileRecord)>> {
        match self.writer {
            Some(writer) => writer.finish().await.map(Some),
            None => Ok(None),
        }
    }
}

/// Ignores an error of reading the previous snapshot: it must not fail the run that replaces it, which then carries
/// nothing over.
pub(crate) fn if_readable<T>(read: Result<T>) -> Option<T> {
    read.inspect_err(|error| warn!(%error, "the previous snapshot cannot be read: its join is not carried over")).ok()
}

/// Whether time alone changes rows of a join between two times.
pub(crate) fn changes_with_time(view: &LiveView, links: &LinkPlan, before: Micros, now: Micros) -> bool {
    let is_passed = |range: &PairRange| [range.near, range.far].iter().any(|range| range.at(before) != range.at(now));
    before != now && (names_time(&view.plan, links) || links.ranges.iter().any(is_passed))
}

/// Whether a column uses the time itself (`as_of()`).
fn names_time(plan: &ViewPlan, links: &LinkPlan) -> bool {
    plan.columns.iter().any(|column| match &column.kind {
        ColumnKind::Value(value) => collect_columns(&value.expr).iter().any(|column| column.index() == links.keys.len()),
        ColumnKind::Key(_) => false,
    })
}
