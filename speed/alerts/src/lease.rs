//! The right to run an alert: a lease of the catalog, renewed between pieces of work.

use std::time::Duration;

use catalog::{Catalog, Expect, LeaseRecord};
use types::Result;
use types::tiles::{Clock, Micros};

use crate::Alerts;

pub(crate) struct Held {
    catalog: Catalog,
    clock: Clock,
    ttl: Duration,
    lease: LeaseRecord,
    renewed: Micros,
}

impl Held {
    /// `None` while another process has it.
    pub(crate) async fn acquire(alerts: &Alerts, alert: &str) -> Result<Option<Held>> {
        let Alerts { node, owner, lease: ttl, clock, .. } = alerts;
        let (now, catalog) = (clock(), node.catalog().clone());
        let lease = catalog.acquire_lease(&format!("alert/{alert}"), owner, *ttl, now, None).await?;
        Ok(lease.map(|lease| Held { catalog, clock: clock.clone(), ttl: *ttl, lease, renewed: now }))
    }

    /// Renews it, once a third of its time has passed.
    ///
    /// Errors: `Conflict` if it is lost.
    pub(crate) async fn keep(&mut self) -> Result<()> {
        let now = (self.clock)();
        if now - self.renewed >= self.ttl.as_micros() as Micros / 3 {
            self.lease = self.catalog.renew_lease(&self.lease, self.ttl, now).await?;
            self.renewed = now;
        }
        Ok(())
    }

    /// What a commit under it expects.
    pub(crate) fn expect(&self) -> Expect {
        let LeaseRecord { name, owner, epoch, .. } = self.lease.clone();
        Expect::Lease { name, owner, epoch, now: (self.clock)() }
    }

    pub(crate) async fn release(self) -> Result<()> {
        self.catalog.release_lease(&self.lease).await
    }
}
