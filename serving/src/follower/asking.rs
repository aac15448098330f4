//! Requests a run of a view version that has to be built and that nothing else makes due: its snapshot or its segments
//! are lost, or another release made them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use catalog::{CatalogState, RunRecord, RunStatus};
use committed::registry::LiveView;
use engine::fresh::ViewVersion;
use tracing::info;
use types::Result;
use types::tiles::Micros;

use super::Follower;

/// A scheduler starts what it finds due by itself within this time.
const PATIENCE: Duration = Duration::from_secs(30);
/// A run that ended has not helped: another release may have made it.
const ASK_AGAIN: Duration = Duration::from_secs(600);

impl Follower {
    pub(super) async fn ask_for_runs(&self) -> Result<()> {
        let Some(loaded) = self.loaded() else { return Ok(()) };
        let now = (self.0.wall)();
        for (version, building) in &loaded.building {
            let live = &building.held.live;
            let last_asked = self.0.requested.last(version);
            let facts = Asking { newest: newest_run(&loaded.state, live).map(|run| run.status), since: building.since, last_asked, now };
            if facts.is_due() {
                self.0.catalog.request_run(&live.name, live.version).await?;
                info!(view = %live.name, version = live.version, "a run was requested: it builds the view");
                self.0.requested.note(version.clone(), now);
            }
        }
        Ok(())
    }
}

/// When runs of view versions were requested.
#[derive(Debug, Default)]
pub(super) struct RequestedRuns(Mutex<BTreeMap<ViewVersion, Micros>>);

impl RequestedRuns {
    fn last(&self, version: &ViewVersion) -> Option<Micros> {
        self.lock().get(version).copied()
    }

    /// Notes a request, and forgets those that keep no other one from being made.
    fn note(&self, version: ViewVersion, now: Micros) {
        let mut requested = self.lock();
        requested.retain(|_, at| !has_passed(*at, ASK_AGAIN, now));
        requested.insert(version, now);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ViewVersion, Micros>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known of a version that is being built.
#[derive(Debug, Clone, Copy)]
struct Asking {
    /// Its newest run.
    newest: Option<RunStatus>,
    /// When this node found that it has to be built.
    since: Micros,
    last_asked: Option<Micros>,
    now: Micros,
}

impl Asking {
    /// A run that failed is tried again by the scheduler, later and later.
    fn is_due(&self) -> bool {
        let is_coming = matches!(self.newest, Some(RunStatus::Requested | RunStatus::Running | RunStatus::Failed));
        let has_passed = |since: Micros, wait: Duration| has_passed(since, wait, self.now);
        !is_coming && has_passed(self.since, PATIENCE) && self.last_asked.is_none_or(|asked| has_passed(asked, ASK_AGAIN))
    }
}

fn has_passed(since: Micros, wait: Duration, now: Micros) -> bool {
    now.saturating_sub(since) >= wait.as_micros() as Micros
}

/// The newest run of a view version; one that waits or runs before all others.
pub(super) fn newest_run<'s>(state: &'s CatalogState, live: &LiveView) -> Option<&'s RunRecord> {
    let of_version = state.runs.iter().filter(|run| run.view == live.name && run.version == live.version);
    of_version.max_by_key(|run| (run.ended_at.is_none(), run.started_at))
}

#[cfg(test)]
mod tests;
