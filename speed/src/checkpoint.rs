//! Writes a checkpoint: first the files, durable and under fresh names, then one transaction that records them and
//! advances the partitions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use catalog::{Add, Catalog, CheckpointRecord, checkpoint_commit};
use committed::registry::LiveView;
use engine::fresh::FreshLayer;
use storage::{ObjectStorage, Section, SegmentRange, write_archive, write_dead_letters, write_states_object};
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;
use types::files::FileRecord;
use types::files::ObjectName;
use types::vector::Vector;
use types::{Error, Result, failpoint};

use crate::epoch::SealedEpoch;

/// A checkpoint in progress. Dropping it gives it up.
pub(crate) struct Checkpoint {
    /// Its partitions' positions before it.
    pub(crate) starts: Vector,
    /// `None` after its outcome was returned.
    commit: Option<AbortOnDropHandle<Result<(CheckpointRecord, Duration)>>>,
}

impl Checkpoint {
    /// Begins to write and commit an epoch. `views` are all views that its layers may have states of.
    pub(crate) fn begin(sealed: SealedEpoch, views: Vec<LiveView>, storage: ObjectStorage, catalog: Catalog) -> Self {
        let starts = sealed.record.ranges.iter().map(|range| (range.partition.clone(), range.start)).collect();
        let began = Instant::now();
        let commit = tokio::spawn(async move {
            // Encoding runs on a separate thread, so that the threads that serve queries continue.
            let files = tokio::task::spawn_blocking(move || {
                let files = Handle::current().block_on(write(&sealed, &views, &storage));
                files.map(|files| (sealed, files))
            });
            let (sealed, files) = files.await??;
            let record = sealed.record.clone();
            let mut commit = checkpoint_commit(sealed.record, files, &sealed.identities);
            commit.add.extend(sealed.marks.into_iter().map(Add::Mark));
            catalog.commit_with_retry(commit).await?;
            Ok((record, began.elapsed()))
        });
        Self { starts, commit: Some(AbortOnDropHandle::new(commit)) }
    }

    /// Waits until it is committed; returns its record and how long it took. `Conflict`: another worker owns one of its
    /// partitions, and none of it is counted. May be cancelled and called again.
    pub(crate) async fn committed(&mut self) -> Result<(CheckpointRecord, Duration)> {
        let commit = self.commit.as_mut().ok_or_else(|| Error::internal("the outcome of a checkpoint was told before"))?;
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

/// Writes all files of an epoch, durably.
async fn write(sealed: &SealedEpoch, views: &[LiveView], storage: &ObjectStorage) -> Result<Vec<FileRecord>> {
    let id = sealed.record.id;
    failpoint::hit("checkpoint.before_archive")?;
    let mut files = Vec::new();
    for (stream, (version, batches)) in &sealed.archive {
        files.push(write_archive(storage, stream, id, *version, batches.clone()).await?);
    }
    failpoint::hit("checkpoint.after_archive")?;
    for (stream, letters) in &sealed.dead_letters {
        files.push(write_dead_letters(storage, stream, id, vec![letters.clone()]).await?);
    }
    files.extend(write_states(sealed, views, storage).await?);
    failpoint::hit("checkpoint.after_states")?;
    Ok(files)
}

/// Writes one states object with a section for every live view that reads these streams, even if the view got no event.
/// A view that failed on an event gets none: a reader recomputes a missing section.
async fn write_states(sealed: &SealedEpoch, views: &[LiveView], storage: &ObjectStorage) -> Result<Option<FileRecord>> {
    let record = &sealed.record;
    let mut streams: Vec<Arc<str>> = record.ranges.iter().map(|range| range.partition.stream.clone()).collect();
    streams.dedup();
    let plans = views.iter().map(|view| ((view.name.clone(), view.version), (view.plan.clone(), view.codec.clone()))).collect();
    let merged = FreshLayer::merge(&sealed.layers, &plans)?;
    let sections: Vec<Section> = views
        .iter()
        .filter(|view| view.plan.streams.iter().any(|stream| streams.contains(&stream.name)))
        .filter_map(|view| Some((view, merged.states.get(&(view.name.clone(), view.version))?)))
        .map(|(view, rows)| Section {
            view: view.name.to_string(),
            version: view.version,
            stamp: view.plan.stamp.clone(),
            schema: view.plan.state_schema().clone(),
            batches: vec![rows.batch().clone()],
        })
        .collect();
    if sections.is_empty() {
        return Ok(None);
    }
    let ranges = record.ranges.iter();
    let ranges = ranges.map(|range| SegmentRange { partition: range.partition.clone(), start: range.start, end: range.end }).collect();
    write_states_object(storage, &ObjectName::States { checkpoint: record.id }, sections, ranges).await.map(Some)
}
