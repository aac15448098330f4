//! Decides on the basis of a run's snapshot: the archive, or the previous snapshot and the checkpoints since. All are
//! pure functions of a catalog state and the previous manifest.

use std::time::Duration;

use catalog::{CatalogState, DefinitionStatus, RunStatus, last_recomputation};
use committed::registry::LiveView;
use storage::Manifest;
use types::Strategy;
use types::files::ObjectName;
use types::tiles::{CLOCKS_DIFFER, EdgesFrom, Floors, Level, Micros, micros};
use types::vector::Vector;
use uuid::Uuid;

use crate::mode::RunMode;

/// A recomputation by `full_every` that failed is tried again after this time.
const RECOMPUTED_AGAIN_AFTER: Duration = Duration::from_secs(10 * 60);

/// The data from which a run makes its snapshot.
pub(crate) enum Basis {
    /// The archive up to the cut, for this reason.
    Archive(&'static str),
    /// The states of all checkpoints up to the cut, for this reason.
    Checkpoints(&'static str),
    /// This snapshot, and the checkpoints since its cut.
    Snapshot(Box<Manifest>),
}

impl Basis {
    /// How a run on this basis is recorded.
    pub(crate) fn strategy(&self, view: &LiveView, mode: RunMode) -> Strategy {
        match (self, mode) {
            (_, RunMode::Replay(_)) => Strategy::Replay,
            (Basis::Archive(_), _) => Strategy::Full,
            _ if is_stream(view) => Strategy::Stream,
            _ => Strategy::Incremental,
        }
    }

    /// `before` is the published snapshot's manifest, if there is one that can be read; `t` the time of the run.
    pub(crate) fn decide(
        state: &CatalogState,
        view: &LiveView,
        before: Option<&Manifest>,
        (t, mode): (Micros, RunMode),
        now: Micros,
    ) -> Basis {
        let anew = |why| if is_stream(view) { Basis::Checkpoints(why) } else { Basis::Archive(why) };
        match mode {
            RunMode::ByStrategy => {}
            RunMode::Full => return Basis::Archive("it was asked for"),
            RunMode::Replay(_) => return Basis::Checkpoints("a replay was asked for"),
        }
        let Some(before) = before else { return anew("there is no snapshot to add to") };
        let (definition, recomputed_at) = (&view.definition, before.recomputed_at.unwrap_or(before.made_at));
        // A recomputation in the future was made by a clock that was ahead.
        let is_stale = |every: Duration| now.saturating_sub(recomputed_at) >= micros(every) || recomputed_at > now + micros(CLOCKS_DIFFER);
        let why = if definition.strategy == Some(Strategy::Full) {
            "the view's strategy is 'full'"
        } else if let Some(why) = not_added_to(state, view, before, t) {
            why
        } else if view.status != DefinitionStatus::Kept
            && definition.full_every.is_some_and(is_stale)
            && !recomputation_failed_lately(state, view, now)
        {
            "full_every has passed"
        } else {
            return Basis::Snapshot(Box::new(before.clone()));
        };
        anew(why)
    }
}

/// Returns the snapshot to which runs of a version can add while another run recomputes it. `None` if there is none.
pub(crate) fn addable<'m>(state: &CatalogState, view: &LiveView, before: Option<&'m Manifest>, t: Micros) -> Option<&'m Manifest> {
    let is_added_to = view.definition.strategy != Some(Strategy::Full);
    before.filter(|before| is_added_to && not_added_to(state, view, before, t).is_none())
}

/// Whether the last recomputation of the version failed recently. Until it is retried, runs add to the existing
/// snapshot.
pub fn recomputation_failed_lately(state: &CatalogState, view: &LiveView, now: Micros) -> bool {
    let failed = last_recomputation(state, &view.name, view.version).filter(|run| run.status == RunStatus::Failed);
    failed.and_then(|run| run.ended_at).is_some_and(|at| at <= now && now - at < micros(RECOMPUTED_AGAIN_AFTER))
}

/// Whether no run of the view reads the archive, unless it was asked to.
pub(crate) fn is_stream(view: &LiveView) -> bool {
    view.definition.strategy == Some(Strategy::Stream)
}

/// Returns why nothing can be added to a snapshot: its states may differ from those that the archive gives.
fn not_added_to(state: &CatalogState, view: &LiveView, before: &Manifest, t: Micros) -> Option<&'static str> {
    let has_lost_file = || before.state_files().any(|file| is_lost(state, &file.path));
    why_other_states(state, view, before, t).or_else(|| has_lost_file().then_some("a file of the snapshot is damaged"))
}

/// Returns why the states that a manifest names differ from those that the archive gives, as far as the manifest shows
/// it.
pub(crate) fn why_other_states(state: &CatalogState, view: &LiveView, before: &Manifest, t: Micros) -> Option<&'static str> {
    if before.stamp != view.plan.stamp || !has_levels_of(before, view) {
        Some("the snapshot's states are of another format")
    } else if lacks_tiles(before, view, t) {
        Some("the snapshot was made for a later time")
    } else if gaps_before(state, view, &before.cut) > before.gaps {
        Some("events that the snapshot may hold were given up")
    } else {
        None
    }
}

/// Whether a recomputation is compared with the previous snapshot, to which incremental runs could have added. Runs of
/// a view with the strategy 'full' are compared only if a recomputation or a replay was requested.
pub(crate) fn is_compared(state: &CatalogState, view: &LiveView, before: &Manifest, (t, mode): (Micros, RunMode)) -> bool {
    (mode != RunMode::ByStrategy || view.definition.strategy != Some(Strategy::Full)) && not_added_to(state, view, before, t).is_none()
}

fn has_levels_of(before: &Manifest, view: &LiveView) -> bool {
    before.floors.iter().map(|(level, _)| level).eq(&view.plan.levels)
}

/// Whether the snapshot lacks tiles or edges that answers at `t` need: it was made by a clock that was ahead. No later
/// run could add them.
fn lacks_tiles(before: &Manifest, view: &LiveView, t: Micros) -> bool {
    let t = t.saturating_add(micros(CLOCKS_DIFFER));
    let needed = view.plan.floors(t);
    !before.edges_from.keeps(&view.plan.edges_from(t)) || before.floors.iter().zip(&needed).any(|((_, kept), (_, needed))| kept > needed)
}

/// Whether a file cannot be carried over, because it was found damaged or the catalog no longer names it.
pub(crate) fn is_lost(state: &CatalogState, path: &str) -> bool {
    let named = state.files.get(path).is_some_and(|file| !file.marked_for_deletion);
    !named || state.damages.iter().any(|damage| damage.path == path)
}

/// The same for a run that may have written the file itself, so that the catalog does not name it yet.
pub(crate) fn is_lost_to(run: Uuid, state: &CatalogState, path: &str) -> bool {
    let is_own = path.parse().is_ok_and(|name: ObjectName| name.run() == Some(run));
    !is_own && is_lost(state, path)
}

/// Returns how many gaps of a view's streams begin before a cut. A gap that is recorded later may be for events which
/// states up to the cut count, but the archive no longer has.
pub(crate) fn gaps_before(state: &CatalogState, view: &LiveView, cut: &Vector) -> u64 {
    let of_view = |stream: &str| view.plan.streams.iter().any(|known| &*known.name == stream);
    let before = state.gaps.iter().filter(|gap| of_view(&gap.partition.stream) && gap.start < cut.get(&gap.partition));
    before.count() as u64
}

/// Returns, per side, the later time: before it, some tier of a snapshot may have left out events.
pub(crate) fn later(before: &EdgesFrom, now: &EdgesFrom) -> EdgesFrom {
    EdgesFrom { near: before.near.max(now.near), far: before.far.max(now.far) }
}

/// Returns, per level, the greater floor: every tier of a snapshot keeps the rows above it.
pub(crate) fn greater(before: &Floors, now: &Floors) -> Floors {
    let of_level = |level: Level| before.iter().find(|(of, _)| *of == level).and_then(|(_, floor)| *floor);
    now.iter().map(|(level, floor)| (*level, (*floor).max(of_level(*level)))).collect()
}

#[cfg(test)]
mod tests;
