//! A replay: reads all of the log again that is committed, under a pin, while the log is trimmed.

use catalog::{LeaseRecord, run_lease};
use types::vector::{Offset, PartitionId, Vector};
use types::{Error, ErrorKind, Result};

use crate::actor::Ctx;
use crate::lease::HeldLease;
use crate::world::Fault;

/// Replays until it is killed.
pub async fn replay(ctx: Ctx) {
    loop {
        ctx.step("looks what is to be replayed").await;
        match round(&ctx).await {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Unavailable | ErrorKind::NotFound) => {
                ctx.sim.trace(&ctx.name, format!("the replay came to nothing: {error}"));
            }
            Err(error) => return ctx.sim.violated(format!("a replay failed: {error}")),
        }
    }
}

async fn round(ctx: &Ctx) -> Result<()> {
    // Otherwise all of the log would be pinned nearly all the time.
    if ctx.sim.chance(50) {
        return Ok(());
    }
    let end = ctx.state().await?.vector();
    let begin: Vector = end.iter().map(|(id, _)| (id.clone(), ctx.sim.world.borrow().log.bounds(id).begin)).collect();
    if begin.is_empty() {
        return Ok(());
    }
    ctx.step("pins what it replays").await;
    let Some(mut held) = HeldLease::acquire(ctx, &run_lease("replayed", 1), Some(begin.clone())).await? else { return Ok(()) };
    let outcome = read(&mut held, &begin, &end).await;
    held.release().await?;
    outcome
}

async fn read(held: &mut HeldLease<'_>, begin: &Vector, end: &Vector) -> Result<()> {
    let ctx = held.ctx;
    for (id, end) in end.iter() {
        let mut at = begin.get(id);
        while at < end {
            ctx.step("reads the log again").await;
            held.keep().await?;
            check_kept(ctx, &held.lease, id, at)?;
            let limit = 1 + ctx.sim.pick(12);
            let world = ctx.sim.world.borrow();
            at = world.log.fetch(id, at, 0, limit, world.now).position;
        }
    }
    ctx.sim.fired(Fault::Replayed);
    ctx.sim.trace(&ctx.name, format!("replayed the log from {begin} to {end}"));
    Ok(())
}

/// Checks that the log still has what follows a position. It may only lack it if the pin was not there, or had expired,
/// when it was decided what goes.
fn check_kept(ctx: &Ctx, lease: &LeaseRecord, id: &PartitionId, at: Offset) -> Result<()> {
    let (begin, trimmed_by) = {
        let world = ctx.sim.world.borrow();
        (world.log.bounds(id).begin, world.log.trimmed_by(id))
    };
    let Some(decision) = trimmed_by.filter(|_| begin > at) else { return Ok(()) };
    let is_pinned = |known: &LeaseRecord| known.name == lease.name && known.epoch == lease.epoch && known.expires_at > decision.at;
    if decision.state.leases.iter().any(is_pinned) {
        ctx.sim.violated(format!("{id} is replayed from {at}, and pinned, and was trimmed to {begin}"));
    }
    Err(Error::not_found("the log was trimmed").with("partition", id).with("position", at).with("begins at", begin))
}
