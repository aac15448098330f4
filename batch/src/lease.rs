//! A lease that is renewed while its holder works, on threads that no work keeps busy.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use catalog::{Catalog, Expect, LeaseRecord};
use tracing::warn;
use types::tiles::{Clock, Micros};
use types::{ErrorKind, threads};

/// Renews a lease until it is stopped or dropped.
pub struct KeepLease {
    lease: Arc<Mutex<LeaseRecord>>,
    task: tokio::task::JoinHandle<()>,
}

impl KeepLease {
    /// Renews `lease` three times in each `ttl`.
    pub fn start(catalog: Catalog, lease: LeaseRecord, ttl: Duration, clock: Clock) -> Self {
        let shared = Arc::new(Mutex::new(lease));
        let current = shared.clone();
        let task = threads::LEASES.spawn(async move {
            loop {
                tokio::time::sleep(ttl / 3).await;
                let held = lock(&current).clone();
                match catalog.renew_lease(&held, ttl, clock()).await {
                    Ok(renewed) => *lock(&current) = renewed,
                    Err(error) if error.kind() == ErrorKind::Conflict => {
                        warn!(lease = %held.name, %error, "a lease is lost; what was done under it will not be committed");
                        return;
                    }
                    Err(error) => warn!(lease = %held.name, %error, "a lease could not be renewed; trying again"),
                }
            }
        });
        Self { lease: shared, task }
    }

    /// False once the lease is lost: it expired, or another process has it.
    pub fn is_held(&self, now: Micros) -> bool {
        !self.task.is_finished() && self.current().expires_at > now
    }

    pub(crate) fn current(&self) -> LeaseRecord {
        lock(&self.lease).clone()
    }

    pub(crate) fn expect(&self, now: Micros) -> Expect {
        let lease = self.current();
        Expect::Lease { name: lease.name, owner: lease.owner, epoch: lease.epoch, now }
    }

    /// Stops renewing and returns the current lease, to be released.
    pub async fn stop(mut self) -> LeaseRecord {
        self.task.abort();
        let _ = (&mut self.task).await;
        lock(&self.lease).clone()
    }
}

/// The lease of a dropped run expires.
impl Drop for KeepLease {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(lease: &Mutex<LeaseRecord>) -> MutexGuard<'_, LeaseRecord> {
    lease.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
