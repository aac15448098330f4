//! The draft of a recomputation in slices: it is saved after each slice, taken up by the next run if this one is killed
//! or fails, and deleted once the snapshot is published. The finished snapshot has none of its files.

use std::collections::{BTreeMap, BTreeSet};

use catalog::{DRAFT_FORMAT, RunDraft, draft_to_resume, is_being_recomputed};
use futures::{StreamExt, TryStreamExt, stream};
use storage::{Manifest, ObjectStorage, Tier, read_draft, write_draft};
use tracing::{info, warn};
use types::failures::Failures;
use types::files::{ObjectName, StoredObject, folder_of_run};
use types::tiles::Micros;
use types::vector::Vector;
use types::{Error, ErrorKind, Result, failpoint};
use uuid::Uuid;

use crate::attempt::Attempt;
use crate::basis::{gaps_before, greater, why_other_states};
use crate::context::RunContext;
use crate::layer::Batch;
use crate::slices::Slice;

const DELETED_AT_ONCE: usize = 16;

/// The states of the first slices, each as a tier whose rows are neither sorted nor rolled up.
pub(crate) struct Draft {
    /// The manifest of all slices so far. Its base is empty: the slices are deltas.
    manifest: Manifest,
    /// The number of the next slice.
    next: u32,
    /// How many events an earlier run had read.
    resumed: i64,
}

impl Draft {
    /// A draft without a slice.
    pub(crate) fn begin(attempt: &Attempt<'_>, context: &RunContext<'_>) -> Draft {
        let base = Tier { pruned_at: Some(attempt.inputs.t), ..Tier::default() };
        let manifest = Manifest { cut: Vector::new(), base, ..attempt.empty_manifest((context.clock)()) };
        Draft { manifest, next: 0, resumed: 0 }
    }

    /// Returns the draft of the last recomputation, if this run can continue it. It cannot while that one is still at
    /// work. The run of a linked view continues as of the time at which that one began, as if it had only taken longer,
    /// because links have to be left out by the same rule in all slices.
    ///
    /// Errors: `Unavailable` if the storage does not answer: beginning again would cost much, and the next attempt
    /// little.
    pub(crate) async fn resume(attempt: &mut Attempt<'_>, context: &RunContext<'_>) -> Result<Option<Draft>> {
        let (view, state) = (&attempt.view, attempt.state);
        let now = (context.clock)();
        // Whoever has the lease for it knows that no other run is.
        if !attempt.is_concurrent && is_being_recomputed(state, &view.name, view.version, now) {
            return Ok(None);
        }
        let Some(saved) = draft_to_resume(state, &view.name, view.version, now) else { return Ok(None) };
        // If this run ends before it has added to it, the next one goes on with it all the same.
        context.note_draft(Some(saved.clone()));
        let (draft, begun_at) = match read(&attempt.batch.storage, saved).await {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Unavailable => return Err(error),
            Err(error) => {
                warn!(view = %view.name, %error, "what an earlier run had saved cannot be used; the run begins anew");
                context.note_draft(None);
                return Ok(None);
            }
        };
        if let Some(why) = why_unusable(attempt, &draft.manifest, begun_at) {
            info!(view = %view.name, run = %attempt.run.id, why, "what an earlier run had saved is not used");
            context.note_draft(None);
            return Ok(None);
        }
        info!(view = %view.name, run = %attempt.run.id, events = saved.events, "the run goes on where an earlier one ended");
        context.events_read.add(usize::try_from(saved.events).unwrap_or_default());
        context.note_draft(Some(RunDraft { resumed: saved.events, ..saved.clone() }));
        if view.plan.links().is_some() {
            attempt.inputs.begin_at(&attempt.view, begun_at);
        }
        // By a clock that was ahead, earlier slices may have been pruned by more than this run would prune.
        attempt.inputs.floors = greater(&draft.manifest.floors, &attempt.inputs.floors);
        let manifest = Manifest { run: attempt.run.id, floors: attempt.inputs.floors.clone(), ..draft.manifest };
        Ok(Some(Draft { manifest, ..draft }))
    }

    pub(crate) fn next_slice(&self) -> u32 {
        self.next
    }

    /// The vector up to which its slices reach.
    pub(crate) fn cut(&self) -> &Vector {
        &self.manifest.cut
    }

    pub(crate) fn tiers(&self) -> &[Tier] {
        &self.manifest.deltas
    }

    pub(crate) fn failures(&self) -> &Failures {
        &self.manifest.failures
    }

    /// Adds a slice, and saves all so far.
    pub(crate) async fn save(
        &mut self,
        attempt: &Attempt<'_>,
        slice: &Slice,
        (tier, failures): (Tier, &Failures),
        context: &RunContext<'_>,
    ) -> Result<()> {
        self.manifest.cut = slice.to.clone();
        self.manifest.gaps = gaps_before(attempt.state, &attempt.view, &slice.to);
        self.manifest.deltas.extend(Some(tier).filter(|tier| !tier.files.is_empty()));
        self.manifest.format = Manifest::format_of(&self.manifest.edges_from, &self.manifest.deltas);
        self.manifest.rows = self.manifest.deltas.iter().map(Tier::rows).sum();
        self.manifest.failures.extend(failures);
        self.manifest.events = context.events_read.count();
        self.next = slice.number + 1;
        let (path, StoredObject { bytes, checksum }) = write_draft(&attempt.batch.storage, &self.manifest, slice.number).await?;
        let saved = RunDraft { path, bytes, checksum, events: self.manifest.events, resumed: self.resumed, format: DRAFT_FORMAT };
        context.note_draft(Some(saved));
        context.record_progress(&attempt.batch.catalog, &attempt.run).await?;
        failpoint::hit("run.slice")
    }

    /// Deletes its files: those of this run, and of earlier ones that it continued. The collector finds files that
    /// cannot be deleted now.
    pub(crate) async fn delete(&self, batch: &Batch) {
        let names = self.manifest.state_files().filter_map(|file| file.path.parse().ok());
        let runs: BTreeSet<Uuid> = names.filter_map(|name: ObjectName| name.run()).chain([self.manifest.run]).collect();
        for run in runs {
            if let Err(error) = self.delete_of(batch, run).await {
                warn!(view = %self.manifest.view, %run, %error, "the slices of a run were not deleted; the collector deletes them");
            }
        }
    }

    async fn delete_of(&self, batch: &Batch, run: Uuid) -> Result<()> {
        let listed = batch.storage.list(&folder_of_run(&self.manifest.view, self.manifest.version, run)).await?;
        let is_slice = |path: &String| path.parse().is_ok_and(|name: ObjectName| name.is_of_slice());
        let slices = listed.into_iter().map(|object| object.path).filter(is_slice);
        let deleted = stream::iter(slices).map(|path| async move { batch.storage.delete(&path).await });
        deleted.buffer_unordered(DELETED_AT_ONCE).try_collect().await
    }
}

/// Notes a draft whose files cannot be read, so that it is not taken up again.
pub(crate) fn note_if_damaged(error: &Error, context: &RunContext<'_>) {
    if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound) {
        context.note_draft(None);
    }
}

/// Reads a draft, and checks that its files exist. The second result is the time as of which it was begun.
async fn read(storage: &ObjectStorage, saved: &RunDraft) -> Result<(Draft, Micros)> {
    let stored = StoredObject { bytes: saved.bytes, checksum: saved.checksum };
    let manifest = read_draft(storage, &saved.path, stored).await?;
    let wrong = |what: &str| Error::corrupt(what.to_owned()).with("file", &saved.path);
    let Ok(ObjectName::Draft { slice, .. }) = saved.path.parse() else { return Err(wrong("a draft has another object's name")) };
    let begun_at = manifest.base.pruned_at.ok_or_else(|| wrong("a draft does not say when it was begun"))?;
    check_files(storage, &manifest).await?;
    Ok((Draft { manifest, next: slice + 1, resumed: saved.events }, begun_at))
}

async fn check_files(storage: &ObjectStorage, manifest: &Manifest) -> Result<()> {
    let named: BTreeMap<&str, i64> = manifest.state_files().map(|file| (&*file.path, file.bytes)).collect();
    let runs = named.keys().filter_map(|path| path.parse::<ObjectName>().ok()?.run());
    let mut found = BTreeMap::new();
    for run in runs.collect::<BTreeSet<Uuid>>() {
        let listed = storage.list(&folder_of_run(&manifest.view, manifest.version, run)).await?;
        found.extend(listed.into_iter().map(|object| (object.path, object.bytes as i64)));
    }
    match named.into_iter().find(|(path, bytes)| found.get(*path) != Some(bytes)) {
        None => Ok(()),
        Some((path, bytes)) => Err(Error::corrupt("a file of a draft is not what was written")
            .with("file", path)
            .with("found", format_args!("{:?}", found.get(path)))
            .with("expected", bytes)),
    }
}

/// Returns why a run cannot continue a draft that was begun as of this time.
fn why_unusable(attempt: &Attempt<'_>, draft: &Manifest, begun_at: Micros) -> Option<&'static str> {
    let (state, view, inputs) = (attempt.state, &attempt.view, &attempt.inputs);
    let joined_later = || attempt.before.as_ref().and_then(|before| before.joined.as_ref()).is_some_and(|joined| joined.t > begun_at);
    if let Some(why) = why_other_states(state, view, draft, inputs.t) {
        Some(why)
    } else if !inputs.cut.covers(&draft.cut) {
        Some("it reaches beyond what is committed")
    } else if view.plan.links().is_some() && joined_later() {
        Some("the view's rows were joined as of a later time since")
    } else {
        None
    }
}
