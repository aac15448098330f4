//! Following the catalog: each of its states is loaded (snapshots copied, checkpoints' states read), and queries read
//! the newest that is loaded ([`ReadView`]).
//!
//! ```text
//! following: the catalog moved --> loading: its views --snapshot: keep, open or leave out--> Loaded --> read_view
//! asking: asks for runs of the views that have to be built
//! giving_up: bounds what local copies take
//! lease: keeps the files of every state in use
//! newest: no query reads an older vector than one before it
//! changed_views: a changed view is answered by its version before until the new one can be
//! workers: what workers of other processes have not committed
//! awaited_workers: whether those are followed since the start
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use catalog::Catalog;
use committed::segment::SegmentSession;
use datafusion::prelude::SessionContext;
use engine::fresh::{Chain, Fresh};
use engine::functions::Functions;
use storage::ObjectStorage;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use types::clocks::LatestTime;
use types::outage::{Attempts, Outage};
use types::tiles::{Clock, Micros};
use types::{Error, Result};

use crate::hot_keys::HotKeySettings;
use crate::limits::ServingLimits;
use crate::read_view::{Loaded, ReadView, ReadViewId, ServingClock};

mod asking;
mod awaited_workers;
mod changed_views;
mod following;
mod giving_up;
mod lease;
mod loading;
mod newest;
mod snapshot;
mod waiting;
mod wanted;
mod workers;

pub use waiting::MOST_WAITED;
pub(crate) use waiting::{AwaitedPosition, CountedEvents};
pub use wanted::WantedViews;
pub use workers::FollowSettings;

use asking::RequestedRuns;
use awaited_workers::AwaitedWorkers;
use changed_views::ChangedViews;
use lease::InUse;
pub use lease::NODE_LEASE;
use newest::Newest;
pub use newest::is_kept;

/// How a node serves.
#[derive(Clone)]
pub struct NodeSettings {
    /// Names this node in leases.
    pub name: String,
    /// The views that it loads, and can answer.
    pub views: WantedViews,
    pub clock: ServingClock,
    /// Views are served before their first snapshot is copied: what a lookup needs is fetched then, the rest by
    /// [`Node::run`](crate::Node::run). A snapshot that takes the place of another is copied whole before it is used.
    /// Otherwise [`Node::open`](crate::Node::open) copies all of them.
    pub at_once: bool,
    /// The folder of local copies; this node's own.
    pub cache: PathBuf,
    /// Copies of versions that are kept go where all copies take more than this; `None`: all stay.
    pub cache_bytes: Option<u64>,
    /// How often the catalog is asked whether it moved.
    pub poll: Duration,
    /// How long the lease lives that keeps the files of this node's state from being collected.
    pub lease: Duration,
    /// What all SQL queries under way may hold in memory together; past it they spill into the cache folder.
    pub memory_limit_bytes: usize,
    /// In one refresh, the states of at most this many archived events are computed where checkpoints lack them:
    /// [`MAX_REBUILT_EVENTS`](committed::lacking::MAX_REBUILT_EVENTS) outside of tests. A view that needs more is
    /// answered once a run has built it.
    pub max_rebuilt_events: i64,
    /// How long an SQL query over HTTP may take until its answer, or the first part of a stream, is ready.
    pub query_timeout: Duration,
    /// What queries may take.
    pub limits: ServingLimits,
    /// Which keys are hot, and what is kept of them.
    pub hot_keys: HotKeySettings,
}

/// A cheap-to-clone handle.
#[derive(Clone)]
pub(crate) struct Follower(Arc<Inner>);

struct Inner {
    catalog: Catalog,
    storage: ObjectStorage,
    functions: Functions,
    fresh: Option<Fresh>,
    settings: NodeSettings,
    wall: Clock,
    /// Notified when the state that is loaded is to be looked at once more: a snapshot that is being copied turned out
    /// to be damaged, or not all that is little was computed.
    look_again: Arc<Notify>,
    requested: RequestedRuns,
    session: SegmentSession,
    loaded: RwLock<Option<Arc<Loaded>>>,
    /// Changes with what is loaded.
    moved: watch::Sender<()>,
    /// How this node stands to workers of other processes.
    links: feed::Links,
    awaited_workers: AwaitedWorkers,
    /// What queries read last: none reads anything older.
    newest: Newest,
    changed_views: ChangedViews,
    /// Whether the catalog's newest state comes.
    loads: Attempts,
    /// States that were loaded; queries may still read those that live.
    in_use: Mutex<Vec<InUse>>,
    /// One refresh at a time; guards nothing else.
    refreshing: tokio::sync::Mutex<()>,
    latest: LatestTime,
    /// Whether what is served takes more than [`NodeSettings::cache_bytes`].
    is_cache_small: AtomicBool,
}

impl Follower {
    /// With nothing loaded yet.
    pub(crate) fn new(
        catalog: Catalog,
        storage: ObjectStorage,
        functions: Functions,
        fresh: Option<Fresh>,
        settings: NodeSettings,
        wall: Clock,
    ) -> Result<Follower> {
        let session = SegmentSession::new(&functions, settings.memory_limit_bytes)?;
        storage.register(&session.context().runtime_env());
        Ok(Follower(Arc::new(Inner {
            catalog,
            storage,
            functions,
            fresh,
            settings,
            wall,
            look_again: Arc::default(),
            requested: RequestedRuns::default(),
            session,
            loaded: RwLock::new(None),
            moved: watch::Sender::new(()),
            links: feed::Links::default(),
            awaited_workers: AwaitedWorkers::default(),
            newest: Newest::default(),
            changed_views: ChangedViews::default(),
            loads: Attempts::new("the catalog's newest state cannot be loaded"),
            in_use: Mutex::default(),
            refreshing: tokio::sync::Mutex::new(()),
            latest: LatestTime::default(),
            is_cache_small: AtomicBool::new(false),
        })))
    }

    /// Follows the catalog and holds the lease until `stop`.
    pub(crate) async fn run(&self, stop: CancellationToken) {
        let holding = self.clone().hold_files_apart(stop.clone());
        tokio::join!(self.follow(&stop), holding);
        self.release_files().await;
    }

    /// What a query begun now reads from.
    pub(crate) fn read_view(&self) -> Result<ReadView> {
        self.identified_read_view().map(|(read_view, _)| read_view)
    }

    /// The same, with its identity.
    pub(crate) fn identified_read_view(&self) -> Result<(ReadView, ReadViewId)> {
        self.read_view_at(Instant::now())
    }

    fn read_view_at(&self, now: Instant) -> Result<(ReadView, ReadViewId)> {
        let take = || -> Result<ReadView> {
            let present = self.present()?;
            let versions = self.0.changed_views.versions_before(&present, now);
            Ok(ReadView { versions, ..present })
        };
        self.0.newest.newer_of(take()?, take)
    }

    /// What there is to read now, also where it is older than what was read before: uncommitted work was withdrawn. The
    /// served versions of all views, whether or not they can be answered.
    pub(crate) fn present(&self) -> Result<ReadView> {
        // Held until the fresh layers are taken: a refresh releases the layers that its own state has passed.
        let current = self.0.loaded.read().unwrap_or_else(PoisonError::into_inner);
        let loaded = current.clone().ok_or_else(not_loaded)?;
        let alone = || Chain::at(loaded.vector.clone());
        let chain = self.0.fresh.as_ref().map_or_else(alone, |fresh| fresh.after(&loaded.vector));
        drop(current);
        let Chain { layers: fresh, end: vector, complete_to } = chain;
        let (now, clock) = (self.now(), self.0.settings.clock);
        Ok(ReadView { loaded, versions: BTreeMap::new(), fresh, vector, now, clock, complete_to, is_kept: false })
    }

    /// Returns what fails at the moment: of the catalog, the storage, the local copies, the clock, and the speed layer
    /// of this process.
    pub(crate) fn outages(&self) -> Vec<Outage> {
        let mut outages = self.0.catalog.outages();
        outages.extend(self.0.storage.outages());
        outages.extend(self.0.loads.outage());
        outages.extend(self.loaded().and_then(|loaded| loaded.views.values().find_map(|view| view.snapshot.as_ref()?.outage())));
        outages.extend(self.0.fresh.as_ref().and_then(Fresh::outage));
        outages.extend(self.0.latest.outage((self.0.wall)(), |seconds| format!("answers are for a time {seconds} s ahead of it")));
        outages
    }

    /// The processes whose workers this node follows.
    pub(crate) fn workers(&self) -> Vec<feed::Link> {
        self.0.links.all()
    }

    /// From now on the node awaits the workers of other processes, for a few seconds at most.
    pub(crate) fn await_workers(&self) {
        self.0.awaited_workers.begin(Instant::now());
    }

    /// Whether the node has just started, and does not follow all workers yet.
    pub(crate) fn awaits_workers(&self) -> bool {
        self.0.awaited_workers.are_awaited(|worker| self.0.links.is_followed(worker), Instant::now())
    }

    pub(crate) async fn listen_to_workers(&self, topic: &Arc<str>, partitions: &BTreeSet<i32>) -> Vec<Result<feed::DecisionListener>> {
        self.0.links.listen(topic, partitions).await
    }

    pub(crate) fn loaded(&self) -> Option<Arc<Loaded>> {
        self.0.loaded.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is loaded, without what is not committed. Errors: `Unavailable` before anything is.
    pub(crate) fn expect_loaded(&self) -> Result<Arc<Loaded>> {
        self.loaded().ok_or_else(not_loaded)
    }

    pub(crate) fn settings(&self) -> &NodeSettings {
        &self.0.settings
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.0.catalog
    }

    pub(crate) fn storage(&self) -> &ObjectStorage {
        &self.0.storage
    }

    pub(crate) fn functions(&self) -> &Functions {
        &self.0.functions
    }

    pub(crate) fn session(&self) -> &SessionContext {
        self.0.session.context()
    }

    /// The wall clock, never going back in this process.
    pub(crate) fn now(&self) -> Micros {
        self.0.latest.note((self.0.wall)())
    }

    fn lock_in_use(&self) -> std::sync::MutexGuard<'_, Vec<InUse>> {
        self.0.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_loaded() -> Error {
    Error::unavailable("the node has not loaded a catalog state yet: try again")
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

#[cfg(test)]
mod tests;
