//! Makes a view's snapshot in the way that its basis allows, and publishes it.

use catalog::{CatalogState, RunRecord};
use tracing::info;
use types::{Result, Strategy};

use crate::attempt::{Attempt, NewSnapshot};
use crate::basis::Basis;
use crate::decide::RunTime;
use crate::from_checkpoints::from_checkpoints;
use crate::full::recomputed;
use crate::increment::{Incremented, increment};
use crate::layer::{Batch, RunContext};
use crate::mode::RunMode;
use crate::publish::{publish, skip};
use crate::segments::StatesFrom;

/// Makes a view's snapshot as of the run's cut and publishes it, or records that the published one holds everything up
/// to the cut. A failure before the last step leaves the served snapshot untouched.
pub(crate) async fn make_snapshot(
    batch: &Batch,
    state: &CatalogState,
    run: RunRecord,
    (t, mode): (RunTime, RunMode),
    context: &RunContext<'_>,
) -> Result<RunRecord> {
    let (mut attempt, basis) = Attempt::prepare(batch, state, run, (t, mode), context).await?;
    let from = StatesFrom::decide(&attempt.view, mode);
    let incremented = match basis {
        Basis::Archive(why) => Incremented::NotPossible(why.to_owned()),
        Basis::Checkpoints(why) => {
            info!(view = %attempt.view.name, run = %attempt.run.id, why, "the run begins with the first checkpoint");
            Incremented::Snapshot(Box::new(from_checkpoints(&attempt, from, context).await?))
        }
        Basis::Snapshot(before) => increment(&attempt, *before, from, context).await?,
    };
    let NewSnapshot { manifest, files, run } = match incremented {
        Incremented::Snapshot(snapshot) => *snapshot,
        Incremented::Nothing => return skip(batch, state, attempt.run, context).await,
        Incremented::NotPossible(why) => {
            info!(view = %attempt.view.name, run = %attempt.run.id, why, "the run recomputes from the archive");
            attempt.run.strategy = Some(Strategy::Full);
            recomputed(&attempt, context).await?
        }
    };
    Box::pin(publish(batch, &attempt.view, run, manifest, files, context)).await
}
