//! The speed worker: follows its consumer's events one after the other, closes micro-batches, commits checkpoints.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::prelude::SessionContext;
use futures::{StreamExt, TryStreamExt};
use schemas::catalog::{Catalog, CatalogState, CheckpointRecord};
use schemas::damage::{Finder, report_damage, with_help};
use schemas::events::Decoder;
use schemas::fresh::Fresh;
use schemas::functions::Functions;
use schemas::log::{Consumer, Log, LogEvent, PartitionBounds, Subscription, TopicPartition, check_mark};
use schemas::plan::planning_session;
use schemas::registry::Registry;
use schemas::storage::ObjectStorage;
use schemas::tiles::Micros;
use schemas::vector::{Offset, PartitionId, Vector};
use schemas::{Error, ErrorKind, Result, failpoint};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use uuid::Uuid;

use crate::checkpoint::Checkpoint;
use crate::claim::Claim;
use crate::decide::{Decider, DedupSettings, IdSpace};
use crate::recover::{OTHER_RECORDS, Start, gap_commit, reread_ids, start_of};
use crate::unit::{Held, Unit};
use crate::views::Views;

/// A micro-batch closes at this many records, or after this long, or as soon as nothing more waits.
const MICRO_BATCH_RECORDS: usize = 32_768;
const MICRO_BATCH: Duration = Duration::from_millis(50);
/// How many partitions' last records are read at once when they are taken over.
const MARKS_AT_ONCE: usize = 8;
/// How often a worker asks whether definitions changed.
const LOOK: Duration = Duration::from_secs(1);

/// Now, in microseconds since 1970.
pub type Clock = Arc<dyn Fn() -> Micros + Send + Sync>;

#[derive(Debug, Clone)]
pub struct SpeedSettings {
    /// Names this worker; unique among those of one group.
    pub worker: String,
    /// The consumer group.
    pub group: String,
    pub checkpoint_interval: Duration,
    pub checkpoint_bytes: usize,
    /// How far an event may be dated after its partition's clock.
    pub max_future: Duration,
    /// Partitions of a topic that is made because it does not exist.
    pub partitions: u32,
    pub dedup: DedupSettings,
    /// Go on behind offsets that the log no longer has, and record them as lost.
    pub accept_gap: bool,
}

/// The speed layer of one process.
#[derive(Clone)]
pub struct Speed {
    pub catalog: Catalog,
    pub storage: ObjectStorage,
    pub log: Arc<dyn Log>,
    pub functions: Functions,
    /// Where fresh layers are shown to a serving node of this process.
    pub fresh: Option<Fresh>,
    pub settings: SpeedSettings,
    pub clock: Clock,
}

/// Why a consumer's loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Stopped,
    /// Streams were added or dropped, or ownership was lost: begin again from the catalog.
    Again,
}

impl Speed {
    /// Works until told to stop, then checkpoints and lets go. Fails when going on would lose records, or by mistake in a definition.
    pub async fn run(&self, stop: CancellationToken) -> Result<()> {
        let session = planning_session(&self.functions)?;
        while !stop.is_cancelled() {
            match self.follow(&session, &stop).await {
                Ok(Ended::Stopped) => break,
                Ok(Ended::Again) => {}
                Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Unavailable) => {
                    warn!(worker = %self.settings.worker, %error, "uncommitted work is dropped; going on from the catalog");
                    metrics::counter!("basestream_speed_restarts_total").increment(1);
                    pause(&stop, LOOK).await;
                }
                Err(error) => return Err(self.told(error).await),
            }
        }
        Ok(())
    }

    /// Tells the catalog of a damaged file, and the caller what to do about it.
    async fn told(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::Corrupt || error.fact("file").is_none() {
            return error;
        }
        if let Ok(state) = self.catalog.state().await {
            let finder = Finder { name: &self.settings.worker, now: (self.clock)() };
            report_damage(&self.catalog, &self.storage, &state, std::slice::from_ref(&error), finder).await;
        }
        with_help(error)
    }

    /// One subscription, from joining to leaving.
    async fn follow(&self, session: &SessionContext, stop: &CancellationToken) -> Result<Ended> {
        let state = self.catalog.state().await?;
        let registry = Registry::load(&state, &self.functions).await?;
        if registry.streams.is_empty() {
            pause(stop, LOOK).await;
            return Ok(Ended::Again);
        }
        let mut topics: Vec<Arc<str>> = registry.streams.values().map(|stream| stream.definition.topic.clone()).collect();
        topics.sort();
        topics.dedup();
        for topic in &topics {
            self.log.create_topic(topic, self.settings.partitions).await?;
        }
        let subscription = Subscription {
            group: self.settings.group.clone(),
            worker: self.settings.worker.clone(),
            topics,
            queue: 16,
            max_records: 8_192,
            max_wait: Duration::from_millis(20),
        };
        let consumer = self.log.subscribe(subscription).await?;
        let views = Views::new(&registry, session).await?;
        let revision = state.revision;
        let ids = IdSpace::new(self.settings.dedup.clone());
        let unit = Unit::default();
        let mut worker = Worker { speed: self, session, registry, views, unit, under_way: None, ids, revision, looked: Instant::now() };
        let ended = worker.run(consumer, stop).await;
        worker.withdraw(&self.catalog).await;
        ended
    }
}

async fn pause(stop: &CancellationToken, time: Duration) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = tokio::time::sleep(time) => {}
    }
}

struct Worker<'a> {
    speed: &'a Speed,
    session: &'a SessionContext,
    registry: Registry,
    views: Views,
    unit: Unit,
    under_way: Option<Checkpoint>,
    ids: IdSpace,
    revision: i64,
    looked: Instant,
}

impl Worker<'_> {
    async fn run(&mut self, mut consumer: Consumer, stop: &CancellationToken) -> Result<Ended> {
        let mut stopping = false;
        let mut again = false;
        loop {
            if (stop.is_cancelled() || again) && !stopping {
                stopping = true;
                consumer.stop.cancel();
            }
            let wake = self.next_wake();
            let event = tokio::select! {
                event = consumer.events.recv() => event,
                () = stop.cancelled(), if !stopping => continue,
                outcome = committed(&mut self.under_way) => {
                    self.settled(outcome)?;
                    continue;
                }
                () = tokio::time::sleep(wake) => {
                    self.tend(true).await?;
                    again |= self.look().await?;
                    continue;
                }
            };
            let Some(event) = event else {
                self.checkpoint().await?;
                return Ok(if stop.is_cancelled() { Ended::Stopped } else { Ended::Again });
            };
            if self.handle(event).await? {
                // Somebody else has work of ours: all of it is dropped, and the catalog says where to go on.
                return Ok(Ended::Again);
            }
            self.tend(consumer.events.is_empty()).await?;
            again |= self.look().await?;
        }
    }

    /// Handles one event; true when ownership was lost.
    async fn handle(&mut self, event: LogEvent) -> Result<bool> {
        match event {
            LogEvent::Fetched(fetched) => {
                metrics::counter!("basestream_speed_records_total", "topic" => fetched.source.topic.to_string())
                    .increment(fetched.records.len() as u64);
                self.unit.take(&fetched, Instant::now())?;
            }
            LogEvent::Assigned { partitions, start } => {
                let offsets = self.assign(&partitions).await;
                let failed = offsets.as_ref().err().map(Error::copied);
                let _ = start.send(offsets);
                if let Some(error) = failed {
                    return Err(error);
                }
            }
            LogEvent::Revoked { partitions, done } => {
                failpoint::hit("speed.revoke")?;
                self.checkpoint().await?;
                for partition in &partitions {
                    self.unit.held.remove(partition);
                }
                info!(worker = %self.speed.settings.worker, partitions = partitions.len(), "partitions let go");
                let _ = done.send(());
            }
            LogEvent::Lost { partitions, kept } => {
                warn!(worker = %self.speed.settings.worker, partitions = partitions.len(), "partitions were lost; all uncommitted work is dropped");
                let _ = kept.send(Err(Error::conflict("the worker begins again from the catalog")));
                return Ok(true);
            }
            LogEvent::Failed(error) => return Err(error),
        }
        Ok(false)
    }

    /// Takes partitions over, from where the catalog says they stand.
    async fn assign(&mut self, partitions: &[TopicPartition]) -> Result<Vec<(TopicPartition, Offset)>> {
        failpoint::hit("speed.assign")?;
        let state = self.speed.catalog.state().await?;
        self.check_marks(partitions, &state).await?;
        let mut starts = Vec::with_capacity(partitions.len());
        for source in partitions {
            self.withdraw_leftovers(source, &state);
            let start = self.take_over(source, &state).await?;
            starts.push((source.clone(), start));
        }
        info!(worker = %self.speed.settings.worker, partitions = partitions.len(), "partitions taken over");
        Ok(starts)
    }

    /// Nobody else holds a partition that is taken over: uncommitted layers of it are those of a worker that died or does not know yet.
    fn withdraw_leftovers(&self, source: &TopicPartition, state: &CatalogState) {
        let stream = self.registry.streams.values().find(|stream| stream.definition.topic == source.topic);
        if let (Some(fresh), Some(stream)) = (&self.speed.fresh, stream) {
            fresh.withdraw_leftovers(&state.vector(), &[PartitionId::new(stream.definition.name.clone(), source.partition)]);
        }
    }

    async fn take_over(&mut self, source: &TopicPartition, state: &CatalogState) -> Result<Offset> {
        let stream = self.registry.streams.values().find(|stream| stream.definition.topic == source.topic);
        let stream = stream.ok_or_else(|| Error::internal("a partition of no stream was assigned").with("partition", source))?;
        let definition = stream.definition.clone();
        let id = PartitionId::new(definition.name.clone(), source.partition);
        let identity = self.speed.log.identity(&source.topic).await?;
        let bounds = self.speed.log.bounds(&source.topic).await?;
        let bounds = bounds.into_iter().find(|bounds| bounds.partition == source.partition);
        let bounds =
            bounds.ok_or_else(|| Error::unavailable("the log does not know an assigned partition yet").with("partition", source))?;
        let known = state.partitions.get(&id);
        let start = match start_of(known, &id, &identity, &bounds, self.speed.settings.accept_gap)? {
            Start::At(offset) => offset,
            Start::AfterGap { start, end, reason } => {
                warn!(partition = %id, %start, %end, reason, "offsets are recorded as lost");
                let now = (self.speed.clock)();
                let commit = gap_commit(Uuid::now_v7(), known, &id, (start, end), reason, &identity, now);
                self.speed.catalog.commit_with_retry(commit).await?;
                end
            }
        };
        let (clock, newest) = known.map_or((None, None), |known| (known.clock, known.max_event_time));
        let mut decider = Decider::new(clock, newest, self.speed.settings.max_future, definition.dedup_within, &self.ids);
        reread_ids(&self.speed.storage, state, &definition, &id, &mut decider).await?;
        failpoint::hit("speed.ids_reread")?;
        let decoder = Arc::new(Decoder::new(definition)?);
        self.unit.held.insert(source.clone(), Held::new(Claim::new(id, identity, decider, start), decoder, stream.version));
        Ok(start)
    }

    /// Holds each partition's last committed record against the log's, several at a time: a log may be another one though its name,
    /// and what it says of itself, are the same.
    async fn check_marks(&self, partitions: &[TopicPartition], state: &CatalogState) -> Result<()> {
        let mut topics: Vec<&Arc<str>> = partitions.iter().map(|source| &source.topic).collect();
        topics.sort();
        topics.dedup();
        let mut facts: BTreeMap<&Arc<str>, (String, Vec<PartitionBounds>)> = BTreeMap::new();
        for topic in topics {
            facts.insert(topic, (self.speed.log.identity(topic).await?, self.speed.log.bounds(topic).await?));
        }
        let marked = |source: &TopicPartition| {
            let stream = self.registry.streams.values().find(|stream| stream.definition.topic == source.topic)?;
            let id = PartitionId::new(stream.definition.name.clone(), source.partition);
            let (identity, bounds) = facts.get(&source.topic)?;
            let bounds = bounds.iter().find(|bounds| bounds.partition == source.partition)?;
            // What is refused anyway is refused by what the log says of itself.
            let start = start_of(state.partitions.get(&id), &id, identity, bounds, self.speed.settings.accept_gap);
            start.is_ok().then_some((source.clone(), state.marks.get(&id)?.clone(), bounds.clone()))
        };
        let log = &*self.speed.log;
        let marked = partitions.iter().filter_map(marked);
        let checks: Vec<_> = marked.map(|(source, mark, bounds)| async move { check_mark(log, &source, &mark, &bounds).await }).collect();
        let checked = futures::stream::iter(checks).buffer_unordered(MARKS_AT_ONCE).try_collect::<Vec<()>>().await;
        checked.map(drop).map_err(|error| if error.kind() == ErrorKind::Input { error.with("help", OTHER_RECORDS) } else { error })
    }

    /// Closes the micro-batch and commits the unit when it is time.
    async fn tend(&mut self, idle: bool) -> Result<()> {
        let due = self.unit.open_since.is_some_and(|since| since.elapsed() >= MICRO_BATCH);
        if idle || due || self.unit.open_rows() >= MICRO_BATCH_RECORDS {
            self.unit.close_micro_batch(&mut self.views, self.speed.fresh.as_ref()).await?;
        }
        let settings = &self.speed.settings;
        let aged = self.unit.began.is_some_and(|began| began.elapsed() >= settings.checkpoint_interval);
        // Half: what is sealed is held as well until it is committed.
        let is_full = self.unit.bytes() >= settings.checkpoint_bytes / 2;
        if is_full || (aged && self.under_way.is_none()) {
            self.begin_checkpoint().await?;
        }
        Ok(())
    }

    /// Begins to commit what there is, once the checkpoint before is committed: each goes on where the one before ended.
    async fn begin_checkpoint(&mut self) -> Result<()> {
        self.unit.close_micro_batch(&mut self.views, self.speed.fresh.as_ref()).await?;
        self.settle().await?;
        let speed = self.speed;
        if let Some(sealed) = self.unit.seal(Uuid::now_v7(), &speed.settings.worker, (speed.clock)())? {
            self.under_way = Some(Checkpoint::begin(sealed, self.views.live(), speed.storage.clone(), speed.catalog.clone()));
            self.views.try_again();
        }
        Ok(())
    }

    /// Waits for the checkpoint that is under way.
    async fn settle(&mut self) -> Result<()> {
        if self.under_way.is_none() {
            return Ok(());
        }
        let outcome = committed(&mut self.under_way).await;
        self.settled(outcome)
    }

    fn settled(&mut self, outcome: Result<(CheckpointRecord, Duration)>) -> Result<()> {
        // After an error it is still known where its partitions stood.
        let (record, elapsed) = outcome?;
        self.under_way = None;
        observe(&record, elapsed);
        Ok(())
    }

    /// Commits all there is.
    async fn checkpoint(&mut self) -> Result<()> {
        self.begin_checkpoint().await?;
        self.settle().await
    }

    /// Looks, once a second, whether definitions changed; true when the subscription has to begin again.
    async fn look(&mut self) -> Result<bool> {
        if self.looked.elapsed() < LOOK {
            return Ok(false);
        }
        self.looked = Instant::now();
        let revision = match self.speed.catalog.revision().await {
            Ok(revision) => revision,
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                warn!(%error, "the catalog did not answer; definitions stay as they are");
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        if revision == self.revision {
            return Ok(false);
        }
        self.revision = revision;
        let state = self.speed.catalog.state().await?;
        if !self.registry.is_stale(&state) {
            return Ok(false);
        }
        let registry = Registry::load(&state, &self.speed.functions).await?;
        if streams_of(&registry) != streams_of(&self.registry) {
            // What is under way is decoded as before, and goes to the views as they were: the next subscription knows the new ones.
            return Ok(true);
        }
        // A section stands for whole units: the new views begin with the next one.
        self.checkpoint().await?;
        self.views = Views::new(&registry, self.session).await?;
        self.registry = registry;
        Ok(false)
    }

    fn next_wake(&self) -> Duration {
        let interval = self.speed.settings.checkpoint_interval;
        // While one is under way its end is waited for.
        let began = self.unit.began.filter(|_| self.under_way.is_none());
        let checkpoint = began.map_or(LOOK, |began| interval.saturating_sub(began.elapsed()));
        let micro_batch = self.unit.open_since.map_or(LOOK, |since| MICRO_BATCH.saturating_sub(since.elapsed()));
        checkpoint.min(micro_batch).clamp(Duration::from_millis(1), LOOK)
    }

    /// The positions that are known to be committed.
    fn committed_at_least(&self) -> Vector {
        let mut committed: Vector = self.unit.claims().map(|claim| (claim.id.clone(), claim.start)).collect();
        for (partition, start) in self.under_way.iter().flat_map(|checkpoint| checkpoint.starts.iter()) {
            committed.set(partition.clone(), start);
        }
        committed
    }

    /// Takes back from readers what was not committed.
    async fn withdraw(&mut self, catalog: &Catalog) {
        if let Some(fresh) = &self.speed.fresh {
            let partitions: Vec<PartitionId> = self.unit.claims().map(|claim| claim.id.clone()).collect();
            let at_least = self.committed_at_least();
            if let Some(checkpoint) = self.under_way.take() {
                checkpoint.give_up().await;
            }
            let committed = catalog.state().await.map_or(at_least, |state| state.vector());
            fresh.withdraw(&committed, &partitions);
        }
        self.unit.drop_all();
    }
}

/// The outcome of the checkpoint under way; without one, never.
async fn committed(under_way: &mut Option<Checkpoint>) -> Result<(CheckpointRecord, Duration)> {
    match under_way {
        Some(checkpoint) => checkpoint.committed().await,
        None => std::future::pending().await,
    }
}

fn streams_of(registry: &Registry) -> Vec<(&Arc<str>, u32)> {
    registry.streams.iter().map(|(name, stream)| (name, stream.version)).collect()
}

fn observe(record: &CheckpointRecord, elapsed: Duration) {
    let mut counts: BTreeMap<&str, [i64; 4]> = BTreeMap::new();
    for range in &record.ranges {
        let sums = counts.entry(&range.partition.stream).or_default();
        for (sum, add) in sums.iter_mut().zip([range.archived, range.duplicate, range.dead_lettered, range.absent]) {
            *sum += add;
        }
    }
    for (stream, [archived, duplicate, dead, absent]) in counts {
        let counter = |outcome: &'static str, by: i64| {
            metrics::counter!("basestream_speed_events_total", "stream" => stream.to_owned(), "outcome" => outcome)
                .increment(by.max(0) as u64);
        };
        counter("archived", archived);
        counter("duplicate", duplicate);
        counter("dead_lettered", dead);
        counter("absent", absent);
    }
    metrics::histogram!("basestream_speed_checkpoint_seconds").record(elapsed.as_secs_f64());
    tracing::debug!(checkpoint = %record.id, partitions = record.ranges.len(), seconds = elapsed.as_secs_f64(), "checkpoint committed");
}
