//! A snapshot of one tier: all states up to the cut, written, and for a linked view joined.

use catalog::{RunRecord, SnapshotFiles};
use storage::{LeftOut, Manifest, Tier};
use tracing::info;
use types::Result;
use types::failures::Failures;
use types::vector::Vector;

use crate::attempt::{Attempt, NewSnapshot};
use crate::bucket_partitioner::BucketRows;
use crate::context::RunContext;
use crate::linked::{join_recomputed, local_edges};
use crate::write::Rows;

/// All states up to the cut, not sorted yet.
pub(crate) struct AllStates {
    pub(crate) buckets: Vec<BucketRows>,
    pub(crate) rows: Rows,
    pub(crate) events: i64,
    pub(crate) bytes_read: i64,
    pub(crate) failures: Failures,
    /// The events of edges that were left out by their states. `None`: edges were left out by their events, which the
    /// archive counts.
    pub(crate) expired: Option<i64>,
}

/// Writes the snapshot.
pub(crate) async fn write_one_tier(attempt: &Attempt<'_>, states: AllStates, context: &RunContext<'_>) -> Result<NewSnapshot> {
    let bucket_count = states.buckets.len() as u32;
    // For a linked view: a second copy of its edges, to be walked.
    let local = local_edges(attempt);
    let mut written = attempt.writer(states.rows).write(states.buckets, local.as_ref(), context.progress).await?;
    info!(view = %attempt.view.name, run = %attempt.run.id, rows = written.rows, "the states are written");
    let base = Tier { bucket_count, files: std::mem::take(&mut written.buckets), pruned_at: Some(attempt.inputs.t) };
    let (mut carried_over, mut copies) = (Vec::new(), Vec::new());
    let joined = match &local {
        Some(local) => {
            let (join, tiers) = join_recomputed(attempt, local, &base, &mut written).await?;
            copies = tiers;
            carried_over = join.carried_over;
            written.add(join.files);
            Some(join.joined)
        }
        None => None,
    };
    let made_at = (context.clock)();
    let of_states = states.expired.and(joined.as_ref());
    let manifest = Manifest {
        format: Manifest::format_of(&attempt.inputs.edges_from, &[]),
        base,
        left_out: of_states.map(|joined| LeftOut { cut: Vector::new(), t: joined.t }),
        recomputed_at: Some(made_at),
        events: states.events,
        expired: states.expired.unwrap_or_default(),
        rows: written.rows,
        failures: states.failures,
        joined,
        ..attempt.empty_manifest(made_at)
    };
    let run = RunRecord { events_read: states.events, bytes_read: states.bytes_read, ..attempt.record_with(&written) };
    Ok(NewSnapshot { manifest, files: SnapshotFiles { written: written.files, carried_over }, run, copies })
}
