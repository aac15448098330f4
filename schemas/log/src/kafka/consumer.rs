//! One worker's consumer: a dedicated thread that polls, in a group that shares the partitions and stores no offsets.
//!
//! librdkafka calls [`ConsumerGroup::rebalance`] from `poll`, on the same thread, so events are delivered in the order
//! in which they happened: records polled before a revoke are delivered before it. The thread waits if the worker is
//! slow (a full queue, a reply). If it waits past `max.poll.interval.ms`, it loses its partitions and reports it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, TopicPartitionList};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::assignment::Assignment;
use super::client::{self, Reasons, failed, kind_of, lock};
use super::cluster::{SHORT_TIMEOUT, UncommittedReader, bounds_by};
use super::record::record_of;
use super::settings::{self, KafkaSettings};
use crate::consumer::offsets_for;
use crate::topic::outside;
use crate::{Consumer, Fetched, LogEvent, Subscription, TopicPartition};
use types::tiles::Clock;
use types::vector::Offset;
use types::{Error, ErrorKind, Result};

/// How long a poll waits, and so how soon a stop is noticed.
const POLL: Duration = Duration::from_millis(50);
/// A new leader may not know the end for a moment: the bounds for a start past it are queried again for this long.
const END_TIMEOUT: Duration = Duration::from_secs(10);

type Client = BaseConsumer<ConsumerGroup>;

/// Why the consumer ends.
enum End {
    /// The worker no longer listens, or stops while partitions are taken over.
    Closed,
    Failed(Error),
}

/// What a partition has after the position of its client.
#[derive(PartialEq, Eq)]
enum Rest {
    Nothing,
    /// It was received, and is not delivered before an open transaction ends.
    HeldBack,
    Records,
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        End::Failed(error)
    }
}

/// Joins the group and starts the thread. Blocks while the client is created.
pub(super) fn start(settings: &KafkaSettings, clock: Clock, subscription: &Subscription) -> Result<Consumer> {
    let (events, receiver) = mpsc::channel(subscription.queue.max(1));
    let stop = CancellationToken::new();
    let client = client_of(settings, clock, subscription, events, stop.clone())?;
    let topics: Vec<&str> = subscription.topics.iter().map(|topic| &**topic).collect();
    client.subscribe(&topics).map_err(|error| client.context().failed("joining the group", error))?;

    std::thread::Builder::new()
        .name(format!("kafka-{}", subscription.worker))
        .spawn(move || run(client))
        .map_err(|error| Error::unavailable("the consumer's thread did not start").caused_by(error))?;
    Ok(Consumer { events: receiver, stop })
}

/// Creates the client, which has joined no group yet.
fn client_of(
    settings: &KafkaSettings,
    clock: Clock,
    subscription: &Subscription,
    events: mpsc::Sender<LogEvent>,
    stop: CancellationToken,
) -> Result<Client> {
    let group = ConsumerGroup {
        addresses: settings.addresses.clone(),
        topics: subscription.topics.clone(),
        worker: subscription.worker.clone(),
        events,
        clock,
        stop,
        uncommitted: UncommittedReader::new(settings)?,
        held: Mutex::new(Assignment::new(subscription.max_records, subscription.max_wait)),
        ended: Mutex::new(None),
        reasons: Reasons::default(),
    };
    let client_id = format!("basestream-{}", subscription.worker);
    Client::from_config_and_context(&settings.consumer(&subscription.group, &client_id), group).map_err(settings::refusal)
}

/// Polls until it is stopped, the worker no longer listens, or a permanent error occurs.
fn run(client: Client) {
    let group = client.context().clone();
    let ended = match consume(&client, &group) {
        Ok(()) => group.finish(&client),
        Err(end) => Err(end),
    };
    if let Err(End::Failed(error)) = ended {
        group.events.blocking_send(LogEvent::Failed(error)).ok();
    }
    // Closing calls `rebalance` once more, which must not report anything then.
    lock(&group.ended).get_or_insert(End::Closed);
    drop(client);
}

fn consume(client: &Client, group: &ConsumerGroup) -> Result<(), End> {
    let mut due = Instant::now();
    while !group.stop.is_cancelled() {
        if group.events.is_closed() {
            return Err(End::Closed);
        }
        let polled = client.poll(due.saturating_duration_since(Instant::now()).min(POLL));
        // A rebalance inside the poll may have ended the consumer.
        if let Some(end) = lock(&group.ended).take() {
            return Err(end);
        }
        let now = Instant::now();
        match polled {
            None => {}
            Some(Ok(message)) => {
                let source = group.source(message.topic(), message.partition());
                if let Some(at) = lock(&group.held).push(&source, record_of(&message), now) {
                    due = due.min(at);
                }
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                group.reach_end(client, partition, now);
                due = now;
            }
            Some(Err(error)) => group.handle(client, error)?,
        }
        if due <= now {
            let sources = lock(&group.held).due(now);
            group.hand_over(client, &sources)?;
            due = lock(&group.held).next_due().unwrap_or(now + POLL).min(now + POLL);
        }
    }
    Ok(())
}

/// The consumer's callbacks, and the state they share with its loop. Both run on the same thread; locks are never held
/// while it waits.
pub(super) struct ConsumerGroup {
    addresses: String,
    topics: Vec<Arc<str>>,
    worker: String,
    events: mpsc::Sender<LogEvent>,
    clock: Clock,
    stop: CancellationToken,
    uncommitted: UncommittedReader,
    held: Mutex<Assignment>,
    /// Set by a callback that cannot continue, and while the client is closed.
    ended: Mutex<Option<End>>,
    reasons: Reasons,
}

impl ConsumerContext for ConsumerGroup {
    fn rebalance(&self, client: &Client, code: RDKafkaRespErr, partitions: &mut TopicPartitionList) {
        let sources = self.sources(partitions);
        let is_ended = lock(&self.ended).is_some();
        let outcome = match code {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS if is_ended => assign(client, &[]),
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => self.take_over(client, &sources),
            _ if is_ended || sources.is_empty() => unassign(client, partitions),
            _ if client.assignment_lost() => self.lose(client, &sources, partitions),
            _ => self.give_up(client, &sources, partitions),
        };
        if let Err(end) = outcome {
            lock(&self.ended).get_or_insert(end);
        }
    }
}

impl ConsumerGroup {
    /// Gets the start offsets from the worker, and starts there. librdkafka requires an assignment in any case.
    fn take_over(&self, client: &Client, sources: &[TopicPartition]) -> Result<(), End> {
        if sources.is_empty() {
            return assign(client, &[]);
        }
        match self.starts_of(client, sources) {
            Ok(starts) => self.start_at(client, starts),
            Err(end) => assign(client, &[]).and(Err(end)),
        }
    }

    fn starts_of(&self, client: &Client, sources: &[TopicPartition]) -> Result<Vec<(TopicPartition, Offset)>, End> {
        let (start, reply) = oneshot::channel();
        self.send(LogEvent::Assigned { partitions: sources.to_vec(), start })?;
        let starts = offsets_for(sources, reply.blocking_recv().map_err(|_| End::Closed)??)?;
        for (source, offset) in &starts {
            self.check_start(client, source, *offset)?;
        }
        Ok(starts)
    }

    fn start_at(&self, client: &Client, starts: Vec<(TopicPartition, Offset)>) -> Result<(), End> {
        assign(client, &starts)?;
        let mut held = lock(&self.held);
        for (source, offset) in starts {
            held.start(source, offset);
        }
        Ok(())
    }

    /// Delivers what was polled, lets the worker commit, then releases the partitions.
    fn give_up(&self, client: &Client, sources: &[TopicPartition], partitions: &TopicPartitionList) -> Result<(), End> {
        let revoked = self.hand_over(client, sources).and_then(|()| self.revoke(sources.to_vec()));
        lock(&self.held).forget(sources);
        unassign(client, partitions).and(revoked)
    }

    fn revoke(&self, sources: Vec<TopicPartition>) -> Result<(), End> {
        let (done, reply) = oneshot::channel();
        self.send(LogEvent::Revoked { partitions: sources, done })?;
        reply.blocking_recv().map_err(|_| End::Closed)
    }

    /// Drops what was polled, and restarts the partitions that are kept where the worker says.
    fn lose(&self, client: &Client, sources: &[TopicPartition], partitions: &TopicPartitionList) -> Result<(), End> {
        tracing::warn!(worker = %self.worker, partitions = ?sources, "the group took partitions away");
        lock(&self.held).forget(sources);
        unassign(client, partitions)?;
        let kept = lock(&self.held).sources();
        let (reply, offsets) = oneshot::channel();
        self.send(LogEvent::Lost { partitions: sources.to_vec(), kept: reply })?;
        let starts = offsets_for(&kept, offsets.blocking_recv().map_err(|_| End::Closed)??)?;
        if kept.is_empty() {
            return Ok(());
        }
        unassign(client, &list_of(&starts)?)?;
        self.start_at(client, starts)
    }

    /// Ends in order: delivers what was polled, then a revoke of everything.
    fn finish(&self, client: &Client) -> Result<(), End> {
        let sources = lock(&self.held).sources();
        if sources.is_empty() {
            return Ok(());
        }
        self.hand_over(client, &sources)?;
        self.revoke(sources)
    }

    /// Sends what is pending for these partitions; one without new records is reported only at its end, and where an
    /// open transaction holds back what follows.
    fn hand_over(&self, client: &Client, sources: &[TopicPartition]) -> Result<(), End> {
        if sources.is_empty() {
            return Ok(());
        }
        let positions = client.position().ok();
        let mut is_answered = true;
        for source in sources {
            let position = positions.as_ref().and_then(|positions| position_in(positions, source));
            let Some(mut fetched) = lock(&self.held).take(source, position, Instant::now()) else { continue };
            fetched.fetched_at = (self.clock)();
            // If the brokers do not answer for one partition, the others are left for the next poll.
            let is_asked = is_answered && fetched.at_end && fetched.records.is_empty();
            let rest = if is_asked { self.rest(client, &fetched) } else { None };
            if is_asked {
                is_answered = rest.is_some();
                lock(&self.held).note_answer(source, is_answered);
            }
            fetched.at_end = rest == Some(Rest::Nothing);
            let is_held_back = rest == Some(Rest::HeldBack);
            if rest.is_some() && lock(&self.held).note_held_back(source, is_held_back, Instant::now()) {
                self.warn_held_back(&fetched);
            }
            if !fetched.records.is_empty() || fetched.at_end || is_held_back {
                self.send(LogEvent::Fetched(fetched))?;
            }
        }
        Ok(())
    }

    /// Queries the brokers what follows the position of a partition from which the client got nothing: an end noticed
    /// earlier may be outdated. `None` if they do not answer, or the worker stops, which waits for nothing here.
    fn rest(&self, client: &Client, fetched: &Fetched) -> Option<Rest> {
        if self.stop.is_cancelled() {
            return None;
        }
        let source = &fetched.source;
        if self.uncommitted.end_within(source, SHORT_TIMEOUT).ok()? == fetched.position {
            return Some(Rest::Nothing);
        }
        let committed = bounds_by(client, &source.topic, source.partition, SHORT_TIMEOUT).ok()?;
        Some(if committed.end == fetched.position { Rest::HeldBack } else { Rest::Records })
    }

    fn warn_held_back(&self, fetched: &Fetched) {
        let TopicPartition { topic, partition } = &fetched.source;
        tracing::warn!(
            worker = %self.worker, %topic, partition, offset = %fetched.position,
            "an open transaction has held back all records from this offset on for more than a minute: end its producer, or abort it \
             with `kafka-transactions.sh`"
        );
    }

    /// The client reached the end of a partition. rdkafka gives its number and not its topic: it is a partition with
    /// this number that is at its end.
    fn reach_end(&self, client: &Client, partition: i32, now: Instant) {
        let mut candidates: Vec<TopicPartition> =
            lock(&self.held).sources().into_iter().filter(|source| source.partition == partition).collect();
        if candidates.len() > 1 {
            let at = self.reasons.last().as_deref().and_then(end_in);
            let positions = client.position().ok();
            let position = |source: &TopicPartition| {
                positions.as_ref().and_then(|positions| position_in(positions, source)).or_else(|| lock(&self.held).position(source))
            };
            candidates.retain(|source| at.is_none() || position(source) == at);
            if candidates.len() > 1 {
                let end = |source: &TopicPartition| {
                    bounds_by(client, &source.topic, source.partition, SHORT_TIMEOUT).ok().map(|bounds| bounds.end)
                };
                candidates.retain(|source| position(source).is_some_and(|position| end(source) == Some(position)));
            }
        }
        let mut held = lock(&self.held);
        for source in &candidates {
            held.reach_end(source, now);
        }
    }

    /// Handles an error of the poll: most are temporary.
    fn handle(&self, client: &Client, error: KafkaError) -> Result<(), End> {
        use RDKafkaErrorCode as Code;
        let is_fatal = matches!(error, KafkaError::MessageConsumptionFatal(_));
        match error.rdkafka_error_code() {
            Some(Code::AutoOffsetReset | Code::OffsetOutOfRange) => Err(changed(self.out_of_range(client, error)).into()),
            Some(code) if !is_fatal && kind_of(code) == ErrorKind::NotFound => Err(changed(self.failed("consuming the log", error)).into()),
            Some(Code::PollExceeded) => {
                tracing::error!(worker = %self.worker, "the worker took no events for too long and loses its partitions");
                Ok(())
            }
            code if !is_fatal && code.is_none_or(is_passing) => {
                tracing::warn!(%error, worker = %self.worker, brokers = %self.addresses, "kafka consumer error, trying again");
                Ok(())
            }
            _ => Err(self.failed("consuming the log", error).into()),
        }
    }

    /// Names the partition whose offset is no longer in the log, which librdkafka's error does not.
    fn out_of_range(&self, client: &Client, error: KafkaError) -> Error {
        let positions = client.position().ok();
        // Not in the head of the loop, whose body locks it too.
        let sources = lock(&self.held).sources();
        for source in sources {
            let position = positions.as_ref().and_then(|positions| position_in(positions, &source));
            let position = position.or_else(|| lock(&self.held).position(&source)).unwrap_or_default();
            if let Ok(bounds) = bounds_by(client, &source.topic, source.partition, SHORT_TIMEOUT)
                && (position < bounds.begin || position > bounds.end)
            {
                return outside(&source, position, bounds.begin, bounds.end).with("brokers", &self.addresses);
            }
        }
        self.failed("consuming the log", error)
    }

    fn check_start(&self, client: &Client, source: &TopicPartition, offset: Offset) -> Result<(), End> {
        let began = Instant::now();
        loop {
            let bounds = bounds_by(client, &source.topic, source.partition, SHORT_TIMEOUT);
            let error = match bounds {
                Ok(bounds) if offset < bounds.begin => return Err(outside(source, offset, bounds.begin, bounds.end).into()),
                Ok(bounds) if offset <= bounds.end => return Ok(()),
                Ok(bounds) => outside(source, offset, bounds.begin, bounds.end),
                Err(error) => self.failed("asking for the bounds", error).with("partition", source),
            };
            if self.stop.is_cancelled() || self.events.is_closed() {
                return Err(End::Closed);
            }
            if began.elapsed() > END_TIMEOUT {
                return Err(error.into());
            }
            std::thread::sleep(Duration::from_millis(250));
        }
    }

    fn send(&self, event: LogEvent) -> Result<(), End> {
        self.events.blocking_send(event).map_err(|_| End::Closed)
    }

    fn sources(&self, partitions: &TopicPartitionList) -> Vec<TopicPartition> {
        partitions.elements().iter().map(|element| self.source(element.topic(), element.partition())).collect()
    }

    /// Returns the partition with a shared copy of its topic name.
    fn source(&self, topic: &str, partition: i32) -> TopicPartition {
        let shared = self.topics.iter().find(|shared| ***shared == *topic).cloned();
        TopicPartition { topic: shared.unwrap_or_else(|| topic.into()), partition }
    }

    fn failed(&self, doing: &str, error: KafkaError) -> Error {
        failed(doing, error, &self.addresses, &self.reasons)
    }
}

impl ClientContext for ConsumerGroup {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        client::log(level, facility, message);
    }

    fn stats_raw(&self, _: &[u8]) {}

    fn error(&self, error: KafkaError, reason: &str) {
        self.reasons.note(&error, reason);
    }
}

/// The topic is not as it was when its partitions were taken over: records expired that were not read, or it was
/// deleted, or lost records or partitions. A worker that begins again from the catalog finds out which, and what helps.
fn changed(error: Error) -> Error {
    Error::conflict("the topic changed while it was read").caused_by(error)
}

/// True for an error after which polling continues: unreachable brokers come back.
pub(super) fn is_passing(code: RDKafkaErrorCode) -> bool {
    code != RDKafkaErrorCode::Fatal && kind_of(code) == ErrorKind::Unavailable
}

fn assign(client: &Client, starts: &[(TopicPartition, Offset)]) -> Result<(), End> {
    let assigned = list_of(starts).and_then(|list| client.incremental_assign(&list).map_err(refused));
    assigned.map_err(End::Failed)
}

fn unassign(client: &Client, partitions: &TopicPartitionList) -> Result<(), End> {
    client.incremental_unassign(partitions).map_err(|error| End::Failed(refused(error)))
}

fn list_of(starts: &[(TopicPartition, Offset)]) -> Result<TopicPartitionList> {
    let mut list = TopicPartitionList::with_capacity(starts.len());
    for (source, offset) in starts {
        list.add_partition_offset(&source.topic, source.partition, rdkafka::Offset::Offset(offset.0)).map_err(refused)?;
    }
    Ok(list)
}

fn position_in(positions: &TopicPartitionList, source: &TopicPartition) -> Option<Offset> {
    match positions.find_partition(&source.topic, source.partition)?.offset() {
        rdkafka::Offset::Offset(offset) => Some(Offset(offset)),
        _ => None,
    }
}

/// Returns the offset in librdkafka's "reached end of partition at offset 12 (..)".
fn end_in(reason: &str) -> Option<Offset> {
    let (_, after) = reason.split_once("end of partition at offset ")?;
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok().map(Offset)
}

/// Assigning and listing partitions should never be refused.
fn refused(error: KafkaError) -> Error {
    Error::internal("kafka refused a list of partitions").caused_by(error)
}

#[cfg(test)]
mod tests;
