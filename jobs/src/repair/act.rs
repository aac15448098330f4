//! Carries out the steps of a repair. Each is one commit, and safe to repeat.

use std::sync::Arc;

use batch::RebuildOutcome;
use catalog::{CatalogState, GapRecord, give_up_commit, replace_commit};
use committed::registry::Registry;
use types::files::{FileKind, FileRecord};
use types::vector::PartitionId;
use types::{Error, ErrorKind, Result};
use uuid::Uuid;

use super::plan::Range;
use super::reread::reread;
use super::{Action, Step};
use crate::installation::{Installation, now};

/// Carries out a step; returns a text that says what was done.
pub(super) async fn act(installation: &Installation, registry: &Registry, step: &Step) -> Result<String> {
    let state = installation.catalog.state().await?;
    match &step.action {
        Action::RebuildStates => states(installation, &state, registry, &step.path).await,
        Action::RequestRun { view, version } => request_run(installation, view, *version).await,
        Action::ReadAgain { .. } => read_again(installation, &state, &step.path).await,
        Action::GiveUp { stream, lost, why } => give_up(installation, &state, registry, step, (stream, lost, why)).await,
        Action::Leave => Ok("nothing".into()),
        Action::Refuse { why, help } => Err(Error::input(why.clone()).with("help", help)),
    }
}

async fn states(installation: &Installation, state: &CatalogState, registry: &Registry, path: &str) -> Result<String> {
    Ok(match installation.batch().rebuild_states(state, registry, path).await? {
        RebuildOutcome::Rebuilt(file) => format!("rebuilt from the archive as {}", file.path),
        RebuildOutcome::Dropped => "no view needs it: dropped".into(),
        RebuildOutcome::Whole => "not damaged".into(),
        RebuildOutcome::Gone => "replaced or collected by another process".into(),
    })
}

async fn request_run(installation: &Installation, view: &Arc<str>, version: u32) -> Result<String> {
    installation.catalog.request_run(view, version).await?;
    Ok(format!("a run of {view} was requested: a scheduler starts it, or run `basestream batch run {view}`"))
}

async fn read_again(installation: &Installation, state: &CatalogState, path: &str) -> Result<String> {
    let damaged = file_of(state, path)?;
    let rebuilt = reread(installation, state, damaged).await?;
    let name = rebuilt.path.clone();
    match installation.catalog.commit_with_retry(replace_commit(Uuid::new_v4(), damaged, rebuilt)).await {
        Ok(_) => Ok(format!("read again from the log as {name}")),
        Err(error) if error.kind() == ErrorKind::Conflict => {
            // No transaction will ever name it.
            installation.storage.delete(&name).await?;
            Err(error)
        }
        Err(error) => Err(error),
    }
}

/// Records the offsets as lost. States built from the lost events go too: answers are those of the archive as it is
/// now.
async fn give_up(
    installation: &Installation,
    state: &CatalogState,
    registry: &Registry,
    step: &Step,
    (stream, lost, why): (&Arc<str>, &[Range], &str),
) -> Result<String> {
    let damaged = file_of(state, &step.path)?;
    let what = if damaged.kind == FileKind::Archive { "archived events" } else { "dead letters" };
    let gaps: Vec<GapRecord> = lost.iter().map(|range| gap(state, stream, range, &format!("the {what} were damaged, and {why}"))).collect();
    let mut files = vec![damaged];
    if damaged.kind == FileKind::Archive {
        files.extend(super::named(state).filter(|file| file.kind == FileKind::States && file.checkpoint == damaged.checkpoint));
    }
    installation.catalog.commit_with_retry(give_up_commit(Uuid::new_v4(), &files, gaps)).await?;
    let mut asked = Vec::new();
    if damaged.kind == FileKind::Archive {
        for view in registry.views.iter().filter(|view| view.plan.streams.iter().any(|of| of.name == *stream)) {
            request_run(installation, &view.name, view.version).await?;
            asked.push(view.name.to_string());
        }
    }
    asked.dedup();
    let ranges: Vec<String> = lost.iter().map(|range| format!("{stream}/{} {}..{}", range.partition, range.start, range.end)).collect();
    let runs = if asked.is_empty() { String::new() } else { format!("; runs requested: {}", asked.join(", ")) };
    Ok(format!("{what} of {} recorded as lost{runs}", ranges.join(", ")))
}

/// Returns the gap of a range. If something in it was lost before, that reason is kept too.
fn gap(state: &CatalogState, stream: &Arc<str>, range: &Range, reason: &str) -> GapRecord {
    let partition = PartitionId::new(stream.clone(), range.partition);
    let before = state.gaps.iter().find(|gap| gap.partition == partition && gap.start == range.start && gap.end == range.end);
    let reason = before.map_or_else(|| reason.to_owned(), |before| format!("{}; {reason}", before.reason));
    GapRecord { partition, start: range.start, end: range.end, reason, accepted_at: now() }
}

fn file_of<'s>(state: &'s CatalogState, path: &str) -> Result<&'s FileRecord> {
    let file = super::named(state).find(|file| file.path == path);
    file.ok_or_else(|| Error::conflict("the file was replaced or collected meanwhile").with("file", path))
}
