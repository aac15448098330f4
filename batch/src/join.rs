//! The materialised join of a linked view: its rows as of a run's cut and time, walked along the edges that the run has
//! just written.
//!
//! ```text
//! edges, mapped --diff with the previous snapshot--> keys whose row may have changed --walk--> rows
//!                                                    the other keys' rows ---carried over----^
//! ```
//!
//! The edges are deduplicated and stored in local files. Memory is bounded by `max_degree` and, after the first run, by
//! one bucket of the previous snapshot per thread. It does not grow with the number of pairs.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use committed::registry::LiveView;
use datafusion::physical_expr::utils::collect_columns;
use engine::plan::links::LinkPlan;
use engine::plan::{ColumnKind, ViewPlan};
use engine::states::{FailedRows, StateRows, conform};
use engine::walk::EdgeLayers;
use futures::{StreamExt, TryStreamExt, stream};
use storage::{BucketFile, BucketWriter, ESTIMATED, JOIN_FORMAT, Joined, Manifest, ObjectStorage, read_bucket, read_file_as};
use tokio::sync::mpsc;
use tracing::{info, warn};
use types::files::FileRecord;
use types::files::ObjectName;
use types::tiles::Micros;
use types::{Error, Result};
use uuid::Uuid;

mod changed;
mod local;

use changed::{Changed, changed, keys_of};
pub(crate) use local::{FinishedBucket, LocalBucket, LocalEdges, MappedEdges};

/// If more keys and nodes than this changed, all rows are joined again: tracking them would cost more than it saves.
const MOST_CHANGED: usize = 500_000;

/// A join in progress.
#[derive(Clone)]
pub(crate) struct Join {
    pub(crate) storage: ObjectStorage,
    pub(crate) view: LiveView,
    pub(crate) links: Arc<LinkPlan>,
    pub(crate) edges: Arc<MappedEdges>,
    pub(crate) t: Micros,
    pub(crate) run: Uuid,
    /// The number of buckets that are walked in parallel.
    pub(crate) threads: usize,
}

/// The result of a join.
#[derive(Debug)]
pub(crate) struct WrittenJoin {
    pub(crate) joined: Joined,
    pub(crate) files: Vec<FileRecord>,
}

impl Join {
    /// Joins every key. If the previous snapshot has a join over edges of the same form, joins only the keys whose
    /// edges changed since.
    pub(crate) async fn write(&self, before: Option<&Manifest>) -> Result<WrittenJoin> {
        let before = before.and_then(|manifest| Some((manifest, manifest.joined.as_ref()?)));
        let before = before.filter(|(manifest, joined)| joined.format == JOIN_FORMAT && self.follows(manifest));
        let changed = match before {
            Some((manifest, joined)) => {
                let changed = if_readable(self.changed_since(manifest, joined.t).await).flatten();
                changed.map(|changed| (Arc::new(changed), joined))
            }
            None => None,
        };
        let parts = stream::iter((0..self.edges.buckets.parts()).map(|part| {
            let kept =
                changed.as_ref().map(|(changed, joined)| (changed.clone(), joined.files.iter().find(|file| file.bucket == part).cloned()));
            self.clone().part(part, kept)
        }));
        let written: Vec<Part> = parts.buffered(self.threads).try_collect().await?;
        let sum = |count: fn(&Part) -> i64| written.iter().map(count).sum::<i64>();
        let (walked, carried) = (sum(|part| part.walked), sum(|part| part.carried));
        info!(view = %self.view.name, run = %self.run, walked, carried, "the join is written");
        metrics::counter!("basestream_batch_joined_rows_total", "view" => self.view.name.to_string(), "how" => "walked")
            .increment(walked as u64);
        metrics::counter!("basestream_batch_joined_rows_total", "view" => self.view.name.to_string(), "how" => "carried")
            .increment(carried as u64);
        let estimated = written.iter().any(|part| part.estimated);
        let (files, records) = written.into_iter().filter_map(|part| part.file).unzip();
        Ok(WrittenJoin {
            joined: Joined { format: JOIN_FORMAT, t: self.t, files, rows: walked + carried, carried, estimated },
            files: records,
        })
    }

    /// Whether rows of that snapshot's join may be carried over: it has the same edges in the same buckets, and no
    /// column changes with time alone.
    fn follows(&self, before: &Manifest) -> bool {
        let plan = &self.view.plan;
        before.stamp == plan.stamp
            && before.deltas.is_empty()
            && before.base.bucket_count == self.edges.buckets.parts()
            && self.keys_shown().is_some()
            && !names_time(plan, &self.links)
    }

    /// Returns what changed since the snapshot `before`. `None` if too much changed.
    async fn changed_since(&self, before: &Manifest, t: Micros) -> Result<Option<AllChanged>> {
        let mut all = AllChanged::default();
        let parts = stream::iter((0..self.edges.buckets.parts()).map(|part| self.changed_in(part, before.base.file_of(part), t)));
        let mut parts = std::pin::pin!(parts.buffered(self.threads));
        let mut count = 0;
        while let Some(Changed { near, far }) = parts.try_next().await? {
            count += near.len() + far.len();
            if count > MOST_CHANGED {
                return Ok(None);
            }
            all.near.push(near);
            all.far.extend(far);
        }
        Ok(Some(all))
    }

    async fn changed_in(&self, part: u32, old: Option<&BucketFile>, t: Micros) -> Result<Changed> {
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
            changed(&join.view, &join.links, (&rows, join.edges.buckets.0[part as usize].0.chunks()), (t, join.t))
        })
        .await?
    }

    /// Writes one part: first the rows that are carried over, then those that are walked.
    async fn part(self, part: u32, kept: Option<(Arc<AllChanged>, Option<BucketFile>)>) -> Result<Part> {
        let carried = match kept {
            Some((changed, file)) => if_readable(self.carry(part, changed, file).await),
            None => None,
        };
        let (again, carried) = carried.map_or((None, Vec::new()), |carried| (Some(carried.again), carried.rows));
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
        Ok(Part { file: output.finish().await?, walked, carried, estimated })
    }

    /// Returns the unchanged rows of a part. They are read completely before any is written, so that a damaged file
    /// contributes none.
    async fn carry(&self, part: u32, changed: Arc<AllChanged>, file: Option<BucketFile>) -> Result<Carried> {
        let join = self.clone();
        let again = tokio::task::spawn_blocking(move || {
            keys_of((&join.view, &join.links), &join.edges.buckets, part, &changed.near[part as usize], &changed.far)
        })
        .await??;
        let mut carried = Carried { again, rows: Vec::new() };
        let Some(file) = file else { return Ok(carried) };
        let codec = self.view.codec.nodes()?;
        let keys = self.keys_shown().ok_or_else(|| Error::internal("a group key is no column of its view"))?;
        let mut batches = read_file_as(&self.storage, (&file).into(), self.schema()).await?;
        while let Some(batch) = batches.try_next().await? {
            let groups: Vec<_> = keys.iter().map(|column| batch.column(*column).clone()).collect();
            let near = codec.near(&groups, batch.num_rows())?;
            let stays: BooleanArray = near.iter().map(|key| key.map(|key| !carried.again.contains(key))).collect();
            carried.rows.push(filter_record_batch(&batch, &stays)?);
        }
        Ok(carried)
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
        self.view.walk(&self.links, &self.edges.buckets, self.t).scan(part, &wanted, &is_asked, &mut |batch, estimated, failed| {
            self.warn_of(&failed);
            let columns = batch.columns().iter().cloned().chain([Arc::new(estimated) as ArrayRef]).collect();
            let batch = RecordBatch::try_new(schema.clone(), columns)?;
            send.blocking_send(batch).map_err(|_| Error::internal("the join's writer is gone"))
        })
    }
}

impl Join {
    /// The join has NULL for values that could not be computed.
    fn warn_of(&self, failed: &FailedRows) {
        if let Some(first) = failed.values.first() {
            let column = self.view.plan.columns[first.column].field.name();
            warn!(view = %self.view.name, column, reason = %first.why, "a value of the join could not be computed: it is NULL");
        }
    }
}

/// What changed since the previous snapshot.
#[derive(Default)]
struct AllChanged {
    /// Changed keys, by part.
    near: Vec<HashSet<Vec<u8>>>,
    far: HashSet<Vec<u8>>,
}

/// What is carried over of a part.
struct Carried {
    /// The keys that must be walked again.
    again: HashSet<Vec<u8>>,
    rows: Vec<RecordBatch>,
}

struct Part {
    file: Option<(BucketFile, FileRecord)>,
    walked: i64,
    carried: i64,
    estimated: bool,
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
            let name = ObjectName::Joined { view: view.name.clone(), version: view.version, run: self.join.run, bucket: self.part };
            self.writer = Some(BucketWriter::begin(&self.join.storage, (name, self.part), self.join.schema(), Vec::new()).await?);
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

/// A snapshot that cannot be read must not fail the run that replaces it: nothing is carried over from it.
pub(crate) fn if_readable<T>(read: Result<T>) -> Option<T> {
    read.inspect_err(|error| warn!(%error, "the previous snapshot cannot be read: its join is not carried over")).ok()
}

/// Whether a column uses the time itself (`as_of()`).
fn names_time(plan: &ViewPlan, links: &LinkPlan) -> bool {
    plan.columns.iter().any(|column| match &column.kind {
        ColumnKind::Value(value) => collect_columns(&value.expr).iter().any(|column| column.index() == links.keys.len()),
        ColumnKind::Key(_) => false,
    })
}
