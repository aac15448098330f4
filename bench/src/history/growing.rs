//! An installation whose history grows, and its runs.

use std::ops::Range;
use std::time::{Duration, Instant};

use catalog::{Add, Commit, RunRecord, RunStatus};
use committed::registry::Registry;
use committed::segment::{SegmentSession, segment_rows};
use engine::functions::Functions;
use storage::{Manifest, Section, SegmentRange, read_manifest, write_states_object};
use types::files::{FileRecord, ObjectName};
use types::{Error, Result};
use uuid::Uuid;

use crate::events::Events;
use crate::installed::Installed;
use crate::spread::Spread;

/// Events of a checkpoint, at most: about what a worker commits in ten seconds at 10,000 events/s.
pub(super) const CHECKPOINT_EVENTS: u64 = 100_000;
const SEGMENT_MEMORY_BYTES: usize = 2 << 30;

/// A run, and how long it took.
pub(super) struct Ran {
    pub(super) run: RunRecord,
    pub(super) took: Duration,
}

/// An installation whose history grows by one stream's events.
pub(super) struct Growing<'o, E> {
    pub(super) installed: Installed,
    pub(super) events: &'o E,
    pub(super) stream: &'static str,
    pub(super) view: &'static str,
}

impl<E: Events> Growing<'_, E> {
    /// Archives these events in checkpoints with states, as workers do.
    pub(super) async fn archive(&self, numbers: Range<u64>) -> Result<()> {
        self.archive_of(self.stream, numbers).await
    }

    /// The same of another stream.
    pub(super) async fn archive_of(&self, stream: &'static str, numbers: Range<u64>) -> Result<()> {
        let installation = &self.installed.installation;
        let functions = Functions::standard();
        let session = SegmentSession::new(&functions, SEGMENT_MEMORY_BYTES)?;
        let mut from = numbers.start;
        while from < numbers.end {
            let to = (from + CHECKPOINT_EVENTS).min(numbers.end);
            let checkpoint = self.installed.commit(self.events, stream, from..to).await?;
            let state = installation.catalog.state().await?;
            let registry = Registry::load(&state, &functions).await?;
            let record = state.checkpoints.get(checkpoint).ok_or_else(|| Error::internal("a checkpoint is not there"))?;
            let mut sections = Vec::new();
            for view in &registry.views {
                let segment = segment_rows(&installation.storage, &session, view, &state, record).await?;
                sections.push(Section {
                    view: view.name.to_string(),
                    version: view.version,
                    stamp: view.plan.stamp.clone(),
                    schema: view.plan.state_schema().clone(),
                    batches: vec![segment.rows.batch().clone()],
                    failures: segment.failures,
                });
            }
            let ranges =
                record.ranges.iter().map(|range| SegmentRange { partition: range.partition.clone(), start: range.start, end: range.end });
            let file = write_states_object(&installation.storage, &ObjectName::States { checkpoint }, sections, ranges.collect()).await?;
            let commit = Commit { id: Uuid::now_v7(), add: vec![Add::File(file)], ..Commit::default() };
            installation.catalog.commit_with_retry(commit).await?;
            from = to;
        }
        Ok(())
    }

    pub(super) async fn recompute(&self) -> Result<Ran> {
        let began = Instant::now();
        let run = self.installed.installation.recompute_view(self.view, false, &|_| {}).await?;
        Ok(Ran { run, took: began.elapsed() })
    }

    /// Runs the view by its strategy. Errors if the run does not end as expected.
    pub(super) async fn run(&self, expected: RunStatus) -> Result<Ran> {
        let began = Instant::now();
        let run = self.installed.installation.run_view(self.view, &|_| {}).await?;
        let took = began.elapsed();
        match run.status == expected {
            true => Ok(Ran { run, took }),
            false => Err(Error::internal("a run ended otherwise").with("found", format!("{run:?}"))),
        }
    }

    pub(super) async fn manifest(&self) -> Result<Manifest> {
        read_manifest(&self.installed.installation.storage, &self.manifest_file().await?).await
    }

    /// The file of the manifest of the view's snapshot.
    pub(super) async fn manifest_file(&self) -> Result<FileRecord> {
        let state = self.installed.installation.catalog.state().await?;
        let snapshot = state.snapshots.iter().find(|snapshot| &*snapshot.view == self.view);
        let file = snapshot.and_then(|snapshot| state.files.get(&snapshot.manifest));
        file.cloned().ok_or_else(|| Error::internal("there is no snapshot"))
    }

    /// Runs after a little more history each time, `repeats` times for each of `steps` (in thousandths of `first`). The
    /// second result is the number of the next event.
    pub(super) async fn steps(&self, first: u64, steps: &[u64], repeats: usize) -> Result<(Vec<Vec<Ran>>, u64)> {
        let mut next = first;
        let mut all = Vec::new();
        for thousandths in steps {
            let mut ran = Vec::new();
            for _ in 0..repeats {
                let more = first * thousandths / 1_000;
                self.archive(next..next + more).await?;
                next += more;
                ran.push(self.run(RunStatus::Succeeded).await?);
            }
            all.push(ran);
        }
        Ok((all, next))
    }
}

pub(super) fn seconds(ran: &[Ran]) -> Option<Spread> {
    Spread::from_values(ran.iter().map(|ran| ran.took.as_secs_f64()))
}

pub(super) fn bytes(ran: &[Ran]) -> Option<Spread> {
    Spread::from_values(ran.iter().map(|ran| ran.run.bytes_written as f64))
}
