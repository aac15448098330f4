//! A serving node: follows the catalog, pins, and answers. Each answer is compared with the log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use catalog::{CatalogState, CheckpointRecord, DefinitionKind, version_before};
use engine::fresh::{Chain, Fresh, ViewVersion};
use serving::{CheckpointIds, is_kept, layer_plan, next_merge};
use types::files::{FileKind, FileRecord};
use types::vector::{Offset, PartitionId, Vector};
use types::{Error, ErrorKind, Result};
use uuid::Uuid;

use crate::actor::Ctx;
use crate::links::{expected, walked};
use crate::sabotage::Sabotage;
use crate::views::{VIEWS, link_of, streams_of};
use crate::world::{Archived, Content, Positions};

const LEASE: Duration = Duration::from_secs(60);

/// What is loaded for one catalog state.
struct Loaded {
    state: Arc<CatalogState>,
    vector: Vector,
    views: BTreeMap<ViewVersion, View>,
}

/// A view version's snapshot, and the runs of states after its cut.
#[derive(Clone)]
struct View {
    run: Option<Uuid>,
    cut: Vector,
    snapshot: Arc<Positions>,
    runs: Vec<Run>,
}

#[derive(Clone)]
struct Run {
    checkpoints: CheckpointIds,
    positions: Arc<Positions>,
}

/// Serves until it is killed.
pub async fn serve(ctx: Ctx, fresh: Option<Fresh<Positions>>) {
    let mut loaded: Option<Arc<Loaded>> = None;
    let mut stood: Vec<Arc<Loaded>> = Vec::new();
    let mut newest: Option<Read> = None;
    loop {
        ctx.step("waits for a query").await;
        let done = match (ctx.sim.pick(6), &loaded) {
            (0 | 1, _) | (_, None) => match load(&ctx, loaded.as_deref()).await {
                Ok(now) => {
                    if let Some(fresh) = &fresh {
                        fresh.release(&now.vector);
                    }
                    loaded = Some(Arc::new(now));
                    Ok(())
                }
                Err(error) => Err(error),
            },
            (2, Some(now)) => {
                let used: Vec<Arc<Loaded>> = stood.iter().chain(newest.as_ref().map(|read| &read.loaded)).cloned().collect();
                pin(&ctx, now, &used).await
            }
            // A long query uses the state that was loaded when it began.
            (3, Some(now)) => {
                stood.push(now.clone());
                Ok(())
            }
            (_, Some(now)) => match stood.pop() {
                Some(long) => answer(&ctx, &Read::new(&long, fresh.as_ref()), fresh.as_ref()).await,
                None => {
                    let read = read_next(&ctx, Read::new(now, fresh.as_ref()), newest.take());
                    newest = Some(read.clone());
                    answer(&ctx, &read, fresh.as_ref()).await
                }
            },
        };
        match done {
            Err(error) if !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::NotFound | ErrorKind::Conflict) => {
                return ctx.sim.violated(format!("the node {} failed: {error}", ctx.name));
            }
            _ => {}
        }
    }
}

/// What a query reads: a catalog state with its layers, and the fresh layers after it.
#[derive(Clone)]
struct Read {
    loaded: Arc<Loaded>,
    chain: Arc<Chain<Positions>>,
}

impl Read {
    fn new(loaded: &Arc<Loaded>, fresh: Option<&Fresh<Positions>>) -> Read {
        let chain = fresh.map_or_else(|| Chain::at(loaded.vector.clone()), |fresh| fresh.after(&loaded.vector));
        Read { loaded: loaded.clone(), chain: chain.into() }
    }
}

/// What a query that begins now reads, after one that read `before`: it does not go back.
fn read_next(ctx: &Ctx, now: Read, before: Option<Read>) -> Read {
    let Some(before) = before else { return now };
    if is_kept(&now.chain.end, &before.chain.end) && !ctx.sim.is_sabotaged(Sabotage::NewestIsNotKept) {
        return before;
    }
    if !now.chain.end.covers(&before.chain.end) {
        ctx.sim.violated(format!("answers went back from {} to {}", before.chain.end, now.chain.end));
    }
    now
}

/// Loads the catalog's current state.
async fn load(ctx: &Ctx, before: Option<&Loaded>) -> Result<Loaded> {
    let state = ctx.state().await?;
    let vector = state.vector();
    if let Some(before) = before
        && !vector.covers(&before.vector)
    {
        ctx.sim.violated(format!("the committed vector went back from {} to {vector}", before.vector));
    }
    let mut views = BTreeMap::new();
    for record in state.live(DefinitionKind::View) {
        let version = ViewVersion::new(record.name.clone(), record.version);
        let known = before.and_then(|before| before.views.get(&version));
        views.insert(version.clone(), load_view(ctx, &state, &version, known).await?);
    }
    Ok(Loaded { state, vector, views })
}

async fn load_view(ctx: &Ctx, state: &CatalogState, version: &ViewVersion, known: Option<&View>) -> Result<View> {
    let record = state.snapshot(&version.name, version.version);
    let (run, cut, snapshot) = match (record, known) {
        (None, _) => (None, Vector::new(), Arc::default()),
        (Some(record), Some(known)) if known.run == Some(record.run) => (known.run, record.cut.clone(), known.snapshot.clone()),
        (Some(record), known) => {
            let positions = load_snapshot(ctx, state, record.run).await?;
            if let Some(known) = known.filter(|known| !record.cut.covers(&known.cut)) {
                ctx.sim.violated(format!("the published cut of {} went back from {} to {}", version.name, known.cut, record.cut));
            }
            (Some(record.run), record.cut.clone(), Arc::new(positions))
        }
    };
    let held = known.map(|known| known.runs.as_slice()).unwrap_or_default();
    let runs = layers(ctx, state, version, &cut, held).await?;
    Ok(View { run, cut, snapshot, runs })
}

/// Reads a snapshot's files. A missing file must also be gone from the catalog.
async fn load_snapshot(ctx: &Ctx, state: &CatalogState, run: Uuid) -> Result<Positions> {
    let mut positions = Positions::new();
    for file in state.files.iter().filter(|file| file.run == Some(run)) {
        ctx.step("reads a snapshot's file").await;
        match ctx.sim.get(&file.path) {
            Some(Content::Bucket(part)) => positions.extend(part),
            Some(_) => {}
            None => {
                let present = ctx.sim.catalog.state().await?;
                if present.snapshots.iter().any(|snapshot| snapshot.run == run) {
                    ctx.sim.violated(format!("the file {} of the served snapshot is gone", file.path));
                }
                return Err(Error::not_found("a superseded snapshot's file was collected"));
            }
        }
    }
    Ok(positions)
}

async fn layers(ctx: &Ctx, state: &CatalogState, version: &ViewVersion, cut: &Vector, held: &[Run]) -> Result<Vec<Run>> {
    let sets: Vec<&CheckpointIds> = held.iter().map(|run| &run.checkpoints).collect();
    let mut plan = layer_plan(&sets, state, &streams_of(&version.name), cut)?;
    if ctx.sim.is_sabotaged(Sabotage::MergeAcrossACut) {
        let wanted: CheckpointIds =
            catalog::checkpoints_after(state, &streams_of(&version.name), cut)?.into_iter().map(|known| known.id).collect();
        plan.keep = (0..held.len()).filter(|at| !held[*at].checkpoints.is_disjoint(&wanted)).collect();
        plan.load.retain(|checkpoint| !plan.keep.iter().any(|at| held[*at].checkpoints.contains(&checkpoint.id)));
    }
    let mut runs: Vec<Run> = plan.keep.iter().map(|at| held[*at].clone()).collect();
    for checkpoint in plan.load {
        let positions = Arc::new(segment(ctx, state, version, checkpoint).await?);
        runs.push(Run { checkpoints: CheckpointIds::from([checkpoint.id]), positions });
    }
    let blind = CatalogState { runs: Vec::new(), ..state.clone() };
    let seen = if ctx.sim.is_sabotaged(Sabotage::MergeAcrossACut) { &blind } else { state };
    loop {
        let sets: Vec<&CheckpointIds> = runs.iter().map(|run| &run.checkpoints).collect();
        let Some(aged) = next_merge(&sets, seen) else { return Ok(runs) };
        let aged: Vec<Run> = aged.into_iter().rev().map(|at| runs.swap_remove(at)).collect();
        let checkpoints = aged.iter().flat_map(|run| run.checkpoints.iter().copied()).collect();
        let positions = Arc::new(aged.iter().flat_map(|run| run.positions.iter().cloned()).collect());
        runs.push(Run { checkpoints, positions });
    }
}

/// A checkpoint's states: its section, or else what the archive gives.
pub async fn segment(ctx: &Ctx, state: &CatalogState, version: &ViewVersion, checkpoint: &CheckpointRecord) -> Result<Positions> {
    ctx.step("reads a segment").await;
    let files = || state.files.iter().filter(|file| file.checkpoint == Some(checkpoint.id) && !file.marked_for_deletion);
    for file in files().filter(|file| file.kind == FileKind::States) {
        if let Some(Content::States(sections)) = ctx.sim.get(&file.path)
            && let Some(positions) = sections.get(version)
        {
            return Ok(positions.clone());
        }
    }
    let mut positions = Positions::new();
    let streams = streams_of(&version.name);
    for file in files().filter(|file| file.kind == FileKind::Archive && file.subject.as_ref().is_some_and(|s| streams.contains(s))) {
        positions.extend(archived(ctx, file).await?.into_iter().map(|event| event.position));
    }
    Ok(positions)
}

/// Reads an archive file. One that is missing must be gone from the catalog, too.
pub async fn archived(ctx: &Ctx, file: &FileRecord) -> Result<Vec<Archived>> {
    if let Some(Content::Archive(events)) = ctx.sim.get(&file.path) {
        return Ok(events);
    }
    let present = ctx.sim.catalog.state().await?;
    if present.files.get(&file.path).is_some_and(|file| !file.marked_for_deletion) {
        ctx.sim.violated(format!("the archive file {} is named by the catalog and gone", file.path));
    }
    Err(Error::conflict("an archive file was superseded and collected"))
}

/// Protects what its queries use from being collected.
async fn pin(ctx: &Ctx, loaded: &Arc<Loaded>, stood: &[Arc<Loaded>]) -> Result<()> {
    let oldest = |id: &PartitionId, at: Offset| {
        let views = stood.iter().chain([loaded]).flat_map(|loaded| &loaded.views);
        let depends = |(version, _): &(&ViewVersion, &View)| streams_of(&version.name).contains(&id.stream);
        views.filter(depends).map(|(_, view)| view.cut.get(id)).min().unwrap_or(at)
    };
    let oldest = loaded.vector.iter().map(|(id, at)| (id.clone(), oldest(id, at))).collect();
    ctx.step("pins").await;
    let name = format!("serve/{}", ctx.name);
    ctx.sim.catalog.acquire_lease(&name, &ctx.name, LEASE, ctx.sim.now(), Some(oldest)).await.map(drop)
}

/// One query over all views: one state, one vector, and everything before it counted once.
async fn answer(ctx: &Ctx, read: &Read, fresh: Option<&Fresh<Positions>>) -> Result<()> {
    let vector = read.chain.end.clone();
    for (at, name) in VIEWS.into_iter().enumerate() {
        let mut present = read.clone();
        if at > 0 && ctx.sim.is_sabotaged(Sabotage::TwoStatesPerQuery) {
            present = Read::new(&Arc::new(load(ctx, None).await?), fresh);
        }
        let (loaded, own) = (&present.loaded, &present.chain);
        let Some(served) = loaded.state.served_or_building(DefinitionKind::View, name) else {
            if loaded.state.definitions.iter().any(|record| &*record.name == name) {
                ctx.sim.violated(format!("no version of {name} is served"));
            }
            continue;
        };
        let streams = streams_of(name);
        let reads = |stream: &str| streams.iter().any(|known| &**known == stream);
        let is_kept_fresh = |version: &ViewVersion| own.layers.iter().all(|layer| layer.covers(version, reads));
        // A layer without a version gives no answer of it rather than a wrong one. The version before answers then.
        let versions = [Some(served), version_before(&loaded.state, name)].into_iter().flatten();
        let mut versions = versions.map(|record| ViewVersion::new(record.name.clone(), record.version));
        let Some(version) = versions.find(is_kept_fresh) else { continue };
        let view = &loaded.views[&version];
        let kept: Vec<&Positions> = [&*view.snapshot].into_iter().chain(view.runs.iter().map(|run| &*run.positions)).collect();
        let fresh: Vec<&Positions> = own.layers.iter().filter_map(|layer| layer.states.get(&version)).map(|states| &**states).collect();
        match link_of(name) {
            None => check(ctx, name, kept.into_iter().chain(fresh).flatten().cloned().collect(), &vector),
            Some((_, far)) if far != "a" && ctx.sim.is_sabotaged(Sabotage::SidesOfTwoStates) => {
                let again = load(ctx, None).await?;
                let of = |is_far: bool, positions: &Positions| -> Positions {
                    positions.iter().filter(|position| (&*position.partition.stream == far) == is_far).cloned().collect()
                };
                let Some(later) = again.views.get(&version) else { continue };
                let near = kept.iter().chain(&fresh).map(|positions| of(false, positions));
                let far =
                    [&*later.snapshot].into_iter().chain(later.runs.iter().map(|run| &*run.positions)).map(|positions| of(true, positions));
                let sides: Vec<Positions> = near.chain(far).collect();
                check_links(ctx, name, &sides.iter().collect::<Vec<_>>(), &[], &vector)?;
            }
            Some(_) => check_links(ctx, name, &kept, &fresh, &vector)?,
        }
    }
    Ok(())
}

fn check_links(ctx: &Ctx, view: &str, kept: &[&Positions], fresh: &[&Positions], vector: &Vector) -> Result<()> {
    let (served, expected) = {
        let log = &ctx.sim.world.borrow().log;
        (walked(log, view, kept, fresh)?, expected(log, view, vector))
    };
    if served == expected {
        let pairs: i64 = served.iter().map(|(_, pairs, _)| pairs).sum();
        ctx.sim.trace(&ctx.name, format!("answers {view} at {vector} with {pairs} pairs"));
        return Ok(());
    }
    let only = |rows: &[(String, i64, String)], others: &[(String, i64, String)]| -> Vec<String> {
        rows.iter().filter(|row| !others.contains(row)).map(|(device, pairs, ends)| format!("{device} {pairs} {ends}")).collect()
    };
    let (found, missing) = (only(&served, &expected), only(&expected, &served));
    ctx.sim.violated(format!("{view} at {vector}: found {found:?}, expected {missing:?}"));
    Ok(())
}

fn check(ctx: &Ctx, view: &str, mut served: Positions, vector: &Vector) {
    let mut expected = ctx.sim.world.borrow().log.events_before(&streams_of(view), vector);
    served.sort();
    expected.sort();
    if served == expected {
        return ctx.sim.trace(&ctx.name, format!("answers {view} at {vector} with {} events", served.len()));
    }
    let doubled: Vec<String> = served.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| show(&pair[0])).collect();
    let lost: Vec<String> = expected.iter().filter(|position| served.binary_search(position).is_err()).map(show).collect();
    let foreign: Vec<String> = served.iter().filter(|position| expected.binary_search(position).is_err()).map(show).collect();
    ctx.sim.violated(format!("{view} at {vector}: lost {lost:?}, counted twice {doubled:?}, not before the vector {foreign:?}"));
}

fn show(position: &crate::world::Position) -> String {
    format!("{}:{}", position.partition, position.offset)
}
