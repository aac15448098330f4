//! The embedded log: one SQLite file, `log.db`, in a folder. Several processes on one machine append to it and read it
//! at the same time.
//!
//! A row holds a record batch. An append is durable when it returns (WAL with `synchronous=FULL`). Waiting appends
//! share one transaction. Offsets are dense: the log has no gaps. It keeps everything until it is trimmed from the
//! beginning ([`Log::trim`]).

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    Consumer, Fetched, Log, LogOutput, LogSize, NewRecord, PartitionBounds, ReaderGroup, Subscription, TakenOutput, TopicPartition,
};
use types::outage::{Attempts, Outage};
use types::tiles::{Clock, Micros};
use types::vector::Offset;
use types::{Error, Result};

mod alive;
mod appends;
mod batch;
mod consumer;
mod groups;
mod lease;
mod output;
mod output_owner;
mod placing;
mod reading;
mod renewing;
mod store;
mod transaction;
mod trimming;
mod wal;
mod writer;

use appends::{Appends, SeenAppends};
use reading::PartitionRead;
use store::Store;

/// The log in one folder.
pub struct EmbeddedLog {
    folder: PathBuf,
    store: Arc<Store>,
    writer: writer::Writer,
    appends: watch::Receiver<Appends>,
    clock: Clock,
}

impl EmbeddedLog {
    /// Opens the log in `folder`, creating it if missing. It takes no properties.
    pub async fn open(folder: &Path, properties: &BTreeMap<String, String>) -> Result<EmbeddedLog> {
        if let Some(name) = properties.keys().next() {
            return Err(Error::input("the embedded log takes no properties").with("found", name).with("folder", folder.display()));
        }
        Self::open_with_clock(folder, Arc::new(|| chrono::Utc::now().timestamp_micros())).await
    }

    /// The same, with records that are timestamped by this clock. Tests simulate one.
    pub async fn open_with_clock(folder: &Path, clock: Clock) -> Result<EmbeddedLog> {
        let store = Arc::new(Store::open(folder).await?);
        let (sender, appends) = watch::channel(Appends::default());
        let writer = writer::Writer::start(store.clone(), clock.clone(), sender);
        Ok(EmbeddedLog { folder: folder.to_path_buf(), store, writer, appends, clock })
    }
}

#[async_trait]
impl Log for EmbeddedLog {
    async fn create_topic(&self, topic: &str, partitions: u32) -> Result<u32> {
        self.store.create_topic(topic, partitions, &Uuid::new_v4().to_string(), (self.clock)()).await
    }

    async fn bounds(&self, topic: &str) -> Result<Vec<PartitionBounds>> {
        match self.store.topic(topic).await? {
            Some(topic) => self.store.bounds(topic.id).await,
            None => Ok(Vec::new()),
        }
    }

    async fn identity(&self, topic: &str) -> Result<String> {
        Ok(self.store.expect_topic(topic).await?.identity)
    }

    async fn append(&self, topic: &str, records: Vec<NewRecord>) -> Result<Vec<(i32, Offset)>> {
        records.iter().try_for_each(store::check_size)?;
        if records.is_empty() {
            return Ok(Vec::new());
        }
        self.writer.append(topic, records, Uuid::new_v4().as_u128() as u64).await
    }

    async fn take_over_output(&self, output: &LogOutput) -> Result<TakenOutput> {
        output_owner::take_over(&self.store, self.writer.clone(), output).await
    }

    async fn read(&self, source: &TopicPartition, from: Offset, max_records: usize) -> Result<Fetched> {
        let topic = self.store.expect_topic(&source.topic).await?;
        let bounds = self.store.bounds(topic.id).await?;
        let no_partition = || store::no_topic(&source.topic).with("partition", source.partition);
        let bounds = bounds.iter().find(|bounds| bounds.partition == source.partition).ok_or_else(no_partition)?;
        let read = PartitionRead { topic_id: topic.id, source, bounds, from };
        self.store.read(read, max_records.max(1), (self.clock)()).await
    }

    fn is_trimmed(&self) -> bool {
        true
    }

    async fn trim(&self, source: &TopicPartition, group: &str, before: Offset, appended_before: Micros) -> Result<u64> {
        let topic = self.store.expect_topic(&source.topic).await?;
        self.store.trim(topic.id, source, group, before.0, appended_before).await
    }

    async fn trimmable(&self, source: &TopicPartition, group: &str, before: Offset, appended_before: Micros) -> Result<u64> {
        let topic = self.store.expect_topic(&source.topic).await?;
        self.store.trimmable(topic.id, source, group, before.0, appended_before).await
    }

    async fn reader_groups(&self) -> Result<Vec<ReaderGroup>> {
        self.store.reader_groups(&self.folder, (self.clock)()).await
    }

    async fn forget_group(&self, group: &str) -> Result<()> {
        self.store.forget_group(group, &self.folder, (self.clock)()).await
    }

    async fn size(&self) -> Result<LogSize> {
        self.store.size().await
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Consumer> {
        let mut topic_ids = BTreeMap::new();
        let mut topics = BTreeMap::new();
        for name in &subscription.topics {
            let topic = self.store.expect_topic(name).await?;
            topic_ids.insert(name.clone(), topic.id);
            topics.insert(name.clone(), topic.partitions as i32);
        }
        let (events, receiver) = mpsc::channel(subscription.queue.max(1));
        let stop = CancellationToken::new();
        let instance = Uuid::new_v4().to_string();
        let alive = Arc::new(alive::begin(&self.folder, &instance, &self.store.members().await?)?);
        let leases = lease::PartitionLeases {
            store: self.store.clone(),
            group: subscription.group.clone(),
            worker: subscription.worker.clone(),
            instance,
            topics,
            alive,
        };
        let worker = consumer::EmbeddedConsumer {
            store: self.store.clone(),
            renewing: renewing::Renewing::start(leases.clone(), self.clock.clone()),
            leases,
            topic_ids,
            appends: SeenAppends::new(self.appends.clone(), subscription.topics.clone()),
            subscription,
            events,
            stop: stop.clone(),
            writes: consumer::Writes::default(),
            clock: self.clock.clone(),
            held: BTreeMap::new(),
            places: BTreeMap::new(),
            looked: None,
        };
        tokio::spawn(worker.run());
        Ok(Consumer { events: receiver, stop })
    }

    fn outages(&self) -> Vec<Outage> {
        let clock = self.store.latest.outage((self.clock)(), |seconds| format!("records are appended with a time {seconds} s ahead of it"));
        [&self.store.appends, &self.store.renewals].into_iter().filter_map(Attempts::outage).chain(clock).collect()
    }
}

impl fmt::Debug for EmbeddedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedLog").field("folder", &self.folder.display()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
