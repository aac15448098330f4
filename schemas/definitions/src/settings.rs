//! Settings: `basestream.toml`, which says where a project runs.
//!
//! Every key has a default, so every section and every key is optional. In any string `${NAME}` is an environment
//! variable and `${file:/path}` a file's content without its last newline (`$${` is a plain `${`). Every key can be
//! overridden by an environment variable `BASESTREAM__SECTION__KEY`, which is read as a TOML value or else as a string;
//! `BASESTREAM__LOG__PROPERTIES__SASL_PASSWORD` is librdkafka's `sasl.password`. Relative paths, alone or in
//! `file:data`, are relative to the file's folder.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use types::redact::{HIDDEN, is_secret};
use types::{Error, Result};

mod access;
mod document;
mod fields;
mod limits;
mod secret;
mod urls;
mod variables;

pub use access::{AuthSettings, PublicPath, TlsSettings};
pub use limits::LimitSettings;
pub use secret::Secret;
pub use urls::ServiceUrl;
pub use variables::Variables;

/// The default name of the file.
pub const FILE_NAME: &str = "basestream.toml";

/// Where a project runs. The `Debug` text contains no secrets.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The folder of the file, which also holds `streams/`, `views/`, `sinks/`, `alerts/` and `parameters/`. Absolute.
    #[serde(skip)]
    pub project: PathBuf,
    pub storage: StorageSettings,
    pub catalog: CatalogSettings,
    pub log: LogSettings,
    pub speed: SpeedSettings,
    pub archive: ArchiveSettings,
    pub batch: BatchSettings,
    pub scheduler: SchedulerSettings,
    pub serving: ServingSettings,
}

/// `[storage]`: the object storage, which holds archive, states and snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StorageSettings {
    /// A folder, `file:///folder`, `s3://bucket/prefix` or another URL that object_store accepts. Default:
    /// `./data/storage`.
    #[serde(deserialize_with = "fields::storage_url")]
    pub url: ServiceUrl,
}

/// `[catalog]`: the database of everything that is committed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CatalogSettings {
    /// `sqlite:///path/catalog.db` or `postgres://user:password@host:port/database`. Default:
    /// `sqlite:./data/catalog.db`.
    #[serde(deserialize_with = "fields::catalog_url")]
    pub url: ServiceUrl,
}

/// `[log]`: the event log.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// A folder, `file:///folder` (the embedded log) or `kafka://host:9092,host:9092`. Default: `./data/log`.
    #[serde(deserialize_with = "fields::log_url")]
    pub url: ServiceUrl,
    /// Partitions of a topic that is created because it does not exist. Default: 4.
    #[serde(deserialize_with = "fields::partitions")]
    pub partitions: u32,
    /// The embedded log deletes records that were committed longer ago than this; Kafka's topics have settings of their
    /// own. Default: [`LogSettings::RETENTION`].
    #[serde(deserialize_with = "fields::optional_duration")]
    pub retention: Option<Duration>,
    /// Passed to librdkafka, Kafka only. `security.protocol = "SASL_SSL"` may be written with or without quotes around
    /// the key. Default: none.
    #[serde(deserialize_with = "fields::properties")]
    pub properties: BTreeMap<String, String>,
}

/// `[speed]`: the speed layer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpeedSettings {
    /// The consumer group: workers of one group share the partitions. Default: `basestream`.
    #[serde(deserialize_with = "fields::text")]
    pub group: String,
    /// Workers of one process, which share its partitions: each follows its own and commits its own checkpoints.
    /// Default: one per core, at most 4.
    #[serde(deserialize_with = "fields::workers")]
    pub workers: u32,
    /// A checkpoint is committed after this time at the latest. Default: `10s`.
    #[serde(deserialize_with = "fields::duration")]
    pub checkpoint_interval: Duration,
    /// Memory for uncheckpointed data (bytes, all workers of a process together). A worker begins a checkpoint at a
    /// quarter of its share, as it holds that data until the commit, and merges and encodes it. Default: `512MiB`.
    #[serde(deserialize_with = "fields::bytes")]
    pub checkpoint_bytes: u64,
    /// How far an event may be dated after its partition's clock; later ones become dead letters. Default: `10m`.
    #[serde(deserialize_with = "fields::duration")]
    pub max_future: Duration,
    /// Memory for the ids that identify duplicates (bytes, all partitions of a process together); what does not fit
    /// goes to files in `serving.cache_dir`. Default: `256MiB`.
    #[serde(deserialize_with = "fields::bytes")]
    pub dedup_memory: u64,
    /// A key with at least this share of its view's events is hot. Default: 0.1.
    #[serde(deserialize_with = "fields::share")]
    pub hot_key_share: f64,
    /// So is one with at least this many events a second. Default: 10000.
    #[serde(deserialize_with = "fields::count")]
    pub hot_key_rate: u32,
    /// Where `basestream speed` answers `/healthz`, `/readyz` and `/metrics`, `host:port`. Default: absent or empty,
    /// nowhere.
    #[serde(deserialize_with = "fields::optional_address")]
    pub http: Option<String>,
    /// Where workers offer their fresh layers to nodes of other processes, over Arrow Flight, `host:port` (port 0: any
    /// free one). Default: absent or empty, nowhere.
    #[serde(deserialize_with = "fields::optional_address")]
    pub flight: Option<String>,
    /// Where nodes reach it, `host` or `host:port`, if that is not `flight` itself. Default: absent or empty.
    #[serde(deserialize_with = "fields::optional_text")]
    pub flight_advertise: Option<String>,
    /// `--accept-gap`: continue after offsets that the log no longer has. Given once, by a person, and never in a file.
    #[serde(skip)]
    pub accept_gap: bool,
}

/// `[archive]`: the accepted events in the object storage.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ArchiveSettings {
    /// The scheduler compacts the files of checkpoints into files of at most this size (bytes). Default: `256MiB`.
    #[serde(deserialize_with = "fields::bytes")]
    pub target_bytes: u64,
    /// Checkpoints that were committed less than this ago are left as they are. Default: `1h`.
    #[serde(deserialize_with = "fields::duration")]
    pub compact_after: Duration,
}

/// `[batch]`: the batch layer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BatchSettings {
    /// Memory of the runs at a time (bytes), in equal parts; the rest is spilled. Default: `4GiB`.
    #[serde(deserialize_with = "fields::bytes")]
    pub memory_limit: u64,
    /// Cores that one run may use. Default: one per core, at most 4.
    #[serde(deserialize_with = "fields::workers")]
    pub threads: u32,
    /// The folder for spilled data. Default: absent or empty, the system's temporary folder.
    #[serde(deserialize_with = "fields::optional_path")]
    pub temp_dir: Option<PathBuf>,
    /// How long a run's lease lives without being renewed: if a run's process dies, another may run the view after this
    /// time. At least `1s`. Default: `30s`.
    #[serde(deserialize_with = "fields::lease")]
    pub lease: Duration,
    /// How often the scheduler compacts the archive and deletes files that are no longer needed. Default: `1m`.
    #[serde(deserialize_with = "fields::duration")]
    pub collect_every: Duration,
}

/// `[scheduler]`: the scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SchedulerSettings {
    /// The most batch runs at a time of one process. Each has its part of `batch.memory_limit` and may use
    /// `batch.threads`. Default: 1.
    #[serde(deserialize_with = "fields::workers")]
    pub max_concurrent_runs: u32,
    /// Where `basestream scheduler` answers `/healthz`, `/readyz` and `/metrics`, `host:port`. Default: absent or
    /// empty, nowhere.
    #[serde(deserialize_with = "fields::optional_address")]
    pub http: Option<String>,
}

/// `[serving]`: the serving layer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServingSettings {
    /// The address of the HTTP server, `host:port`. Default: `127.0.0.1:8080`.
    #[serde(deserialize_with = "fields::address")]
    pub http: String,
    /// The address at which PostgreSQL clients are answered, `host:port`; of this machine unless `auth.required` is
    /// set. Default: absent or empty, none.
    #[serde(deserialize_with = "fields::optional_address")]
    pub postgres: Option<String>,
    /// The address at which Arrow Flight SQL clients are answered, `host:port`; of this machine unless `auth.required`
    /// is set. Default: absent or empty, none.
    #[serde(deserialize_with = "fields::optional_address")]
    pub flight: Option<String>,
    /// What nodes answer from: `stream`, also what workers of other processes have not committed yet, or `committed`.
    /// Default: `stream`.
    pub fresh: FreshKind,
    /// The token with which a node asks workers for it, where they need one. Default: absent or empty.
    #[serde(deserialize_with = "fields::optional_secret")]
    pub fresh_token: Option<Secret>,
    /// The authorities of the workers' certificates, a PEM file. Default: absent or empty, the certificates in
    /// `serving.tls.cert`.
    #[serde(deserialize_with = "fields::optional_path")]
    pub fresh_ca: Option<PathBuf>,
    /// Which clock gives `t` without `as_of`: `wall` or `event`. Default: `wall`.
    pub clock: ClockKind,
    /// Memory for queries (bytes). Default: `2GiB`.
    #[serde(deserialize_with = "fields::bytes")]
    pub memory_limit: u64,
    /// How long an SQL query over HTTP, the PostgreSQL protocol or Flight SQL may take until its answer, or the first
    /// part of a stream, is ready. Default: `30s`.
    #[serde(deserialize_with = "fields::duration")]
    pub query_timeout: Duration,
    /// How long a node's pin lives without being renewed: the files that a dead node used are kept for this time.
    /// At least `1s`. Default: `60s`.
    #[serde(deserialize_with = "fields::lease")]
    pub lease: Duration,
    /// The folder for local copies of snapshots, what queries spill, remembered ids and the lock files of processes.
    /// Default: absent or empty, the system's temporary folder; for the last two ([`Settings::local_dir`]) one of the
    /// project.
    #[serde(deserialize_with = "fields::optional_path")]
    pub cache_dir: Option<PathBuf>,
    /// What local copies of snapshots may take (bytes), as far as the views that are served do. Default: absent, any.
    #[serde(deserialize_with = "fields::optional_bytes")]
    pub cache_bytes: Option<u64>,
    /// A key with at least this share of its view's lookups is hot. Default: 0.1.
    #[serde(deserialize_with = "fields::share")]
    pub hot_key_share: f64,
    /// So is one with at least this many lookups a second. Default: 1000.
    #[serde(deserialize_with = "fields::count")]
    pub hot_key_rate: u32,
    /// Memory for the finished rows of hot keys (bytes), within `memory_limit`; 0: none are kept. Default: `64MiB`.
    #[serde(deserialize_with = "fields::bytes_or_none")]
    pub row_cache: u64,
    pub auth: AuthSettings,
    pub tls: TlsSettings,
    pub limits: LimitSettings,
}

/// What a node's answers count of what is not committed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FreshKind {
    /// What workers offer.
    #[default]
    Stream,
    /// Only what workers of the same process have.
    Committed,
}

/// The clock that gives an answer its time `t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClockKind {
    #[default]
    Wall,
    /// The greatest event time of all accepted events.
    Event,
}

impl Settings {
    /// Reads the file at `path`, substitutes variables and applies overrides.
    ///
    /// Errors: `NotFound` when the file does not exist, `Input` for mistakes in it, with file, line and column or the
    /// variable's name.
    pub fn load(path: &Path, variables: &Variables) -> Result<Settings> {
        let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Error::not_found(format!("there is no settings file at {}; expected {FILE_NAME} (see --config)", path.display()))
            }
            std::io::ErrorKind::InvalidData => {
                Error::input(format!("{}: found bytes that are not UTF-8; expected a TOML file", path.display()))
            }
            _ => Error::from(error).with("file", path.display()),
        })?;
        Self::parse(&text, path, variables)
    }

    /// Same as `load`, for a text in memory. `path` is its name in errors, and its folder is the project's.
    pub fn parse(text: &str, path: &Path, variables: &Variables) -> Result<Settings> {
        let absolute = std::path::absolute(path).map_err(|error| Error::from(error).with("file", path.display()))?;
        let project = absolute.parent().unwrap_or(&absolute).to_path_buf();
        let settings: Settings = document::read(text, path, &project, variables)?;
        settings.serving.refuse_shared_addresses().map_err(|message| Error::input(format!("{}: error: {message}", path.display())))?;
        Ok(settings.in_project(project))
    }

    /// Returns the defaults for a project in this folder.
    pub fn defaults(project: &Path) -> Settings {
        Settings::default().in_project(project.to_path_buf())
    }

    /// Makes every path absolute.
    fn in_project(mut self, project: PathBuf) -> Settings {
        self.storage.url = self.storage.url.resolved(&project);
        self.catalog.url = self.catalog.url.resolved(&project);
        self.log.url = self.log.url.resolved(&project);
        self.batch.temp_dir = self.batch.temp_dir.map(|path| urls::resolved_path(&project, &path));
        self.serving.cache_dir = self.serving.cache_dir.map(|path| urls::resolved_path(&project, &path));
        let tls = &mut self.serving.tls;
        for path in [&mut tls.cert, &mut tls.key, &mut tls.client_ca, &mut self.serving.fresh_ca] {
            *path = path.take().map(|path| urls::resolved_path(&project, &path));
        }
        self.project = project;
        self
    }

    /// Returns a line for each setting that is given and changes nothing in `up`, whose layers have one HTTP server.
    pub fn without_effect_in_up(&self) -> Vec<String> {
        let addresses = [("speed", &self.speed.http), ("scheduler", &self.scheduler.http)];
        let given = addresses.into_iter().filter_map(|(layer, address)| Some((layer, address.as_ref()?)));
        let line = |(layer, address): (&str, &String)| {
            format!("{layer}.http = \"{address}\" has no effect in `up`, which answers at serving.http; it is for `basestream {layer}`")
        };
        given.map(line).collect()
    }

    /// Returns a line for each setting that is given and changes nothing because of another one, in any process.
    pub fn without_effect(&self) -> Vec<String> {
        let (speed, serving) = (&self.speed, &self.serving);
        let mut lines = Vec::new();
        if speed.flight_advertise.is_some() && speed.flight.is_none() {
            lines.push("speed.flight_advertise has no effect without speed.flight: the workers offer nothing to nodes".to_owned());
        }
        if serving.fresh == FreshKind::Committed {
            let given = [("fresh_token", serving.fresh_token.is_some()), ("fresh_ca", serving.fresh_ca.is_some())];
            let line = |name| format!("serving.{name} has no effect with serving.fresh = \"committed\": the node follows no workers");
            lines.extend(given.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| line(name)));
        }
        lines
    }

    /// Returns the folder on this machine for remembered ids and the lock files of processes: `serving.cache_dir`, or
    /// the project's.
    pub fn local_dir(&self) -> PathBuf {
        self.serving.cache_dir.clone().unwrap_or_else(|| self.project.join("data").join("cache"))
    }
}

impl ServingSettings {
    /// Two protocols cannot listen at one address. Port 0 is any free one.
    fn refuse_shared_addresses(&self) -> Result<(), String> {
        let named = [("http", Some(&self.http)), ("postgres", self.postgres.as_ref()), ("flight", self.flight.as_ref())];
        let given: Vec<(&str, &String)> = named.into_iter().filter_map(|(name, address)| Some((name, address?))).collect();
        for (index, (name, address)) in given.iter().enumerate() {
            if let Some((other, _)) = given[..index].iter().find(|(_, other)| other == address && !address.ends_with(":0")) {
                return Err(format!("serving.{name} = \"{address}\" is the address of serving.{other}, too; expected another port"));
            }
        }
        Ok(())
    }
}

impl Default for StorageSettings {
    fn default() -> Self {
        Self { url: ServiceUrl::new("./data/storage") }
    }
}

impl Default for CatalogSettings {
    fn default() -> Self {
        Self { url: ServiceUrl::new("sqlite:./data/catalog.db") }
    }
}

impl LogSettings {
    /// How long the embedded log keeps committed records unless the setting says otherwise.
    pub const RETENTION: Duration = Duration::from_secs(24 * 3_600);
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { url: ServiceUrl::new("./data/log"), partitions: 4, retention: None, properties: BTreeMap::new() }
    }
}

/// Defaults go up to this many workers of a process, or cores of a run; more is the user's choice: each worker has its
/// own consumer, each core its share of the memory.
const MOST_DEFAULT_WORKERS: usize = 4;

impl Default for SpeedSettings {
    fn default() -> Self {
        Self {
            group: "basestream".to_owned(),
            workers: default_workers(),
            checkpoint_interval: Duration::from_secs(10),
            checkpoint_bytes: 512 << 20,
            max_future: Duration::from_secs(600),
            dedup_memory: 256 << 20,
            hot_key_share: 0.1,
            hot_key_rate: 10_000,
            http: None,
            flight: None,
            flight_advertise: None,
            accept_gap: false,
        }
    }
}

impl Default for ArchiveSettings {
    fn default() -> Self {
        Self { target_bytes: 256 << 20, compact_after: Duration::from_secs(3_600) }
    }
}

impl Default for BatchSettings {
    fn default() -> Self {
        Self {
            memory_limit: 4 << 30,
            threads: default_workers(),
            temp_dir: None,
            lease: Duration::from_secs(30),
            collect_every: Duration::from_secs(60),
        }
    }
}

impl Default for SchedulerSettings {
    fn default() -> Self {
        Self { max_concurrent_runs: 1, http: None }
    }
}

fn default_workers() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(MOST_DEFAULT_WORKERS) as u32)
}

impl Default for ServingSettings {
    fn default() -> Self {
        Self {
            http: "127.0.0.1:8080".to_owned(),
            postgres: None,
            flight: None,
            fresh: FreshKind::Stream,
            fresh_token: None,
            fresh_ca: None,
            clock: ClockKind::Wall,
            memory_limit: 2 << 30,
            query_timeout: Duration::from_secs(30),
            lease: Duration::from_secs(60),
            cache_dir: None,
            cache_bytes: None,
            hot_key_share: 0.1,
            hot_key_rate: 1_000,
            row_cache: 64 << 20,
            auth: AuthSettings::default(),
            tls: TlsSettings::default(),
            limits: LimitSettings::default(),
        }
    }
}

impl fmt::Debug for LogSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: BTreeMap<&str, &str> =
            self.properties.iter().map(|(key, value)| (key.as_str(), if is_secret(key) { HIDDEN } else { value })).collect();
        f.debug_struct("LogSettings")
            .field("url", &self.url)
            .field("partitions", &self.partitions)
            .field("retention", &self.retention)
            .field("properties", &shown)
            .finish()
    }
}

#[cfg(test)]
mod tests;
