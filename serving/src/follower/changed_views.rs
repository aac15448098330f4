//! Which version answers a view that was just changed.
//!
//! The catalog serves a new version from one transaction on, but a worker learns of the version up to a second later.
//! Until it has, its fresh layers lack the version's states, so that the version cannot be answered at the position
//! that queries have already read. The version before is kept, and workers go on computing its states: it answers
//! until the new one can, at the same position. Everything else of the catalog state is used at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use catalog::DefinitionStatus;
use committed::registry::Registry;
use tracing::info;

use crate::read_view::{Loaded, ReadView};

/// The version before answers at most this long.
const MOST_AWAITED: Duration = Duration::from_secs(10);
/// Every worker that can reach the catalog looks for new definitions within this time.
const WORKERS_LOOK_WITHIN: Duration = Duration::from_secs(1);

/// The views that this node saw change a short while ago.
#[derive(Debug, Default)]
pub(super) struct ChangedViews(Mutex<Vec<ChangedView>>);

#[derive(Debug)]
struct ChangedView {
    view: Arc<str>,
    /// The version that is served now, and the one that was served before.
    version: u32,
    before: u32,
    seen_at: Instant,
    /// Whether there was a position at which the new version could not be answered.
    has_lacked: bool,
}

impl ChangedViews {
    /// Takes note of the views that another version serves in the state that is loaded than in the one before.
    pub(super) fn note(&self, before: Option<&Loaded>, loaded: &Loaded, now: Instant) {
        let mut changed = self.lock();
        changed.retain(|known| !known.is_over(now) && known.is_change_of(&loaded.registry));
        if let Some(before) = before {
            let versions = changed_versions(&before.registry, &loaded.registry);
            changed.extend(versions.map(|(view, version, before)| ChangedView { view, version, before, seen_at: now, has_lacked: false }));
        }
    }

    /// Returns the views that are still answered by the version before in what there is to read now, with that version.
    pub(super) fn versions_before(&self, present: &ReadView, now: Instant) -> BTreeMap<Arc<str>, u32> {
        let mut changed = self.lock();
        let answered = changed.iter_mut().filter_map(|known| known.is_answered_by_version_before(present, now).then_some(known));
        answered.map(|known| (known.view.clone(), known.before)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ChangedView>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The views that have another served version than before, each with that and with the version before, which is kept.
/// Not those that return to a version that was kept: its states are there, and a rollback takes effect at once.
fn changed_versions<'r>(before: &'r Registry, now: &'r Registry) -> impl Iterator<Item = (Arc<str>, u32, u32)> + 'r {
    let has_status = |registry: &Registry, view: &str, version: u32, status: DefinitionStatus| {
        registry.view(view, version).is_some_and(|live| live.status == status)
    };
    now.views.iter().filter(|live| live.status == DefinitionStatus::Active).filter_map(move |live| {
        let (view, version) = (&live.name, live.version);
        let served_before = before.served(view)?.version;
        let is_returned_to = has_status(before, view, version, DefinitionStatus::Kept);
        let is_changed = served_before != version && has_status(now, view, served_before, DefinitionStatus::Kept);
        (is_changed && !is_returned_to).then(|| (view.clone(), version, served_before))
    })
}

impl ChangedView {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.seen_at) >= MOST_AWAITED
    }

    /// Whether these definitions still serve the new version and keep the one before.
    fn is_change_of(&self, registry: &Registry) -> bool {
        registry.served(&self.view).is_some_and(|served| served.version == self.version)
            && registry.view(&self.view, self.before).is_some_and(|before| before.status == DefinitionStatus::Kept)
    }

    fn is_answered_by_version_before(&mut self, present: &ReadView, now: Instant) -> bool {
        if self.is_over(now) || !self.is_change_of(&present.loaded.registry) {
            return false;
        }
        let is_answerable = present.is_answerable(&self.view, self.version);
        let is_before_answerable = present.is_answerable(&self.view, self.before);
        let has_lacked = self.has_lacked || !is_answerable;
        let is_first = !std::mem::replace(&mut self.has_lacked, has_lacked) && has_lacked;
        if is_first && is_before_answerable {
            let (view, version, before) = (&self.view, self.version, self.before);
            info!(%view, version, before, "a changed view is answered by its previous version until the speed layer keeps the new one");
        }
        let age = now.saturating_duration_since(self.seen_at);
        ChangeFacts { age, is_answerable, is_before_answerable, has_lacked }.is_answered_by_version_before()
    }
}

/// What is known of a changed view when it is asked.
#[derive(Debug, Clone, Copy)]
struct ChangeFacts {
    /// Since this node saw the change.
    age: Duration,
    /// Whether the new version can be answered at the present position, and whether the one before can.
    is_answerable: bool,
    is_before_answerable: bool,
    /// Whether the new version could not be answered at some position.
    has_lacked: bool,
}

impl ChangeFacts {
    fn is_answered_by_version_before(self) -> bool {
        // After a checkpoint, the next layer of a worker may lack the version again: answers do not go back and forth.
        let may_lack_again = self.has_lacked && self.age < WORKERS_LOOK_WITHIN;
        let is_awaited = self.age < MOST_AWAITED && (!self.is_answerable || may_lack_again);
        is_awaited && self.is_before_answerable
    }
}

#[cfg(test)]
mod tests;
