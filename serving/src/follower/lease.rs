//! The lease that keeps files from being collected: those of the oldest state in use, for a long query may read one
//! loaded long ago. It has a clock of its own, as a state can take longer to load than a lease lives.

use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;
use types::vector::Vector;
use types::{Result, threads};

use super::Follower;
use crate::read_view::Loaded;

/// How long to wait at most after a renewal that failed.
const AFTER_A_FAILURE: Duration = Duration::from_secs(1);

/// A query that reads a state for longer than this after another was loaded keeps every file from being collected. So does
/// a node that could not load the catalog's newest state for longer than this. A file whose rows are in another one now,
/// and the snapshot of a version that was retired, are deleted ten minutes after that at the earliest.
const LONG: Duration = Duration::from_secs(5 * 60);

/// A state that was loaded, and that queries read while it lives.
pub(super) struct InUse {
    loaded: Weak<Loaded>,
    /// When the next one was loaded.
    replaced_at: Option<Instant>,
}

impl InUse {
    fn is_long_replaced(&self, now: Instant) -> bool {
        self.replaced_at.is_some_and(|at| now.saturating_duration_since(at) > LONG)
    }
}

impl Follower {
    /// Queries that begin from now on read this state.
    pub(super) fn use_from_now_on(&self, loaded: &Arc<Loaded>) {
        let mut in_use = self.lock_in_use();
        if let Some(before) = in_use.last_mut() {
            before.replaced_at = Some(Instant::now());
        }
        in_use.push(InUse { loaded: Arc::downgrade(loaded), replaced_at: None });
    }

    /// Renews the lease three times in its life until `stop`, on threads that no work keeps busy. Ends with its caller.
    pub(super) async fn hold_files_apart(self, stop: CancellationToken) {
        let holding = threads::LEASES.spawn(async move { self.hold_files(&stop).await });
        if let Err(error) = AbortOnDropHandle::new(holding).await {
            warn!(%error, "the lease on the files that are served is no longer renewed");
        }
    }

    async fn hold_files(&self, stop: &CancellationToken) {
        let every = self.0.settings.lease / 3;
        loop {
            let wait = match self.pin().await {
                Ok(()) => every,
                Err(error) => {
                    warn!(%error, "the lease on the files that are served could not be renewed; trying again");
                    every.min(AFTER_A_FAILURE)
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn pin(&self) -> Result<()> {
        let oldest = self.oldest_in_use().unwrap_or_default();
        let (lease, now) = (self.0.settings.lease, (self.0.wall)());
        self.0.catalog.acquire_lease(&self.lease_name(), &self.0.settings.name, lease, now, Some(oldest)).await?;
        Ok(())
    }

    /// What is loaded was the catalog's newest state at this time.
    pub(super) fn note_newest(&self, at: Instant) {
        *self.0.was_newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
    }

    fn oldest_in_use(&self) -> Option<Vector> {
        let mut in_use = self.lock_in_use();
        in_use.retain(|state| state.loaded.strong_count() > 0);
        let was_newest = *self.0.was_newest.lock().unwrap_or_else(PoisonError::into_inner);
        oldest_of(&in_use, was_newest, Instant::now())
    }

    /// Gives the lease back; where that fails it runs out.
    pub(super) async fn release_files(&self) {
        let state = self.0.catalog.state().await;
        let Ok(state) = state else { return };
        if let Some(lease) = state.leases.iter().find(|lease| lease.name == self.lease_name()) {
            let _ = self.0.catalog.release_lease(lease).await;
        }
    }

    fn lease_name(&self) -> String {
        format!("serve/{}", self.0.settings.name)
    }
}

/// The oldest vector that the files of these states depend on: the least of their cuts, or the beginning of everything.
/// The newest of them was the catalog's newest at `was_newest`.
fn oldest_of(in_use: &[InUse], was_newest: Option<Instant>, now: Instant) -> Option<Vector> {
    let is_behind = was_newest.is_some_and(|at| now.saturating_duration_since(at) > LONG);
    if is_behind || in_use.iter().any(|state| state.is_long_replaced(now)) {
        return Some(Vector::new());
    }
    let cuts: Vec<Vector> = in_use.iter().filter_map(|state| state.loaded.upgrade()).map(|loaded| oldest_cut(&loaded)).collect();
    let newest = cuts.last()?;
    let least = |partition| cuts.iter().map(|cut| cut.get(partition)).min().unwrap_or_default();
    Some(newest.iter().map(|(partition, _)| (partition.clone(), least(partition))).collect())
}

/// The least offset, per partition, that any loaded view's snapshot ends at.
fn oldest_cut(loaded: &Loaded) -> Vector {
    let cuts: Vec<&Vector> = loaded.views.values().map(|view| &view.cut).collect();
    loaded.vector.iter().map(|(partition, at)| (partition.clone(), cuts.iter().map(|cut| cut.get(partition)).min().unwrap_or(at))).collect()
}

#[cfg(test)]
mod tests;
