//! A process's registration in the catalog: where nodes of other processes reach the layers of its workers, and the
//! epoch of its takeovers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use catalog::{Add, Catalog, Commit, NewWorker, Remove, WorkerRecord};
use engine::fresh::Fresh;
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;
use types::tiles::{Clock, Micros};
use types::{Result, threads};
use uuid::Uuid;

/// How long a registration lives without being renewed.
const LIVES: Duration = Duration::from_secs(30);
const RENEWED_EVERY: Duration = Duration::from_secs(10);
/// How long to wait after a renewal that failed.
const AFTER_A_FAILURE: Duration = Duration::from_secs(1);
/// Claims are repeated at most this often: of two processes that both consider themselves owners of a partition, one is
/// about to learn that it is not.
const CLAIMED_AGAIN_EVERY: Duration = Duration::from_secs(1);

/// A cheap-to-clone handle.
#[derive(Clone)]
pub struct Registration(Arc<Inner>);

struct Inner {
    catalog: Catalog,
    clock: Clock,
    /// The record as it was last committed. Locked during a commit, so that no renewal restores an older epoch.
    record: Mutex<WorkerRecord>,
    overtaken: Arc<Notify>,
}

impl Registration {
    /// Registers a process. `name` is unique, `address` is where nodes reach it.
    pub async fn begin(catalog: &Catalog, name: &str, address: &str, clock: Clock) -> Result<Registration> {
        let new = NewWorker { name: name.to_owned(), address: address.to_owned(), expires_at: expiry(&clock) };
        let record = register(catalog, new).await?;
        let inner = Inner { catalog: catalog.clone(), clock, record: Mutex::new(record), overtaken: Arc::default() };
        Ok(Registration(Arc::new(inner)))
    }

    /// Returns the epoch of a takeover that begins now: greater than that of every earlier one, of any process.
    pub(crate) async fn take_over(&self) -> Result<i64> {
        let mut record = self.0.record.lock().await;
        let WorkerRecord { name, address, .. } = record.clone();
        *record = register(&self.0.catalog, NewWorker { name, address, expires_at: expiry(&self.0.clock) }).await?;
        Ok(record.epoch)
    }

    /// Notified when a node has seen a greater epoch of a partition than its owner here has.
    pub fn overtaken(&self) -> Arc<Notify> {
        self.0.overtaken.clone()
    }

    /// Renews it until `stop`, on threads that no work keeps busy, then ends it. If a node accepted another owner,
    /// which has meanwhile lost the partitions again, claims the partitions of the process's workers again. If this is
    /// dropped earlier, the registration expires.
    pub async fn keep(&self, fresh: &Fresh, stop: CancellationToken) -> Result<()> {
        let (kept, fresh) = (self.clone(), fresh.clone());
        let renewing = threads::LEASES.spawn(async move { kept.keep_renewing(&fresh, &stop).await });
        Ok(AbortOnDropHandle::new(renewing).await?)
    }

    async fn keep_renewing(&self, fresh: &Fresh, stop: &CancellationToken) {
        let mut wait = RENEWED_EVERY;
        loop {
            let is_overtaken = tokio::select! {
                () = stop.cancelled() => break,
                () = self.0.overtaken.notified() => true,
                () = tokio::time::sleep(wait) => false,
            };
            let committed = match is_overtaken {
                true => self.take_over().await.map(Some),
                false => self.renew().await.map(|()| None),
            };
            wait = if committed.is_ok() { RENEWED_EVERY } else { AFTER_A_FAILURE };
            match committed {
                Ok(Some(epoch)) => {
                    fresh.claim_again(epoch);
                    tokio::time::sleep(CLAIMED_AGAIN_EVERY).await;
                }
                Ok(None) => {}
                Err(error) => warn!(%error, "the registration for nodes could not be renewed; trying again"),
            }
        }
        self.end().await;
    }

    /// Ends the registration. If that fails, it expires.
    async fn end(&self) {
        let name = self.0.record.lock().await.name.clone();
        let commit = Commit { id: Uuid::new_v4(), remove: vec![Remove::Worker { name }], ..Commit::default() };
        if let Err(error) = self.0.catalog.commit(commit).await {
            warn!(%error, "the registration for nodes was not removed; it expires by itself");
        }
    }

    /// Renews the registration with the same epoch.
    async fn renew(&self) -> Result<()> {
        let mut record = self.0.record.lock().await;
        let renewed = WorkerRecord { expires_at: expiry(&self.0.clock), ..record.clone() };
        let commit = Commit { id: Uuid::new_v4(), add: vec![Add::Worker(renewed.clone())], ..Commit::default() };
        self.0.catalog.commit_with_retry(commit).await?;
        *record = renewed;
        Ok(())
    }
}

/// Registers a process under a new epoch.
async fn register(catalog: &Catalog, new: NewWorker) -> Result<WorkerRecord> {
    let commit = Commit { id: Uuid::new_v4(), add: vec![Add::NewWorker(new.clone())], ..Commit::default() };
    Ok(new.with_epoch(catalog.commit_with_retry(commit).await?))
}

fn expiry(clock: &Clock) -> Micros {
    clock().saturating_add(LIVES.as_micros() as Micros)
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
