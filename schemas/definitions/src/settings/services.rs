//! `[storage]`, `[catalog]` and `[log]`: the services that all processes of an installation share.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;

use super::fields;
use super::urls::ServiceUrl;
use types::redact::{HIDDEN, is_secret};

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
