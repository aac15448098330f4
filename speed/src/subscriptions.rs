//! Subscriptions: a sequence of them, each with a worker that begins from the catalog.

use std::sync::Arc;
use std::time::{Duration, Instant};

use catalog::CatalogState;
use committed::damage::{Finder, report_damage, with_help};
use committed::log_check::check_not_gone;
use committed::registry::Registry;
use datafusion::prelude::SessionContext;
use definitions::StreamDefinition;
use engine::plan::planning_session;
use event_log::{Consumer, Subscription};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use types::files::FileKind;
use types::{Error, ErrorKind, Result};

use crate::damaged::damaged_stream;
use crate::layer::Speed;
use crate::progress::Activity;
use crate::worker::{Ended, POLL_INTERVAL, Worker};

impl Speed {
    /// Works until stopped, then checkpoints and releases its partitions. Fails if continuing would lose records, or on
    /// a mistake in a definition. A stream of which an archive file is damaged waits for its repair.
    pub async fn run(&self, stop: CancellationToken) -> Result<()> {
        let session = planning_session(&self.functions)?;
        while !stop.is_cancelled() {
            let Failed { error, by_sink } = match self.follow(&session, &stop).await {
                Ok(Ended::Stopped) => break,
                Ok(Ended::Resubscribe) => continue,
                Err(failed) => Failed { error: self.conflict_if_replaced(failed.error).await, ..failed },
            };
            let error = self.without_damaged(error).await;
            if !matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Unavailable) {
                return Err(error);
            }
            warn!(worker = %self.settings.worker, %error, "uncommitted work is dropped; continuing from the catalog");
            metrics::counter!("basestream_speed_restarts_total").increment(1);
            if !by_sink {
                self.note(&Err::<(), _>(error));
            }
            self.progress.begin(Activity::Starting);
            pause(&stop, POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Turns the error for a file that the catalog no longer needs into a conflict: the file is not damaged, but was
    /// compacted and deleted while a takeover read the files of an earlier state. The next takeover reads the files of
    /// the present state, and pins them if it takes long.
    async fn conflict_if_replaced(&self, error: Error) -> Error {
        let Some(path) = error.fact("file").filter(|_| error.kind() == ErrorKind::Corrupt).map(str::to_owned) else { return error };
        let Ok(state) = self.catalog.state().await else { return error };
        let is_needed = state.files.get(&path).is_some_and(|file| file.kind != FileKind::Superseded && !file.marked_for_deletion);
        if is_needed { error } else { Error::conflict("a file was replaced while it was read").with("file", path).caused_by(error) }
    }

    /// Reports a damaged file to the catalog, and leaves its stream out until it is repaired. Returns an error after
    /// which the worker continues; other errors stay as they are.
    async fn without_damaged(&self, error: Error) -> Error {
        let Some(path) = error.fact("file").filter(|_| error.kind() == ErrorKind::Corrupt).map(str::to_owned) else { return error };
        let error = with_help(error);
        if let Ok(state) = self.catalog.state().await {
            let finder = Finder { name: &self.settings.worker, now: (self.clock)() };
            report_damage(&self.catalog, &self.storage, &state, std::slice::from_ref(&error), finder).await;
        }
        let state = self.catalog.state().await.ok();
        match state.and_then(|state| damaged_stream(&state, &path)) {
            Some(stream) => {
                self.progress.leave_out_damaged(stream.clone(), path, error.to_string());
                Error::conflict("a stream is left out until a file of its archive is repaired").with("stream", stream).caused_by(error)
            }
            // It may be of the moment: what is stored is not known to be damaged.
            None => Error::unavailable("a stored file cannot be read: trying again").caused_by(error),
        }
    }

    /// Runs one subscription, from joining to leaving.
    async fn follow(&self, session: &SessionContext, stop: &CancellationToken) -> Result<Ended, Failed> {
        // Nothing is held before the group is joined: a stop need not wait for a catalog or a log that does not answer.
        let joined = tokio::select! {
            joined = self.join(session, stop) => joined?,
            () = stop.cancelled() => return Ok(Ended::Stopped),
        };
        let Some((mut worker, consumer)) = joined else {
            self.progress.begin(Activity::Idle);
            pause(stop, POLL_INTERVAL).await;
            return Ok(Ended::Resubscribe);
        };
        self.progress.begin(Activity::Joined { since: Instant::now() });
        let ended = worker.run(consumer).await;
        worker.withdraw().await;
        let Err(error) = ended else { return Ok(ended?) };
        let stalls = worker.take_stalls();
        let by_sink = !stalls.is_empty();
        for stall in stalls {
            metrics::counter!("basestream_speed_sink_stalls_total", "sink" => stall.sink.to_string()).increment(1);
            self.progress.stall(stall);
        }
        Err(Failed { error, by_sink })
    }

    /// Joins the group; `None` if there is no stream to read. Streams with failing sinks or damaged files are not read.
    async fn join<'a>(&'a self, session: &'a SessionContext, stop: &CancellationToken) -> Result<Option<(Worker<'a>, Consumer)>> {
        let state = self.catalog.state().await?;
        let registry = Registry::load(&state, &self.functions).await?;
        self.progress.note_unplanned(&registry);
        self.progress.follow_repairs(&state);
        let left_out = self.progress.left_out();
        let read = registry.streams.iter().filter(|(name, _)| !left_out.contains(*name));
        let streams: Vec<&StreamDefinition> = read.map(|(_, stream)| &*stream.definition).collect();
        if streams.is_empty() {
            return Ok(None);
        }
        self.progress.begin(Activity::Starting);
        for stream in &streams {
            self.create_topic(&state, stream).await?;
        }
        let mut topics: Vec<Arc<str>> = streams.iter().map(|stream| stream.topic.clone()).collect();
        topics.sort();
        topics.dedup();
        let subscription = Subscription {
            group: self.settings.group.clone(),
            worker: self.settings.worker.clone(),
            topics,
            queue: 16,
            max_records: 8_192,
            max_wait: Duration::from_millis(20),
        };
        let consumer = self.log.subscribe(subscription).await?;
        let worker = Worker::new(self, session, (registry, state.revision), left_out, stop.clone()).await?;
        Ok(Some((worker, consumer)))
    }

    /// Creates a stream's topic unless it exists, or was read before and is gone.
    async fn create_topic(&self, state: &CatalogState, stream: &StreamDefinition) -> Result<()> {
        if state.has_committed(&stream.name) {
            let partitions = self.log.partition_count(&stream.topic).await?;
            check_not_gone(state, stream, partitions.unwrap_or_default())?;
        }
        self.log.create_topic(&stream.topic, self.settings.partitions).await?;
        Ok(())
    }
}

/// Why a subscription ended.
struct Failed {
    error: Error,
    /// True if a sink failed, while the worker's own work could be committed.
    by_sink: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Failed { error, by_sink: false }
    }
}

async fn pause(stop: &CancellationToken, time: Duration) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = tokio::time::sleep(time) => {}
    }
}

#[cfg(test)]
mod tests;
