//! Decides which version of a view a run recomputes, up to which cut it reads, and what its publication changes. All
//! are pure functions of a catalog state.

use std::sync::Arc;
use std::time::Duration;

use catalog::{
    Add, ArchiveBounds, CatalogState, Commit, DefinitionKind, DefinitionRecord, DefinitionStatus, Expect, RunRecord, archive_files,
    serve_version,
};
use committed::names::{live_names, no_view};
use committed::registry::LiveView;
use storage::{Manifest, MaterialisedJoin};
use types::files::FileRecord;
use types::tiles::{CLOCKS_DIFFER, EdgesFrom, Floors, Micros, micros};
use types::vector::Vector;
use types::{Error, Result};

/// Returns the version of a view that a run recomputes. A version that is being built comes first, because users wait
/// for it; then the one that is served.
pub fn version_to_run(state: &CatalogState, view: &str) -> Result<u32> {
    let live = state.live(DefinitionKind::View).filter(|record| &*record.name == view);
    let rank = |status| match status {
        DefinitionStatus::Building => 2,
        DefinitionStatus::Active => 1,
        _ => 0,
    };
    let newest = live.max_by_key(|record| (rank(record.status), record.version));
    newest.map(|record| record.version).ok_or_else(|| no_view(view, live_names(state)))
}

/// The time as of which a run prunes tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunTime {
    At(Micros),
    /// The greatest event time of the view's streams at the cut.
    EventClock,
}

impl RunTime {
    /// The time of a run that began some time ago.
    pub(crate) fn after(self, elapsed: Micros) -> RunTime {
        match self {
            RunTime::At(t) => RunTime::At(t.saturating_add(elapsed.max(0))),
            RunTime::EventClock => RunTime::EventClock,
        }
    }
}

/// The cut up to which a run reads, and the floors above which it keeps rows.
#[derive(Clone)]
pub(crate) struct RunInputs {
    pub(crate) cut: Vector,
    pub(crate) t: Micros,
    pub(crate) floors: Floors,
    pub(crate) edges_from: EdgesFrom,
    pub(crate) max_event_time: Option<Micros>,
}

impl RunInputs {
    /// `before` is the published snapshot's manifest, if there is one that can be read.
    pub(crate) fn at_cut(
        state: &CatalogState,
        run: &RunRecord,
        (view, before): (&LiveView, Option<&Manifest>),
        t: RunTime,
    ) -> Result<RunInputs> {
        let cut = run.cut.clone().ok_or_else(|| Error::internal("a run began without a cut"))?;
        let max_event_time = max_event_time(state, &view.streams());
        let t = match t {
            RunTime::At(t) => t,
            RunTime::EventClock => max_event_time.unwrap_or_default(),
        };
        let t = not_before_join(t, before.and_then(|before| before.joined.as_ref()));
        Ok(RunInputs { cut, t, floors: view.plan.floors(t), edges_from: view.plan.edges_from(t), max_event_time })
    }

    /// Prunes as of another time.
    pub(crate) fn begin_at(&mut self, view: &LiveView, t: Micros) {
        self.t = t;
        self.floors = view.plan.floors(t);
        self.edges_from = view.plan.edges_from(t);
    }

    /// The archive files that a recomputation reads.
    pub(crate) fn archive(&self, state: &CatalogState, view: &LiveView) -> Vec<FileRecord> {
        let bounds = ArchiveBounds { cut: Some(&self.cut), oldest: view.plan.oldest_kept(self.t), newest: None };
        archive_files(state, &view.streams(), bounds).into_iter().cloned().collect()
    }
}

/// Returns the time of a run's join: that of the join before, if this process's clock is a little behind the one that
/// made it. The tiers no longer have the edges that only an earlier join would count.
fn not_before_join(t: Micros, joined: Option<&MaterialisedJoin>) -> Micros {
    let ahead = joined.map(|joined| joined.t).filter(|joined| *joined <= t.saturating_add(micros(CLOCKS_DIFFER)));
    ahead.map_or(t, |joined| joined.max(t))
}

/// Returns the greatest event time of these streams that the catalog records.
fn max_event_time(state: &CatalogState, streams: &[Arc<str>]) -> Option<Micros> {
    let of_view = state.partitions.values().filter(|partition| streams.contains(&partition.id.stream));
    of_view.filter_map(|partition| partition.max_event_time).max()
}

/// Makes a version that was being built the served one in the same transaction. Its predecessor is kept for `keep_old`.
///
/// Decides by the catalog state at the commit: a version that was dropped or replaced in the meantime stays so, and one
/// that became the served version is published like any other.
pub fn switch_version(
    commit: &mut Commit,
    state: &CatalogState,
    view: &Arc<str>,
    version: u32,
    keep_old: Duration,
    now: Micros,
) -> Result<()> {
    let of_version = |record: &&DefinitionRecord| record.name == *view && record.version == version;
    let status = state.live(DefinitionKind::View).find(of_version).map(|record| record.status);
    if status != Some(DefinitionStatus::Kept) {
        let records = serve_version(state, view, version, keep_old, now)?;
        commit.add.extend(records.into_iter().map(Add::Definition));
    }
    commit.expect.push(Expect::Revision(state.revision));
    Ok(())
}
