//! A full run: recomputes the snapshot from the archive up to the cut, for a linked view with its join.
//!
//! ```text
//! little history:   archive ---------------> states --sort, roll up--> one tier
//! much history:     slice of the archive --> states, stored --\
//!                   slice of the archive --> states, stored -----sort, roll up--> one tier
//! ```
//!
//! After each slice the states so far are saved as a draft, so that a run that is killed loses only the current slice.

use definitions::StreamDefinition;
use engine::events::plan_schema;
use engine::states::FailureSink;
use storage::Tier;
use types::Result;

use crate::attempt::{Attempt, NewSnapshot};
use crate::context::RunContext;
use crate::draft::{Draft, note_if_damaged};
use crate::one_tier::{AllStates, write_one_tier};
use crate::recompute::{files_of, recompute, scan_archive};
use crate::shared_scan::ArchiveRead;
use crate::slices::{Slice, Slices};
use crate::tiers::slice_rows;
use crate::write::Rows;

/// Returns the recomputed snapshot. If it was made in slices, also returns the draft, which is to be deleted once the
/// snapshot is published.
pub(crate) async fn recomputed(attempt: &mut Attempt<'_>, context: &RunContext<'_>) -> Result<(NewSnapshot, Option<Draft>)> {
    let saved = Draft::resume(attempt, context).await?;
    let slices = Slices::new(attempt.state, &attempt.view, &attempt.inputs, attempt.settings.events_per_slice);
    let (states, draft) = match (saved, slices.only()) {
        (None, Some(only)) => (states_of_slice(attempt, &only, context).await?, None),
        (saved, _) => {
            let mut draft = saved.unwrap_or_else(|| Draft::begin(attempt, context));
            let states = states_in_slices(attempt, &slices, &mut draft, context).await?;
            (states, Some(draft))
        }
    };
    attempt.batch.shared_scan.leave();
    Ok((write_one_tier(attempt, states, context).await?, draft))
}

/// Recomputes slice after slice, saves each, and gathers the states of all.
async fn states_in_slices(attempt: &Attempt<'_>, slices: &Slices<'_>, draft: &mut Draft, context: &RunContext<'_>) -> Result<AllStates> {
    let mut read = 0;
    let mut next = slices.after(draft.cut(), draft.next_slice());
    while let Some(slice) = next {
        let states = states_of_slice(attempt, &slice, context).await?;
        let bucket_count = states.buckets.len() as u32;
        let rows = Rows::Slice { number: slice.number };
        let written = attempt.writer(rows).write(states.buckets, None, context.progress).await?;
        let tier = Tier { bucket_count, files: written.buckets, pruned_at: Some(attempt.inputs.t) };
        draft.save(attempt, &slice, (tier, &states.failures), context).await?;
        read += states.bytes_read;
        next = slices.after(draft.cut(), draft.next_slice());
    }
    // Whoever shares the scan of the archive need not wait for what is merged and written now.
    attempt.batch.shared_scan.leave();
    let tiers: Vec<&Tier> = draft.tiers().iter().collect();
    let events = attempt.archived_events();
    let rows = slice_rows(attempt, &tiers, attempt.bucket_count(events)).await;
    Ok(AllStates {
        buckets: rows.inspect_err(|error| note_if_damaged(error, context))?,
        rows: Rows::Events,
        events,
        bytes_read: read + tiers.iter().map(|tier| tier.bytes()).sum::<i64>(),
        failures: draft.failures().clone(),
        expired: None,
    })
}

/// Recomputes the states of a slice, partitioned into buckets, unsorted.
async fn states_of_slice(attempt: &Attempt<'_>, slice: &Slice, context: &RunContext<'_>) -> Result<AllStates> {
    let (storage, threads) = (&attempt.batch.storage, attempt.settings.thread_count());
    let source = |stream: &StreamDefinition, columns: &[usize]| {
        let reads = ArchiveRead {
            storage,
            stream: &stream.name,
            files: files_of(&slice.files, stream),
            schema: plan_schema(stream),
            columns,
            slice,
            threads,
            context: attempt.session.task_ctx(),
        };
        match attempt.batch.shared_scan.join(reads)? {
            Some(rows) => Ok(rows),
            None => scan_archive(storage, stream, columns, (&slice.files, &slice.ranges(&stream.name)), threads),
        }
    };
    let failures = FailureSink::default();
    let events = slice.files.iter().map(|file| file.rows).sum();
    let shuffle = attempt.shuffle(attempt.bucket_count(events));
    let buckets = recompute(&shuffle, &attempt.session, &source, (&failures, context.events_read)).await?;
    Ok(AllStates {
        buckets,
        rows: Rows::Events,
        events,
        bytes_read: slice.files.iter().map(|file| file.bytes).sum(),
        failures: failures.take(),
        expired: None,
    })
}
