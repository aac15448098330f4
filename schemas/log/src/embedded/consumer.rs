//! One worker's consumer: holds its share of the partitions by leases, and delivers their records in order.
//!
//! A single task delivers, so events come in the order in which they happened. Its leases are renewed beside it
//! ([`Renewing`]), also while it waits for the worker (a full queue, a reply), for at most [`MAX_STALL`].

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::Clock;
use super::appends::SeenAppends;
use super::lease::{FreePartitions, PartitionLeases};
use super::reading::PartitionRead;
use super::renewing::{HeldPartitions, MAX_STALL, Renewing};
use super::store::{Store, WalState};
use crate::consumer::offsets_for;
use crate::topic::outside;
use crate::{Fetched, LogEvent, PartitionBounds, Subscription, TopicPartition};
use types::vector::Offset;
use types::{Error, ErrorKind, Result};

/// How often to check whether partitions must change hands.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often to look for records that another process appended.
const POLL_EVERY: Duration = Duration::from_millis(20);
/// The same while the log file is written: looking at whether it is costs next to nothing.
const POLL_WRITTEN_EVERY: Duration = Duration::from_millis(5);
/// How often to repeat that a partition is at its end.
const AT_END_EVERY: Duration = Duration::from_millis(500);
/// A log file that cannot be read for this long ends the consumer.
const MAX_OUTAGE: Duration = Duration::from_secs(60);
const RETRY_EVERY: Duration = Duration::from_millis(200);

pub(super) struct EmbeddedConsumer {
    pub(super) store: Arc<Store>,
    pub(super) leases: PartitionLeases,
    pub(super) topic_ids: BTreeMap<Arc<str>, i64>,
    pub(super) subscription: Subscription,
    pub(super) events: mpsc::Sender<LogEvent>,
    pub(super) stop: CancellationToken,
    pub(super) appends: SeenAppends,
    pub(super) writes: Writes,
    pub(super) clock: Clock,
    pub(super) held: HeldPartitions,
    pub(super) renewing: Renewing,
    pub(super) places: BTreeMap<TopicPartition, ReadPosition>,
    /// When the leases were last read, to see whether partitions must change hands; `None` before the worker is a
    /// member.
    pub(super) looked: Option<Instant>,
}

/// The consumer's position in a partition.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadPosition {
    position: Offset,
    /// When the end of the partition was last sent to the worker; `None` if it was not, or if the end has moved since.
    end_sent_at: Option<Instant>,
}

/// Notices that a process writes to the log file.
#[derive(Debug, Default)]
pub(super) struct Writes {
    /// What was last seen of the write-ahead log, and since when.
    seen: Option<(WalState, Instant)>,
}

impl Writes {
    /// Waits until it is time to look for records: soon if a process writes.
    async fn wait(&mut self, store: &Store) {
        let began = Instant::now();
        while began.elapsed() < POLL_EVERY {
            tokio::time::sleep(POLL_WRITTEN_EVERY).await;
            let (found, now) = (store.wal_state(), Instant::now());
            if self.seen.is_none_or(|(seen, _)| seen != found) {
                self.seen = Some((found, now));
            }
            // Pages are written a moment before their transaction is committed: records may come after the last change.
            if self.seen.is_some_and(|(_, since)| since.elapsed() < POLL_EVERY) {
                return;
            }
        }
    }
}

/// Why the consumer ends.
enum End {
    /// The worker no longer listens.
    Closed,
    /// The log file cannot be read or written at the moment.
    Outage(Error),
    Failed(Error),
}

impl End {
    /// Converts an error between two events, after which the same step can be retried.
    fn between_events(error: Error) -> End {
        match error.kind() {
            ErrorKind::Unavailable => End::Outage(error),
            _ => End::Failed(error),
        }
    }
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        End::Failed(error)
    }
}

impl EmbeddedConsumer {
    /// Runs until it is stopped, the worker no longer listens, or a permanent error occurs.
    pub(super) async fn run(mut self) {
        let ended = self.consume().await;
        self.renewing.stop().await;
        if let Err(error) = self.leave().await {
            tracing::warn!(%error, worker = %self.subscription.worker, "leases of the log were not released and will expire");
        }
        if let Err(End::Failed(error) | End::Outage(error)) = ended {
            self.events.send(LogEvent::Failed(error)).await.ok();
        }
    }

    async fn consume(&mut self) -> Result<(), End> {
        let mut failing_since: Option<Instant> = None;
        while !self.stop.is_cancelled() {
            match self.step().await {
                Ok(()) => failing_since = None,
                Err(End::Outage(error)) => {
                    if failing_since.get_or_insert_with(Instant::now).elapsed() > MAX_OUTAGE {
                        return Err(End::Failed(error));
                    }
                    tracing::warn!(%error, worker = %self.subscription.worker, "the log is not available, trying again");
                    tokio::time::sleep(RETRY_EVERY).await;
                }
                Err(end) => return Err(end),
            }
        }
        let held = self.held.keys().cloned().collect();
        self.give_up(held).await
    }

    async fn step(&mut self) -> Result<(), End> {
        self.renewing.note_progress();
        match self.looked {
            None => self.share().await?,
            looked if is_due(looked, LOOK_EVERY) => self.share_if_changed().await?,
            _ => {}
        }
        if !self.deliver().await? {
            self.idle().await?;
        }
        Ok(())
    }

    /// Takes the worker's share of the partitions, or gives up what is above it.
    async fn share(&mut self) -> Result<(), End> {
        let plan = self.leases.renew(&self.held, (self.clock)(), FreePartitions::Take).await.map_err(End::between_events)?;
        self.looked = Some(Instant::now());
        if !plan.lost.is_empty() {
            self.lose(plan.lost).await?;
        }
        if !plan.give_up.is_empty() {
            self.give_up(plan.give_up).await?;
        }
        if !plan.take.is_empty() {
            self.take_over(plan.take).await?;
        }
        Ok(())
    }

    /// Takes its share again if the leases or the workers have changed.
    async fn share_if_changed(&mut self) -> Result<(), End> {
        self.looked = Some(Instant::now());
        let plan = self.leases.plan_now(&self.held, (self.clock)()).await.map_err(End::between_events)?;
        if plan != Default::default() {
            self.share().await?;
        }
        Ok(())
    }

    async fn take_over(&mut self, taken: Vec<(TopicPartition, i64)>) -> Result<(), End> {
        let partitions: Vec<TopicPartition> = taken.iter().map(|(source, _)| source.clone()).collect();
        self.held.extend(taken);
        self.renewing.hold(&self.held);
        let (start, reply) = oneshot::channel();
        self.send(LogEvent::Assigned { partitions: partitions.clone(), start }).await?;
        let starts = self.wait_for(reply).await.map_err(|_| End::Closed)??;
        self.start_at(&partitions, starts).await
    }

    async fn give_up(&mut self, partitions: Vec<TopicPartition>) -> Result<(), End> {
        if partitions.is_empty() {
            return Ok(());
        }
        let (done, reply) = oneshot::channel();
        self.send(LogEvent::Revoked { partitions: partitions.clone(), done }).await?;
        self.wait_for(reply).await.map_err(|_| End::Closed)?;
        let released = self.forget(&partitions);
        if let Err(error) = self.leases.release(&released).await {
            tracing::warn!(%error, worker = %self.subscription.worker, "leases of the log were not released and will expire");
        }
        Ok(())
    }

    async fn lose(&mut self, partitions: Vec<TopicPartition>) -> Result<(), End> {
        tracing::warn!(worker = %self.subscription.worker, ?partitions, "leases of the log were lost");
        self.forget(&partitions);
        let (kept, reply) = oneshot::channel();
        self.send(LogEvent::Lost { partitions, kept }).await?;
        let starts = self.wait_for(reply).await.map_err(|_| End::Closed)??;
        let held: Vec<TopicPartition> = self.held.keys().cloned().collect();
        self.start_at(&held, starts).await
    }

    fn forget(&mut self, partitions: &[TopicPartition]) -> HeldPartitions {
        self.places.retain(|source, _| !partitions.contains(source));
        let forgotten = self.held.extract_if(.., |source, _| partitions.contains(source)).collect();
        self.renewing.hold(&self.held);
        forgotten
    }

    /// Accepts the worker's offsets after checking that they are in the log.
    async fn start_at(&mut self, partitions: &[TopicPartition], starts: Vec<(TopicPartition, Offset)>) -> Result<(), End> {
        let bounds = self.bounds().await?;
        for (source, position) in offsets_for(partitions, starts)? {
            let PartitionBounds { begin, end, .. } = bounds_of(&bounds, self.topic_id(&source)?, &source)?;
            if position < *begin || position > *end {
                return Err(outside(&source, position, *begin, *end).into());
            }
            self.places.insert(source, ReadPosition { position, end_sent_at: None });
        }
        Ok(())
    }

    /// Delivers the new records of all partitions, up to some number of each; returns whether it left some.
    async fn deliver(&mut self) -> Result<bool, End> {
        self.appends.look();
        if self.places.is_empty() {
            return Ok(false);
        }
        let max_records = self.subscription.max_records.max(1);
        let bounds = self.bounds().await.map_err(End::between_events)?;
        let places = self.places.clone();
        let reads = self.reads(&places, &bounds)?;
        let (mut left, mut has_left, mut waiting, mut records) = (reads.as_slice(), false, Vec::new(), 0);
        while !left.is_empty() {
            let found = self.store.read_together(left, max_records, (self.clock)()).await.map_err(End::between_events)?;
            left = &left[found.len()..];
            has_left |= found.iter().any(|fetched| !fetched.at_end);
            records += found.iter().map(|fetched| fetched.records.len()).sum::<usize>();
            waiting.extend(found);
            if records >= max_records {
                self.send_all(&mut waiting).await?;
                records = 0;
            }
        }
        self.send_all(&mut waiting).await?;
        Ok(has_left)
    }

    /// What is to be read: of the partitions with new records, and of those whose end is to be repeated.
    fn reads<'a>(
        &self,
        places: &'a BTreeMap<TopicPartition, ReadPosition>,
        bounds: &'a BTreeMap<i64, Vec<PartitionBounds>>,
    ) -> Result<Vec<PartitionRead<'a>>> {
        let mut reads = Vec::new();
        for (source, place) in places {
            let topic_id = self.topic_id(source)?;
            let bounds = bounds_of(bounds, topic_id, source)?;
            if place.position != bounds.end || is_due(place.end_sent_at, AT_END_EVERY) {
                reads.push(PartitionRead { topic_id, source, bounds, from: place.position });
            }
        }
        Ok(reads)
    }

    /// Sends what was read of several partitions at once, so that the worker finds it together: it closes its
    /// micro-batch as soon as nothing more waits.
    async fn send_all(&mut self, waiting: &mut Vec<Fetched>) -> Result<(), End> {
        for fetched in waiting.drain(..) {
            let source = fetched.source.clone();
            let read = ReadPosition { position: fetched.position, end_sent_at: fetched.at_end.then(Instant::now) };
            self.send(LogEvent::Fetched(fetched)).await?;
            self.places.insert(source, read);
        }
        Ok(())
    }

    async fn idle(&mut self) -> Result<(), End> {
        let EmbeddedConsumer { stop, events, appends, store, writes, .. } = self;
        tokio::select! {
            _ = stop.cancelled() => Ok(()),
            _ = events.closed() => Err(End::Closed),
            () = writes.wait(store) => Ok(()),
            appends_go_on = appends.wait() => {
                if !appends_go_on {
                    tokio::time::sleep(POLL_EVERY).await;
                }
                Ok(())
            }
        }
    }

    async fn send(&mut self, event: LogEvent) -> Result<(), End> {
        let events = self.events.clone();
        self.wait_for(events.send(event)).await.map_err(|_| End::Closed)
    }

    /// Waits for the worker.
    async fn wait_for<F: Future>(&mut self, waited_for: F) -> F::Output {
        self.renewing.note_progress();
        let mut waited_for = pin!(waited_for);
        if let Ok(output) = tokio::time::timeout(MAX_STALL, &mut waited_for).await {
            return output;
        }
        tracing::error!(worker = %self.subscription.worker, "the worker takes no events; its leases will expire");
        waited_for.await
    }

    async fn leave(&mut self) -> Result<()> {
        self.leases.release(&self.held).await?;
        self.leases.leave().await
    }

    /// The bounds of all partitions, by the topic's id.
    async fn bounds(&self) -> Result<BTreeMap<i64, Vec<PartitionBounds>>> {
        self.store.bounds_of(self.topic_ids.values().copied()).await
    }

    fn topic_id(&self, source: &TopicPartition) -> Result<i64> {
        self.topic_ids.get(&source.topic).copied().ok_or_else(|| super::store::no_topic(&source.topic))
    }
}

fn bounds_of<'a>(bounds: &'a BTreeMap<i64, Vec<PartitionBounds>>, topic_id: i64, source: &TopicPartition) -> Result<&'a PartitionBounds> {
    let of_topic = bounds.get(&topic_id).into_iter().flatten();
    of_topic
        .into_iter()
        .find(|bounds| bounds.partition == source.partition)
        .ok_or_else(|| Error::not_found("the log has no such partition").with("topic", &source.topic).with("partition", source.partition))
}

fn is_due(last: Option<Instant>, every: Duration) -> bool {
    last.is_none_or(|last| last.elapsed() >= every)
}
