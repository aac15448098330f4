//! The speed worker: handles its consumer's events in order, closes micro-batches, commits checkpoints.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use catalog::Revision;
use committed::registry::Registry;
use datafusion::prelude::SessionContext;
use event_log::{Consumer, LogEvent};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use types::{Error, Result};

use crate::checkpoint::Checkpoint;
use crate::epoch::Epoch;
use crate::layer::Speed;
use crate::sinks::WorkerSinks;
use crate::stalls::Stall;
use crate::views::Views;

mod assignment;
mod committing;
mod definitions;
mod taking_over;

use committing::{MICRO_BATCH, appended, committed};

/// How often a worker checks whether definitions changed.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The same if parameters are defined, because a new value takes effect within a second.
const POLL_PARAMETERS: Duration = Duration::from_millis(500);

/// Why a consumer's loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Stopped,
    /// Streams were added or dropped, or ownership was lost: begin again from the catalog.
    Resubscribe,
}

/// How the worker's loop continues after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Continue,
    /// Another worker owns its partitions.
    Lost,
    /// It was asked to stop while it took partitions over.
    Stop,
}

/// The worker of one subscription. Its own file only dispatches; the steps are in the files of its folder.
pub(crate) struct Worker<'a> {
    speed: &'a Speed,
    session: &'a SessionContext,
    registry: Registry,
    views: Views,
    epoch: Epoch,
    sinks: Option<Box<dyn WorkerSinks>>,
    /// The streams that this subscription does not read, because a sink fails or a file is damaged.
    left_out: BTreeSet<Arc<str>>,
    under_way: Option<Checkpoint>,
    revision: Revision,
    /// The previous owner of a partition may have used definitions that this worker does not have yet.
    is_behind: bool,
    polled_at: Instant,
    /// When the worker last committed how far idle partitions are complete.
    idle_noted: Instant,
    stop: CancellationToken,
}

impl<'a> Worker<'a> {
    /// Creates a worker without partitions. `registry` comes from the catalog state of `revision`; `left_out` are the
    /// streams whose topics it did not subscribe to.
    pub(crate) async fn new(
        speed: &'a Speed,
        session: &'a SessionContext,
        (registry, revision): (Registry, Revision),
        left_out: BTreeSet<Arc<str>>,
        stop: CancellationToken,
    ) -> Result<Self> {
        let views = Views::new(&registry, session);
        if let Some(fresh) = &speed.fresh {
            fresh.keep(views.stamps());
        }
        let (epoch, polled_at) = (Epoch::new(speed.settings.merged_beside_rows, speed.settings.checkpoint_bytes), Instant::now());
        let sinks = speed.sinks.as_ref().map(|sinks| sinks.for_worker(speed.progress.is_trial()));
        Ok(Self {
            speed,
            session,
            registry,
            views,
            epoch,
            sinks,
            left_out,
            under_way: None,
            revision,
            is_behind: false,
            polled_at,
            idle_noted: polled_at,
            stop,
        })
    }

    pub(crate) async fn run(&mut self, mut consumer: Consumer) -> Result<Ended> {
        let stop = self.stop.clone();
        let mut stopping = false;
        let mut resubscribe = false;
        loop {
            if (stop.is_cancelled() || resubscribe) && !stopping {
                stopping = true;
                consumer.stop.cancel();
            }
            let wake = self.next_wake();
            let event = tokio::select! {
                event = consumer.events.recv() => event,
                () = stop.cancelled(), if !stopping => continue,
                outcome = committed(&mut self.under_way) => {
                    self.on_committed(outcome)?;
                    continue;
                }
                outcome = appended(&mut self.sinks) => {
                    outcome?;
                    continue;
                }
                () = tokio::time::sleep(wake) => {
                    self.maybe_flush(true).await?;
                    resubscribe |= self.poll_definitions().await?;
                    continue;
                }
            };
            let Some(event) = event else {
                self.checkpoint().await?;
                return Ok(if stop.is_cancelled() { Ended::Stopped } else { Ended::Resubscribe });
            };
            match self.handle(event).await? {
                Next::Continue => {}
                // Another worker owns our partitions: drop all uncommitted work and continue where the catalog says.
                Next::Lost => return Ok(Ended::Resubscribe),
                // The consumer ends when it is dropped, and gives back what was being taken over.
                Next::Stop => {
                    self.checkpoint().await?;
                    return Ok(Ended::Stopped);
                }
            }
            self.maybe_flush(consumer.events.is_empty()).await?;
            resubscribe |= self.poll_definitions().await?;
        }
    }

    /// Returns the sinks that failed, after an error.
    pub(crate) fn take_stalls(&mut self) -> Vec<Stall> {
        self.sinks.as_mut().map_or_else(Vec::new, |sinks| sinks.take_stalls())
    }

    async fn handle(&mut self, event: LogEvent) -> Result<Next> {
        match event {
            LogEvent::Fetched(fetched) => {
                metrics::counter!("basestream_speed_records_total", "topic" => fetched.source.topic.to_string())
                    .increment(fetched.records.len() as u64);
                self.take(fetched).await?;
            }
            LogEvent::Assigned { partitions, start } => return self.assigned(&partitions, start).await,
            LogEvent::Revoked { partitions, done } => {
                self.revoked(&partitions).await?;
                let _ = done.send(());
            }
            LogEvent::Lost { partitions, kept } => {
                let (worker, partitions) = (&self.speed.settings.worker, partitions.len());
                warn!(%worker, partitions, "partitions were lost; all uncommitted work is dropped");
                let _ = kept.send(Err(Error::conflict("the worker starts again from the catalog")));
                return Ok(Next::Lost);
            }
            LogEvent::Failed(error) => return Err(error),
        }
        Ok(Next::Continue)
    }

    fn next_wake(&self) -> Duration {
        let interval = self.speed.settings.checkpoint_interval;
        // While a checkpoint is in progress, the worker waits for its end.
        let began = self.epoch.began.filter(|_| self.under_way.is_none());
        // What wakes the worker in between does not put the poll off.
        let poll = self.poll_interval().saturating_sub(self.polled_at.elapsed()).max(Duration::from_millis(1));
        let checkpoint = began.map_or(poll, |began| interval.saturating_sub(began.elapsed()));
        let micro_batch = self.epoch.open_since.map_or(poll, |since| MICRO_BATCH.saturating_sub(since.elapsed()));
        checkpoint.min(micro_batch).clamp(Duration::from_millis(1), poll)
    }

    fn poll_interval(&self) -> Duration {
        if self.registry.parameters.is_empty() { POLL_INTERVAL } else { POLL_PARAMETERS }
    }
}

#[cfg(test)]
mod tests;
