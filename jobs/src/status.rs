//! Implements `status`: reports how far each partition is read, what each view is served from, what ran, and what is
//! wrong. A service that does not answer is one of the problems; the rest is still reported.

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::{CatalogState, Comparison, DefinitionKind, DefinitionRecord, DefinitionStatus, RunRecord, RunStatus};
use committed::building::BuildProgress;
use committed::lacking::waits_for_run;
use committed::registry::Registry;
use definitions::settings::Settings;
use engine::events::format_timestamp;
use engine::fresh::ViewVersion;
use engine::functions::Functions;
use serde::Serialize;
use types::Strategy;
use types::tiles::Micros;
use types::vector::{PartitionId, Vector};

use crate::installation::Installation;
use crate::readers::{SpeedProcess, readers};
use crate::scheduler::due_runs;

mod alerts;
mod gather;
mod node;
mod node_report;
pub mod problems;
mod sinks;
mod text;

pub use alerts::{AlertFacts, AlertStatus};
use gather::Services;
pub(crate) use gather::{PROBE, topics};
pub(crate) use node_report::NodeReporter;
use problems::{Facts, Problem, RefusedView, Severity, TopicEnds, problems};
use sinks::sinks;
pub use sinks::{SinkStatus, StalledReport};

/// How many ended runs of all views are listed.
const RUNS: usize = 10;

/// The content of `status`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    pub partitions: Vec<PartitionStatus>,
    /// The processes whose workers recently committed partitions.
    pub readers: Vec<SpeedProcess>,
    pub views: Vec<ViewStatus>,
    pub runs: Vec<RunReport>,
    /// The runs that are due and have not begun, in the order in which they will.
    pub queued: Vec<QueuedRun>,
    pub definitions: Vec<DefinitionReport>,
    /// The live sinks.
    pub sinks: Vec<SinkStatus>,
    /// The live alerts.
    pub alerts: Vec<AlertStatus>,
    /// The problems, the worst first.
    pub problems: Vec<Problem>,
    /// The catalog's revision.
    pub revision: i64,
}

/// How far a partition of a stream is committed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PartitionStatus {
    pub stream: Arc<str>,
    pub topic: Arc<str>,
    pub partition: i32,
    /// Everything before it is committed.
    pub next_offset: i64,
    /// The log's end; null if the log did not answer.
    pub end_offset: Option<i64>,
    /// Records that are in the log but not committed yet.
    pub lag: Option<i64>,
    pub archived: i64,
    pub duplicate: i64,
    pub dead_lettered: i64,
    /// Offsets for which the log delivered no record.
    pub absent: i64,
    /// Offsets that were accepted as lost.
    pub gaps: i64,
    pub max_event_time: Option<String>,
    /// Every record that the log received before this time is committed.
    pub complete_to: Option<String>,
    /// Why the log's end is not known.
    pub log_error: Option<String>,
}

/// A live version of a view: what it is served from, and its runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ViewStatus {
    pub view: Arc<str>,
    pub version: u32,
    pub status: DefinitionStatus,
    /// How far it is built; null if it is served.
    pub building: Option<BuildingReport>,
    /// Why the node at `serving.http` cannot answer it; null if it can, or if no node answers there.
    pub refused: Option<String>,
    /// The snapshot's cut, for the streams that the view reads; null before the first snapshot.
    pub cut: Option<Vector>,
    pub snapshot_at: Option<String>,
    /// Records between the cut and the committed vector, of the streams that the view reads.
    pub after_cut: Option<i64>,
    pub last_run: Option<RunReport>,
}

/// How far a view version is built, recomputed or replayed by its run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BuildingReport {
    pub percent: i64,
    /// Of the archived events, those that the run has read.
    pub events_read: i64,
    pub events: i64,
    /// By the pace so far; null while that is not known, or no run is under way.
    pub seconds_left: Option<i64>,
    /// `43 %, about 2 min`
    #[serde(skip)]
    text: String,
}

impl BuildingReport {
    pub(crate) fn new(progress: &BuildProgress, now: Micros) -> BuildingReport {
        let BuildProgress { events_read, events, .. } = *progress;
        let (percent, seconds_left) = (progress.percent(), progress.seconds_left(now));
        BuildingReport { percent, events_read, events, seconds_left, text: progress.text(now) }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// A batch run as it is displayed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunReport {
    pub run: String,
    pub view: Arc<str>,
    pub version: u32,
    pub status: RunStatus,
    pub attempt: u32,
    pub scheduled_for: Option<String>,
    pub started_at: Option<String>,
    pub ended_at: Option<String>,
    pub seconds: Option<f64>,
    pub cut: Option<Vector>,
    pub strategy: Option<Strategy>,
    /// How far it is, for a run under way that builds a version, recomputes or replays; else null.
    pub building: Option<BuildingReport>,
    pub events_read: i64,
    /// The size of the files that it read.
    pub bytes_read: i64,
    pub rows_written: i64,
    pub bytes_written: i64,
    /// How many tiers its snapshot has.
    pub tiers: i64,
    /// The most that it reserved of its memory limit.
    pub peak_memory_bytes: i64,
    /// The most memory that its process held meanwhile; 0 where that is not known.
    pub peak_resident_bytes: i64,
    /// What a recomputation found when it was compared with the states that incremental runs had kept; null if it was
    /// not.
    pub comparison: Option<Comparison>,
    pub error: Option<String>,
}

/// A batch run that is due and has not begun.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QueuedRun {
    pub view: Arc<str>,
    pub version: u32,
    /// Since when it may begin.
    pub due_at: String,
    pub attempt: u32,
    pub reason: &'static str,
    /// The archived events that it has to read.
    pub events: i64,
}

/// A live version of a definition.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DefinitionReport {
    pub kind: DefinitionKind,
    pub name: Arc<str>,
    pub version: u32,
    pub status: DefinitionStatus,
    pub created_at: String,
    /// Since when a sink or an alert is paused; null if it is not.
    pub paused_since: Option<String>,
}

/// Reads the status from the installation's services.
pub async fn status(installation: &Installation) -> Status {
    Services::new(installation).status().await
}

/// Like [`status`], where some of the services that the settings name may fail to open.
pub async fn status_of_settings(settings: &Settings, functions: &Functions) -> Status {
    Services::open(settings, functions).await.status().await
}

impl Services {
    async fn status(&self) -> Status {
        let (facts, runs) = self.facts().await;
        Status::from_facts(&facts, &runs)
    }
}

/// The streams that each view version reads.
pub type StreamsByVersion = BTreeMap<ViewVersion, Vec<Arc<str>>>;

/// Empty if the definitions cannot be planned.
fn reads(facts: &Facts) -> StreamsByVersion {
    let views = facts.registry.iter().flatten().flat_map(|registry| &registry.views);
    views.map(|live| (live.view_version(), live.plan.streams.iter().map(|stream| stream.name.clone()).collect())).collect()
}

/// Returns the status of each partition, view and run: a pure function of what was read from the catalog and the log.
pub fn status_of(state: &CatalogState, ends: &TopicEnds, reads: &StreamsByVersion, runs: &[RunRecord]) -> Status {
    let topics = topics(state);
    let mut partitions: Vec<PartitionId> = state.partitions.keys().cloned().collect();
    for (stream, bounds) in ends {
        partitions.extend(bounds.iter().flatten().map(|bounds| PartitionId::new(stream.clone(), bounds.partition)));
    }
    partitions.sort();
    partitions.dedup();
    let definitions = state.definitions.live();
    Status {
        partitions: partitions.iter().map(|id| partition_status(state, id, topics.get(&id.stream), ends.get(&id.stream))).collect(),
        views: state
            .live(DefinitionKind::View)
            .map(|record| view_status(state, record, reads.get(&ViewVersion::new(record.name.clone(), record.version))))
            .collect(),
        runs: runs.iter().map(RunReport::from_run).collect(),
        queued: Vec::new(),
        definitions: definitions
            .map(|record| DefinitionReport {
                kind: record.kind,
                name: record.name.clone(),
                version: record.version,
                status: record.status,
                created_at: format_timestamp(record.created_at),
                paused_since: state.paused_since(record.kind, &record.name).map(format_timestamp),
            })
            .collect(),
        readers: Vec::new(),
        sinks: Vec::new(),
        alerts: Vec::new(),
        problems: Vec::new(),
        revision: state.revision,
    }
}

fn partition_status(
    state: &CatalogState,
    id: &PartitionId,
    topic: Option<&Arc<str>>,
    ends: Option<&Result<Vec<event_log::PartitionBounds>, String>>,
) -> PartitionStatus {
    let record = state.partitions.get(id);
    let next_offset = record.map_or(0, |record| record.next_offset.0);
    let end_offset =
        ends.and_then(|ends| ends.as_ref().ok()).and_then(|ends| ends.iter().find(|b| b.partition == id.partition)).map(|b| b.end.0);
    let ranges: Vec<_> =
        state.checkpoints.iter().flat_map(|checkpoint| &checkpoint.ranges).filter(|range| range.partition == *id).collect();
    let gaps = state.gaps.iter().filter(|gap| gap.partition == *id).map(|gap| gap.end.0 - gap.start.0).sum();
    PartitionStatus {
        stream: id.stream.clone(),
        topic: topic.cloned().unwrap_or_default(),
        partition: id.partition,
        next_offset,
        end_offset,
        lag: end_offset.map(|end| (end - next_offset).max(0)),
        archived: ranges.iter().map(|range| range.archived).sum(),
        duplicate: ranges.iter().map(|range| range.duplicate).sum(),
        dead_lettered: ranges.iter().map(|range| range.dead_lettered).sum(),
        absent: ranges.iter().map(|range| range.absent).sum(),
        gaps,
        max_event_time: record.and_then(|record| record.max_event_time).map(format_timestamp),
        complete_to: record.and_then(|record| record.complete_to).map(format_timestamp),
        log_error: match ends {
            Some(Err(error)) => Some(error.clone()),
            Some(Ok(_)) => None,
            None => Some("the stream is not live".into()),
        },
    }
}

/// A run's cut covers all streams; the view's cut covers only the streams that it reads (`streams`, if known).
fn view_status(state: &CatalogState, record: &DefinitionRecord, streams: Option<&Vec<Arc<str>>>) -> ViewStatus {
    let DefinitionRecord { name: view, version, status, .. } = record;
    let snapshot = state.snapshot(view, *version);
    let runs = state.runs.iter().filter(|run| run.view == *view && run.version == *version);
    let last_run = runs.max_by_key(|run| (run.started_at, run.ended_at)).map(RunReport::from_run);
    let read = |vector: &Vector| streams.map_or_else(|| vector.clone(), |streams| vector.of_streams(streams));
    let cut = snapshot.map(|snapshot| read(&snapshot.cut));
    let after_cut = cut.as_ref().map(|cut| {
        let committed = read(&state.vector());
        committed.iter().map(|(partition, offset)| (offset.0 - cut.get(partition).0).max(0)).sum()
    });
    ViewStatus {
        view: view.clone(),
        version: *version,
        status: *status,
        building: None,
        refused: None,
        cut,
        snapshot_at: snapshot.map(|snapshot| format_timestamp(snapshot.published_at)),
        after_cut,
        last_run,
    }
}

impl RunReport {
    pub(crate) fn from_run(run: &RunRecord) -> RunReport {
        let time = |time: Option<Micros>| time.map(format_timestamp);
        RunReport {
            run: run.id.to_string(),
            view: run.view.clone(),
            version: run.version,
            status: run.status,
            attempt: run.attempt,
            scheduled_for: time(run.scheduled_for),
            started_at: time(run.started_at),
            ended_at: time(run.ended_at),
            seconds: run.started_at.zip(run.ended_at).map(|(from, to)| (to - from) as f64 / 1e6),
            cut: run.cut.clone(),
            strategy: run.strategy,
            building: None,
            events_read: run.events_read,
            rows_written: run.rows_written,
            bytes_written: run.bytes_written,
            peak_memory_bytes: run.peak_memory_bytes,
            bytes_read: run.bytes_read,
            tiers: run.tiers,
            peak_resident_bytes: run.peak_resident_bytes,
            comparison: run.comparison.clone(),
            error: run.error.clone(),
        }
    }
}

/// Adds to runs under way how far they are, if they build a version or read all that is archived.
pub(crate) fn add_progress(runs: &mut [RunReport], state: &CatalogState, registry: &Registry, now: Micros) {
    for run in runs.iter_mut().filter(|run| run.status == RunStatus::Running) {
        let reads_all = matches!(run.strategy, Some(Strategy::Full | Strategy::Replay));
        if !reads_all && state.snapshot(&run.view, run.version).is_some() {
            continue;
        }
        let live = registry.view(&run.view, run.version);
        run.building = live.map(|live| BuildingReport::new(&BuildProgress::from_state(state, live, now), now));
    }
}

impl Status {
    pub(crate) fn from_facts(facts: &Facts, runs: &[RunRecord]) -> Status {
        let status = status_of(&facts.state, &facts.ends, &reads(facts), runs);
        Status {
            readers: readers(&facts.state, facts.checkpoint_interval, facts.now),
            problems: problems(facts),
            sinks: sinks(facts, &status.partitions),
            alerts: facts.alerts.iter().map(|alert| alert.status(facts.error_of_alert(&alert.alert))).collect(),
            ..status.with_building(facts).with_queued(facts).with_refused(&facts.refused)
        }
    }

    /// Whether the catalog answered: without it almost nothing is known.
    pub fn is_known(&self) -> bool {
        self.problems.iter().all(|problem| problem.fault != problems::Fault::CatalogUnreachable)
    }

    /// Whether something is wrong: a notice is no problem.
    pub(crate) fn has_problems(&self) -> bool {
        self.problems.iter().any(|problem| problem.severity != Severity::Notice)
    }

    /// Marks the view versions that a run has to build before they are served.
    fn with_building(mut self, facts: &Facts) -> Status {
        let Some(Ok(registry)) = &facts.registry else { return self };
        add_progress(&mut self.runs, &facts.state, registry, facts.now);
        for view in &mut self.views {
            let Some(live) = registry.view(&view.view, view.version) else { continue };
            let by_node = facts.building.contains(&ViewVersion::new(view.view.clone(), view.version));
            if by_node || live.status == DefinitionStatus::Building || waits_for_run(&facts.state, live).unwrap_or_default() {
                view.building = Some(BuildingReport::new(&BuildProgress::from_state(&facts.state, live, facts.now), facts.now));
            }
        }
        self
    }

    /// Adds the runs that wait for a scheduler, or for a place in it.
    fn with_queued(mut self, facts: &Facts) -> Status {
        let Some(Ok(registry)) = &facts.registry else { return self };
        let queued = due_runs(&facts.state, registry, facts.now).into_iter().map(|due| QueuedRun {
            view: due.view,
            version: due.version,
            due_at: format_timestamp(due.since),
            attempt: due.attempt,
            reason: due.reason,
            events: due.events,
        });
        self.queued = queued.collect();
        self
    }

    /// Marks the views that a node could not load.
    fn with_refused(mut self, refused: &[RefusedView]) -> Status {
        for view in &mut self.views {
            let of_view = refused.iter().find(|refused| refused.view == view.view && refused.version == view.version);
            view.refused = of_view.map(|refused| refused.error.clone());
        }
        self
    }

    /// Returns the status as text.
    pub fn text(&self) -> String {
        text::status(self)
    }
}

/// Formats runs as a table.
pub(crate) fn runs_text(runs: &[RunReport]) -> String {
    text::runs(runs)
}

/// Says what a comparison found.
pub(crate) fn comparison_text(comparison: &Comparison) -> String {
    text::comparison(comparison)
}

#[cfg(test)]
mod tests;
