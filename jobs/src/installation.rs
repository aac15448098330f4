//! An installation: opens the services that the settings name.
//!
//! ```text
//! layers     the layers on these services
//! applying   definitions to the catalog
//! ingesting  files to the log
//! runs       batch runs on request
//! ```

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use catalog::{Catalog, DefinitionKind};
use definitions::settings::Settings;
use definitions::{StreamDefinition, parse};
use engine::functions::Functions;
use event_log::Log;
use storage::ObjectStorage;
use tokio::sync::OnceCell;
use tracing::{debug, info};
use types::liveness::{LiveInstance, LockFolder};
use types::process_folder::ProcessFolder;
use types::{Error, Result};

mod applying;
mod ingesting;
mod layers;
mod runs;
mod wall_clock;

pub use wall_clock::{clock, now};

/// A lease that lasts this much longer than leases do was taken by a clock that was ahead.
const CLOCK_AHEAD: Duration = Duration::from_secs(10 * 60);

/// One installation, as opened by one process. Cheap to clone.
///
/// ```no_run
/// # async fn example() -> types::Result<()> {
/// use jobs::{Installation, now};
/// use engine::functions::Functions;
/// use definitions::settings::{Settings, Variables};
///
/// let settings = Settings::load("basestream.toml".as_ref(), &Variables::from_process())?;
/// let installation = Installation::open(&settings, Functions::standard()).await?;
/// let run = installation.run_view("device_velocity", &|_state_rows| {}).await?;
/// println!("{} events read, {} state rows written", run.events_read, run.rows_written);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Installation {
    pub settings: Settings,
    pub catalog: Catalog,
    pub storage: ObjectStorage,
    pub log: Arc<dyn Log>,
    pub functions: Functions,
    /// Identifies this process in leases and groups; unique.
    pub worker: String,
    cache: Arc<OnceCell<ProcessFolder>>,
    copies: batch::LocalCopies,
    processes: LockFolder,
    alive: Arc<OnceCell<LiveInstance>>,
}

impl Installation {
    /// Opens storage, catalog and log, and creates what is missing. A Kafka log is contacted on first use, so queries
    /// work without it.
    ///
    /// Errors: `Input` for a wrong URL, `Unavailable` for a service that does not answer; they name the setting.
    pub async fn open(settings: &Settings, functions: Functions) -> Result<Installation> {
        let storage = ObjectStorage::open(settings.storage.url.as_str()).map_err(|error| error.with("setting", "storage.url"))?;
        let catalog = Catalog::open(settings.catalog.url.as_str()).await.map_err(|error| error.with("setting", "catalog.url"))?;
        let log =
            event_log::open(settings.log.url.as_str(), &settings.log.properties).await.map_err(|error| error.with("setting", "log.url"))?;
        if settings.log.retention.is_some() && !log.is_trimmed() {
            let message = "log.retention is a setting of the embedded log; Kafka keeps records by the topic's retention.ms";
            return Err(Error::input(message).with("expected", "no log.retention"));
        }
        let processes = LockFolder::of_this_machine(settings.local_dir().join("processes"));
        let worker = format!("{}-{}", std::process::id(), &uuid::Uuid::new_v4().simple().to_string()[..8]);
        Ok(Installation {
            settings: settings.clone(),
            catalog: catalog.with_processes(processes.clone()),
            storage,
            log,
            functions,
            worker,
            cache: Arc::default(),
            copies: Default::default(),
            processes,
            alive: Arc::default(),
        })
    }

    /// Lets others of this machine see when this process is dead, so that they take over at once what it did under
    /// leases that are fenced. Call this before it takes the first of them. Where its lock file cannot be created,
    /// others wait until its leases expire.
    pub(crate) async fn show_alive(&self) {
        if let Err(error) = self.alive.get_or_try_init(|| self.begin_to_live()).await {
            info!(%error, setting = "serving.cache_dir", "should this process die, others wait until its leases expire");
        }
    }

    async fn begin_to_live(&self) -> Result<LiveInstance> {
        self.end_leases_of_later_clock().await;
        let (leases, now) = (self.catalog.leases("").await?, now());
        let holders = leases.into_iter().filter(|lease| lease.expires_at > now).map(|lease| lease.owner).collect();
        self.processes.begin(&self.worker, &holders)
    }

    /// A process that died while the clock was ahead, as at the start of a machine, left leases that nobody would get
    /// until the clock is there again.
    async fn end_leases_of_later_clock(&self) {
        let longest = self.settings.batch.lease.max(self.settings.serving.lease) + CLOCK_AHEAD;
        match self.catalog.end_leases_of_later_clock(longest, now()).await {
            Ok(0) => {}
            Ok(leases) => info!(leases, "the clock went back: leases of processes that died before were ended"),
            Err(error) => debug!(%error, "leases of processes that died while the clock was ahead were not ended"),
        }
    }

    /// Returns a live stream by its name.
    pub async fn stream(&self, name: &str) -> Result<Arc<StreamDefinition>> {
        let state = self.catalog.state().await?;
        let Some(record) = state.served_or_building(DefinitionKind::Stream, name) else {
            let known: Vec<&str> = state.live(DefinitionKind::Stream).map(|record| &*record.name).collect();
            let expected = if known.is_empty() { "`basestream apply` first".to_owned() } else { known.join(", ") };
            return Err(Error::not_found(format!("there is no stream \"{name}\" in the catalog")).with("expected", expected));
        };
        parse::parse_stream(&record.sql).map(Arc::new)
    }

    /// Closes the catalog; storage and log are closed when the last clone is dropped.
    pub async fn close(&self) {
        self.catalog.close().await;
        if let Some(Err(error)) = self.alive.get().map(|alive| alive.forget(&self.worker)) {
            debug!(%error, "the lock file of this process was not removed");
        }
    }

    /// Returns this process's folder of local copies; it is deleted when the last clone is dropped.
    async fn cache(&self) -> Result<PathBuf> {
        Ok(self.cache.get_or_try_init(|| self.create_cache()).await?.path().to_path_buf())
    }

    /// On a thread that may block: the copies of processes that were killed are deleted first.
    async fn create_cache(&self) -> Result<ProcessFolder> {
        let parent = self.settings.serving.cache_dir.clone().unwrap_or_else(std::env::temp_dir);
        let created = tokio::task::spawn_blocking(move || ProcessFolder::create(&parent, "basestream-cache-")).await?;
        created.map_err(|error| error.with("setting", "serving.cache_dir"))
    }
}

impl std::fmt::Debug for Installation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Installation").field("settings", &self.settings).field("worker", &self.worker).finish_non_exhaustive()
    }
}
