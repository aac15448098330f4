//! The edges that the last runs of linked views left in local files of this process. The next run maps them instead of
//! copying them again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use catalog::{CatalogState, DefinitionKind};
use engine::fresh::ViewVersion;
use storage::Tier;

use super::local::LocalTier;

type Copies = BTreeMap<ViewVersion, Vec<CopiedTier>>;

/// A tier of a snapshot and its copy in local files.
#[derive(Clone)]
pub(crate) struct CopiedTier {
    pub(crate) tier: Tier,
    pub(crate) copy: Arc<LocalTier>,
}

/// The tiers of each linked view's newest snapshot that this process wrote or copied. The files have no names: they go
/// with the process.
#[derive(Clone, Default)]
pub struct LocalCopies(Arc<Mutex<Copies>>);

impl LocalCopies {
    /// Returns the tiers that are kept for a view version.
    pub(crate) fn left_by_last_run(&self, view: &ViewVersion) -> Vec<CopiedTier> {
        self.lock().get(view).cloned().unwrap_or_default()
    }

    /// Keeps the tiers of a published snapshot for the next run, instead of those of the previous snapshot.
    pub(crate) fn keep(&self, view: ViewVersion, tiers: Vec<CopiedTier>) {
        self.lock().insert(view, tiers);
    }

    /// Drops the tiers of versions that are no longer live.
    pub fn release_retired(&self, state: &CatalogState) {
        let is_live =
            |view: &ViewVersion| state.live(DefinitionKind::View).any(|live| live.name == view.name && live.version == view.version);
        self.lock().retain(|view, _| is_live(view));
    }

    /// The view versions for which tiers are kept.
    pub fn versions(&self) -> Vec<ViewVersion> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Copies> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
