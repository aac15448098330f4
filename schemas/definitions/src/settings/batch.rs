//! `[archive]`, `[batch]` and `[scheduler]`: what runs over the accepted events, and when.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::cores::default_workers;
use super::fields;

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
    /// A recomputation reads the archive in slices of about this many events, and saves its work after each. Default:
    /// 32000000.
    #[serde(deserialize_with = "fields::count")]
    pub slice_events: u32,
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
            slice_events: 32_000_000,
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
