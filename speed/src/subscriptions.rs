//! Subscriptions: a sequence of them, each with a worker that begins from the catalog.

use std::sync::Arc;
use std::time::Duration;

use committed::damage::{Finder, report_damage, with_help};
use committed::registry::Registry;
use datafusion::prelude::SessionContext;
use engine::plan::planning_session;
use event_log::Subscription;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use types::{Error, ErrorKind, Result};

use crate::layer::Speed;
use crate::worker::{Ended, POLL_INTERVAL, Worker};

impl Speed {
    /// Works until stopped, then checkpoints and releases its partitions. Fails if continuing would lose records, or on
    /// a mistake in a definition.
    pub async fn run(&self, stop: CancellationToken) -> Result<()> {
        let session = planning_session(&self.functions)?;
        while !stop.is_cancelled() {
            match self.follow(&session, &stop).await {
                Ok(Ended::Stopped) => break,
                Ok(Ended::Resubscribe) => {}
                Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Unavailable) => {
                    warn!(worker = %self.settings.worker, %error, "uncommitted work is dropped; continuing from the catalog");
                    metrics::counter!("basestream_speed_restarts_total").increment(1);
                    self.note(&Err::<(), _>(error));
                    pause(&stop, POLL_INTERVAL).await;
                }
                Err(error) => return Err(self.report(error).await),
            }
        }
        Ok(())
    }

    /// Reports a damaged file to the catalog, and returns the error with what to do about it.
    async fn report(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::Corrupt || error.fact("file").is_none() {
            return error;
        }
        if let Ok(state) = self.catalog.state().await {
            let finder = Finder { name: &self.settings.worker, now: (self.clock)() };
            report_damage(&self.catalog, &self.storage, &state, std::slice::from_ref(&error), finder).await;
        }
        with_help(error)
    }

    /// Runs one subscription, from joining to leaving.
    async fn follow(&self, session: &SessionContext, stop: &CancellationToken) -> Result<Ended> {
        let state = self.catalog.state().await?;
        let registry = Registry::load(&state, &self.functions).await?;
        if registry.streams.is_empty() {
            pause(stop, POLL_INTERVAL).await;
            return Ok(Ended::Resubscribe);
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
        let mut worker = Worker::new(self, session, registry, state.revision, stop.clone()).await?;
        let ended = worker.run(consumer).await;
        worker.withdraw().await;
        ended
    }
}

async fn pause(stop: &CancellationToken, time: Duration) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = tokio::time::sleep(time) => {}
    }
}
