//! Fills a topic before anything is measured.

use std::path::Path;

use event_log::{Log, NewRecord};
use futures::{StreamExt, TryStreamExt};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::KafkaError;
use types::{Error, Result};
use uuid::Uuid;

use super::Payments;

pub const PARTITIONS: u32 = 4;
/// Records per append, and how many appends are prepared concurrently.
const APPEND_RECORDS: u64 = 20_000;
const READY: usize = 2;

/// The kind of log that events are read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Embedded,
    /// A broker, as `kafka://host:port`.
    Kafka(String),
}

/// A topic of a log, and its content.
#[derive(Debug, Clone)]
pub struct Topic {
    pub name: String,
    /// The URL for `log.url`.
    pub url: String,
    pub payments: Payments,
}

impl Source {
    /// Returns the source with this name; `None` if the services it needs are not running.
    pub fn named(name: &str) -> Result<Option<Source>> {
        match name {
            "embedded" => Ok(Some(Source::Embedded)),
            "kafka" => Ok(std::env::var("BASESTREAM_TEST_KAFKA").ok().map(Source::Kafka)),
            _ => Err(Error::input("there is no such source of events").with("found", name).with("expected", "embedded or kafka")),
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Source::Embedded => "embedded log",
            Source::Kafka(_) => "Kafka",
        }
    }

    /// Creates a topic and appends all payments; the embedded log is in `folder`.
    pub async fn fill(&self, folder: &Path, payments: Payments) -> Result<Topic> {
        let topic = self.empty(folder, payments).await?;
        let log = topic.open().await?;
        let chunks = (0..payments.records.div_ceil(APPEND_RECORDS)).map(|chunk| {
            let records = chunk * APPEND_RECORDS..((chunk + 1) * APPEND_RECORDS).min(payments.records);
            tokio::task::spawn_blocking(move || records.map(|record| payments.record(record)).collect::<Vec<NewRecord>>())
        });
        // Appends stay in order: a repeat comes after the record it repeats.
        let mut ready = std::pin::pin!(futures::stream::iter(chunks).buffered(READY));
        while let Some(records) = ready.try_next().await? {
            log.append(&topic.name, records).await?;
        }
        Ok(topic)
    }

    /// Creates a topic without events.
    pub async fn empty(&self, folder: &Path, payments: Payments) -> Result<Topic> {
        let (name, url) = match self {
            Source::Embedded => ("payments".to_owned(), format!("file://{}", folder.display())),
            Source::Kafka(url) => (format!("payments-{}", Uuid::now_v7().simple()), url.clone()),
        };
        let topic = Topic { name, url, payments };
        topic.open().await?.create_topic(&topic.name, PARTITIONS).await?;
        Ok(topic)
    }
}

impl Topic {
    pub async fn open(&self) -> Result<std::sync::Arc<dyn Log>> {
        event_log::open(&self.url, &Default::default()).await
    }

    /// The brokers of a topic on Kafka.
    pub(crate) fn brokers(&self) -> Option<&str> {
        self.url.strip_prefix("kafka://")
    }

    /// Deletes what is not in a folder of the benchmark.
    pub async fn delete(&self) -> Result<()> {
        let Some(brokers) = self.brokers() else { return Ok(()) };
        let failed = |error: String| Error::unavailable("a topic was not deleted").with("topic", &self.name).with("error", error);
        let client: AdminClient<DefaultClientContext> =
            ClientConfig::new().set("bootstrap.servers", brokers).create().map_err(|error: KafkaError| failed(error.to_string()))?;
        let deleted = client.delete_topics(&[&self.name], &AdminOptions::new()).await.map_err(|error| failed(error.to_string()))?;
        deleted.into_iter().try_for_each(|outcome| outcome.map(drop).map_err(|(_, code)| failed(code.to_string())))
    }
}
