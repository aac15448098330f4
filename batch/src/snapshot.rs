//! Makes a view's snapshot in the way that follows from its basis, and publishes it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use catalog::{CatalogState, RunRecord};
use tracing::info;
use types::{Result, Strategy};

use crate::attempt::Attempt;
use crate::basis::Basis;
use crate::beside::recompute_beside;
use crate::compare::compare_recomputed;
use crate::context::RunContext;
use crate::from_checkpoints::from_checkpoints;
use crate::full::recomputed;
use crate::increment::{Incremented, increment};
use crate::layer::Batch;
use crate::publish::{publish_made, skip};
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
        Basis::Archive(why) if attempt.is_concurrent => {
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
