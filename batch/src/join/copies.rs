//! The edges that linked views' last runs in this process left in local files: the next run maps what it would copy.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use catalog::{CatalogState, DefinitionKind};
use storage::Tier;

use super::local::LocalTier;

type Version = (Arc<str>, u32);
type Copies = BTreeMap<Version, Vec<CopiedTier>>;

/// A tier of a snapshot and its copy in local files.
pub(crate) type CopiedTier = (Tier, Arc<LocalTier>);

/// The tiers of each linked view's newest snapshot that this process wrote or copied. The files have no names: they go
/// with the process.
#[derive(Clone, Default)]
pub struct LocalCopies(Arc<Mutex<Copies>>);

impl LocalCopies {
    /// Takes what is kept of a view version.
    pub(crate) fn take(&self, view: &Arc<str>, version: u32) -> Vec<CopiedTier> {
        self.lock().remove(&(view.clone(), version)).unwrap_or_default()
    }

    /// Keeps the tiers of a snapshot for the next run. What is kept of versions that are live no more goes.
    pub(crate) fn keep(&self, state: &CatalogState, (view, version): (&Arc<str>, u32), tiers: Vec<CopiedTier>) {
        let mut kept = self.lock();
        kept.retain(|(view, version), _| state.live(DefinitionKind::View).any(|live| live.name == *view && live.version == *version));
        kept.insert((view.clone(), version), tiers);
    }

    fn lock(&self) -> MutexGuard<'_, Copies> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
