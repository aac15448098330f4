//! A full run while other runs of its version go on: what it recomputes is up to the cut at which it begins, and the
//! checkpoints since are added to that as an incremental run adds them to a snapshot.
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
use tracing::{info, warn};
use types::files::FileRecord;
use types::tiles::Micros;
use types::vector::Vector;
use types::{Error, Result, failpoint};

use crate::attempt::{Attempt, NewSnapshot, manifest_before, view_of};
use crate::basis::{gaps_before, why_other_states};
use crate::compare::compare_recomputed;
use crate::context::RunContext;
use crate::decide::RunInputs;
use crate::draft::Draft;
use crate::full::recomputed;
use crate::increment::{Incremented, increment};
use crate::join::CopiedTier;
use crate::layer::Batch;
use crate::lease::KeepLease;
use crate::publish::publish_made;
use crate::request::RunRequest;
use crate::segments::StatesFrom;

/// Recomputes the snapshot, compares it with the published one, adds what was committed meanwhile, and publishes it.
pub(crate) async fn recompute_beside(mut attempt: Attempt<'_>, request: &RunRequest, context: &RunContext<'_>) -> Result<RunRecord> {
    let (batch, began_at) = (attempt.batch, (context.clock)());
    // Its files are the published snapshot's to keep or to leave: nothing is carried over from it.
    attempt.before = None;
    let (base, draft) = Box::pin(recomputed(&mut attempt, 0, context)).await?;
    context.made.store(true, Ordering::Relaxed);
    let comparison = match request.compare {
        true => compare_with_published(&attempt, (request, (context.clock)() - began_at), &base.manifest, context).await,
        false => None,
    };
    failpoint::hit("run.recomputed")?;
    let (state, run) = context.step_in(&batch.catalog, &attempt.run).await?;
    attempt.run = run;
    let mut last = later_attempt(&attempt, &state, request, (context.clock)() - began_at).await?;
    let NewSnapshot { manifest, files, run, copies } = base;
    last.copies = Some(copies.clone());
    let base = Base { manifest, written: files.written, run };
    let why = why_other_states(&state, &last.view, &base.manifest, last.inputs.t);
    let incremented = match why {
        Some(why) => Incremented::NotPossible(why.to_owned()),
        None => increment(&last, base.manifest.clone(), StatesFrom::decide(&last.view, request.mode), context).await?,
    };
    let (made, draft) = match incremented {
        Incremented::Snapshot(added) => (base.with(*added), draft),
        Incremented::Nothing => (base.as_it_is(&last, copies), draft),
        Incremented::NotPossible(why) => {
            info!(view = %last.view.name, run = %last.run.id, why, "what was committed meanwhile is recomputed as well");
            last.copies = None;
            let first_slice = draft.as_ref().map_or(0, Draft::next_slice);
            let (made, again) = Box::pin(recomputed(&mut last, first_slice, context)).await?;
            (made, again.or(draft))
        }
    };
    let named = named_by(&made.manifest);
    let left: Vec<String> = base.written.iter().map(|file| &file.path).filter(|path| !named.contains(*path)).cloned().collect();
    let published = publish_made(&last, made, comparison, draft, context).await?;
    delete(batch, &left).await;
    Ok(published)
}

/// What was recomputed, up to the cut at which the run began.
struct Base {
    manifest: Manifest,
    written: Vec<FileRecord>,
    run: RunRecord,
}

impl Base {
    /// The snapshot of it and what was added.
    fn with(&self, added: NewSnapshot) -> NewSnapshot {
        let NewSnapshot { manifest, files, run, copies } = added;
        let named = named_by(&manifest);
        // They are carried over from no published snapshot.
        let is_own = |path: &str| self.written.iter().any(|file| file.path == path);
        let of_base = self.written.iter().filter(|file| named.contains(&file.path)).cloned();
        let files = SnapshotFiles {
            carried_over: files.carried_over.into_iter().filter(|path| !is_own(path)).collect(),
            written: files.written.into_iter().chain(of_base).collect(),
        };
        let run = RunRecord {
            events_read: run.events_read + self.run.events_read,
            bytes_read: run.bytes_read + self.run.bytes_read,
            rows_written: run.rows_written + self.run.rows_written,
            bytes_written: run.bytes_written + self.run.bytes_written,
            ..run
        };
        NewSnapshot { manifest, files, run, copies }
    }

    /// The snapshot of it, where nothing was committed meanwhile.
    fn as_it_is(&self, attempt: &Attempt<'_>, copies: Vec<CopiedTier>) -> NewSnapshot {
        let cut = attempt.inputs.cut.clone();
        let gaps = gaps_before(attempt.state, &attempt.view, &cut);
        let manifest = Manifest { cut, gaps, ..self.manifest.clone() };
        let run = RunRecord {
            events_read: self.run.events_read,
            bytes_read: self.run.bytes_read,
            rows_written: self.run.rows_written,
            bytes_written: self.run.bytes_written,
            ..attempt.run.clone()
        };
        let files = SnapshotFiles { written: self.written.clone(), carried_over: Vec::new() };
        NewSnapshot { manifest, files, run, copies }
    }
}

/// Compares what was recomputed with the snapshot that is published by now. If that fails, the run goes on.
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
    let (catalog, ttl) = (&attempt.batch.catalog, attempt.batch.settings.lease);
    let name = format!("compare/{}@{}", attempt.view.name, attempt.view.version);
    let lease = catalog.acquire_fenced_lease(&name, &attempt.batch.worker, ttl, (context.clock)(), Some(Vector::new())).await?;
    let lease = lease.ok_or_else(|| Error::conflict("another process compares what it recomputed"))?;
    let pinned = KeepLease::start(catalog.clone(), lease, ttl, context.clock.clone());
    let compared = compare_now(attempt, (request, elapsed), made, context).await;
    let lease = pinned.stop().await;
    if let Err(error) = catalog.release_lease(&lease).await {
        warn!(lease = %lease.name, %error, "a lease was not released and will expire");
    }
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
