//! A serving node: follows the catalog, keeps what queries need at hand, and gives each query its stand.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use catalog::Catalog;
use committed::segment::SegmentSession;
use datafusion::prelude::SessionContext;
use engine::fresh::{Chain, Fresh};
use engine::functions::Functions;
use event_log::Log;
use storage::ObjectStorage;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use types::tiles::Micros;
use types::{Error, Result};

use crate::sql::Queries;
use crate::stand::{Loaded, ServingClock, Stand};

pub use types::tiles::Clock;

mod following;
mod lease;
mod loading;

/// How a node serves.
#[derive(Clone)]
pub struct NodeSettings {
    /// Names this node in leases.
    pub name: String,
    pub clock: ServingClock,
    /// Views are served before their first snapshot is copied: what a lookup needs is fetched then, the rest by [`Node::run`]. A
    /// snapshot that takes the place of another is copied whole before it is used. Otherwise [`Node::open`] copies all of them.
    pub at_once: bool,
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
    /// Opens a node and loads the catalog's present state. `fresh` are the uncheckpointed layers of a speed worker in this process.
    ///
    /// It takes no lease: that is [`Node::run`]'s. Until then its files are kept by the ten minutes for which a snapshot stays that another
    /// has replaced; a lease here would cost two commits with every command that asks once.
    pub async fn open(
        catalog: Catalog,
        storage: ObjectStorage,
        functions: Functions,
        fresh: Option<Fresh>,
        settings: NodeSettings,
        wall: Clock,
    ) -> Result<Node> {
        let session = SegmentSession::new(&functions, settings.memory_limit_bytes)?;
        storage.register(&session.context().runtime_env());
        let queries = Queries::new(&functions, &storage, settings.memory_limit_bytes, &settings.cache)?;
        let node = Node(Arc::new(Inner {
            catalog,
            storage,
            functions,
            fresh,
            settings,
            wall,
            damaged: Arc::default(),
            session,
            queries,
            log: OnceLock::new(),
            loaded: RwLock::new(None),
            stood: Mutex::default(),
            refreshing: tokio::sync::Mutex::new(()),
            last_now: AtomicI64::new(i64::MIN),
        }));
        match node.refresh().await {
            Err(error) if node.loaded().is_some() => warn!(%error, "not every view could be loaded yet; the others are served"),
            outcome => outcome?,
        }
        Ok(node)
    }

    /// Follows the catalog, copies what is served and not copied yet, and keeps its files from being collected, until told to stop.
    pub async fn run(&self, stop: CancellationToken) {
        tokio::join!(self.follow(&stop), self.hold_files(&stop));
        self.release_files().await;
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

    fn lock_stood(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Loaded>>> {
        self.0.stood.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
