//! Reports the status from within a node, for `GET /v1/status` and the page. It finds the problems that `status` finds,
//! but for those that only the files show; and it costs little, for the node has read and planned everything.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use catalog::{AlertTransition, DefinitionKind, RunStatus};
use engine::events::format_timestamp;
use engine::fresh::ViewVersion;
use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;
use serving::{ReadView, StatusReporter};
use speed::{Stall, WorkerProgress};
use types::tiles::Micros;
use types::vector::PartitionId;
use types::{Result, TransitionKind};

use super::gather::Services;
use super::node::NodeFacts;
use super::problems::{Facts, Problem};
use super::{AlertStatus, PartitionStatus, QueuedRun, RunReport, SinkStatus, StalledReport, Status, ViewStatus};
use crate::all_counted::AllCounted;
use crate::dead_letters::NewestDeadLetters;
use crate::installation::Installation;
use crate::readers::SpeedProcess;

/// Reports the status of an installation from within a node of it.
pub(crate) struct NodeReporter {
    services: Services,
    /// The workers of this process.
    workers: Vec<WorkerProgress>,
    all_counted: Mutex<AllCounted>,
    /// Locked while a report is made: there is one at a time.
    newest_dead_letters: tokio::sync::Mutex<NewestDeadLetters>,
}

impl NodeReporter {
    pub(crate) fn new(installation: &Installation, workers: Vec<WorkerProgress>) -> Self {
        let (all_counted, newest_dead_letters) = Default::default();
        Self { services: Services::new(installation), workers, all_counted, newest_dead_letters }
    }

    async fn make(&self, read_view: &ReadView, ready: Value) -> Result<Value> {
        let node: NodeFacts = serde_json::from_value(ready)?;
        let mut newest = self.newest_dead_letters.lock().await;
        let (facts, runs) = self.services.facts_of_node(read_view, node, &mut newest).await;
        let last = self.services.last_transitions(&facts).await;
        let stalls: Vec<(Stall, Duration)> = self.workers.iter().flat_map(WorkerProgress::stalls).collect();
        let status = Status::from_facts(&facts, &runs);
        let places = {
            let mut all_counted = self.all_counted.lock().unwrap_or_else(PoisonError::into_inner);
            places(&status.partitions, read_view, &mut all_counted, facts.now)
        };
        let known = Known { facts: &facts, read_view, places: &places, stalls: &stalls, last: &last };
        Ok(serde_json::to_value(NodeReport::new(status, &known))?)
    }
}

impl StatusReporter for NodeReporter {
    fn report<'a>(&'a self, read_view: &'a ReadView, ready: Value) -> BoxFuture<'a, Result<Value>> {
        Box::pin(self.make(read_view, ready))
    }
}

/// What is known beside the status.
struct Known<'k> {
    facts: &'k Facts,
    read_view: &'k ReadView,
    /// Of each partition of the status, in its order.
    places: &'k [Place],
    stalls: &'k [(Stall, Duration)],
    /// The last transition of each alert.
    last: &'k [AlertTransition],
}

/// How far a node has counted a partition.
#[derive(Debug, Clone, PartialEq)]
struct Place {
    id: PartitionId,
    /// The next offset that answers do not count.
    position: i64,
    /// The records of the log that they do not count; `None` if the log did not say where it ends.
    waiting: Option<i64>,
    /// Every record that the log received before this is counted.
    complete_to: Option<Micros>,
}

/// The status of a node. What needs attention is first in each list.
#[derive(Serialize)]
struct NodeReport {
    at: String,
    revision: i64,
    problems: Vec<Problem>,
    totals: Totals,
    streams: Vec<StreamReport>,
    partitions: Vec<PartitionReport>,
    views: Vec<ViewReport>,
    sinks: Vec<SinkReport>,
    alerts: Vec<AlertReport>,
    runs: Vec<RunReport>,
    queued: Vec<QueuedRun>,
    readers: Vec<SpeedProcess>,
}

/// Numbers of all rows, also where a list is cut short.
#[derive(Serialize)]
struct Totals {
    streams: usize,
    partitions: usize,
    views: usize,
    views_served: usize,
    sinks: usize,
    alerts: usize,
    open_alerts: i64,
    runs_under_way: usize,
    /// The records in the log, those that answers do not count and those that are not committed; null if the log did
    /// not say where it ends.
    end_offset: Option<i64>,
    waiting: Option<i64>,
    lag: Option<i64>,
    /// Every record that the log received before this time is counted.
    complete_to: Option<String>,
    snapshot_rows: i64,
    /// Records between the cuts of the views and the committed vector.
    after_cut: i64,
    oldest_snapshot_at: Option<String>,
}

#[derive(Serialize)]
struct StreamReport {
    stream: Arc<str>,
    topic: Arc<str>,
    partitions: usize,
    end_offset: Option<i64>,
    waiting: Option<i64>,
    lag: Option<i64>,
    archived: i64,
    duplicate: i64,
    dead_lettered: i64,
    absent: i64,
    gaps: i64,
    complete_to: Option<String>,
    log_error: Option<String>,
}

#[derive(Serialize)]
struct PartitionReport {
    #[serde(flatten)]
    status: PartitionStatus,
    position: i64,
    waiting: Option<i64>,
}

#[derive(Serialize)]
struct ViewReport {
    #[serde(flatten)]
    status: ViewStatus,
    /// Whether this version answers.
    served: bool,
    snapshot_rows: Option<i64>,
    waiting: Option<i64>,
    complete_to: Option<String>,
}

#[derive(Debug, PartialEq, Serialize)]
struct SinkReport {
    #[serde(flatten)]
    status: SinkStatus,
    /// The records of the stream that are not read yet.
    waiting: Option<i64>,
}

#[derive(Serialize)]
struct AlertReport {
    #[serde(flatten)]
    status: AlertStatus,
    paused_since: Option<String>,
    refused: Option<Arc<str>>,
    last: Option<LastTransition>,
}

#[derive(Serialize)]
struct LastTransition {
    kind: TransitionKind,
    /// The key, as JSON.
    key: String,
    at: String,
}

/// Returns how far each of these partitions is counted. The log was asked for their ends after `now`, which is after
/// the read view was taken.
fn places(partitions: &[PartitionStatus], read_view: &ReadView, all_counted: &mut AllCounted, now: Micros) -> Vec<Place> {
    let streams = &read_view.loaded.registry.streams;
    all_counted.keep_streams(|stream| streams.contains_key(stream));
    let mut found = Vec::with_capacity(partitions.len());
    for partition in partitions {
        let id = PartitionId::new(partition.stream.clone(), partition.partition);
        let position = read_view.vector.get(&id).0;
        let waiting = partition.end_offset.map(|end| (end - position).max(0));
        let known = read_view.complete_to_of_partition(&id);
        let complete_to = match streams.get(&id.stream) {
            Some(stream) => all_counted.complete_to((&id, &stream.definition.topic), known, waiting == Some(0), now),
            None => known,
        };
        found.push(Place { id, position, waiting, complete_to });
    }
    found
}

/// How many records of these partitions are not counted, and since when all are.
fn freshness<'p>(places: impl Iterator<Item = &'p Place> + Clone) -> (Option<i64>, Option<String>) {
    let complete_to = places.clone().map(|place| place.complete_to).min().flatten();
    (places.map(|place| place.waiting).sum(), complete_to.map(format_timestamp))
}

impl NodeReport {
    fn new(status: Status, known: &Known<'_>) -> NodeReport {
        let Status { partitions, readers, views, runs, queued, sinks: live_sinks, alerts, problems, revision, .. } = status;
        let streams = streams(&partitions, known);
        let partitions: Vec<PartitionReport> =
            partitions.into_iter().zip(known.places).map(|(status, place)| partition(status, place)).collect();
        let mut views: Vec<ViewReport> = views.into_iter().map(|status| view(status, known)).collect();
        views.sort_by_cached_key(|view| (!needs_attention(&view.status), view.status.view.clone(), view.status.version));
        let sinks = sinks(live_sinks, known);
        let mut alerts: Vec<AlertReport> = alerts.into_iter().map(|status| alert(status, known)).collect();
        alerts.sort_by_cached_key(|alert| (alert.status.run_by.is_some() && alert.status.waits.is_none(), alert.status.alert.clone()));
        let (waiting, complete_to) = freshness(known.places.iter());
        let snapshots = known.read_view.loaded.views.values().filter_map(|view| view.snapshot.as_ref());
        let totals = Totals {
            streams: streams.len(),
            partitions: partitions.len(),
            views: views.len(),
            views_served: views.iter().filter(|view| view.served).count(),
            sinks: sinks.len(),
            alerts: alerts.len(),
            open_alerts: alerts.iter().map(|alert| alert.status.open).sum(),
            runs_under_way: known.facts.state.runs.iter().filter(|run| run.status == RunStatus::Running).count(),
            end_offset: partitions.iter().map(|partition| partition.status.end_offset).sum(),
            waiting,
            lag: partitions.iter().map(|partition| partition.status.lag).sum(),
            complete_to,
            snapshot_rows: views.iter().filter_map(|view| view.snapshot_rows).sum(),
            after_cut: views.iter().filter_map(|view| view.status.after_cut).sum(),
            oldest_snapshot_at: snapshots.map(|snapshot| snapshot.manifest.made_at).min().map(format_timestamp),
        };
        let at = format_timestamp(known.facts.now);
        NodeReport { at, revision, problems, totals, streams, partitions, views, sinks, alerts, runs, queued, readers }
    }
}

/// The live streams, those that are behind first.
fn streams(partitions: &[PartitionStatus], known: &Known<'_>) -> Vec<StreamReport> {
    let report = |stream: &Arc<str>, topic: &Arc<str>| {
        let of_stream = || partitions.iter().filter(|partition| partition.stream == *stream);
        let (waiting, complete_to) = freshness(known.places.iter().filter(|place| place.id.stream == *stream));
        StreamReport {
            stream: stream.clone(),
            topic: topic.clone(),
            partitions: of_stream().count(),
            end_offset: of_stream().map(|partition| partition.end_offset).sum(),
            waiting,
            lag: of_stream().map(|partition| partition.lag).sum(),
            archived: of_stream().map(|partition| partition.archived).sum(),
            duplicate: of_stream().map(|partition| partition.duplicate).sum(),
            dead_lettered: of_stream().map(|partition| partition.dead_lettered).sum(),
            absent: of_stream().map(|partition| partition.absent).sum(),
            gaps: of_stream().map(|partition| partition.gaps).sum(),
            complete_to,
            log_error: known.facts.ends.get(stream).and_then(|ends| ends.as_ref().err()).cloned(),
        }
    };
    let streams = &known.read_view.loaded.registry.streams;
    let mut reports: Vec<StreamReport> = streams.iter().map(|(name, live)| report(name, &live.definition.topic)).collect();
    reports.sort_by_cached_key(|report| (report.log_error.is_none(), report.waiting == Some(0), report.stream.clone()));
    reports
}

fn partition(mut status: PartitionStatus, place: &Place) -> PartitionReport {
    status.complete_to = place.complete_to.map(format_timestamp);
    PartitionReport { status, position: place.position, waiting: place.waiting }
}

fn needs_attention(view: &ViewStatus) -> bool {
    let has_failed = view.last_run.as_ref().is_some_and(|run| run.status == RunStatus::Failed);
    view.refused.is_some() || view.building.is_some() || has_failed
}

fn view(status: ViewStatus, known: &Known<'_>) -> ViewReport {
    let read_view = known.read_view;
    let loaded = read_view.loaded.views.get(&ViewVersion::new(status.view.clone(), status.version));
    let is_answering = read_view.live(&status.view).is_ok_and(|answering| answering.version == status.version);
    let planned = read_view.loaded.registry.view(&status.view, status.version);
    let is_read = |place: &&Place| planned.is_some_and(|live| live.plan.reads(&place.id.stream));
    let (waiting, complete_to) = freshness(known.places.iter().filter(is_read));
    ViewReport {
        served: is_answering && loaded.is_some(),
        snapshot_rows: loaded.and_then(|loaded| loaded.snapshot.as_ref()).map(|snapshot| snapshot.manifest.rows),
        waiting,
        complete_to,
        status,
    }
}

/// The live sinks, those that put nothing out first.
fn sinks(sinks: Vec<SinkStatus>, known: &Known<'_>) -> Vec<SinkReport> {
    let mut reports: Vec<SinkReport> = sinks.into_iter().map(|status| sink(status, known.places, known.stalls)).collect();
    let is_stopped = |sink: &SinkStatus| sink.stalled.is_some() || sink.refused.is_some() || sink.paused_since.is_some();
    reports.sort_by_cached_key(|sink| (!is_stopped(&sink.status), sink.status.sink.clone()));
    reports
}

/// The workers of this process know more than the outages: each of them says what it does not read.
fn sink(status: SinkStatus, places: &[Place], stalls: &[(Stall, Duration)]) -> SinkReport {
    let of_stream = |stream: &Arc<str>| freshness(places.iter().filter(|place| place.id.stream == *stream)).0;
    let of_sink = stalls.iter().filter(|(stall, _)| stall.sink == status.sink);
    let stalled = of_sink.max_by_key(|(_, lasting)| *lasting);
    let stalled = stalled.map(|(stall, lasting)| StalledReport { seconds: lasting.as_secs(), error: stall.error.clone() });
    SinkReport { waiting: status.stream.as_ref().and_then(of_stream), status: SinkStatus { stalled, running: true, ..status } }
}

fn alert(status: AlertStatus, known: &Known<'_>) -> AlertReport {
    let facts = known.facts.alerts.iter().find(|facts| facts.alert == status.alert && facts.version == status.version);
    let last = known.last.iter().find(|last| last.alert == status.alert && last.version == status.version);
    AlertReport {
        paused_since: known.facts.state.paused_since(DefinitionKind::Alert, &status.alert).map(format_timestamp),
        refused: facts.and_then(|facts| facts.refused.clone()),
        last: last.map(|last| LastTransition { kind: last.kind, key: last.keys.clone(), at: format_timestamp(last.at) }),
        status,
    }
}

#[cfg(test)]
mod tests;
