//! A run that makes its snapshot of the states of all checkpoints up to the cut: a replay, or the first run of a view
//! with `strategy = 'stream'`.

use std::collections::BTreeSet;

use catalog::{ArchiveBounds, CatalogState, CheckpointRange, CheckpointRecord, RunRecord, archive_file_of, archive_files};
use committed::lacking::events_of;
use committed::registry::{LiveView, Registry};
use types::Result;
use types::vector::{PartitionId, Vector};
use uuid::Uuid;

use crate::attempt::{Attempt, NewSnapshot, manifest_before, view_of};
use crate::context::RunContext;
use crate::decide::{RunInputs, RunTime, version_to_run};
use crate::layer::Batch;
use crate::one_tier::{AllStates, write_one_tier};
use crate::segments::{States, StatesFrom, at_levels, states_bytes, states_of};
use crate::write::Rows;

impl Batch {
    /// Returns, per partition, the first offset that a replay of a view reads.
    ///
    /// Errors: `NotFound` for an unknown view; `Unavailable` if the storage does not answer.
    pub async fn replay_start(&self, view: &str, t: RunTime) -> Result<Vector> {
        let state = self.catalog.state().await?;
        self.replay_start_of(&state, view, version_to_run(&state, view)?, t).await
    }

    /// Returns the vector that a replay has to pin: everything from its start, and nothing of the streams that it does
    /// not read.
    pub(crate) async fn replay_pin(&self, state: &CatalogState, view: &str, version: u32, t: RunTime) -> Result<Vector> {
        let start = self.replay_start_of(state, view, version, t).await?;
        let read: BTreeSet<&PartitionId> = start.iter().map(|(partition, _)| partition).collect();
        let at = |partition: &PartitionId, committed| if read.contains(partition) { start.get(partition) } else { committed };
        Ok(state.vector().iter().map(|(partition, committed)| (partition.clone(), at(partition, committed))).collect())
    }

    async fn replay_start_of(&self, state: &CatalogState, view: &str, version: u32, t: RunTime) -> Result<Vector> {
        let run = RunRecord { cut: Some(state.vector()), ..RunRecord::requested(view.into(), version) };
        let registry = Registry::load(state, &self.functions).await?;
        let live = view_of(&registry, &run)?;
        let before = manifest_before(self, state, live).await?;
        let inputs = RunInputs::at_cut(state, &run, (live, before.as_ref()), t)?;
        let mut start = Vector::new();
        let checkpoints = countable(state, live, &inputs);
        let ranges = checkpoints.into_iter().flat_map(|checkpoint| checkpoint.ranges.iter().map(move |range| (checkpoint, range)));
        let is_read = |(checkpoint, range): &(&CheckpointRecord, &CheckpointRange)| {
            let stream = &range.partition.stream;
            live.plan.reads(stream) && archive_file_of(state, checkpoint.id, stream).is_some()
        };
        for (_, range) in ranges.filter(is_read) {
            if start.iter().all(|(known, _)| *known != range.partition) || range.start < start.get(&range.partition) {
                start.set(range.partition.clone(), range.start);
            }
        }
        Ok(start)
    }
}

/// Makes a snapshot of the states of all checkpoints up to the cut: one tier, as a recomputation makes it.
pub(crate) async fn from_checkpoints(attempt: &Attempt<'_>, from: StatesFrom, context: &RunContext<'_>) -> Result<NewSnapshot> {
    let checkpoints = countable(attempt.state, &attempt.view, &attempt.inputs);
    let events = events_of(attempt.state, &attempt.view, &checkpoints);
    let bucket_count = attempt.bucket_count(events);
    let prepare = at_levels(attempt, attempt.inputs.edges_from);
    let states = states_of(attempt, &checkpoints, from, bucket_count, prepare, context).await?;
    let bytes_read = states_bytes(attempt, &checkpoints);
    let States { buckets, failures, expired } = states;
    let states = AllStates { buckets, rows: Rows::Events, events, bytes_read, failures, expired: Some(expired) };
    write_one_tier(attempt, states, context).await
}

/// Returns the checkpoints up to the cut that may hold events which still count. For a linked view these are all,
/// because its events that are too old are counted.
pub(crate) fn countable<'s>(state: &'s CatalogState, view: &LiveView, inputs: &RunInputs) -> Vec<&'s CheckpointRecord> {
    let counts_old = view.plan.links().is_some();
    let oldest = view.plan.oldest_kept(inputs.t).filter(|_| !counts_old);
    let bounds = ArchiveBounds { cut: Some(&inputs.cut), oldest, newest: None };
    let holding: BTreeSet<Uuid> = archive_files(state, &view.streams(), bounds).iter().filter_map(|file| file.checkpoint).collect();
    state.checkpoints.iter().filter(|checkpoint| holding.contains(&checkpoint.id)).collect()
}
