//! Committing: when the micro-batch closes, when a checkpoint begins, and what happens to work that was not committed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use catalog::{Advance, CheckpointRecord, Commit};
use event_log::Fetched;
use types::vector::{PartitionId, Vector};
use types::{Error, ErrorKind, Result};
use uuid::Uuid;

use super::Worker;
use crate::checkpoint::Checkpoint;
use crate::partition_state::PartitionState;
use crate::sinks::WorkerSinks;

/// A micro-batch closes when it is full, after this long, or when no record is waiting.
pub(super) const MICRO_BATCH: Duration = Duration::from_millis(50);
/// How many epochs of memory a worker holds at most: the epoch that is being committed, with the memory for merging and
/// encoding it, and the next one, with the memory for merging its layers.
const EPOCHS_HELD: usize = 4;

impl Worker<'_> {
    /// Decides the records of a fetch, at a time as many as have room in a micro-batch.
    pub(super) async fn take(&mut self, fetched: Fetched) -> Result<()> {
        let mut rest = self.epoch.take(fetched, Instant::now())?;
        while let Some(fetched) = rest {
            self.maybe_flush(false).await?;
            rest = self.epoch.take(fetched, Instant::now())?;
        }
        Ok(())
    }

    /// Closes the micro-batch and commits the epoch when they are due.
    pub(super) async fn maybe_flush(&mut self, idle: bool) -> Result<()> {
        let due = self.epoch.open_since.is_some_and(|since| since.elapsed() >= MICRO_BATCH);
        if idle || due || self.epoch.is_micro_batch_full() {
            self.close_micro_batch().await?;
        }
        let settings = &self.speed.settings;
        let aged = self.epoch.began.is_some_and(|began| began.elapsed() >= settings.checkpoint_interval);
        let is_full = self.epoch.bytes() >= settings.checkpoint_bytes / EPOCHS_HELD;
        if is_full || (aged && self.under_way.is_none()) {
            self.begin_checkpoint().await?;
        }
        self.note_idle().await
    }

    /// Commits how far idle partitions are complete. A process that runs alerts but does not read this one's layers
    /// takes that time from the catalog; without it, a partition without events would hold back the alerts' clock.
    async fn note_idle(&mut self) -> Result<()> {
        if self.registry.alerts.is_empty() || self.idle_noted.elapsed() < self.speed.settings.checkpoint_interval {
            return Ok(());
        }
        self.idle_noted = Instant::now();
        let is_under_way = |id: &PartitionId| self.under_way.iter().any(|checkpoint| checkpoint.starts.iter().any(|(p, _)| p == id));
        let idle = self.epoch.partitions().filter(|partition| !is_under_way(&partition.id));
        let advance: Vec<Advance> = idle.filter_map(PartitionState::idle).collect();
        if advance.is_empty() {
            return Ok(());
        }
        match self.speed.catalog.commit(Commit { id: Uuid::now_v7(), advance, ..Commit::default() }).await {
            // It is not worth ending the subscription for.
            Err(error) if error.kind() == ErrorKind::Unavailable => Ok(()),
            committed => committed.map(drop),
        }
    }

    async fn close_micro_batch(&mut self) -> Result<()> {
        let registry = &self.registry;
        let sinks: Option<(&mut dyn WorkerSinks, _)> = match &mut self.sinks {
            Some(sinks) if !registry.sinks.is_empty() => Some((&mut **sinks, registry)),
            None if !registry.sinks.is_empty() => {
                return Err(Error::internal("there are sinks, and this process makes no records"));
            }
            _ => None,
        };
        self.epoch.close_micro_batch(&mut self.views, self.speed.fresh.as_ref(), sinks).await
    }

    /// Begins to commit the epoch after the previous checkpoint is committed: each continues where the previous one
    /// ended.
    async fn begin_checkpoint(&mut self) -> Result<()> {
        self.close_micro_batch().await?;
        if let Some(sinks) = &mut self.sinks {
            sinks.appended().await?;
        }
        self.finish_checkpoint().await?;
        let speed = self.speed;
        if let Some(sealed) = self.epoch.seal(Uuid::now_v7(), &speed.settings.worker, (speed.clock)())? {
            let claims = self.sinks.as_ref().map_or_else(Vec::new, |sinks| sinks.output_claims());
            self.under_way = Some(Checkpoint::begin(sealed, claims, self.views.live(), speed, self.stop.clone()));
            self.views.try_again();
        }
        Ok(())
    }

    /// Waits for the checkpoint in progress.
    async fn finish_checkpoint(&mut self) -> Result<()> {
        if self.under_way.is_none() {
            return Ok(());
        }
        let outcome = committed(&mut self.under_way).await;
        self.on_committed(outcome)
    }

    pub(super) fn on_committed(&mut self, outcome: Result<(CheckpointRecord, Duration)>) -> Result<()> {
        // After an error, the positions of its partitions are still known.
        self.speed.note(&outcome);
        let (record, elapsed) = outcome?;
        self.under_way = None;
        if let Some(fresh) = &self.speed.fresh {
            fresh.committed(&record.ranges.iter().map(|range| (range.partition.clone(), range.end)).collect());
        }
        let archived = record.ranges.iter().filter(|range| range.archived > 0);
        archived.for_each(|range| self.speed.progress.passed(&range.partition.stream));
        observe(&record, elapsed);
        Ok(())
    }

    /// Commits all uncommitted work.
    pub(super) async fn checkpoint(&mut self) -> Result<()> {
        self.begin_checkpoint().await?;
        self.finish_checkpoint().await
    }

    /// Returns the positions that are known to be committed.
    fn committed_at_least(&self) -> Vector {
        let mut committed: Vector = self.epoch.partitions().map(|partition| (partition.id.clone(), partition.start)).collect();
        for (partition, start) in self.under_way.iter().flat_map(|checkpoint| checkpoint.starts.iter()) {
            committed.set(partition.clone(), start);
        }
        committed
    }

    /// Withdraws uncommitted work from readers.
    pub(crate) async fn withdraw(&mut self) {
        if let Some(fresh) = &self.speed.fresh {
            let partitions: Vec<PartitionId> = self.epoch.partitions().map(|partition| partition.id.clone()).collect();
            let at_least = self.committed_at_least();
            if let Some(checkpoint) = self.under_way.take() {
                checkpoint.give_up().await;
            }
            let committed = self.speed.catalog.state().await.map_or(at_least, |state| state.vector());
            fresh.withdraw(&committed, &partitions);
            fresh.give_up_all();
        }
        self.epoch.drop_all();
    }
}

/// Waits for the outcome of the checkpoint in progress; without one, forever.
pub(super) async fn committed(under_way: &mut Option<Checkpoint>) -> Result<(CheckpointRecord, Duration)> {
    match under_way {
        Some(checkpoint) => checkpoint.committed().await,
        None => std::future::pending().await,
    }
}

/// Waits until the records whose append has begun are durable; without any, forever.
pub(super) async fn appended(sinks: &mut Option<Box<dyn WorkerSinks>>) -> Result<()> {
    match sinks {
        Some(sinks) if sinks.is_appending() => sinks.appended().await,
        _ => std::future::pending().await,
    }
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
