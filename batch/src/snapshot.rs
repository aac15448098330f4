//! Makes a view's snapshot in the way that its basis allows, and publishes it.

use catalog::{CatalogState, RunRecord};
use tracing::info;
use types::Result;

use crate::attempt::{Attempt, NewSnapshot};
use crate::basis::Basis;
use crate::decide::RunTime;
use crate::full::recomputed;
use crate::increment::increment;
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
    let (attempt, basis) = Attempt::prepare(batch, state, run, (t, full), context).await?;
    let snapshot = match basis {
        Basis::Archive(why) => {
            info!(view = %attempt.view.name, run = %attempt.run.id, why, "the run recomputes from the archive");
            Some(recomputed(&attempt, context).await?)
        }
        Basis::Snapshot(before) => increment(&attempt, *before, context).await?,
    };
    match snapshot {
        Some(NewSnapshot { manifest, files, run }) => Box::pin(publish(batch, &attempt.view, run, manifest, files, context)).await,
        None => skip(batch, attempt.run, context).await,
    }
}
