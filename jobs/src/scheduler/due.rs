//! Decides what is due, in which order, and what begins now: pure functions of the catalog's state, the definitions,
//! the time, and the runs that the process has under way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use batch::recomputation_failed_lately;
use catalog::{CatalogState, DefinitionKind, DefinitionStatus, RunRecord, RunStatus, checkpoints_after, is_being_recomputed};
use committed::building::BuildProgress;
use committed::lacking::{events_of, has_history};
use committed::registry::{LiveView, Registry};
use definitions::Schedule;
use engine::fresh::ViewVersion;
use types::Strategy;
use types::tiles::{CLOCKS_DIFFER, Micros, micros};

/// A failed run is retried after 5 s, 10 s, 20 s and so on up to 10 min, this many times; then at its next due time. A
/// view that has no due time, or no snapshot to answer from meanwhile, is retried until a run succeeds.
const ATTEMPTS: u32 = 8;
const FIRST_RETRY: Duration = Duration::from_secs(5);
const LONGEST_RETRY: Duration = Duration::from_secs(600);

/// A run of this many events is long: it leaves a place to the others.
const LONG_RUN_EVENTS: i64 = 10_000_000;

/// At most this many runs share a scan of the archive: each has a part of the memory.
const MOST_TOGETHER: usize = 8;

/// A run that is due now.
#[derive(Debug, Clone, PartialEq)]
pub struct Due {
    pub view: Arc<str>,
    pub version: u32,
    /// Since when it may begin.
    pub since: Micros,
    /// The archived events that it has to read.
    pub events: i64,
    pub scheduled_for: Option<Micros>,
    pub requested: Option<RunRecord>,
    pub attempt: u32,
    pub reason: &'static str,
    /// The stream whose archive it recomputes from, as far as that is known before it begins, if it reads no other.
    pub scans: Option<Arc<str>>,
    /// Whether it recomputes from the archive although it could add to a snapshot, as far as that is known before it
    /// begins. Then other runs of the version go on.
    pub is_full_every: bool,
}

/// A place among the runs that a process makes at a time. Runs that share a scan have one place together.
pub type RunSlot = u64;

impl Due {
    /// When the run would end if it had begun when it was due, at a million events a second. Runs are queued in this
    /// order: what was due first comes first, but a run that takes long lets those go first that are due, and done,
    /// before it would be. It waits for no run that is due later than that, so none waits for ever.
    fn would_end(&self) -> Micros {
        self.since.saturating_add(self.events)
    }

    pub(crate) fn view_version(&self) -> ViewVersion {
        ViewVersion::new(self.view.clone(), self.version)
    }

    fn is_long(&self) -> bool {
        self.events >= LONG_RUN_EVENTS
    }
}

/// A run under way.
#[derive(Debug, Clone)]
pub(super) struct RunUnderWay {
    /// Its place, which others may share.
    pub(super) slot: RunSlot,
    pub(super) due: Due,
    /// Whether it recomputes beside other runs of its version.
    pub(super) is_concurrent: Arc<AtomicBool>,
}

impl RunUnderWay {
    pub(super) fn is_concurrent(&self) -> bool {
        self.is_concurrent.load(Ordering::SeqCst)
    }
}

/// Returns the runs that are due at `now`, at most one per view version, in the order in which they are to begin.
/// Nobody reads a kept version: its runs come last.
pub(crate) fn due_runs(state: &CatalogState, registry: &Registry, now: Micros) -> Vec<Due> {
    let is_of = |run: &RunRecord, view: &LiveView| run.view == view.name && run.version == view.version;
    let is_alone = |run: &&RunRecord| run.status == RunStatus::Running && !run.beside;
    let busy = |view: &LiveView| state.runs.iter().filter(is_alone).any(|run| is_of(run, view));
    let due = registry.views.iter().filter(|view| !busy(view)).filter_map(|view| Some((view, due(state, registry, view, now)?)));
    let sized = |(view, due): (&LiveView, Due)| {
        let scans = scanned(state, view, now).filter(|_| due.attempt == 1);
        let (events, is_full_every) = (events_to_read(state, view, now), is_recomputed_beside(state, view, now));
        (view.status == DefinitionStatus::Kept, Due { events, scans, is_full_every, ..due })
    };
    let mut due: Vec<(bool, Due)> = due.map(sized).collect();
    due.sort_by_key(|(is_kept, due)| (*is_kept, due.would_end()));
    due.into_iter().map(|(_, due)| due).collect()
}

/// Returns which of the queued runs begin now, beside those that the process has under way: at `most` places in all,
/// one per view version, in the queue's order. Those that begin at one place share a scan: with a run that recomputes
/// from a stream's archive begin the others that do. Long runs leave one place to the others, if there are several. If
/// there is only one, and a run in it recomputes beside others of its version, there is one more for the others.
pub(super) fn to_begin<'d>(queue: &'d [Due], under_way: &[RunUnderWay], most: usize) -> Vec<Vec<&'d Due>> {
    let holding = under_way.iter().filter(|run| !run.is_concurrent());
    let mut versions: BTreeSet<ViewVersion> = holding.map(|run| run.due.view_version()).collect();
    let taken: BTreeSet<RunSlot> = under_way.iter().map(|run| run.slot).collect();
    let of_long: BTreeSet<RunSlot> = under_way.iter().filter(|run| run.due.is_long()).map(|run| run.slot).collect();
    let all = most + usize::from(has_extra_place(under_way, most));
    let mut places = all.saturating_sub(taken.len());
    let most_long = if most > 1 { most - 1 } else { all };
    let mut places_of_long = most_long.saturating_sub(of_long.len());
    let mut begin = Vec::new();
    for (at, due) in queue.iter().enumerate() {
        if places == 0 || (due.is_long() && places_of_long == 0) || !versions.insert(due.view_version()) {
            continue;
        }
        let shares = |other: &&Due| due.scans.is_some() && other.scans == due.scans && (places_of_long > 0 || !other.is_long());
        let mut together = vec![due];
        for other in queue[at + 1..].iter().filter(shares) {
            if together.len() < MOST_TOGETHER && versions.insert(other.view_version()) {
                together.push(other);
            }
        }
        places -= 1;
        places_of_long -= usize::from(together.iter().any(|due| due.is_long()));
        begin.push(together);
    }
    begin
}

/// Whether there is a place beyond `most`.
pub(super) fn has_extra_place(under_way: &[RunUnderWay], most: usize) -> bool {
    most == 1 && under_way.iter().any(RunUnderWay::is_concurrent)
}

/// Whether a run that begins now may recompute beside others of its version: of several places, one remains for those.
pub(super) fn may_recompute_beside(under_way: &[RunUnderWay], most: usize) -> bool {
    let do_so = under_way.iter().filter(|run| run.is_concurrent() || run.due.is_full_every);
    do_so.map(|run| run.slot).collect::<BTreeSet<_>>().len() < most.saturating_sub(1).max(1)
}

/// Returns the stream whose archive a run of the view recomputes from, if that is known before it begins and the view
/// reads no other. A run that adds to its snapshot after all leaves the scan to the others.
fn scanned(state: &CatalogState, view: &LiveView, now: Micros) -> Option<Arc<str>> {
    let recomputes = match view.definition.strategy {
        // It would count the time that others take.
        _ if view.definition.timeout.is_some() => false,
        Some(Strategy::Stream) => false,
        Some(Strategy::Full) => true,
        _ => state.snapshot(&view.name, view.version).is_none() || is_recomputed_beside(state, view, now),
    };
    match &view.streams()[..] {
        [stream] if recomputes => Some(stream.clone()),
        _ => None,
    }
}

/// Whether a run recomputes because `full_every` has passed, as far as that is known before it begins.
fn is_recomputed_beside(state: &CatalogState, view: &LiveView, now: Micros) -> bool {
    let is_added_to = view.definition.strategy != Some(Strategy::Full) && view.status != DefinitionStatus::Kept;
    is_added_to
        && state.snapshot(&view.name, view.version).is_some()
        && is_full_run_due(state, view, now)
        && !recomputation_failed_lately(state, view, now)
        && !is_being_recomputed(state, &view.name, view.version, now)
}

/// Whether `full_every` has passed since the last full run that the catalog remembers.
fn is_full_run_due(state: &CatalogState, view: &LiveView, now: Micros) -> bool {
    let Some(every) = view.definition.full_every else { return false };
    let is_full = |run: &&RunRecord| run.view == view.name && run.version == view.version && run.strategy == Some(Strategy::Full);
    let succeeded = state.runs.iter().filter(is_full).filter(|run| run.status == RunStatus::Succeeded);
    let last = succeeded.filter_map(|run| run.ended_at).max();
    last.is_none_or(|last| now.saturating_sub(last) >= i64::try_from(every.as_micros()).unwrap_or(i64::MAX))
}

/// The archived events that a run has to read: those since the snapshot's cut, or all that can still count.
fn events_to_read(state: &CatalogState, view: &LiveView, now: Micros) -> i64 {
    let is_added_to = view.definition.strategy != Some(Strategy::Full) && !is_recomputed_beside(state, view, now);
    let snapshot = state.snapshot(&view.name, view.version).filter(|_| is_added_to);
    match snapshot.and_then(|snapshot| checkpoints_after(state, &view.streams(), &snapshot.cut).ok()) {
        Some(checkpoints) => events_of(state, view, &checkpoints),
        None => BuildProgress::from_state(state, view, now).events,
    }
}

fn due(state: &CatalogState, registry: &Registry, view: &LiveView, now: Micros) -> Option<Due> {
    let plain = Due {
        view: view.name.clone(),
        version: view.version,
        since: created_at(state, view),
        events: 0,
        scheduled_for: None,
        requested: None,
        attempt: 1,
        reason: "",
        scans: None,
        is_full_every: false,
    };
    if let Some(requested) = request(state, registry, view) {
        let since = requested_at(requested).unwrap_or(now);
        return Some(Due { since, requested: Some(requested.clone()), reason: "it was requested", ..plain });
    }
    let newest = newest_run(state, view, now);
    let can_wait = view.definition.schedule.is_some() && state.snapshot(&view.name, view.version).is_some();
    let is_retried = |run: &&RunRecord| run.status == RunStatus::Failed && (run.attempt < ATTEMPTS || !can_wait);
    if let Some(failed) = newest.filter(is_retried) {
        let ended_at = failed.ended_at.filter(|at| *at <= now).unwrap_or_default();
        let retry_at = ended_at.saturating_add(backoff_us(failed.attempt));
        return (now >= retry_at).then(|| Due {
            since: retry_at,
            scheduled_for: failed.scheduled_for,
            attempt: failed.attempt.saturating_add(1),
            reason: "the last try failed",
            ..plain
        });
    }
    if let Some(since) = damaged_since(state, view, newest.and_then(|run| run.started_at)) {
        return Some(Due { since, reason: "its snapshot is damaged", ..plain });
    }
    if view.status == DefinitionStatus::Building && newest.is_none() {
        return Some(Due { reason: "a new version is built", ..plain });
    }
    if newest.is_none() && has_history(state, view) {
        return Some(Due { reason: "a new view is built over the events before it", ..plain });
    }
    // Its runs would delay those of the served version, and nobody reads what they make.
    if view.status == DefinitionStatus::Kept && view.definition.strategy == Some(Strategy::Full) {
        return None;
    }
    by_schedule(state, view, newest, plain, now)
}

/// Returns the request that a run of this version answers. One request is one run: the served version takes it only if
/// the version it names is gone.
fn request<'s>(state: &'s CatalogState, registry: &Registry, view: &LiveView) -> Option<&'s RunRecord> {
    let is_gone = |run: &RunRecord| registry.view(&run.view, run.version).is_none();
    let is_mine = |run: &RunRecord| run.version == view.version || (view.status == DefinitionStatus::Active && is_gone(run));
    let mut requested = state.runs.iter().filter(|run| run.status == RunStatus::Requested && run.view == view.name);
    requested.find(|run| is_mine(run))
}

/// Returns the run that the view's schedule asks for after its `newest` one.
fn by_schedule(state: &CatalogState, view: &LiveView, newest: Option<&RunRecord>, plain: Due, now: Micros) -> Option<Due> {
    if let Schedule::After(other) = view.definition.schedule.as_ref()? {
        // A run that another process's clock dates ahead is followed once: `scheduled_for` is its end.
        let last = newest.map_or(plain.since, |run| run.started_at.max(run.scheduled_for).unwrap_or_default());
        let ended = last_success(state, other, now).filter(|ended| unless_ahead(last, now) < *ended)?;
        return Some(Due { since: ended, scheduled_for: Some(ended), reason: "a run of the view before it ended", ..plain });
    }
    let last = newest.map_or(plain.since, |run| run.scheduled_for.or(run.started_at).unwrap_or_default());
    let due = view.definition.latest_due(date(unless_ahead(last, now)), date(now))?;
    let since = view.definition.begins_at(due).timestamp_micros();
    Some(Due { since, scheduled_for: Some(due.timestamp_micros()), reason: "its schedule", ..plain })
}

/// Returns the time of a view's last run, or 0 if the clock that it is by was ahead: what is due now does not wait
/// until that time has come.
fn unless_ahead(last: Micros, now: Micros) -> Micros {
    if last > now.saturating_add(micros(CLOCKS_DIFFER)) { 0 } else { last }
}

/// Converts a catalog time to a calendar time.
fn date(time: Micros) -> chrono::DateTime<chrono::Utc> {
    chrono::DateTime::from_timestamp_micros(time).unwrap_or_default()
}

/// Returns when a run was requested: its id contains the time.
fn requested_at(run: &RunRecord) -> Option<Micros> {
    let (seconds, nanos) = run.id.get_timestamp()?.to_unix();
    i64::try_from(seconds).ok()?.checked_mul(1_000_000)?.checked_add(i64::from(nanos) / 1_000)
}

/// Returns when the newest run of a view ended that succeeded or found nothing new by `now`, whichever the version; not
/// those of versions that are kept, which nobody reads.
fn last_success(state: &CatalogState, view: &str, now: Micros) -> Option<Micros> {
    let is_kept = |run: &&RunRecord| {
        let kept = state.live(DefinitionKind::View).filter(|record| record.status == DefinitionStatus::Kept);
        kept.into_iter().any(|record| record.name == run.view && record.version == run.version)
    };
    let has_succeeded = |run: &&RunRecord| matches!(run.status, RunStatus::Succeeded | RunStatus::Skipped);
    let of_view = state.runs.iter().filter(|run| &*run.view == view).filter(has_succeeded);
    of_view.filter(|run| !is_kept(run)).filter_map(|run| run.ended_at).filter(|ended| *ended <= now).max()
}

/// Returns the newest run of a view version: by time; by the catalog's order, in which the newest comes first, if the
/// clock of the process that ran it was ahead. Its runs would else hide those that others began after them.
fn newest_run<'s>(state: &'s CatalogState, view: &LiveView, now: Micros) -> Option<&'s RunRecord> {
    let newest = newest_runs(state).get(&view.view_version()).copied()?;
    let is_ahead = newest.started_at.max(newest.ended_at) > Some(now);
    let is_begun = |run: &&RunRecord| run.view == view.name && run.version == view.version && run.started_at.is_some();
    if is_ahead { state.runs.iter().find(is_begun) } else { Some(newest) }
}

/// Returns the newest run of each view version.
pub(crate) fn newest_runs(state: &CatalogState) -> BTreeMap<ViewVersion, &RunRecord> {
    let mut newest: BTreeMap<ViewVersion, &RunRecord> = BTreeMap::new();
    for run in state.runs.iter().filter(|run| run.started_at.is_some()) {
        let known = newest.entry(ViewVersion::new(run.view.clone(), run.version)).or_insert(run);
        if run.started_at > known.started_at {
            *known = run;
        }
    }
    newest
}

/// Returns when a file of the published snapshot was first found damaged after the newest run began.
fn damaged_since(state: &CatalogState, view: &LiveView, began: Option<Micros>) -> Option<Micros> {
    let published = state.snapshot(&view.name, view.version)?;
    let of_snapshot = |path: &str| state.files.get(path).is_some_and(|file| file.run == Some(published.run) && !file.marked_for_deletion);
    let damages = state.damages.iter().filter(|damage| began.is_none_or(|began| began < damage.found_at) && of_snapshot(&damage.path));
    damages.map(|damage| damage.found_at).min()
}

fn backoff_us(attempt: u32) -> Micros {
    let doubled = FIRST_RETRY.saturating_mul(2u32.saturating_pow(attempt.saturating_sub(1)));
    doubled.min(LONGEST_RETRY).as_micros() as Micros
}

fn created_at(state: &CatalogState, view: &LiveView) -> Micros {
    state.definitions.get(DefinitionKind::View, &view.name, view.version).map(|definition| definition.created_at).unwrap_or_default()
}

#[cfg(test)]
mod tests;
