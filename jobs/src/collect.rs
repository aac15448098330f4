//! The collector deletes files that are no longer needed: it marks them in the catalog first and deletes them one round
//! later. No transaction may name a marked file. It also looks for orphans: files whose writer died before it could
//! commit them. It looks for files that a run left once, a minute after the run ended, and for all others once an hour,
//! as for leases of processes that died and for tokens that ended.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use catalog::{
    Catalog, CatalogState, CollectionPlan, DefinitionKind, DefinitionRecord, ORPHAN_AGE, Retention, StreamsRead, collectable,
    forget_leases_commit, forget_tokens_commit, has_draft, may_have_left_files, orphans, orphans_commit,
};
use committed::registry::Registry;
use committed::retention::archive_kept;
use definitions::parse::parse_stream;
use engine::functions::Functions;
use storage::ObjectStorage;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use types::files::{ObjectName, folder_of_run};
use types::tiles::{Clock, Micros};
use types::{Error, ErrorKind, Result, failpoint};
use uuid::Uuid;

use crate::owner;

/// How much one transaction marks or deletes: all other commits wait for it.
const MOST: usize = 2_000;
/// How often marks are decided outside of their transaction: a commit in between refuses them.
const ATTEMPTS: usize = 3;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);
/// After this many rounds (an hour, unless `batch.collect_every` is set) the storage is listed for orphans.
const ROUNDS_PER_LISTING: u64 = 60;

/// The collector of one installation.
pub struct Collector {
    pub catalog: Catalog,
    pub storage: ObjectStorage,
    pub functions: Functions,
    pub clock: Clock,
    /// See [`collect`].
    pub event_clock: bool,
    /// How long a pin lives that is not renewed.
    pub pin_lease: Duration,
}

impl Collector {
    /// Collects until `stop` is cancelled.
    pub async fn run(&self, every: Duration, stop: CancellationToken) {
        let rounds = async {
            let mut looked_after = HashSet::new();
            for round in 1u64.. {
                tokio::time::sleep(every).await;
                if let Err(error) = self.catalog.clock_ahead().await.and_then(|ahead| check_clock(ahead, self.pin_lease)) {
                    warn!(%error, "nothing is collected; trying again later");
                    continue;
                }
                self.collect_unneeded(&mut looked_after).await;
                if round % ROUNDS_PER_LISTING == 0 {
                    self.collect_abandoned().await;
                }
            }
        };
        // A round takes long at a large catalog. It may be dropped at any point, as when the process dies: the next one
        // does what was left.
        tokio::select! {
            () = stop.cancelled() => {}
            () = rounds => {}
        }
    }

    /// Collects files that are no longer needed, and those that runs left.
    async fn collect_unneeded(&self, looked_after: &mut HashSet<Uuid>) {
        let Collector { catalog, storage, functions, clock, event_clock, .. } = self;
        match collect(catalog, storage, functions, clock, *event_clock).await {
            Ok(plan) if !plan.is_empty() => {
                debug!(marked_for_deletion = plan.mark_for_deletion.len(), deleted = plan.delete.len(), "files collected")
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Conflict => debug!("something was committed meanwhile; collecting later"),
            Err(error) => warn!(%error, "collection failed; trying again later"),
        }
        match collect_left_by_runs(catalog, storage, clock, looked_after).await {
            Ok(0) => {}
            Ok(deleted) => info!(deleted, "files of runs that published no snapshot were deleted"),
            Err(error) => warn!(%error, "files of runs that published no snapshot could not be deleted; trying again later"),
        }
    }

    /// Collects orphans, and the leases and tokens that ended long ago.
    async fn collect_abandoned(&self) {
        let Collector { catalog, storage, clock, .. } = self;
        match collect_orphans(catalog, storage, clock).await {
            Ok(0) => {}
            Ok(deleted) => info!(deleted, "orphans of writers that died were deleted"),
            Err(error) => warn!(%error, "orphans could not be collected; trying again later"),
        }
        if let Err(error) = forget_leases(catalog, clock).await {
            debug!(%error, "old leases could not be forgotten; trying again later");
        }
        if let Err(error) = forget_tokens(catalog, clock).await {
            debug!(%error, "old tokens could not be forgotten; trying again later");
        }
    }
}

/// Refuses a clock that is so far ahead that pins which are held may look expired: the files that they keep would be
/// deleted. A pin is renewed well before its second half has passed.
fn check_clock(ahead: Duration, pin_lease: Duration) -> Result<()> {
    let limit = pin_lease / 2;
    if ahead <= limit {
        return Ok(());
    }
    Err(Error::unavailable("this clock is too far ahead of the clock of the catalog's database: files in use could be deleted")
        .with("ahead_s", ahead.as_secs_f64())
        .with("at_most_s", limit.as_secs_f64()))
}

/// Deletes files that no transaction named or can name any more; returns how many.
///
/// Errors: `Input` if the files are those of another catalog.
pub async fn collect_orphans(catalog: &Catalog, storage: &ObjectStorage, clock: &Clock) -> Result<usize> {
    owner::check(catalog, storage).await?;
    let state = catalog.state().await?;
    if let Some(commit) = orphans_commit(&state, Uuid::now_v7(), clock()) {
        catalog.commit(commit).await?;
    }
    // Objects whose names are not ours are left alone.
    let listed: Vec<ObjectName> = storage.list("").await?.iter().filter_map(|object| object.path.parse().ok()).collect();
    let state = catalog.state().await?;
    let orphans = orphans(&state, &listed);
    for name in &orphans {
        storage.delete(&name.to_string()).await?;
    }
    storage.remove_partial_files(SystemTime::now(), ORPHAN_AGE).await?;
    metrics::counter!("basestream_jobs_orphans_deleted_total").increment(orphans.len() as u64);
    Ok(orphans.len())
}

/// Forgets the leases of processes that died long ago; returns how many.
///
/// Errors: `Conflict` if one of them is held again meanwhile.
async fn forget_leases(catalog: &Catalog, clock: &Clock) -> Result<usize> {
    let state = catalog.state().await?;
    let Some(commit) = forget_leases_commit(&state, Uuid::now_v7(), clock()) else { return Ok(0) };
    let forgotten = commit.remove.len();
    catalog.commit(commit).await?;
    Ok(forgotten)
}

/// Forgets the tokens that ended long ago; returns how many.
async fn forget_tokens(catalog: &Catalog, clock: &Clock) -> Result<usize> {
    let Some(commit) = forget_tokens_commit(&catalog.tokens().await?, Uuid::now_v7(), clock()) else { return Ok(0) };
    let forgotten = commit.remove.len();
    catalog.commit(commit).await?;
    Ok(forgotten)
}

/// Deletes what runs wrote that were killed, failed or dropped, and slices of recomputations that are done; returns how
/// many files. Each run is looked after once, and again as long as its version has slices to go on with: `looked_after`
/// remembers those of the catalog's state that are done.
pub async fn collect_left_by_runs(
    catalog: &Catalog,
    storage: &ObjectStorage,
    clock: &Clock,
    looked_after: &mut HashSet<Uuid>,
) -> Result<usize> {
    let state = catalog.state().await?;
    looked_after.retain(|id| state.runs.iter().any(|run| run.id == *id));
    let mut deleted = 0;
    for run in may_have_left_files(&state, clock()) {
        if looked_after.contains(&run.id) {
            continue;
        }
        let listed = storage.list(&folder_of_run(&run.view, run.version, run.id)).await?;
        let listed: Vec<ObjectName> = listed.iter().filter_map(|object| object.path.parse().ok()).collect();
        // The run has ended: nothing that it wrote was named since this state, or will be.
        for name in orphans(&state, &listed) {
            storage.delete(&name.to_string()).await?;
            deleted += 1;
            failpoint::hit("collect.between_deletes")?;
        }
        if !has_draft(&state, &run.view, run.version) {
            looked_after.insert(run.id);
        }
    }
    metrics::counter!("basestream_jobs_orphans_deleted_total").increment(deleted as u64);
    Ok(deleted)
}

/// Runs one round and returns what it did: it deletes what is marked, or else marks what is no longer needed, in as
/// many transactions as that takes.
///
/// `event_clock`: answers follow the greatest event time, and so does the age of what is archived. While no event comes
/// no window moves, and nothing that counts becomes old.
pub async fn collect(
    catalog: &Catalog,
    storage: &ObjectStorage,
    functions: &Functions,
    clock: &Clock,
    event_clock: bool,
) -> Result<CollectionPlan> {
    Round { catalog, storage, functions, clock, event_clock, most: MOST, registry: None }.run().await
}

/// A round of the collector.
struct Round<'a> {
    catalog: &'a Catalog,
    storage: &'a ObjectStorage,
    functions: &'a Functions,
    clock: &'a Clock,
    event_clock: bool,
    /// How much one transaction marks or deletes.
    most: usize,
    /// The definitions that were loaded last: they take longest to load.
    registry: Option<Registry>,
}

impl Round<'_> {
    async fn run(mut self) -> Result<CollectionPlan> {
        let mut done = CollectionPlan::default();
        let mut deletes = None;
        loop {
            let (state, plan) = self.plan().await?;
            let part = match *deletes.get_or_insert(!plan.delete.is_empty()) {
                true => self.delete(plan.deletions(self.most)).await?,
                false => self.mark(plan.marks(&state, self.most)).await?,
            };
            let is_last = part.len() < self.most;
            done = done.and(part);
            if is_last {
                return Ok(done);
            }
        }
    }

    async fn delete(&self, part: CollectionPlan) -> Result<CollectionPlan> {
        for path in &part.delete {
            self.storage.delete(path).await?;
            failpoint::hit("collect.between_deletes")?;
        }
        if !part.is_empty() {
            self.catalog.commit(part.delete_commit(Uuid::now_v7())).await?;
        }
        metrics::counter!("basestream_jobs_collected_files_total").increment(part.delete.len() as u64);
        Ok(part)
    }

    /// Marks are refused if anything was committed since their state was read. Where commits are too frequent for that,
    /// they are decided in the transaction itself.
    async fn mark(&mut self, mut part: CollectionPlan) -> Result<CollectionPlan> {
        let mut attempt = 1;
        loop {
            if part.is_empty() {
                return Ok(part);
            }
            match self.catalog.commit(part.marking_commit(Uuid::now_v7())).await {
                Err(error) if error.kind() == ErrorKind::Conflict && attempt < ATTEMPTS => attempt += 1,
                Err(error) if error.kind() == ErrorKind::Conflict => return self.mark_undisturbed().await,
                outcome => return outcome.map(|_| part),
            }
            tokio::time::sleep(BETWEEN_ATTEMPTS).await;
            let (state, plan) = self.plan().await?;
            part = plan.marks(&state, self.most);
        }
    }

    async fn mark_undisturbed(&mut self) -> Result<CollectionPlan> {
        let (catalog, now, event_clock, most) = (self.catalog, (self.clock)(), self.event_clock, self.most);
        let state = catalog.state().await?;
        let registry = self.registry_of(&state).await?;
        catalog
            .commit_decided(|state| {
                if registry.has_other_definitions(state) {
                    return Err(Error::conflict("definitions were changed meanwhile"));
                }
                let (state, plan) = planned(state, registry, (now, event_clock))?;
                let part = plan.marks(&state, most);
                let commit = (!part.is_empty()).then(|| part.marking_commit(Uuid::now_v7()));
                Ok((part, commit))
            })
            .await
    }

    async fn plan(&mut self) -> Result<(CatalogState, CollectionPlan)> {
        let state = self.catalog.state().await?;
        let (clock, event_clock) = (self.clock, self.event_clock);
        planned(&state, self.registry_of(&state).await?, (clock(), event_clock))
    }

    async fn registry_of(&mut self, state: &CatalogState) -> Result<&Registry> {
        let registry = match self.registry.take().filter(|registry| !registry.has_other_definitions(state)) {
            Some(registry) => registry,
            None => Registry::load(state, self.functions).await?,
        };
        Ok(self.registry.insert(registry))
    }
}

/// Returns what is no longer needed, with the state that says so.
fn planned(state: &CatalogState, registry: &Registry, (now, event_clock): (Micros, bool)) -> Result<(CatalogState, CollectionPlan)> {
    let state = without_staging(state, registry);
    let plan = collectable(&state, &reads(registry), &retentions(&state, registry, (now, event_clock))?, now);
    Ok((state, plan))
}

/// Returns the state without staging views: such a view keeps nothing, and has no snapshot to wait for.
pub(crate) fn without_staging(state: &CatalogState, registry: &Registry) -> CatalogState {
    let keeps = |view: &DefinitionRecord| !view.status.is_live() || registry.view(&view.name, view.version).is_some();
    let mut state = state.clone();
    if state.live(DefinitionKind::View).any(|record| !keeps(record)) {
        state.definitions.rewrite(|records| records.retain(|record| record.kind != DefinitionKind::View || keeps(record)));
    }
    state
}

/// Returns which streams the live view versions read.
pub(crate) fn reads(registry: &Registry) -> StreamsRead {
    registry.views.iter().map(|view| ((view.name.clone(), view.version), view.streams())).collect()
}

/// Returns how long each stream's archive is kept, by the last version of a stream that was dropped. Streams that are
/// kept for ever are left out.
pub(crate) fn retentions(
    state: &CatalogState,
    registry: &Registry,
    (now, event_clock): (Micros, bool),
) -> Result<BTreeMap<Arc<str>, Retention>> {
    let mut retentions = BTreeMap::new();
    for record in state.live(DefinitionKind::Stream).chain(state.dropped(DefinitionKind::Stream)) {
        let Some(kept) = archive_kept(registry, &parse_stream(&record.sql)?) else { continue };
        let clock_behind = clock_behind(state, record, event_clock, now);
        retentions.insert(record.name.clone(), Retention { kept, clock_behind });
    }
    Ok(retentions)
}

/// Returns how far the clock that a stream's events age by is behind `now`. That of a dropped stream stands still no
/// longer: it goes on from the time of the drop.
pub(crate) fn clock_behind(state: &CatalogState, stream: &DefinitionRecord, event_clock: bool, now: Micros) -> Duration {
    let of_stream = state.partitions.values().filter(|partition| partition.id.stream == stream.name);
    let newest = of_stream.filter_map(|partition| partition.max_event_time).max().filter(|_| event_clock);
    let stood_until = if stream.status.is_live() { now } else { stream.since.min(now) };
    let behind = newest.map_or(0, |newest| stood_until.saturating_sub(newest).max(0));
    Duration::from_micros(behind as u64)
}

#[cfg(test)]
mod tests;
