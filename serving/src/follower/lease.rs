//! The lease that keeps files from being collected: those of the oldest state in use, because a long query may read a
//! state that was loaded long ago. It is renewed independently of loading, because a state can take longer to load than
//! a lease lasts.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use catalog::Revision;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;
use types::vector::{Offset, PartitionId, Vector};
use types::{Result, threads};

use super::Follower;
use crate::read_view::{Loaded, LoadedView};

/// Leases of nodes have names that begin with it.
pub const NODE_LEASE: &str = "serve/";

/// How long to wait at most after a renewal that failed.
const AFTER_A_FAILURE: Duration = Duration::from_secs(1);

/// A state that is read for longer than this after the catalog was last known to be at it keeps every file from being
/// collected: any of its files may have been superseded since. One that was is deleted ten minutes later at the
/// earliest. So it does not matter whether a query takes long, or the load of the next state does.
const LONG: Duration = Duration::from_secs(5 * 60);

/// A state that was loaded, and that queries read while it lives.
pub(super) struct InUse {
    loaded: Weak<Loaded>,
    /// A moment at which the catalog was at this state: the last that is known.
    current_at: Instant,
}

impl InUse {
    fn is_long_past(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.current_at) > LONG
    }
}

impl Follower {
    /// Queries that begin from now on read this state, which the catalog was at when it was read at `current_at`.
    pub(super) fn use_from_now_on(&self, loaded: &Arc<Loaded>, current_at: Instant) {
        self.lock_in_use().push(InUse { loaded: Arc::downgrade(loaded), current_at });
    }

    /// The catalog is at this revision, as was found by asking it from `asked_at` on.
    pub(super) fn note_revision(&self, revision: Revision, asked_at: Instant) {
        note_current(&mut self.lock_in_use(), revision, asked_at);
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

    fn oldest_in_use(&self) -> Option<Vector> {
        let mut in_use = self.lock_in_use();
        in_use.retain(|state| state.loaded.strong_count() > 0);
        oldest_of(&in_use, Instant::now())
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
        format!("{NODE_LEASE}{}", self.0.settings.name)
    }
}

/// Notes that the catalog is at the state that was loaded last, if it is.
fn note_current(in_use: &mut [InUse], revision: Revision, asked_at: Instant) {
    if let Some(last) = in_use.last_mut()
        && last.loaded.upgrade().is_some_and(|loaded| loaded.state.revision == revision)
    {
        last.current_at = asked_at;
    }
}

/// The oldest vector that the files of these states depend on: the least of their cuts, or the beginning of everything.
fn oldest_of(in_use: &[InUse], now: Instant) -> Option<Vector> {
    if in_use.iter().any(|state| state.is_long_past(now)) {
        return Some(Vector::new());
    }
    let cuts: Vec<Vector> = in_use.iter().filter_map(|state| state.loaded.upgrade()).map(|loaded| oldest_cut(&loaded)).collect();
    let newest = cuts.last()?;
    let least = |partition| cuts.iter().map(|cut| cut.get(partition)).min().unwrap_or_default();
    Some(newest.iter().map(|(partition, _)| (partition.clone(), least(partition))).collect())
}

/// The least offset, per partition, that the snapshot of any loaded view ends at that reads the partition's stream; a
/// view without a snapshot, which may never run, reads everything of its streams. None needs anything of the others.
fn oldest_cut(loaded: &Loaded) -> Vector {
    let oldest = |partition: &PartitionId, at: Offset| {
        let depends = |view: &&LoadedView| view.live.plan.reads(&partition.stream);
        loaded.views.values().filter(depends).map(|view| view.cut.get(partition)).min().unwrap_or(at)
    };
    loaded.vector.iter().map(|(partition, at)| (partition.clone(), oldest(partition, at))).collect()
}

#[cfg(test)]
mod tests;
