//! `system.*`: the catalog's records of runs, checkpoints, partitions, views, sinks, parameters, open alerts and the
//! handover; the events on which views fail; and the hot keys of this node.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use catalog::{Catalog, CatalogState, CheckpointRange, CheckpointRecord, Comparison, DefinitionKind, DefinitionRecord, RunRecord};
use committed::building::BuildProgress;
use committed::registry::{LiveView, Registry};
use datafusion::catalog::{MemTable, Session, TableProvider};
use event_log::Log;
use futures::future::join_all;
use tracing::warn;
use types::failures::{Failure, Failures};
use types::vector::{Offset, PartitionId, Vector};
use types::{Result, Strategy};

use crate::copy::LocalFiles;
use crate::hot_keys::{HotKey, HotKeys};
use crate::query_context::QueryContext;
use crate::sql::system::alerts::AlertsTable;
use crate::sql::system::columns::{NamedColumns, lower};
use crate::sql::table::{NodeTable, PlanFuture, ScanArgs, into_table_provider};

mod alerts;
mod columns;
mod parameters;
mod sinks;

/// A table of the schema `system`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SystemTable {
    /// A table whose rows are all computed at once.
    Listing(Listing),
    /// The table of open alerts, which is read page by page.
    Alerts,
}

/// The contents of a system table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listing {
    Runs,
    Checkpoints,
    Partitions,
    Views,
    Handover,
    ViewErrors,
    Sinks,
    Parameters,
    HotKeys,
}

impl SystemTable {
    pub(super) const ALL: [SystemTable; 10] = [
        SystemTable::Listing(Listing::Runs),
        SystemTable::Listing(Listing::Checkpoints),
        SystemTable::Listing(Listing::Partitions),
        SystemTable::Listing(Listing::Views),
        SystemTable::Listing(Listing::Handover),
        SystemTable::Listing(Listing::ViewErrors),
        SystemTable::Listing(Listing::Sinks),
        SystemTable::Listing(Listing::Parameters),
        SystemTable::Alerts,
        SystemTable::Listing(Listing::HotKeys),
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            SystemTable::Listing(listing) => listing.name(),
            SystemTable::Alerts => "alerts",
        }
    }

    pub(super) fn provider(
        self,
        (catalog, log): (&Catalog, Option<Arc<dyn Log>>),
        context: QueryContext,
        hot: Arc<HotKeys>,
    ) -> Result<Arc<dyn TableProvider>> {
        Ok(match self {
            SystemTable::Listing(listing) => into_table_provider(SystemRows { listing, schema: listing.schema()?, log, context, hot }),
            SystemTable::Alerts => into_table_provider(AlertsTable::new(catalog, &context.read_view.loaded.registry)?),
        })
    }
}

impl Listing {
    fn name(self) -> &'static str {
        match self {
            Listing::Runs => "runs",
            Listing::Checkpoints => "checkpoints",
            Listing::Partitions => "partitions",
            Listing::Views => "views",
            Listing::Handover => "handover",
            Listing::ViewErrors => "view_errors",
            Listing::Sinks => "sinks",
            Listing::Parameters => "parameters",
            Listing::HotKeys => "hot_keys",
        }
    }

    fn schema(self) -> Result<SchemaRef> {
        let nothing = CatalogState::default();
        let empty = match self {
            Listing::Runs => runs(&nothing)?,
            Listing::Checkpoints => checkpoints(&nothing)?,
            Listing::Partitions => partitions(&[])?,
            Listing::Views => views(&[])?,
            Listing::Handover => handover(&nothing)?,
            Listing::ViewErrors => view_errors(&[])?,
            Listing::Sinks => sinks::rows(&nothing, &Registry::default())?,
            Listing::Parameters => parameters::rows(&[])?,
            Listing::HotKeys => hot_keys(&[])?,
        };
        Ok(empty.schema())
    }
}

/// Computes the rows of a listing when a query scans it.
struct SystemRows {
    listing: Listing,
    schema: SchemaRef,
    /// The log from which the ends of partitions are read, if it is known.
    log: Option<Arc<dyn Log>>,
    context: QueryContext,
    hot: Arc<HotKeys>,
}

impl fmt::Debug for SystemRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "system.{}", self.listing.name())
    }
}

impl NodeTable for SystemRows {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn scan<'a>(&'a self, session: &'a dyn Session, args: ScanArgs<'a>) -> PlanFuture<'a> {
        Box::pin(async move {
            let table = MemTable::try_new(self.schema.clone(), vec![vec![self.rows().await?]])?;
            table.scan(session, args.projection, args.filters, args.limit).await
        })
    }
}

impl SystemRows {
    async fn rows(&self) -> Result<RecordBatch> {
        let state = &self.context.read_view.loaded.state;
        match self.listing {
            Listing::Runs => runs(state),
            Listing::Checkpoints => checkpoints(state),
            Listing::Partitions => partitions(&self.partition_rows().await),
            Listing::Views => views(&self.known_views()),
            Listing::Handover => handover(state),
            Listing::ViewErrors => view_errors(&self.view_errors()),
            Listing::Sinks => sinks::rows(state, &self.context.read_view.loaded.registry),
            Listing::Parameters => parameters::rows(&committed::parameters::listed(state)?),
            Listing::HotKeys => hot_keys(&self.hot.list(&self.context.read_view.loaded.registry, self.context.read_view.now)?),
        }
    }

    /// The partitions that the catalog knows, and those that so far only the log has.
    async fn partition_rows(&self) -> Vec<PartitionRow> {
        let read_view = &self.context.read_view;
        let ends = match &self.log {
            Some(log) => ends(&**log, &read_view.loaded.registry).await,
            None => BTreeMap::new(),
        };
        let committed = &read_view.loaded.state.partitions;
        let mut ids: Vec<PartitionId> = committed.keys().chain(ends.keys()).cloned().collect();
        ids.sort();
        ids.dedup();
        let row = |id: PartitionId| {
            let known = committed.get(&id);
            PartitionRow {
                next: known.map_or(Offset::ZERO, |known| known.next_offset),
                position: read_view.vector.get(&id),
                end: ends.get(&id).copied(),
                clock: known.and_then(|known| known.clock),
                max_event_time: known.and_then(|known| known.max_event_time),
                complete_to: read_view.complete_to.get(&id).copied().or_else(|| known.and_then(|known| known.complete_to)),
                id,
            }
        };
        ids.into_iter().map(row).collect()
    }

    fn view_errors(&self) -> Vec<(LiveView, Failure)> {
        let read_view = &self.context.read_view;
        let of_view = |view| read_view.failures_of(view).flat_map(|part| part.listed()).map(|failure| (view.live.clone(), failure));
        read_view.loaded.views.values().flat_map(of_view).collect()
    }

    fn known_views(&self) -> Vec<KnownView<'_>> {
        let read_view = &self.context.read_view;
        let known = read_view.loaded.registry.views.iter().map(|live| {
            let version = live.view_version();
            let loaded = read_view.loaded.views.get(&version);
            let copy = loaded.and_then(|loaded| loaded.snapshot.as_ref());
            let is_served = read_view.live(&live.name).is_ok_and(|answering| answering.version == live.version);
            let of_version = |record: &&DefinitionRecord| record.name == live.name && record.version == live.version;
            KnownView {
                live,
                definition: read_view.loaded.state.live(DefinitionKind::View).find(of_version),
                served: is_served && loaded.is_some(),
                refused: read_view.loaded.failed.get(&version).map(ToString::to_string),
                building: read_view.loaded.building.get(&version).map(|building| (building.progress, read_view.now)),
                snapshot: copy.map(|copy| &copy.manifest),
                buckets: copy.map(|copy| copy.local()),
                speed_rows: loaded.map(|loaded| {
                    let layers: usize = loaded.layers.iter().map(|layer| layer.run.rows()).sum();
                    layers + read_view.fresh_of(live).map(|rows| rows.len()).sum::<usize>()
                }),
                layers: loaded.map(|loaded| loaded.layers.len()),
                failed: loaded.map(|loaded| read_view.failures_of(loaded).map(Failures::count).sum()),
                complete_to: read_view.complete_to_of(live),
            }
        });
        known.collect()
    }
}

/// Returns the ends of the partitions of all streams, which are queried concurrently. A stream for which the log does
/// not answer is left out.
async fn ends(log: &dyn Log, registry: &Registry) -> BTreeMap<PartitionId, Offset> {
    // Collected first: a closure in the stream would make this future one that cannot be spawned.
    let asked: Vec<_> = registry.streams.values().map(|live| log.bounds(&live.definition.topic)).collect();
    let answers = join_all(asked).await;
    let mut ends = BTreeMap::new();
    for (stream, bounds) in registry.streams.keys().zip(answers) {
        match bounds {
            Ok(bounds) => ends.extend(bounds.into_iter().map(|bounds| (PartitionId::new(stream.clone(), bounds.partition), bounds.end))),
            Err(error) => warn!(%stream, %error, "the log does not return the end of a stream; answering without it"),
        }
    }
    ends
}

fn runs(state: &CatalogState) -> Result<RecordBatch> {
    let rows = &state.runs;
    let seconds = |run: &RunRecord| run.started_at.zip(run.ended_at).map(|(from, to)| (to - from) as f64 / 1e6);
    NamedColumns::default()
        .text("id", rows, |run| Some(run.id))
        .text("view", rows, |run| Some(&run.view))
        .integer("version", rows, |run| Some(run.version.into()))
        .text("status", rows, |run| Some(lower(&run.status)))
        .time("scheduled_for", rows, |run| run.scheduled_for)
        .integer("attempt", rows, |run| Some(run.attempt.into()))
        .time("started_at", rows, |run| run.started_at)
        .time("ended_at", rows, |run| run.ended_at)
        .double("seconds", rows, seconds)
        .text("cut", rows, |run| run.cut.as_ref())
        .text("strategy", rows, |run| run.strategy.map(Strategy::name))
        .integer("events_read", rows, |run| Some(run.events_read))
        .integer("bytes_read", rows, |run| Some(run.bytes_read))
        .integer("rows_written", rows, |run| Some(run.rows_written))
        .integer("bytes_written", rows, |run| Some(run.bytes_written))
        .integer("tiers", rows, |run| Some(run.tiers))
        .integer("peak_memory_bytes", rows, |run| Some(run.peak_memory_bytes))
        .integer("peak_resident_bytes", rows, |run| Some(run.peak_resident_bytes))
        .integer("compared_rows", rows, |run| run.comparison.as_ref().map(|comparison| comparison.rows))
        .integer("differences", rows, |run| run.comparison.as_ref().and_then(Comparison::found))
        .double("compared_seconds", rows, |run| run.comparison.as_ref().map(|comparison| comparison.seconds))
        .text("error", rows, |run| run.error.as_ref())
        .batch()
}

fn checkpoints(state: &CatalogState) -> Result<RecordBatch> {
    let rows: Vec<&CheckpointRecord> = state.checkpoints.iter().collect();
    let rows = &rows;
    let files = |checkpoint: &CheckpointRecord| state.files.of_checkpoint(checkpoint.id);
    NamedColumns::default()
        .text("id", rows, |checkpoint| Some(checkpoint.id))
        .text("worker", rows, |checkpoint| Some(&checkpoint.worker))
        .time("committed_at", rows, |checkpoint| Some(checkpoint.committed_at))
        .integer("revision", rows, |checkpoint| Some(checkpoint.revision))
        .integer("partitions", rows, |checkpoint| Some(checkpoint.ranges.len() as i64))
        .integer("archived", rows, |checkpoint| Some(checkpoint.ranges.iter().map(|range| range.archived).sum()))
        .integer("files", rows, |checkpoint| Some(files(checkpoint).count() as i64))
        .integer("bytes", rows, |checkpoint| Some(files(checkpoint).map(|file| file.bytes).sum()))
        .batch()
}

/// One partition, with its end in the log.
struct PartitionRow {
    id: PartitionId,
    next: Offset,
    position: Offset,
    end: Option<Offset>,
    clock: Option<i64>,
    max_event_time: Option<i64>,
    complete_to: Option<i64>,
}

fn partitions(rows: &[PartitionRow]) -> Result<RecordBatch> {
    NamedColumns::default()
        .text("stream", rows, |row| Some(&row.id.stream))
        .integer("partition", rows, |row| Some(row.id.partition.into()))
        .integer("next_offset", rows, |row| Some(row.next.0))
        .integer("position", rows, |row| Some(row.position.0))
        .integer("end_offset", rows, |row| row.end.map(|end| end.0))
        .integer("lag", rows, |row| row.end.map(|end| (end.0 - row.next.0).max(0)))
        .time("clock", rows, |row| row.clock)
        .time("max_event_time", rows, |row| row.max_event_time)
        .time("complete_to", rows, |row| row.complete_to)
        .batch()
}

/// One view version, and its state in this node.
struct KnownView<'a> {
    live: &'a LiveView,
    definition: Option<&'a DefinitionRecord>,
    served: bool,
    /// Why it cannot be queried.
    refused: Option<String>,
    /// The progress of its build, if it has to be built first.
    building: Option<(BuildProgress, i64)>,
    snapshot: Option<&'a storage::Manifest>,
    /// How many files the snapshot has, and how many of them are copied.
    buckets: Option<LocalFiles>,
    layers: Option<usize>,
    speed_rows: Option<usize>,
    /// The number of events that it leaves out because it fails on them.
    failed: Option<u64>,
    complete_to: Option<i64>,
}

impl KnownView<'_> {
    /// The cut of the snapshot, for the streams that the view reads.
    fn cut(&self) -> Option<Vector> {
        let streams: Vec<Arc<str>> = self.live.plan.streams.iter().map(|stream| stream.name.clone()).collect();
        self.snapshot.map(|snapshot| snapshot.cut.of_streams(&streams))
    }
}

fn views(rows: &[KnownView<'_>]) -> Result<RecordBatch> {
    NamedColumns::default()
        .text("view", rows, |view| Some(&view.live.name))
        .integer("version", rows, |view| Some(view.live.version.into()))
        .text("status", rows, |view| Some(lower(&view.live.status)))
        .truth("served", rows, |view| Some(view.served))
        .time("since", rows, |view| view.definition.map(|definition| definition.since))
        .time("kept_until", rows, |view| view.definition.and_then(|definition| definition.kept_until))
        .text("refused", rows, |view| view.refused.as_ref())
        .integer("percent_built", rows, |view| view.building.map(|(progress, _)| progress.percent()))
        .integer("seconds_left", rows, |view| view.building.and_then(|(progress, now)| progress.seconds_left(now)))
        .text("windows", rows, |view| Some(view.live.definition.windows.iter().map(|w| w.text.as_str()).collect::<Vec<_>>().join(", ")))
        .text("cut", rows, KnownView::cut)
        .time("snapshot_at", rows, |view| view.snapshot.map(|snapshot| snapshot.made_at))
        .time("joined_as_of", rows, |view| view.snapshot.and_then(|snapshot| snapshot.joined.as_ref()).map(|joined| joined.t))
        .text("snapshot_run", rows, |view| view.snapshot.map(|snapshot| snapshot.run))
        .integer("snapshot_events", rows, |view| view.snapshot.map(|snapshot| snapshot.events))
        .integer("snapshot_rows", rows, |view| view.snapshot.map(|snapshot| snapshot.rows))
        .integer("buckets", rows, |view| view.buckets.map(|buckets| buckets.all as i64))
        .integer("buckets_copied", rows, |view| view.buckets.map(|buckets| buckets.here as i64))
        .integer("layers", rows, |view| view.layers.map(|layers| layers as i64))
        .integer("speed_rows", rows, |view| view.speed_rows.map(|rows| rows as i64))
        .integer("failed", rows, |view| view.failed.map(|failed| failed as i64))
        .time("complete_to", rows, |view| view.complete_to)
        .text("sql", rows, |view| Some(&view.live.definition.sql))
        .batch()
}

/// The events that views leave out because they fail on them: the first of each part, see [`Failures`].
fn view_errors(rows: &[(LiveView, Failure)]) -> Result<RecordBatch> {
    NamedColumns::default()
        .text("view", rows, |(view, _)| Some(&view.name))
        .integer("version", rows, |(view, _)| Some(view.version.into()))
        .text("stream", rows, |(_, failure)| Some(&failure.partition.stream))
        .integer("partition", rows, |(_, failure)| Some(failure.partition.partition.into()))
        .integer("offset", rows, |(_, failure)| Some(failure.offset.0))
        .text("reason", rows, |(_, failure)| Some(&failure.reason))
        .batch()
}

fn hot_keys(rows: &[HotKey]) -> Result<RecordBatch> {
    NamedColumns::default()
        .text("view", rows, |hot| Some(&hot.view))
        .text("key", rows, |hot| Some(&hot.key))
        .text("seen_in", rows, |hot| Some(hot.seen_in.name()))
        .text("window", rows, |hot| Some(hot.window))
        .double("share", rows, |hot| Some(hot.share))
        .double("per_second", rows, |hot| Some(hot.per_second))
        .time("seen_at", rows, |hot| Some(hot.seen_at))
        .batch()
}

/// The ledger: what became of each offset, per checkpoint and partition.
fn handover(state: &CatalogState) -> Result<RecordBatch> {
    let ranges = state.checkpoints.iter().flat_map(|checkpoint| checkpoint.ranges.iter().map(move |range| (checkpoint, range)));
    let rows: Vec<(&CheckpointRecord, &CheckpointRange)> = ranges.collect();
    NamedColumns::default()
        .text("checkpoint", &rows, |(checkpoint, _)| Some(checkpoint.id))
        .time("committed_at", &rows, |(checkpoint, _)| Some(checkpoint.committed_at))
        .text("stream", &rows, |(_, range)| Some(&range.partition.stream))
        .integer("partition", &rows, |(_, range)| Some(range.partition.partition.into()))
        .integer("start", &rows, |(_, range)| Some(range.start.0))
        .integer("end", &rows, |(_, range)| Some(range.end.0))
        .integer("archived", &rows, |(_, range)| Some(range.archived))
        .integer("duplicate", &rows, |(_, range)| Some(range.duplicate))
        .integer("dead_lettered", &rows, |(_, range)| Some(range.dead_lettered))
        .integer("absent", &rows, |(_, range)| Some(range.absent))
        .truth("balanced", &rows, |(_, range)| Some(range.is_balanced()))
        .batch()
}

#[cfg(test)]
mod tests;
