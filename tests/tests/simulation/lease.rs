//! A lease that an actor holds, renewed when a third of it has passed (in the product a separate task does that).

use std::time::Duration;

use catalog::{Expect, LeaseRecord};
use types::vector::Vector;
use types::{ErrorKind, Result};

use crate::actor::Ctx;
use crate::world::Fault;

const LEASE: Duration = Duration::from_secs(60);

pub struct HeldLease<'c> {
    pub ctx: &'c Ctx,
    pub lease: LeaseRecord,
}

impl<'c> HeldLease<'c> {
    /// `None` while another actor has it.
    pub async fn acquire(ctx: &'c Ctx, name: &str, pin: Option<Vector>) -> Result<Option<HeldLease<'c>>> {
        let lease = ctx.sim.catalog.acquire_lease(name, &ctx.name, LEASE, ctx.sim.now(), pin).await?;
        Ok(lease.map(|lease| HeldLease { ctx, lease }))
    }

    pub async fn keep(&mut self) -> Result<()> {
        let now = self.ctx.sim.now();
        if self.lease.expires_at - now > LEASE.as_micros() as i64 * 2 / 3 {
            return Ok(());
        }
        self.ctx.step("renews its lease").await;
        match self.ctx.sim.catalog.renew_lease(&self.lease, LEASE, self.ctx.sim.now()).await {
            Ok(renewed) => self.lease = renewed,
            // It continues, as the product does until it commits.
            Err(error) if error.kind() == ErrorKind::Conflict => self.ctx.sim.fired(Fault::LeaseLost),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    pub fn expect(&self) -> Expect {
        let LeaseRecord { name, owner, epoch, .. } = self.lease.clone();
        Expect::Lease { name, owner, epoch, now: self.ctx.sim.now() }
    }

    pub async fn release(&self) -> Result<()> {
        self.ctx.sim.catalog.release_lease(&self.lease).await
    }
}
