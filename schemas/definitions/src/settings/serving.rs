//! `[serving]`: the serving layer. Its sections are in `access` and `limits`.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::access::{AuthSettings, TlsSettings};
use super::fields;
use super::limits::LimitSettings;
use super::secret::Secret;

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
    /// How long clients have at a stop to get the answers that are under way. Default: `5s`.
    #[serde(deserialize_with = "fields::duration")]
    pub drain_timeout: Duration,
    /// How long a node's pin lives without being renewed: the files that a dead node used are kept for this time.
    /// At least `1s`. Default: `60s`.
    #[serde(deserialize_with = "fields::lease")]
    pub lease: Duration,
    /// The folder for local copies of snapshots, what queries spill, remembered ids and the lock files of processes.
    /// Default: absent or empty, the system's temporary folder; for the last two
    /// ([`Settings::local_dir`](super::Settings::local_dir)) one of the project.
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

impl ServingSettings {
    /// Two protocols cannot listen at one address. Port 0 is any free one.
    pub(super) fn refuse_shared_addresses(&self) -> Result<(), String> {
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
            drain_timeout: Duration::from_secs(5),
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
