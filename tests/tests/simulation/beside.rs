//! A recomputation that lets other runs of its version go on, and adds what was committed meanwhile at the end.

use catalog::{Add, CatalogState, Commit, Expect, RunRecord, SnapshotFiles, checkpoints_after, recompute_lease, run_lease};
use engine::fresh::ViewVersion;
use types::files::{FileRecord, ObjectName};
use types::{Error, Result};

use crate::actor::Ctx;
use crate::lease::HeldLease;
use crate::reader::segment;
use crate::runner::{publish, recomputed};
use crate::views::streams_of;
use crate::world::{Content, Fault, Positions};

/// The most steps that a recomputation takes beside reading the archive.
const LONGEST: usize = 80;

/// Recomputes, and publishes under the version's lease, which is released meanwhile.
pub async fn recompute_beside<'c>(held: &mut HeldLease<'c>, state: &CatalogState, run: RunRecord) -> Result<()> {
    let ctx = held.ctx;
    ctx.step("asks for the lease to recompute").await;
    // Until the end: what was committed since is read then.
    let pin = run.cut.clone();
    let Some(mut aside) = HeldLease::acquire(ctx, &recompute_lease(&run.view, run.version), pin).await? else {
        return Err(Error::conflict("another run recomputes beside others"));
    };
    let outcome = under(held, &mut aside, state, run).await;
    ctx.step("releases the lease to recompute").await;
    aside.release().await?;
    outcome
}

async fn under<'c>(held: &mut HeldLease<'c>, aside: &mut HeldLease<'c>, state: &CatalogState, run: RunRecord) -> Result<()> {
    let ctx = held.ctx;
    let cut = run.cut.clone().unwrap_or_default();
    let published = state.snapshot(&run.view, run.version).map(|snapshot| snapshot.run);
    let run = RunRecord { beside: true, ..run };
    ctx.step("lets others run").await;
    let expect = vec![held.expect(), aside.expect(), Expect::Running { run: run.id }];
    ctx.commit(Commit { id: ctx.sim.id(), expect, add: vec![Add::Run(run.clone())], ..Commit::default() }).await?;
    held.release().await?;
    let positions = recomputed(aside, state, &RunRecord { cut: Some(cut.clone()), ..run.clone() }).await?;
    // It takes long, while others run and what they have published is compacted.
    for _ in 0..ctx.sim.pick(LONGEST) {
        ctx.step("recomputes").await;
        aside.keep().await?;
    }
    let base = ctx.put(named(&run), Content::Bucket(positions)).await?;
    *held = version_lease(ctx, aside, &run).await?;
    ctx.step("begins again").await;
    let (state, run) = ctx.sim.catalog.begin_run(RunRecord { beside: false, ..run }, vec![held.expect(), aside.expect()]).await?;
    if state.snapshot(&run.view, run.version).map(|snapshot| snapshot.run) != published {
        ctx.sim.fired(Fault::RanBeside);
    }
    let delta = delta(held, &state, &run, &cut).await?;
    let cut = run.cut.clone().unwrap_or_default();
    publish(held, &state, run, cut, SnapshotFiles { written: vec![base, delta], carried_over: Vec::new() }).await
}

fn named(run: &RunRecord) -> ObjectName {
    ObjectName::Recomputed { view: run.view.clone(), version: run.version, run: run.id, bucket: 0 }
}

async fn version_lease<'c>(ctx: &'c Ctx, aside: &mut HeldLease<'c>, run: &RunRecord) -> Result<HeldLease<'c>> {
    loop {
        ctx.step("waits for the lease").await;
        aside.keep().await?;
        if let Some(held) = HeldLease::acquire(ctx, &run_lease(&run.view, run.version), None).await? {
            return Ok(held);
        }
    }
}

/// What was committed since a cut.
async fn delta(held: &mut HeldLease<'_>, state: &CatalogState, run: &RunRecord, since: &types::vector::Vector) -> Result<FileRecord> {
    let ctx = held.ctx;
    let mut positions = Positions::new();
    for checkpoint in checkpoints_after(state, &streams_of(&run.view), since)? {
        held.keep().await?;
        positions.extend(segment(ctx, state, &ViewVersion::new(run.view.clone(), run.version), checkpoint).await?);
    }
    let name = ObjectName::Bucket { view: run.view.clone(), version: run.version, run: run.id, bucket: 0 };
    ctx.put(name, Content::Bucket(positions)).await
}
