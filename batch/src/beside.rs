//! A full run while other runs of its version continue. It recomputes up to the cut at which it begins, and then adds
//! the checkpoints since, as an incremental run adds them to a snapshot.
//!
//! ```text
//! other runs:      S --+checkpoints--> S1 --+checkpoints--> S2   (published, and read)
//! this run:        archive ----------------> base, compared with S2
//!                                            base --+checkpoints--> S3   (under the version's lease)
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use catalog::{CatalogState, Comparison, RunRecord, SnapshotFiles};
use committed::registry::Registry;
use storage::Manifest;
use tracing::warn;
use types::tiles::Micros;
use types::vector::Vector;
use types::{Error, Result, failpoint};

use crate::attempt::{Attempt, NewSnapshot, manifest_before, view_of};
use crate::basis::{gaps_before, why_other_states};
use crate::compare::compare_recomputed;
use crate::context::RunContext;
use crate::decide::RunInputs;
use crate::full::recomputed;
use crate::increment::{Incremented, increment};
use crate::layer::Batch;
use crate::limits::RunLimits;
use crate::publish::publish_made;
use crate::request::RunRequest;
use crate::segments::StatesFrom;

/// Recomputes the snapshot, compares it with the published one, adds what was committed meanwhile, and publishes it.
pub(crate) async fn recompute_beside(mut attempt: Attempt<'_>, request: &RunRequest, context: &RunContext<'_>) -> Result<RunRecord> {
    let (batch, began_at) = (attempt.batch, (context.clock)());
    // Its files are the published snapshot's to keep or to leave: nothing is carried over from it.
    attempt.before = None;
    let (base, draft) = Box::pin(recomputed(&mut attempt, context)).await?;
    context.made.store(true, Ordering::Relaxed);
    let comparison = match request.compare {
        true => compare_with_published(&attempt, (request, (context.clock)() - began_at), &base.manifest, context).await,
        false => None,
    };
    failpoint::hit("run.recomputed")?;
    let (state, run) = context.step_in(&batch.catalog, &attempt.run).await?;
    attempt.run = run;
    let mut last = later_attempt(&attempt, &state, request, (context.clock)() - began_at).await?;
    let written: Vec<String> = base.files.written.iter().map(|file| file.path.clone()).collect();
    let limits = RunLimits::from_definition(last.state, &last.run, request.mode);
    let made = limits.in_time(Box::pin(add_later_checkpoints(&mut last, base, request, context))).await?;
    let named = named_by(&made.manifest);
    let left: Vec<String> = written.into_iter().filter(|path| !named.contains(path)).collect();
    let published = publish_made(&last, made, comparison, draft, context).await?;
    delete(batch, &left).await;
    Ok(published)
}

/// Adds the checkpoints that were committed meanwhile to the recomputed snapshot. If they cannot be added, the run
/// fails: it does not recompute here, where other runs would have to wait.
///
/// Errors: `Conflict` if the recomputed snapshot is out of date, for example because events that it counts were given
/// up; `Limit` if the later checkpoints do not fit the memory. The next recomputation reads them from the archive,
/// after the slices that this one saved.
async fn add_later_checkpoints(
    last: &mut Attempt<'_>,
    base: NewSnapshot,
    request: &RunRequest,
    context: &RunContext<'_>,
) -> Result<NewSnapshot> {
    if let Some(why) = why_other_states(last.state, &last.view, &base.manifest, last.inputs.t) {
        return Err(Error::conflict(format!("what was recomputed is out of date: {why}")).with("help", "run it again"));
    }
    last.copies = Some(base.copies.clone());
    match increment(last, base.manifest.clone(), StatesFrom::decide(&last.view, request.mode), context).await? {
        Incremented::Snapshot(added) => Ok(with_added(base, *added)),
        Incremented::Nothing => {
            let nothing = nothing_added(last, &base);
            Ok(with_added(base, nothing))
        }
        Incremented::NotPossible(why) => Err(Error::limit(format!("what was committed meanwhile cannot be added: {why}"))),
    }
}

/// Combines the recomputed snapshot with the addition.
fn with_added(base: NewSnapshot, added: NewSnapshot) -> NewSnapshot {
    let NewSnapshot { manifest, files, run, copies } = added;
    // They are carried over from no published snapshot.
    let is_own = |path: &str| base.files.written.iter().any(|file| file.path == path);
    let carried_over = files.carried_over.into_iter().filter(|path| !is_own(path)).collect();
    let named = named_by(&manifest);
    let of_base = base.files.written.into_iter().filter(|file| named.contains(&file.path));
    let files = SnapshotFiles { carried_over, written: files.written.into_iter().chain(of_base).collect() };
    let run = RunRecord {
        events_read: run.events_read + base.run.events_read,
        bytes_read: run.bytes_read + base.run.bytes_read,
        rows_written: run.rows_written + base.run.rows_written,
        bytes_written: run.bytes_written + base.run.bytes_written,
        ..run
    };
    NewSnapshot { manifest, files, run, copies }
}

/// The addition if nothing was committed meanwhile: the same states are complete up to a later cut.
fn nothing_added(last: &Attempt<'_>, base: &NewSnapshot) -> NewSnapshot {
    let cut = last.inputs.cut.clone();
    let gaps = gaps_before(last.state, &last.view, &cut);
    NewSnapshot {
        manifest: Manifest { cut, gaps, ..base.manifest.clone() },
        files: SnapshotFiles::default(),
        // The record of the run counts what it has read so far.
        run: RunRecord { events_read: 0, ..last.run.clone() },
        copies: base.copies.clone(),
    }
}

/// Compares the recomputed snapshot with the one that is published by now. If the comparison fails, the run continues.
async fn compare_with_published(
    attempt: &Attempt<'_>,
    (request, elapsed): (&RunRequest, Micros),
    made: &Manifest,
    context: &RunContext<'_>,
) -> Option<Comparison> {
    let compared = compare_pinned(attempt, (request, elapsed), made, context).await;
    compared.unwrap_or_else(|error| {
        warn!(view = %attempt.view.name, %error, "what was recomputed could not be compared");
        Some(Comparison { error: Some(error.to_string()), ..Comparison::default() })
    })
}

/// While the published snapshot is read, nothing is deleted.
async fn compare_pinned(
    attempt: &Attempt<'_>,
    (request, elapsed): (&RunRequest, Micros),
    made: &Manifest,
    context: &RunContext<'_>,
) -> Result<Option<Comparison>> {
    let name = format!("compare/{}@{}", attempt.view.name, attempt.view.version);
    let lease = context.leases.keep(&name, Some(Vector::new())).await?;
    let lease = lease.ok_or_else(|| Error::conflict("another run compares what it recomputed"))?;
    let compared = compare_now(attempt, (request, elapsed), made, context).await;
    context.leases.release_lease(lease).await;
    compared
}

async fn compare_now(
    attempt: &Attempt<'_>,
    (request, elapsed): (&RunRequest, Micros),
    made: &Manifest,
    context: &RunContext<'_>,
) -> Result<Option<Comparison>> {
    let state = attempt.batch.catalog.state().await?;
    let later = later_attempt(attempt, &state, request, elapsed).await?;
    // It may have events that were given up meanwhile.
    match why_other_states(&state, &later.view, made, later.inputs.t) {
        Some(_) => Ok(None),
        None => Ok(compare_recomputed(&later, request, made, context).await),
    }
}

/// The run on a later catalog state, some time after it began.
///
/// Errors: `Conflict` if its version was dropped meanwhile.
async fn later_attempt<'b>(
    attempt: &'b Attempt<'_>,
    state: &'b Arc<CatalogState>,
    request: &RunRequest,
    elapsed: Micros,
) -> Result<Attempt<'b>> {
    let registry = Registry::load(state, &attempt.batch.functions).await?;
    let (name, version) = (&attempt.view.name, attempt.view.version);
    let dropped = |_| Error::conflict("the view's version was dropped meanwhile").with("view", name).with("version", version);
    let view = view_of(&registry, &attempt.run).map_err(dropped)?.clone();
    let before = manifest_before(attempt.batch, state, &view).await?;
    let run = RunRecord { cut: Some(state.vector()), ..attempt.run.clone() };
    let inputs = RunInputs::at_cut(state, &run, (&view, before.as_ref()), request.t.after(elapsed))?;
    Ok(attempt.on(state, view, before, inputs))
}

/// The paths of all files of a snapshot but its manifest.
fn named_by(manifest: &Manifest) -> BTreeSet<String> {
    let joined = manifest.joined.iter().flat_map(|joined| &joined.files);
    manifest.state_files().chain(joined).map(|file| file.path.clone()).collect()
}

async fn delete(batch: &Batch, paths: &[String]) {
    for path in paths {
        if let Err(error) = batch.storage.delete(path).await {
            warn!(file = path, %error, "a file that a run did not need was not deleted; the collector deletes it");
        }
    }
}
