//! Makes a view's snapshot in the way that its basis allows, and publishes it.

use catalog::{CatalogState, RunRecord};
use tracing::info;
use types::{Result, Strategy};

use crate::attempt::{Attempt, NewSnapshot};
use crate::basis::Basis;
use crate::decide::RunTime;
use crate::full::recomputed;
use crate::increment::{Incremented, increment};
use crate::layer::{Batch, RunContext};
use crate::publish::{publish, skip};

/// Makes a view's snapshot as of the run's cut and publishes it, or records that the published one holds everything up
/// to the cut. A failure before the last step leaves the served snapshot untouched.
pub(crate) async fn make_snapshot(
    batch: &Batch,
    state: &CatalogState,
    run: RunRecord,
    (t, full): (RunTime, bool),
    context: &RunContext<'_>,
) -> Result<RunRecord> {
    batch.copies.release_retired(state);
    let (mut attempt, basis) = Attempt::prepare(batch, state, run, (t, full), context).await?;
    let incremented = match basis {
        Basis::Archive(why) => Incremented::NotPossible(why.to_owned()),
        Basis::Snapshot(before) => increment(&attempt, *before, context).await?,
    };
    let NewSnapshot { manifest, files, run, copies } = match incremented {
        Incremented::Snapshot(snapshot) => *snapshot,
        Incremented::Nothing => return skip(batch, state, attempt.run, context).await,
        Incremented::NotPossible(why) => {
            info!(view = %attempt.view.name, run = %attempt.run.id, why, "the run recomputes from the archive");
            attempt.run.strategy = Some(Strategy::Full);
            recomputed(&attempt, context).await?
        }
    };
    let published = Box::pin(publish(batch, &attempt.view, run, manifest, files, context)).await?;
    if !copies.is_empty() {
        batch.copies.keep(&attempt.view.name, attempt.view.version, copies);
    }
    Ok(published)
}
