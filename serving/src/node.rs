//! A serving node: follows the catalog, keeps what queries need at hand, and gives each query its stand.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use datafusion::prelude::SessionContext;
use schemas::catalog::{Catalog, CatalogState, DefinitionKind, FileKind, Revision, SnapshotRecord};
use schemas::damage::{Finder, report_damage};
use schemas::fresh::{Chain, Fresh, ViewVersion};
use schemas::functions::Functions;
use schemas::log::Log;
use schemas::registry::{LiveView, Registry};
use schemas::segment::SegmentSession;
use schemas::storage::{ObjectStorage, read_manifest};
use schemas::tiles::Micros;
use schemas::vector::Vector;
use schemas::{Error, ErrorKind, Result, failpoint};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::copy::SnapshotCopy;
use crate::layers::{self, LayerSource};
use crate::sql::Queries;
use crate::stand::{Loaded, LoadedView, LostSnapshot, ServingClock, Stand};

mod copying;

/// How long to wait after a catalog state that could not be read or loaded.
const AFTER_A_FAILURE: Duration = Duration::from_secs(1);

/// Now, in microseconds since 1970.
pub type Clock = Arc<dyn Fn() -> Micros + Send + Sync>;

/// How long a snapshot that could not be loaded is left alone.
const LOAD_AGAIN: Duration = Duration::from_secs(30);

/// How a node serves.
#[derive(Clone)]
pub struct NodeSettings {
    /// Names this node in leases.
    pub name: String,
    pub clock: ServingClock,
    /// The folder of local copies; this node's own.
    pub cache: PathBuf,
    /// How often the catalog is asked whether it moved.
    pub poll: Duration,
    /// How long the lease lives that keeps the files of this node's state from being collected.
    pub lease: Duration,
    /// What all SQL queries under way may hold in memory together; past it they spill into the cache folder.
    pub memory_limit_bytes: usize,
}

/// A cheap-to-clone handle.
#[derive(Clone)]
pub struct Node(Arc<Inner>);

struct Inner {
    catalog: Catalog,
    storage: ObjectStorage,
    functions: Functions,
    fresh: Option<Fresh>,
    settings: NodeSettings,
    wall: Clock,
    /// Views are served before their first snapshot is copied.
    at_once: bool,
    /// Told when a snapshot that is being copied turns out to be damaged.
    damaged: Arc<Notify>,
    session: SegmentSession,
    queries: Queries,
    /// The log, where it is known: for the partitions' ends in `system.partitions`.
    log: OnceLock<Arc<dyn Log>>,
    loaded: RwLock<Option<Arc<Loaded>>>,
    /// States that were loaded; queries may still stand on those that live.
    stood: Mutex<Vec<Weak<Loaded>>>,
    /// One refresh at a time; guards nothing else.
    refreshing: tokio::sync::Mutex<()>,
    last_now: AtomicI64,
}

impl Node {
    /// Opens a node and loads the catalog's present state, with all of its snapshots copied. `fresh` are the uncheckpointed layers of a speed worker in this process.
    pub async fn open(
        catalog: Catalog,
        storage: ObjectStorage,
        functions: Functions,
        fresh: Option<Fresh>,
        settings: NodeSettings,
        wall: Clock,
    ) -> Result<Node> {
        Node::new(catalog, storage, functions, fresh, settings, wall, false)?.loading().await
    }

    fn new(
        catalog: Catalog,
        storage: ObjectStorage,
        functions: Functions,
        fresh: Option<Fresh>,
        settings: NodeSettings,
        wall: Clock,
        at_once: bool,
    ) -> Result<Node> {
        let session = SegmentSession::new(&functions, settings.memory_limit_bytes)?;
        storage.register(&session.context().runtime_env());
        let queries = Queries::new(&functions, &storage, settings.memory_limit_bytes, &settings.cache)?;
        let inner = Inner {
            catalog,
            storage,
            functions,
            fresh,
            settings,
            wall,
            at_once,
            damaged: Arc::default(),
            session,
            queries,
            log: OnceLock::new(),
            loaded: RwLock::new(None),
            stood: Mutex::default(),
            refreshing: tokio::sync::Mutex::new(()),
            last_now: AtomicI64::new(i64::MIN),
        };
        Ok(Node(Arc::new(inner)))
    }

    async fn loading(self) -> Result<Node> {
        match self.refresh().await {
            Err(error) if self.loaded().is_some() => warn!(%error, "not every view could be loaded yet; the others are served"),
            outcome => outcome?,
        }
        Ok(self)
    }

    /// Follows the catalog, and copies what is served and not copied yet, until told to stop.
    pub async fn run(&self, stop: CancellationToken) {
        // The state that is loaded is looked at once more: not all of it may have been there.
        let mut seen = None;
        let mut pinned_at = Micros::MIN;
        let mut wait = self.0.settings.poll;
        loop {
            self.copy_the_rest(&stop);
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.0.damaged.notified() => seen = None,
                () = tokio::time::sleep(wait) => {}
            }
            wait = self.0.settings.poll;
            if let Err(error) = self.follow(&mut seen, &mut pinned_at).await {
                wait = wait.max(AFTER_A_FAILURE);
                match error.kind() {
                    ErrorKind::Unavailable => warn!(%error, "the catalog or the storage did not answer; serving what is loaded"),
                    _ => warn!(%error, "a catalog state could not be loaded; serving the one before"),
                }
            }
        }
        self.unpin().await;
    }

    async fn follow(&self, seen: &mut Option<Revision>, pinned_at: &mut Micros) -> Result<()> {
        let revision = self.0.catalog.revision().await?;
        if *seen != Some(revision) {
            self.refresh().await?;
            *seen = Some(revision);
        }
        let now = (self.0.wall)();
        if now.saturating_sub(*pinned_at) > self.0.settings.lease.as_micros() as i64 / 3 {
            // Its own commit is looked at as any other: between it and the look before there may be one of somebody else.
            self.pin(now).await?;
            *pinned_at = now;
        }
        Ok(())
    }

    /// Loads the catalog's present state and makes it the one that queries stand on. While a file of a view that is served does not
    /// come (`Unavailable`), the state before stays: an answer that is a little older is better than none.
    pub async fn refresh(&self) -> Result<()> {
        let _one = self.0.refreshing.lock().await;
        self.load().await
    }

    /// By one at a time.
    async fn load(&self) -> Result<()> {
        let before = self.loaded();
        let state = self.0.catalog.state().await?;
        if let Some(before) = &before
            && !state.vector().covers(&before.vector)
        {
            return Err(Error::corrupt("the catalog's vector went back").with("before", &before.vector).with("after", state.vector()));
        }
        let registry = match &before {
            Some(before) if !before.registry.is_stale(&state) => before.registry.clone(),
            _ => Arc::new(Registry::load(&state, &self.0.functions).await?),
        };
        let mut views: BTreeMap<ViewVersion, LoadedView> = BTreeMap::new();
        let mut late = None;
        let mut failed: BTreeMap<ViewVersion, Error> = BTreeMap::new();
        let damaged = Mutex::new(Vec::new());
        for live in &registry.views {
            let version = (live.name.clone(), live.version);
            let known = before.as_ref().and_then(|before| before.views.get(&version));
            match self.load_view(live, known, &state, &damaged).await {
                Ok(view) => {
                    views.insert(version, view);
                }
                Err(error) if error.kind() == ErrorKind::Unavailable && known.is_some() => return Err(error.with("view", &live.name)),
                Err(error) => {
                    warn!(view = %live.name, %error, "a view could not be loaded; the others are served");
                    metrics::counter!("basestream_serving_load_failures_total", "view" => live.name.to_string()).increment(1);
                    late = Some(error.copied()).filter(|error| error.kind() == ErrorKind::Unavailable).or(late);
                    failed.insert(version, error);
                }
            }
        }
        let mut damaged = damaged.into_inner().unwrap_or_else(PoisonError::into_inner);
        damaged.extend(failed.values().map(Error::copied));
        self.report(&state, &damaged).await;
        let vector = state.vector();
        metrics::gauge!("basestream_serving_catalog_revision").set(state.revision as f64);
        show_dead_letters(&state);
        let loaded = Arc::new(Loaded { state: Arc::new(state), registry, vector: vector.clone(), views, failed });
        self.lock_stood().push(Arc::downgrade(&loaded));
        *self.0.loaded.write().unwrap_or_else(PoisonError::into_inner) = Some(loaded);
        if let Some(fresh) = &self.0.fresh {
            fresh.release(&vector);
        }
        failpoint::hit("serving.loaded")?;
        late.map_or(Ok(()), Err)
    }

    async fn load_view(
        &self,
        live: &LiveView,
        known: Option<&LoadedView>,
        state: &CatalogState,
        damaged: &Mutex<Vec<Error>>,
    ) -> Result<LoadedView> {
        let (snapshot, lost) = self.load_snapshot(live, known, state, damaged).await?;
        let cut = snapshot.as_ref().map(|snapshot| snapshot.manifest.cut.clone()).unwrap_or_default();
        let held = known.map(|known| known.layers.as_slice()).unwrap_or_default();
        let source = LayerSource { storage: &self.0.storage, session: &self.0.session, damaged };
        let layers = layers::refresh(held, &source, live, state, &cut).await?;
        Ok(LoadedView { live: live.clone(), snapshot, lost, layers })
    }

    /// The published snapshot. One that cannot be loaded is answered without: from the one before, where this node still has it, and
    /// the checkpoints after its cut, or from all checkpoints.
    async fn load_snapshot(
        &self,
        live: &LiveView,
        known: Option<&LoadedView>,
        state: &CatalogState,
        damaged: &Mutex<Vec<Error>>,
    ) -> Result<(Option<Arc<SnapshotCopy>>, Option<LostSnapshot>)> {
        let Some(record) = state.snapshot(&live.name, live.version) else { return Ok((None, None)) };
        let known_copy = known.and_then(|known| known.snapshot.clone());
        let damage = known_copy.as_ref().filter(|copy| copy.manifest.run == record.run).and_then(|copy| copy.damage().map(Error::copied));
        let held = known_copy.filter(|copy| copy.damage().is_none());
        if held.as_ref().is_some_and(|copy| copy.manifest.run == record.run) {
            return Ok((held, None));
        }
        let now = (self.0.wall)();
        let known_lost = known.and_then(|known| known.lost).filter(|lost| lost.run == record.run);
        if let Some(lost) = known_lost.filter(|lost| now.saturating_sub(lost.at) < LOAD_AGAIN.as_micros() as Micros) {
            return Ok((held, Some(lost)));
        }
        let opened = match damage {
            Some(error) => Err(error),
            None => self.open_snapshot(live, record, state, self.0.at_once && known.is_none()).await,
        };
        let error = match opened {
            Ok(copy) => return Ok((copy, None)),
            Err(error) => error,
        };
        if error.kind() != ErrorKind::Corrupt {
            return Err(error);
        }
        warn!(view = %live.name, run = %record.run, %error, "a snapshot cannot be loaded; answering without it");
        metrics::counter!("basestream_serving_load_failures_total", "view" => live.name.to_string()).increment(1);
        damaged.lock().unwrap_or_else(PoisonError::into_inner).push(error);
        Ok((held, Some(LostSnapshot { run: record.run, at: now })))
    }

    /// `None`: its states are of another format.
    async fn open_snapshot(
        &self,
        live: &LiveView,
        record: &SnapshotRecord,
        state: &CatalogState,
        at_once: bool,
    ) -> Result<Option<Arc<SnapshotCopy>>> {
        let file = state.files.iter().find(|file| file.kind == FileKind::Manifest && file.path == record.manifest);
        let file =
            file.ok_or_else(|| Error::corrupt("the catalog names no file of a snapshot's manifest").with("manifest", &record.manifest))?;
        let manifest = read_manifest(&self.0.storage, file).await?;
        if manifest.stamp != live.plan.stamp {
            warn!(view = %live.name, "the snapshot's states are of another format; answering from the archive until the next run");
            return Ok(None);
        }
        let (storage, cache) = (&self.0.storage, &self.0.settings.cache);
        let copy = match at_once {
            true => SnapshotCopy::begin(storage, manifest, live, cache),
            false => SnapshotCopy::open(storage, manifest, live, cache).await?,
        };
        info!(view = %live.name, version = live.version, run = %record.run, rows = copy.manifest.rows, "serving a new snapshot");
        Ok(Some(Arc::new(copy)))
    }

    /// Tells the catalog of damage that an answer met, and hands the answer on.
    pub(crate) async fn telling<T>(&self, answer: Result<T>) -> Result<T> {
        if let Err(error) = &answer
            && error.kind() == ErrorKind::Corrupt
            && let Some(loaded) = self.loaded()
        {
            Box::pin(self.report(&loaded.state, &[error.copied()])).await;
        }
        answer
    }

    async fn report(&self, state: &CatalogState, damaged: &[Error]) {
        let finder = Finder { name: &self.0.settings.name, now: (self.0.wall)() };
        report_damage(&self.0.catalog, &self.0.storage, state, damaged, finder).await;
    }

    /// What a query begun now stands on.
    pub fn stand(&self) -> Result<Stand> {
        // Held until the fresh layers are taken: a refresh releases the layers that its own state has passed.
        let current = self.0.loaded.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        let loaded = current.clone().ok_or_else(|| Error::unavailable("the node has not loaded a catalog state yet: try again"))?;
        let alone = || Chain::at(loaded.vector.clone());
        let chain = self.0.fresh.as_ref().map_or_else(alone, |fresh| fresh.after(&loaded.vector));
        drop(current);
        let Chain { layers: fresh, end: vector, complete_to } = chain;
        Ok(Stand { loaded, fresh, vector, now: self.now(), clock: self.0.settings.clock, complete_to })
    }

    pub fn loaded(&self) -> Option<Arc<Loaded>> {
        self.0.loaded.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    pub fn catalog(&self) -> &Catalog {
        &self.0.catalog
    }

    pub fn storage(&self) -> &ObjectStorage {
        &self.0.storage
    }

    pub fn functions(&self) -> &Functions {
        &self.0.functions
    }

    pub fn session(&self) -> &SessionContext {
        self.0.session.context()
    }

    /// Sessions for queries, under the node's memory limit.
    pub(crate) fn queries(&self) -> &Queries {
        &self.0.queries
    }

    /// Lets `system.partitions` show the log's ends. The first log stays.
    pub fn attach_log(&self, log: Arc<dyn Log>) {
        let _ = self.0.log.set(log);
    }

    pub(crate) fn log(&self) -> Option<&Arc<dyn Log>> {
        self.0.log.get()
    }

    /// The wall clock, never going back in this process.
    fn now(&self) -> Micros {
        let wall = (self.0.wall)();
        self.0.last_now.fetch_max(wall, Ordering::Relaxed).max(wall)
    }

    /// Keeps the files of the oldest state in use from being collected: a long query may stand on one loaded long ago.
    async fn pin(&self, now: Micros) -> Result<()> {
        let oldest = self.oldest_in_use().unwrap_or_default();
        self.0.catalog.acquire_lease(&self.lease_name(), &self.0.settings.name, self.0.settings.lease, now, Some(oldest)).await?;
        Ok(())
    }

    fn oldest_in_use(&self) -> Option<Vector> {
        let mut stood = self.lock_stood();
        stood.retain(|loaded| loaded.strong_count() > 0);
        let cuts: Vec<Vector> = stood.iter().filter_map(Weak::upgrade).map(|loaded| oldest_cut(&loaded)).collect();
        let newest = cuts.last()?;
        let least = |partition| cuts.iter().map(|cut| cut.get(partition)).min().unwrap_or_default();
        Some(newest.iter().map(|(partition, _)| (partition.clone(), least(partition))).collect())
    }

    fn lock_stood(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Loaded>>> {
        self.0.stood.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn unpin(&self) {
        let state = self.0.catalog.state().await;
        let Ok(state) = state else { return };
        if let Some(lease) = state.leases.iter().find(|lease| lease.name == self.lease_name()) {
            let _ = self.0.catalog.release_lease(lease).await;
        }
    }

    fn lease_name(&self) -> String {
        format!("serve/{}", self.0.settings.name)
    }
}

/// How many dead letters each stream keeps.
fn show_dead_letters(state: &CatalogState) {
    let mut kept: BTreeMap<&Arc<str>, i64> = state.live(DefinitionKind::Stream).map(|stream| (&stream.name, 0)).collect();
    for file in state.files.iter().filter(|file| file.kind == FileKind::DeadLetters && !file.doomed) {
        if let Some(stream) = &file.subject {
            *kept.entry(stream).or_default() += file.rows;
        }
    }
    for (stream, rows) in kept {
        metrics::gauge!("basestream_serving_dead_letters", "stream" => stream.to_string()).set(rows as f64);
    }
}

/// The least offset, per partition, that any loaded view's snapshot stands at.
fn oldest_cut(loaded: &Loaded) -> Vector {
    let cuts: Vec<Vector> = loaded.views.values().map(LoadedView::cut).collect();
    loaded.vector.iter().map(|(partition, at)| (partition.clone(), cuts.iter().map(|cut| cut.get(partition)).min().unwrap_or(at))).collect()
}

/// Empties a cache folder of what an earlier process left there.
pub fn clean_cache(cache: &Path) -> Result<()> {
    match std::fs::remove_dir_all(cache) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(Error::from(error).with("folder", cache.display())),
    }
    std::fs::create_dir_all(cache).map_err(|error| Error::from(error).with("folder", cache.display()))
}
