//! Publishes a snapshot: writes its manifest, then commits one transaction that checks the run's lease and that the cut
//! moves backwards in no partition.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use catalog::{
    CatalogState, Commit, Comparison, DefinitionKind, DefinitionRecord, DefinitionStatus, RunRecord, RunStatus, SnapshotFiles,
    SnapshotRecord, publish_commit, skipped_commit,
};
use committed::registry::LiveView;
use definitions::parse::parse_view;
use storage::{Manifest, write_manifest};
use tracing::info;
use types::tiles::Micros;
use types::{Error, Result};

use crate::attempt::{Attempt, NewSnapshot};
use crate::context::RunContext;
use crate::decide::switch_version;
use crate::draft::Draft;
use crate::layer::Batch;

/// How often a switch of versions is attempted while other commits get in between.
const SWITCH_ATTEMPTS: usize = 21;

/// Publishes a written snapshot, and deletes its draft.
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

/// Publishes the snapshot that consists of `files` and returns the run's record, marked as succeeded.
async fn publish(
    batch: &Batch,
    view: &LiveView,
    mut run: RunRecord,
    manifest: Manifest,
    mut files: SnapshotFiles,
    context: &RunContext<'_>,
) -> Result<RunRecord> {
    let manifest_file = write_manifest(&batch.storage, &manifest).await?;
    run.status = RunStatus::Succeeded;
    run.ended_at = Some((context.clock)());
    let snapshot = SnapshotRecord {
        view: view.name.clone(),
        version: view.version,
        run: run.id,
        cut: manifest.cut.clone(),
        manifest: manifest_file.path.clone(),
        published_at: (context.clock)(),
    };
    files.written.push(manifest_file);
    let commit = publish_commit(run.clone(), snapshot, files, &context.leases.current()?, (context.clock)());
    match view.status {
        DefinitionStatus::Building => publish_and_switch(batch, commit, view, (context.clock)()).await?,
        _ => batch.catalog.commit_with_retry(commit).await.map(|_| ())?,
    }
    info!(view = %run.view, version = run.version, run = %run.id, events = run.events_read, rows = run.rows_written, "run published");
    metrics::counter!("basestream_batch_runs_total", "view" => run.view.to_string(), "outcome" => "succeeded").increment(1);
    Ok(run)
}

/// Ends a run that found nothing new.
pub(crate) async fn skip(batch: &Batch, state: &CatalogState, run: RunRecord, context: &RunContext<'_>) -> Result<RunRecord> {
    let now = (context.clock)();
    let published = state.snapshot(&run.view, run.version).ok_or_else(|| Error::internal("a run without a snapshot was skipped"))?;
    let ended = RunRecord { status: RunStatus::Skipped, ended_at: Some(now), ..run };
    let commit = skipped_commit(ended.clone(), published.clone(), &context.leases.current()?, now);
    batch.catalog.commit_with_retry(commit).await?;
    info!(view = %ended.view, version = ended.version, run = %ended.id, "run skipped: the snapshot holds everything up to its cut");
    metrics::counter!("basestream_batch_runs_total", "view" => ended.view.to_string(), "outcome" => "skipped").increment(1);
    Ok(ended)
}

/// The present `keep_old` of the version: it may have changed while the version was built.
fn keep_old(state: &CatalogState, view: &LiveView) -> Duration {
    let is_it = |record: &&DefinitionRecord| record.name == view.name && record.version == view.version;
    let now = state.live(DefinitionKind::View).find(is_it).and_then(|record| parse_view(&record.sql).ok());
    now.map_or(view.definition.keep_old, |now| now.keep_old)
}

/// Publishes the first snapshot of a version that was being built, and switches to that version.
async fn publish_and_switch(batch: &Batch, commit: Commit, view: &LiveView, now: Micros) -> Result<()> {
    let decide = |state: Arc<CatalogState>| {
        let mut switching = commit.clone();
        let decided = switch_version(&mut switching, &state, &view.name, view.version, keep_old(&state, view), now);
        ready(decided.map(|()| ((), Some(switching))))
    };
    batch.catalog.decide_and_commit(SWITCH_ATTEMPTS, decide).await
}
