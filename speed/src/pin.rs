//! Keeps the archive's files while partitions are taken over. Otherwise a compaction could replace some of the files
//! that an attempt reads, and a long takeover would begin again and again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use catalog::{Catalog, LeaseRecord};
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;
use types::threads;
use types::tiles::Clock;
use types::vector::Vector;

/// A takeover that ends before this time pins nothing: superseded files stay for ten minutes, and most takeovers take
/// seconds.
const AFTER: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(60);
/// How long to wait after a renewal that failed.
const AFTER_A_FAILURE: Duration = Duration::from_secs(1);

/// Held during a takeover. If it is dropped, its lease expires.
pub(crate) struct TakeoverPin {
    catalog: Catalog,
    lease: Arc<Mutex<Option<LeaseRecord>>>,
    _holding: AbortOnDropHandle<()>,
}

impl TakeoverPin {
    /// Pins everything once the takeover has taken long.
    pub(crate) fn begin(catalog: &Catalog, worker: &str, clock: &Clock) -> Self {
        Self::begin_after(AFTER, catalog, worker, clock)
    }

    fn begin_after(after: Duration, catalog: &Catalog, worker: &str, clock: &Clock) -> Self {
        let lease: Arc<Mutex<Option<LeaseRecord>>> = Arc::default();
        let holding = {
            let (catalog, owner, clock, lease) = (catalog.clone(), worker.to_owned(), clock.clone(), lease.clone());
            threads::LEASES.spawn(async move {
                let name = format!("takeover/{owner}");
                let mut wait = after;
                loop {
                    tokio::time::sleep(wait).await;
                    match catalog.acquire_lease(&name, &owner, LEASE, clock(), Some(Vector::new())).await {
                        Ok(held) => {
                            *lease.lock().unwrap_or_else(PoisonError::into_inner) = held;
                            wait = LEASE / 3;
                        }
                        Err(error) => {
                            warn!(%error, "the lease on the files of a takeover could not be renewed; trying again");
                            wait = AFTER_A_FAILURE;
                        }
                    }
                }
            })
        };
        Self { catalog: catalog.clone(), lease, _holding: AbortOnDropHandle::new(holding) }
    }

    /// Releases the lease, if it was acquired. If that fails, it expires.
    pub(crate) async fn end(self) {
        let Self { catalog, lease, _holding: holding } = self;
        drop(holding);
        let held = lease.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(held) = held
            && let Err(error) = catalog.release_lease(&held).await
        {
            warn!(lease = %held.name, %error, "a pin was not released; it expires by itself");
        }
    }
}

#[cfg(test)]
mod tests;
