//! Which of the two logs a URL names.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use types::redact::redacted_url;
use types::{Error, Result};

use crate::Log;
use crate::embedded::EmbeddedLog;
use crate::kafka::KafkaLog;

/// Opens the log at `url`: `file:///dir` is the embedded log in that folder (created if missing),
/// `kafka://host:port,..` is Apache Kafka. `properties` are librdkafka settings, valid for Kafka only.
///
/// Opening a Kafka log checks the settings and does not connect to a broker yet. Errors: `Input` for a wrong URL or
/// property, `Unavailable` when the folder cannot be written, `Corrupt` for a log file of an unknown format.
pub async fn open(url: &str, properties: &BTreeMap<String, String>) -> Result<Arc<dyn Log>> {
    match url.split_once("://") {
        Some(("file", _)) => Ok(Arc::new(EmbeddedLog::open(&folder_of(url)?, properties).await?)),
        Some(("kafka", hosts)) => Ok(Arc::new(KafkaLog::open(hosts.trim_end_matches('/'), properties)?)),
        _ => Err(Error::input("the log's URL has an unknown scheme")
            .with("found", redacted_url(url))
            .with("expected", "file:///folder or kafka://host:port")),
    }
}

fn folder_of(url: &str) -> Result<PathBuf> {
    let wrong = || Error::input("the log's URL names no folder").with("found", redacted_url(url)).with("expected", "file:///folder");
    let parsed = url::Url::parse(url).map_err(|error| wrong().caused_by(error))?;
    parsed.to_file_path().map_err(|()| wrong())
}
