//! `[speed]`: the speed layer.

use std::time::Duration;

use serde::Deserialize;

use super::cores::default_workers;
use super::fields;

/// `[speed]`: the speed layer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpeedSettings {
    /// The consumer group: workers of one group share the partitions. Default: `basestream`.
    #[serde(deserialize_with = "fields::name")]
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
