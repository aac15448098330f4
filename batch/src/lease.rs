//! A lease that is renewed while its holder works, on threads that no work keeps busy; and how runs of one process
//! exclude each other.

use std::collections::BTreeSet;
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
                let held = locked(&current).clone();
                match catalog.renew_lease(&held, ttl, clock()).await {
                    Ok(renewed) => *locked(&current) = renewed,
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
        locked(&self.lease).clone()
    }

    pub(crate) fn expect(&self, now: Micros) -> Expect {
        let lease = self.current();
        Expect::Lease { name: lease.name, owner: lease.owner, epoch: lease.epoch, now }
    }

    /// Stops renewing and returns the current lease, to be released.
    pub async fn stop(mut self) -> LeaseRecord {
        self.task.abort();
        let _ = (&mut self.task).await;
        locked(&self.lease).clone()
    }
}

/// The lease of a dropped run expires.
impl Drop for KeepLease {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The leases that runs of this process hold, or try to acquire. A lease alone does not exclude another run of the
/// process that owns it.
static HELD: Mutex<BTreeSet<LeaseKey>> = Mutex::new(BTreeSet::new());

/// A lease of a catalog and its owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct LeaseKey {
    catalog: String,
    owner: String,
    name: String,
}

/// Until it is dropped, no other run of the process has the lease.
pub(crate) struct ProcessHold(LeaseKey);

impl ProcessHold {
    /// `None` if a run of this process has the lease.
    pub(crate) fn acquire(catalog: &Catalog, owner: &str, name: &str) -> Option<ProcessHold> {
        let key = LeaseKey { catalog: catalog.identity().to_owned(), owner: owner.to_owned(), name: name.to_owned() };
        let is_free = locked(&HELD).insert(key.clone());
        // Only then: one that is dropped takes the lease away.
        is_free.then(|| ProcessHold(key))
    }
}

impl Drop for ProcessHold {
    fn drop(&mut self) {
        locked(&HELD).remove(&self.0);
    }
}

pub(crate) fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
