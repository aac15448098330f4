//! The batch layer: leases, runs, publications, and the closing of runs whose process died.

use std::sync::Arc;

use batch::{switch_version, version_to_run};
use catalog::{
    ArchiveBounds, CatalogState, DefinitionRecord, DefinitionStatus, LeaseRecord, RunRecord, RunStatus, SnapshotFiles, SnapshotRecord,
    abandoned, archive_files, checkpoints_after, expired_versions, failure_commit, publish_commit, run_lease, skipped_commit,
    version_before, versions_commit,
};
use engine::fresh::ViewVersion;
use types::files::{FileKind, ObjectName};
use types::vector::Vector;
use types::{Error, ErrorKind, Result};

use crate::actor::Ctx;
use crate::beside::recompute_beside;
use crate::compactor::compact;
use crate::lease::HeldLease;
use crate::reader::{archived, segment};
use crate::views::{keep_old, streams_of};
use crate::world::{Content, Fault, Positions};

/// Closes abandoned runs and runs views, until it is killed.
pub async fn run_views(ctx: Ctx) {
    loop {
        ctx.step("looks what is due").await;
        let run = ctx.sim.world.borrow().run;
        let view = run[ctx.sim.pick(run.len())];
        let outcome = if ctx.sim.chance(10) { compact(&ctx).await } else { round(&ctx, view).await };
        match outcome {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Unavailable) => {
                ctx.sim.trace(&ctx.name, format!("the run of {view} came to nothing: {error}"));
            }
            Err(error) => return ctx.sim.violated(format!("a run of {view} failed: {error}")),
        }
    }
}

async fn round(ctx: &Ctx, view: &str) -> Result<()> {
    let state = ctx.state().await?;
    for (_, commit) in abandoned(&state, || ctx.sim.id(), ctx.sim.now(), |_| false) {
        match ctx.commit(commit).await {
            Err(error) if error.kind() == ErrorKind::Conflict => {}
            outcome => drop(outcome?),
        }
    }
    let expired = expired_versions(&state, ctx.sim.now());
    if !expired.is_empty() {
        ctx.sim.fired(Fault::KeptVersionRetired);
        match ctx.commit(versions_commit(&state, ctx.sim.id(), expired)).await {
            Err(error) if error.kind() == ErrorKind::Conflict => {}
            outcome => drop(outcome?),
        }
    }
    ctx.step("asks for the lease").await;
    let state = ctx.state().await?;
    let kept = version_before(&state, view).filter(|_| ctx.sim.chance(40));
    let version = kept.map_or_else(|| version_to_run(&state, view), |kept| Ok(kept.version))?;
    let Some(mut held) = HeldLease::acquire(ctx, &run_lease(view, version), None).await? else { return Ok(()) };
    let outcome = recorded(&mut held, (view, version)).await;
    ctx.step("releases the lease").await;
    held.release().await?;
    outcome
}

async fn recorded(held: &mut HeldLease<'_>, (view, version): (&str, u32)) -> Result<()> {
    let ctx = held.ctx;
    let run = RunRecord {
        id: ctx.sim.id(),
        view: view.into(),
        version,
        status: RunStatus::Running,
        scheduled_for: None,
        attempt: 1,
        started_at: Some(ctx.sim.now()),
        ended_at: None,
        cut: None,
        strategy: None,
        events_read: 0,
        rows_written: 0,
        bytes_written: 0,
        peak_memory_bytes: 0,
        bytes_read: 0,
        tiers: 0,
        peak_resident_bytes: 0,
        comparison: None,
        draft: None,
        beside: false,
        error: None,
    };
    ctx.step("begins a run").await;
    let (state, run) = ctx.sim.catalog.begin_run(run, vec![held.expect()]).await?;
    ctx.sim.trace(&ctx.name, format!("run {} of {view} {version} is cut at {}", run.id, run.cut.clone().unwrap_or_default()));
    let of_other = |lease: &&LeaseRecord| lease.name.starts_with(&format!("run/{view}")) && lease.name != held.lease.name;
    if state.leases.iter().filter(of_other).any(|lease| lease.expires_at > ctx.sim.now()) {
        ctx.sim.fired(Fault::VersionsRunTogether);
    }
    // The product recomputes when it has to; here both ways meet every interleaving.
    let outcome = match state.snapshot(&run.view, run.version) {
        Some(before) if ctx.sim.chance(60) => increment(held, &state, run.clone(), before).await,
        Some(_) if ctx.sim.chance(50) => recompute_beside(held, &state, run.clone()).await,
        _ => recompute(held, &state, run.clone()).await,
    };
    if let Err(error) = &outcome {
        let commit = failure_commit(ctx.sim.id(), run, &ctx.name, error.to_string(), ctx.sim.now());
        match ctx.commit(commit).await {
            Err(error) if error.kind() == ErrorKind::Conflict => {}
            recorded => drop(recorded?),
        }
    }
    outcome
}

/// Adds the checkpoints since the cut of the snapshot before to its files, some of which it merges.
async fn increment(held: &mut HeldLease<'_>, state: &CatalogState, run: RunRecord, before: &SnapshotRecord) -> Result<()> {
    let ctx = held.ctx;
    let cut = run.cut.clone().unwrap_or_default();
    let checkpoints = checkpoints_after(state, &streams_of(&run.view), &before.cut)?;
    if checkpoints.is_empty() {
        ctx.sim.trace(&ctx.name, format!("run {} finds nothing new", run.id));
        return ctx.commit(skipped_commit(run, before.clone(), &held.lease, ctx.sim.now())).await.map(drop);
    }
    let (mut kept, mut merged, mut delta) = (Vec::new(), Positions::new(), Positions::new());
    for file in state.files.iter().filter(|file| file.run == Some(before.run) && file.kind == FileKind::Snapshot) {
        held.keep().await?;
        if !ctx.sim.chance(30) {
            kept.push(file.path.clone());
            continue;
        }
        ctx.step("reads a tier").await;
        match ctx.sim.get(&file.path) {
            Some(Content::Bucket(positions)) => merged.extend(positions),
            _ => return is_gone(ctx, &run, before, &file.path).await,
        }
    }
    for checkpoint in checkpoints {
        held.keep().await?;
        delta.extend(segment(ctx, state, &ViewVersion::new(run.view.clone(), run.version), checkpoint).await?);
    }
    let (view, version) = (run.view.clone(), run.version);
    let merged_name = ObjectName::Merged { view: view.clone(), version, run: run.id, bucket: 0 };
    let delta_name = ObjectName::Bucket { view, version, run: run.id, bucket: 0 };
    let written = vec![ctx.put(merged_name, Content::Bucket(merged)).await?, ctx.put(delta_name, Content::Bucket(delta)).await?];
    held.keep().await?;
    publish(held, state, run, cut, SnapshotFiles { written, carried_over: kept }).await
}

/// A file of the snapshot before may be gone only if another run has published since: this one has lost its lease.
async fn is_gone(ctx: &Ctx, run: &RunRecord, before: &SnapshotRecord, path: &str) -> Result<()> {
    if ctx.state().await?.snapshot(&run.view, run.version).is_some_and(|present| present.run == before.run) {
        ctx.sim.violated(format!("the file {path} of the served snapshot is gone"));
    }
    Err(Error::conflict("a file of the snapshot before was collected"))
}

async fn recompute(held: &mut HeldLease<'_>, state: &CatalogState, run: RunRecord) -> Result<()> {
    let ctx = held.ctx;
    let cut = run.cut.clone().unwrap_or_default();
    let positions = recomputed(held, state, &run).await?;
    let middle = positions.len() / 2;
    let mut files = Vec::new();
    for (bucket, part) in [positions[..middle].to_vec(), positions[middle..].to_vec()].into_iter().enumerate() {
        held.keep().await?;
        let name = ObjectName::Bucket { view: run.view.clone(), version: run.version, run: run.id, bucket: bucket as u32 };
        files.push(ctx.put(name, Content::Bucket(part)).await?);
    }
    held.keep().await?;
    publish(held, state, run, cut, SnapshotFiles { written: files, carried_over: Vec::new() }).await
}

/// Reads all events up to the run's cut from the archive.
pub async fn recomputed(held: &mut HeldLease<'_>, state: &CatalogState, run: &RunRecord) -> Result<Positions> {
    let ctx = held.ctx;
    let cut = run.cut.clone().unwrap_or_default();
    let mut positions = Positions::new();
    for file in archive_files(state, &streams_of(&run.view), ArchiveBounds { cut: Some(&cut), ..ArchiveBounds::default() }) {
        held.keep().await?;
        ctx.step("reads an archive file").await;
        let events = match archived(ctx, file).await {
            Err(error)
                if ctx.sim.catalog.state().await?.runs.iter().any(|known| known.id == run.id && known.status == RunStatus::Running) =>
            {
                ctx.sim.violated(format!("the archive file {} was deleted while a run reads it", file.path));
                return Err(error);
            }
            events => events?,
        };
        let chosen = events.into_iter().map(|event| event.position).filter(|position| position.offset < cut.get(&position.partition).0);
        positions.extend(chosen);
    }
    Ok(positions)
}

pub async fn publish(held: &mut HeldLease<'_>, state: &CatalogState, run: RunRecord, cut: Vector, mut files: SnapshotFiles) -> Result<()> {
    let ctx = held.ctx;
    let (view, version): (Arc<str>, u32) = (run.view.clone(), run.version);
    let name = ObjectName::Manifest { view: view.clone(), version, run: run.id };
    let manifest_file = ctx.put(name, Content::Manifest).await?;
    let manifest = manifest_file.path.clone();
    files.written.push(manifest_file);
    held.keep().await?;
    let snapshot = SnapshotRecord { view: view.clone(), version, run: run.id, cut, manifest, published_at: ctx.sim.now() };
    let commit = publish_commit(run, snapshot, files, &held.lease, ctx.sim.now());
    let of_version = |record: &&DefinitionRecord| record.name == view && record.version == version;
    let is_building = state.definitions.iter().find(of_version).is_some_and(|record| record.status == DefinitionStatus::Building);
    if !is_building {
        return ctx.commit(commit).await.map(drop);
    }
    for _ in 0..20 {
        let state = ctx.state().await?;
        let mut switching = commit.clone();
        switch_version(&mut switching, &state, &view, version, keep_old(version), ctx.sim.now())?;
        match ctx.commit(switching).await {
            Err(error) if error.kind() == ErrorKind::Conflict => {}
            outcome => return outcome.map(drop),
        }
    }
    Err(Error::conflict("something else was committed each time"))
}
