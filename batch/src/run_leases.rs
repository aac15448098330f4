//! The leases of a run. Most runs hold their version's lease from beginning to end, so that they exclude each other. A
//! run that recomputes concurrently with others releases it meanwhile, and excludes only other recomputations:
//!
//! ```text
//! run/v@1         |--|  held by other runs, one after the other  |-------| published
//! recompute/v@1     |--------------------------------------------------|
//! waiting/v@1                                                |-|  no other run begins
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use catalog::{Catalog, Expect, LeaseRecord, recompute_lease, run_lease, waiting_lease};
use engine::fresh::ViewVersion;
use tracing::warn;
use types::tiles::{Clock, Micros};
use types::vector::Vector;
use types::{Error, ErrorKind, Result};

use crate::layer::Batch;
use crate::lease::{KeepLease, ProcessHold, locked};

/// How often a run that has recomputed checks whether the other run of its version has ended, and whether a catalog
/// that did not answer does.
pub(crate) const LOOK: Duration = Duration::from_millis(200);

/// A lease that a run holds, which also excludes other runs of the process.
pub(crate) struct RunLease {
    kept: KeepLease,
    _hold: ProcessHold,
}

impl RunLease {
    fn expect(&self, now: Micros) -> Expect {
        self.kept.expect(now)
    }
}

/// The leases that a run holds.
pub(crate) struct RunLeases {
    catalog: Catalog,
    owner: String,
    ttl: Duration,
    clock: Clock,
    version: ViewVersion,
    leases: Mutex<Leases>,
    /// Whether other runs of the version may hold its lease.
    is_concurrent: Arc<AtomicBool>,
}

struct Leases {
    run: Option<RunLease>,
    recompute: Option<RunLease>,
}

impl RunLeases {
    /// Acquires the lease of a view version. `None` if another run has it, or waits for it. By `is_concurrent`
    /// the scheduler sees whether other runs may begin.
    pub(crate) async fn acquire(
        batch: &Batch,
        version: ViewVersion,
        clock: &Clock,
        pin: Option<Vector>,
        is_concurrent: Arc<AtomicBool>,
    ) -> Result<Option<RunLeases>> {
        let leases = RunLeases {
            catalog: batch.catalog.clone(),
            owner: batch.worker.clone(),
            ttl: batch.settings.lease,
            clock: clock.clone(),
            version,
            leases: Mutex::new(Leases { run: None, recompute: None }),
            is_concurrent,
        };
        if leases.is_awaited().await? {
            return Ok(None);
        }
        let Some(run) = leases.acquire_run(pin).await? else { return Ok(None) };
        leases.put_run(run);
        Ok(Some(leases))
    }

    /// Acquires the lease of the version again, however long another run holds it. No third run gets it before.
    pub(crate) async fn acquire_run_again(&self) -> Result<RunLease> {
        let waiting = self.keep(&waiting_lease(&self.version.name, self.version.version), None).await;
        let waiting = waiting.unwrap_or_else(|error| {
            warn!(view = %self.version.name, %error, "other runs may begin before the one that waits for its lease");
            None
        });
        let run = self.wait_for_run().await;
        if let Some(waiting) = waiting {
            self.release_lease(waiting).await;
        }
        run
    }

    /// Acquires the lease for recomputing up to a cut, concurrently with other runs. The states that are committed
    /// after the cut are kept even if all views have them, because the run adds them at its end. False if another run
    /// has it.
    pub(crate) async fn acquire_recompute(&self, cut: &Vector) -> Result<bool> {
        let name = recompute_lease(&self.version.name, self.version.version);
        let lease = self.keep(&name, Some(cut.clone())).await?;
        let is_acquired = lease.is_some();
        locked(&self.leases).recompute = lease;
        Ok(is_acquired)
    }

    /// Whether another run, of any process, recomputes the version concurrently.
    pub(crate) async fn is_recomputed_by_another(&self) -> Result<bool> {
        let name = recompute_lease(&self.version.name, self.version.version);
        let is_held_here = ProcessHold::acquire(&self.catalog, &self.owner, &name).is_none();
        Ok(is_held_here || self.living(&name).await?.is_some_and(|lease| lease.owner != self.owner))
    }

    /// Takes the version's lease, which is to be released: the run continues under its other lease.
    pub(crate) fn take_run(&self) -> Option<RunLease> {
        let run = locked(&self.leases).run.take();
        self.is_concurrent.store(true, Ordering::SeqCst);
        run
    }

    pub(crate) fn put_run(&self, run: RunLease) {
        locked(&self.leases).run = Some(run);
        self.is_concurrent.store(false, Ordering::SeqCst);
    }

    /// Whether other runs of the version may hold its lease.
    pub(crate) fn is_concurrent(&self) -> bool {
        self.is_concurrent.load(Ordering::SeqCst)
    }

    /// The lease under which the run works.
    pub(crate) fn current(&self) -> Result<LeaseRecord> {
        let leases = locked(&self.leases);
        let lease = leases.run.as_ref().or(leases.recompute.as_ref());
        lease.map(|lease| lease.kept.current()).ok_or_else(|| Error::internal("a run without a lease"))
    }

    /// Expects that the run still holds its lease.
    pub(crate) fn expect(&self, now: Micros) -> Result<Expect> {
        let LeaseRecord { name, owner, epoch, .. } = self.current()?;
        Ok(Expect::Lease { name, owner, epoch, now })
    }

    /// Expects that the run still holds all its leases.
    pub(crate) fn expect_all(&self, now: Micros) -> Vec<Expect> {
        let leases = locked(&self.leases);
        [&leases.run, &leases.recompute].into_iter().flatten().map(|lease| lease.expect(now)).collect()
    }

    pub(crate) async fn release(&self) {
        let (run, recompute) = {
            let mut leases = locked(&self.leases);
            (leases.run.take(), leases.recompute.take())
        };
        for lease in [recompute, run].into_iter().flatten() {
            self.release_lease(lease).await;
        }
        self.is_concurrent.store(false, Ordering::SeqCst);
    }

    pub(crate) async fn release_lease(&self, lease: RunLease) {
        let RunLease { kept, _hold } = lease;
        let lease = kept.stop().await;
        if let Err(error) = self.catalog.release_lease(&lease).await {
            warn!(view = %self.version.name, lease = %lease.name, %error, "the lease of a run was not released and will expire");
        }
    }

    /// Whether a recomputation waits for the version's lease.
    async fn is_awaited(&self) -> Result<bool> {
        Ok(self.living(&waiting_lease(&self.version.name, self.version.version)).await?.is_some())
    }

    /// The lease of this name, unless it expired or its owner is dead.
    async fn living(&self, name: &str) -> Result<Option<LeaseRecord>> {
        let now = (self.clock)();
        let is_living = |lease: &LeaseRecord| lease.name == name && lease.expires_at > now && !self.catalog.is_dead(&lease.owner);
        Ok(self.catalog.leases(name).await?.into_iter().find(is_living))
    }

    async fn wait_for_run(&self) -> Result<RunLease> {
        loop {
            match self.acquire_run(None).await {
                Ok(Some(run)) => return Ok(run),
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    warn!(view = %self.version.name, %error, "the lease of a run could not be acquired; trying again")
                }
                Err(error) => return Err(error),
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn acquire_run(&self, pin: Option<Vector>) -> Result<Option<RunLease>> {
        self.keep(&run_lease(&self.version.name, self.version.version), pin).await
    }

    /// Acquires a lease and renews it. `None` if another process or another run has it.
    pub(crate) async fn keep(&self, name: &str, pin: Option<Vector>) -> Result<Option<RunLease>> {
        let Some(held) = ProcessHold::acquire(&self.catalog, &self.owner, name) else { return Ok(None) };
        let lease = self.catalog.acquire_fenced_lease(name, &self.owner, self.ttl, (self.clock)(), pin).await?;
        let kept = lease.map(|lease| KeepLease::start(self.catalog.clone(), lease, self.ttl, self.clock.clone()));
        Ok(kept.map(|kept| RunLease { kept, _hold: held }))
    }
}
