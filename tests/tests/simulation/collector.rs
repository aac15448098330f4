//! The collector: deletes names that are marked for deletion, and orphans, following the product's plans.

use std::collections::BTreeMap;

use catalog::{collectable, orphans, orphans_commit};
use types::files::ObjectName;
use types::{ErrorKind, Result};

use crate::actor::Ctx;
use crate::compactor::compact;
use crate::sabotage::Sabotage;
use crate::views::reads;

/// How much one transaction takes: so little that some plans take several.
const MOST: usize = 4;

pub async fn collect(ctx: Ctx) {
    loop {
        ctx.step("looks what nobody needs").await;
        let leaves_orphans = ctx.sim.world.borrow().sabotage.is_some_and(Sabotage::leaves_orphans);
        let outcome = match ctx.sim.pick(100) {
            0..35 if !leaves_orphans => collect_orphans(&ctx).await,
            35..55 => compact(&ctx).await,
            _ => round(&ctx).await,
        };
        match outcome {
            Err(error) if !matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Unavailable) => {
                return ctx.sim.violated(format!("collection failed: {error}"));
            }
            _ => {}
        }
    }
}

async fn round(ctx: &Ctx) -> Result<()> {
    let state = ctx.state().await?;
    let plan = collectable(&state, &reads(&state), &BTreeMap::new(), ctx.sim.now());
    let deletions = plan.deletions(MOST);
    for path in &deletions.delete {
        ctx.step("deletes a file that is marked for deletion").await;
        ctx.sim.trace(&ctx.name, format!("deleted {path}"));
        ctx.sim.delete(path);
    }
    if !deletions.is_empty() {
        ctx.commit(deletions.delete_commit(ctx.sim.id())).await?;
    } else if !plan.is_empty() {
        ctx.commit(plan.marks(&state, MOST).marking_commit(ctx.sim.id())).await?;
    }
    Ok(())
}

async fn collect_orphans(ctx: &Ctx) -> Result<()> {
    let state = ctx.state().await?;
    if let Some(commit) = orphans_commit(&state, ctx.sim.id(), ctx.sim.now()) {
        ctx.commit(commit).await?;
    }
    ctx.step("lists the storage").await;
    let listed: Vec<ObjectName> = ctx.sim.world.borrow().store.keys().map(|path| path.parse().unwrap()).collect();
    let state = ctx.state().await?;
    for name in orphans(&state, &listed) {
        ctx.step("deletes an orphan").await;
        ctx.sim.trace(&ctx.name, format!("deleted the orphan {name}"));
        ctx.sim.delete(&name.to_string());
    }
    Ok(())
}
