//! Makes a view's snapshot in the way that its basis allows, and publishes it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use catalog::{CatalogState, Comparison, RunRecord};
use definitions::durations::format_duration_parts;
use storage::Manifest;
use tracing::info;
use types::{Result, Strategy};

use crate::attempt::{Attempt, NewSnapshot};
use crate::basis::{Basis, is_compared};
use crate::beside::recompute_beside;
use crate::compare::compared;
use crate::draft::Draft;
use crate::from_checkpoints::from_checkpoints;
use crate::full::recomputed;
use crate::increment::{Incremented, increment};
use crate::layer::{Batch, RunContext};
use crate::limits::RunLimits;
use crate::publish::{publish, skip};
use crate::request::RunRequest;
use crate::segments::StatesFrom;

/// Makes a view's snapshot as of the run's cut and publishes it, or records that the published one holds everything up
/// to the cut. A failure before the last step leaves the served snapshot untouched.
pub(crate) async fn make_snapshot(
    batch: &Batch,
    state: &Arc<CatalogState>,
    run: RunRecord,
    request: &RunRequest,
    context: &RunContext<'_>,
) -> Result<RunRecord> {
    batch.copies.release_retired(state);
    let (mut attempt, basis) = Attempt::prepare(batch, state, run, request, context).await?;
    if !matches!(basis, Basis::Archive(_)) {
        batch.shared_scan.leave();
    }
    let (mut comparison, mut draft) = (None, None);
    let from = StatesFrom::decide(&attempt.view, request.mode);
    let incremented = match basis {
        Basis::Archive(why) if attempt.is_beside => {
            info!(view = %attempt.view.name, run = %attempt.run.id, why, "the run recomputes from the archive, beside others");
            return recompute_beside(attempt, request, context).await;
        }
        Basis::Archive(why) => Incremented::NotPossible(why.to_owned()),
        Basis::Checkpoints(why) => {
            info!(view = %attempt.view.name, run = %attempt.run.id, why, "the run begins with the first checkpoint");
            let made = from_checkpoints(&attempt, from, context).await?;
            context.made.store(true, Ordering::Relaxed);
            comparison = compare_recomputed(&attempt, request, &made.manifest, context).await;
            Incremented::Snapshot(Box::new(made))
        }
        Basis::Snapshot(before) => increment(&attempt, *before, from, context).await?,
    };
    let made = match incremented {
        Incremented::Snapshot(made) => *made,
        Incremented::Nothing => return skip(batch, state, attempt.run, context).await,
        Incremented::NotPossible(why) => {
            info!(view = %attempt.view.name, run = %attempt.run.id, why, "the run recomputes from the archive");
            attempt.run.strategy = Some(Strategy::Full);
            context.note_strategy(Strategy::Full);
            let (recomputed, saved) = recomputed(&mut attempt, context).await?;
            draft = saved;
            context.made.store(true, Ordering::Relaxed);
            comparison = compare_recomputed(&attempt, request, &recomputed.manifest, context).await;
            recomputed
        }
    };
    publish_made(&attempt, made, comparison, draft, context).await
}

/// Publishes a snapshot that is written, and deletes what was saved of it on the way.
pub(crate) async fn publish_made(
    attempt: &Attempt<'_>,
    made: NewSnapshot,
    comparison: Option<Comparison>,
    draft: Option<Draft>,
    context: &RunContext<'_>,
) -> Result<RunRecord> {
    let (batch, NewSnapshot { manifest, files, mut run, copies }) = (attempt.batch, made);
    run.comparison = comparison;
    run.tiers = manifest.tiers().count() as i64;
    run.peak_memory_bytes = attempt.pool.peak_bytes() as i64;
    run.peak_resident_bytes = context.resident.peak_bytes();
    let published = Box::pin(publish(batch, &attempt.view, run, manifest, files, context)).await?;
    if !copies.is_empty() {
        batch.copies.keep(attempt.view.view_version(), copies);
    }
    if let Some(draft) = draft {
        draft.delete(batch).await;
    }
    Ok(published)
}

/// Compares what was recomputed or replayed with the snapshot before, where incremental runs keep one.
pub(crate) async fn compare_recomputed(
    attempt: &Attempt<'_>,
    request: &RunRequest,
    made: &Manifest,
    context: &RunContext<'_>,
) -> Option<Comparison> {
    let before = attempt.before.as_ref().filter(|_| request.compare)?;
    if !is_compared(attempt.state, &attempt.view, before, (attempt.inputs.t, request.mode)) {
        return None;
    }
    let began = Instant::now();
    let compared = Box::pin(compared(attempt, before, made, context));
    let Some(most) = RunLimits::from_definition(attempt.state, &attempt.run, request.mode).timeout() else { return Some(compared.await) };
    let too_long = |_| Comparison {
        seconds: began.elapsed().as_secs_f64(),
        error: Some(format!("it took longer than the view's timeout of {}", format_duration_parts(most))),
        ..Comparison::default()
    };
    Some(tokio::time::timeout(most, compared).await.unwrap_or_else(too_long))
}
