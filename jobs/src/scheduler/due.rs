//! Decides what is due: a pure function of the catalog's state, the definitions and the time.

use std::sync::Arc;
use std::time::Duration;

use catalog::{CatalogState, DefinitionKind, DefinitionStatus, RunRecord, RunStatus, checkpoints_after};
use committed::building::Progress;
use committed::lacking::{events_of, has_history};
use committed::registry::{LiveView, Registry};
use types::Strategy;
use types::tiles::Micros;

use super::{date, newest_runs};

/// A failed run is retried after 5 s, 10 s, 20 s and so on up to 10 min, this many times; then at its next due time. A view
/// that has no due time, or no snapshot to answer from meanwhile, is retried until a run succeeds.
const ATTEMPTS: u32 = 8;
const FIRST_RETRY: Duration = Duration::from_secs(5);
const LONGEST_RETRY: Duration = Duration::from_secs(600);

/// A run that is due now.
#[derive(Debug, Clone, PartialEq)]
pub struct Due {
    pub view: Arc<str>,
    pub version: u32,
    pub scheduled_for: Option<Micros>,
    pub requested: Option<RunRecord>,
    pub attempt: u32,
    pub reason: &'static str,
}

/// Returns the runs to start at `now`, at most one per view version, the cheapest first: what reads little does not wait
/// for what is built from all of the archive.
pub fn due_runs(state: &CatalogState, registry: &Registry, now: Micros) -> Vec<Due> {
    let busy = |view: &LiveView| state.runs.iter().any(|run| run.status == RunStatus::Running && run.view == view.name);
    let due = registry.views.iter().filter(|view| !busy(view)).filter_map(|view| Some((view, due(state, registry, view, now)?)));
    let mut due: Vec<(i64, Due)> = due.map(|(view, due)| (events_to_read(state, view, now), due)).collect();
    due.sort_by_key(|(events, _)| *events);
    due.into_iter().map(|(_, due)| due).collect()
}

/// The archived events that a run has to read: those since the snapshot's cut, or all that can still count.
fn events_to_read(state: &CatalogState, view: &LiveView, now: Micros) -> i64 {
    let is_added_to = view.definition.strategy != Some(Strategy::Full);
    let snapshot = state.snapshot(&view.name, view.version).filter(|_| is_added_to);
    match snapshot.and_then(|snapshot| checkpoints_after(state, &view.streams(), &snapshot.cut).ok()) {
        Some(checkpoints) => events_of(state, view, &checkpoints),
        None => Progress::of(state, view, now).events,
    }
}

fn due(state: &CatalogState, registry: &Registry, view: &LiveView, now: Micros) -> Option<Due> {
    let plain = Due { view: view.name.clone(), version: view.version, scheduled_for: None, requested: None, attempt: 1, reason: "" };
    let requested = state.runs.iter().find(|run| run.status == RunStatus::Requested && run.view == view.name);
    // One request is one run: the served version takes it only if the version it names is gone.
    let is_gone = |run: &RunRecord| registry.view(&run.view, run.version).is_none();
    if let Some(requested) = requested
        && (requested.version == view.version || (view.status == DefinitionStatus::Active && is_gone(requested)))
    {
        return Some(Due { requested: Some(requested.clone()), reason: "it was requested", ..plain });
    }
    let newest = newest_run(state, view, now);
    let can_wait = view.definition.schedule.is_some() && state.snapshot(&view.name, view.version).is_some();
    let is_retried = |run: &&RunRecord| run.status == RunStatus::Failed && (run.attempt < ATTEMPTS || !can_wait);
    if let Some(failed) = newest.filter(is_retried) {
        let ended_at = failed.ended_at.filter(|at| *at <= now).unwrap_or_default();
        let retry_at = ended_at.saturating_add(backoff_us(failed.attempt));
        return (now >= retry_at).then(|| Due {
            scheduled_for: failed.scheduled_for,
            attempt: failed.attempt.saturating_add(1),
            reason: "the last try failed",
            ..plain
        });
    }
    if is_damaged_since(state, view, newest.and_then(|run| run.started_at)) {
        return Some(Due { reason: "its snapshot is damaged", ..plain });
    }
    if view.status == DefinitionStatus::Building && newest.is_none() {
        return Some(Due { reason: "a new version is built", ..plain });
    }
    if newest.is_none() && has_history(state, view) {
        return Some(Due { reason: "a new view is built over the events before it", ..plain });
    }
    let schedule = view.definition.schedule.as_ref()?;
    let since = newest.map(|run| run.scheduled_for.or(run.started_at).unwrap_or_default()).unwrap_or_else(|| created_at(state, view));
    let due = schedule.latest_due(date(since), date(now))?;
    Some(Due { scheduled_for: Some(due.timestamp_micros()), reason: "its schedule", ..plain })
}

/// Returns the newest run of a view version: by time; by the catalog's order, in which the newest comes first, if the clock
/// of the process that ran it was ahead. Its runs would else hide those that others began after them.
fn newest_run<'s>(state: &'s CatalogState, view: &LiveView, now: Micros) -> Option<&'s RunRecord> {
    let newest = newest_runs(state).get(&(view.name.clone(), view.version)).copied()?;
    let is_ahead = newest.started_at.max(newest.ended_at) > Some(now);
    let is_begun = |run: &&RunRecord| run.view == view.name && run.version == view.version && run.started_at.is_some();
    if is_ahead { state.runs.iter().find(is_begun) } else { Some(newest) }
}

/// Returns whether a file of the published snapshot was found damaged after the newest run began.
fn is_damaged_since(state: &CatalogState, view: &LiveView, began: Option<Micros>) -> bool {
    let Some(published) = state.snapshot(&view.name, view.version) else { return false };
    let of_snapshot = |path: &str| state.files.get(path).is_some_and(|file| file.run == Some(published.run) && !file.marked_for_deletion);
    state.damages.iter().any(|damage| began.is_none_or(|began| began < damage.found_at) && of_snapshot(&damage.path))
}

fn backoff_us(attempt: u32) -> Micros {
    let doubled = FIRST_RETRY.saturating_mul(2u32.saturating_pow(attempt.saturating_sub(1)));
    doubled.min(LONGEST_RETRY).as_micros() as Micros
}

fn created_at(state: &CatalogState, view: &LiveView) -> Micros {
    let of_view = state.definitions.iter().find(|d| d.kind == DefinitionKind::View && d.name == view.name && d.version == view.version);
    of_view.map(|definition| definition.created_at).unwrap_or_default()
}

#[cfg(test)]
mod tests;
