//! Writes a checkpoint: first the files, durable and under fresh names, then one transaction that records them and
//! advances the partitions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use catalog::{Add, CheckpointRecord, Commit, Expect, SinkClaim, checkpoint_commit};
use committed::registry::LiveView;
use engine::fresh::FreshLayer;
use storage::{ObjectStorage, Section, SegmentRange, write_archive, write_dead_letters, write_states_object};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;
use types::files::FileRecord;
use types::files::ObjectName;
use types::tiles::Micros;
use types::vector::Vector;
use types::{Error, ErrorKind, Result, failpoint, threads};

use crate::epoch::SealedEpoch;
use crate::layer::Speed;

/// How long to wait before the second attempt. Later waits are longer, up to a limit.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LAST_WAIT: Duration = Duration::from_secs(10);

/// States are merged, and encoded, about this many bytes at a time.
const MERGED_AT_ONCE_BYTES: usize = 1 << 20;

/// A checkpoint in progress. Dropping it gives it up.
pub(crate) struct Checkpoint {
    /// The positions of its partitions before it.
    pub(crate) starts: Vector,
    /// `None` after its outcome was returned.
    commit: Option<AbortOnDropHandle<Result<(CheckpointRecord, Duration)>>>,
}

impl Checkpoint {
    /// Begins to write and commit an epoch. It is committed only while the claims on the records of sinks hold. `views`
    /// are all views that its layers may have states of. While the storage or the catalog fails, it is retried until
    /// `stop`.
    pub(crate) fn begin(sealed: SealedEpoch, claims: Vec<SinkClaim>, views: Vec<LiveView>, speed: &Speed, stop: CancellationToken) -> Self {
        let starts = sealed.record.ranges.iter().map(|range| (range.partition.clone(), range.start)).collect();
        let retrying = Retrying { speed: speed.clone(), stop };
        Self { starts, commit: Some(AbortOnDropHandle::new(tokio::spawn(retrying.commit(Writing::new(sealed, views), claims)))) }
    }

    /// Waits until it is committed; returns its record and how long it took. `Conflict`: another worker owns one of its
    /// partitions, or a later version of a stream decides its records, and none of it is counted. May be cancelled and
    /// called again.
    pub(crate) async fn committed(&mut self) -> Result<(CheckpointRecord, Duration)> {
        let commit = self.commit.as_mut().ok_or_else(|| Error::internal("the outcome of a checkpoint was returned before"))?;
        let outcome = commit.await;
        self.commit = None;
        outcome.map_err(Error::from)?
    }

    /// Cancels it. A transaction that was already sent to the catalog may still be committed: then a worker that
    /// continues from the position before it is refused, once.
    pub(crate) async fn give_up(self) {
        if let Some(commit) = self.commit {
            commit.abort();
            let _ = commit.await;
        }
    }
}

/// Retries while the storage or the catalog fails. The epoch and its fresh layers stay, and so do answers.
struct Retrying {
    speed: Speed,
    stop: CancellationToken,
}

impl Retrying {
    async fn commit(self, mut writing: Writing, claims: Vec<SinkClaim>) -> Result<(CheckpointRecord, Duration)> {
        let began = Instant::now();
        let mut wait = FIRST_WAIT;
        loop {
            let turn = self.speed.writers.turn().await?;
            // Encoding runs on a thread that gives way to those of workers. It does not stop when the checkpoint is
            // given up, so it keeps the turn until it ends.
            let storage = self.speed.storage.clone();
            let write = move || {
                let outcome = Handle::current().block_on(writing.finish(&storage));
                drop(turn);
                (writing, outcome)
            };
            let outcome;
            (writing, outcome) = threads::CHECKPOINTS.spawn_blocking(write).await?;
            let Err(error) = outcome else { break };
            self.wait(error, &mut wait).await?;
        }
        wait = FIRST_WAIT;
        let topic_ids = writing.sealed.topic_ids.clone();
        loop {
            let (record, commit) = writing.commit(&claims, (self.speed.clock)());
            match self.try_commit(commit, &topic_ids).await {
                Ok(()) => return Ok((record, began.elapsed())),
                Err(error) => self.wait(error, &mut wait).await?,
            }
        }
    }

    /// Commits what was read of topics with these ids. A topic that has another id by now may have been read after it
    /// was recreated: its records at the same offsets are others than those before the committed ones.
    async fn try_commit(&self, commit: Commit, topic_ids: &BTreeSet<(Arc<str>, String)>) -> Result<()> {
        for (topic, id) in topic_ids {
            let found = match self.speed.log.topic_id(topic).await {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Err(Error::conflict("the topic was deleted while it was read").caused_by(error));
                }
                found => found?,
            };
            if found != *id {
                let recreated = Error::conflict("the topic was deleted and created again while it was read");
                return Err(recreated.with("topic", topic).with("found", found).with("expected", id));
            }
        }
        self.speed.catalog.commit_with_retry(commit).await?;
        Ok(())
    }

    /// Waits before the next attempt, longer each time. Returns the error if another attempt would not help.
    async fn wait(&self, error: Error, wait: &mut Duration) -> Result<()> {
        if error.kind() != ErrorKind::Unavailable || self.stop.is_cancelled() {
            return Err(error);
        }
        warn!(worker = %self.speed.settings.worker, %error, wait_s = wait.as_secs(), "a checkpoint could not be committed; trying again");
        self.speed.note(&Err::<(), _>(error));
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = tokio::time::sleep(*wait) => {}
        }
        *wait = (*wait * 2).min(LAST_WAIT);
        Ok(())
    }
}

/// The files of an epoch on their way to the storage.
struct Writing {
    sealed: SealedEpoch,
    views: Vec<LiveView>,
    /// The files that are durable, in the order of [`Writing::finish`]. Another attempt continues after them.
    files: Vec<FileRecord>,
}

impl Writing {
    fn new(sealed: SealedEpoch, views: Vec<LiveView>) -> Self {
        Self { sealed, views, files: Vec::new() }
    }

    /// Writes the files that are missing, durably.
    async fn finish(&mut self, storage: &ObjectStorage) -> Result<()> {
        let Self { sealed, views, files } = self;
        let id = sealed.record.id;
        failpoint::hit("checkpoint.before_archive")?;
        for (stream, (version, batches)) in sealed.archive.iter_mut().skip(files.len()) {
            files.push(write_archive(storage, stream, id, *version, batches.clone()).await?);
            // Nothing else needs them, and another attempt goes on after this file.
            *batches = Vec::new();
        }
        failpoint::hit("checkpoint.after_archive")?;
        for (stream, letters) in sealed.dead_letters.iter().skip(files.len() - sealed.archive.len()) {
            let version = sealed.versions.get(stream).copied();
            let version = version.ok_or_else(|| Error::internal("dead letters of a stream that did not move").with("stream", stream))?;
            files.push(write_dead_letters(storage, stream, id, version, vec![letters.clone()]).await?);
        }
        if files.len() == sealed.archive.len() + sealed.dead_letters.len() {
            files.extend(write_states(sealed, views, storage).await?);
        }
        failpoint::hit("checkpoint.after_states")?;
        Ok(())
    }

    /// Returns the commit of the files, which are all durable, and its record. It has the time of this attempt: the log
    /// keeps records for a while after their commit, and the files may have waited for hours until the storage took
    /// them.
    fn commit(&self, claims: &[SinkClaim], now: Micros) -> (CheckpointRecord, Commit) {
        let Self { sealed, files, .. } = self;
        let record = CheckpointRecord { committed_at: now, ..sealed.record.clone() };
        let mut commit = checkpoint_commit(record.clone(), files.clone(), &sealed.identities);
        commit.add.extend(sealed.marks.iter().cloned().map(Add::Mark));
        let versions = sealed.versions.iter();
        commit.expect.extend(versions.map(|(stream, version)| Expect::NotRedecoded { stream: stream.clone(), version: *version }));
        commit.expect.extend((!claims.is_empty()).then(|| Expect::SinkClaims(claims.to_vec())));
        (record, commit)
    }
}

/// Writes one states object with a section for every live view that reads these streams, even if the view got no event.
/// A view that is refused because of an event gets none: a reader recomputes a missing section.
async fn write_states(sealed: &SealedEpoch, views: &[LiveView], storage: &ObjectStorage) -> Result<Option<FileRecord>> {
    let record = &sealed.record;
    let mut streams: Vec<Arc<str>> = record.ranges.iter().map(|range| range.partition.stream.clone()).collect();
    streams.dedup();
    let reads_any = |view: &&LiveView| view.plan.streams.iter().any(|stream| streams.contains(&stream.name));
    let is_known = |view: &&LiveView| {
        let version = view.view_version();
        let has_states = sealed.layers.iter().any(|layer| layer.states.contains_key(&version));
        has_states && sealed.layers.iter().all(|layer| layer.covers(&version, |stream| view.plan.reads(stream)))
    };
    let views: Vec<LiveView> = views.iter().filter(reads_any).filter(is_known).cloned().collect();
    if views.is_empty() {
        return Ok(None);
    }
    let ranges = record.ranges.iter();
    let ranges = ranges.map(|range| SegmentRange { partition: range.partition.clone(), start: range.start, end: range.end }).collect();
    // One after the other is merged, encoded and dropped.
    let layers = sealed.layers.clone();
    let sections = views.into_iter().filter_map(move |view| section(&layers, &view));
    write_states_object(storage, &ObjectName::States { checkpoint: record.id }, sections, ranges).await.map(Some)
}

/// Returns the states of a view in these layers, merged. `None` if they cannot be merged.
fn section(layers: &[Arc<FreshLayer>], view: &LiveView) -> Option<Section> {
    let version = view.view_version();
    let (rows, failures) = FreshLayer::merge_view(layers, &version, &view.plan, &view.codec, MERGED_AT_ONCE_BYTES)?;
    Some(Section {
        view: view.name.to_string(),
        version: view.version,
        stamp: view.plan.stamp.clone(),
        schema: view.plan.state_schema().clone(),
        batches: rows.iter().map(|rows| rows.batch().clone()).collect(),
        failures,
    })
}

#[cfg(test)]
mod tests;
