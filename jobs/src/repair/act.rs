//! Carries out the steps of a repair. Each is one commit, and safe to repeat.

use std::sync::Arc;

use batch::RebuildOutcome;
use catalog::{CatalogState, GapRecord, give_up_commit, replace_commit};
use committed::registry::Registry;
use types::files::{FileKind, FileRecord};
use types::vector::PartitionId;
use types::{Error, ErrorKind, Result};
use uuid::Uuid;

use super::check;
use super::plan::{OffsetRange, RepairAction, RepairStep};
use super::reread::reread;
use crate::installation::{Installation, now};

/// What a step is carried out on.
struct Repairer<'a> {
    installation: &'a Installation,
    state: &'a CatalogState,
    registry: &'a Registry,
}

/// Carries out a step; returns a text that says what was done.
pub(super) async fn act(installation: &Installation, registry: &Registry, step: &RepairStep) -> Result<String> {
    let state = installation.catalog.state().await?;
    let repairer = Repairer { installation, state: &state, registry };
    match &step.action {
        RepairAction::RebuildStates => repairer.rebuild_states(&step.path).await,
        RepairAction::RequestRun { view, version } => repairer.request_run(view, *version).await,
        RepairAction::ReadAgain { .. } => repairer.read_again(&step.path).await,
        RepairAction::GiveUp { stream, lost, why } => repairer.give_up(&step.path, stream, lost, why).await,
        RepairAction::Leave => Ok("nothing".into()),
        RepairAction::Refuse { why, help } => Err(Error::input(why.clone()).with("help", help)),
    }
}

impl Repairer<'_> {
    async fn rebuild_states(&self, path: &str) -> Result<String> {
        Ok(match self.installation.batch().rebuild_states(self.state, self.registry, path).await? {
            RebuildOutcome::Rebuilt(file) => format!("rebuilt from the archive as {}", file.path),
            RebuildOutcome::Dropped => "no view needs it: dropped".into(),
            RebuildOutcome::Whole => "not damaged".into(),
            RebuildOutcome::Gone => "replaced or collected by another process".into(),
        })
    }

    async fn request_run(&self, view: &Arc<str>, version: u32) -> Result<String> {
        self.installation.catalog.request_run(view, version).await?;
        Ok(format!("a run of {view} was requested: a scheduler starts it, or run `basestream batch run {view}`"))
    }

    async fn read_again(&self, path: &str) -> Result<String> {
        let damaged = file_of(self.state, path)?;
        let rebuilt = reread(self.installation, self.state, damaged).await?;
        let name = rebuilt.path.clone();
        match self.installation.catalog.commit_with_retry(replace_commit(Uuid::new_v4(), damaged, rebuilt)).await {
            Ok(_) => Ok(format!("read again from the log as {name}")),
            Err(error) if error.kind() == ErrorKind::Conflict => {
                // No transaction will ever name it.
                self.installation.storage.delete(&name).await?;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Records the offsets as lost. States built from the lost events go too: answers are those of the archive as it is
    /// now.
    async fn give_up(&self, path: &str, stream: &Arc<str>, lost: &[OffsetRange], why: &str) -> Result<String> {
        let damaged = file_of(self.state, path)?;
        let what = if damaged.kind == FileKind::Archive { "archived events" } else { "dead letters" };
        let reason = format!("the {what} were damaged, and {why}");
        let gaps: Vec<GapRecord> = lost.iter().map(|range| gap(self.state, stream, range, &reason)).collect();
        let mut files = vec![damaged];
        if damaged.kind == FileKind::Archive {
            files.extend(check::named(self.state).filter(|file| file.kind == FileKind::States && file.checkpoint == damaged.checkpoint));
        }
        self.installation.catalog.commit_with_retry(give_up_commit(Uuid::new_v4(), &files, gaps)).await?;
        let mut asked = Vec::new();
        if damaged.kind == FileKind::Archive {
            for view in self.registry.views.iter().filter(|view| view.plan.streams.iter().any(|of| of.name == *stream)) {
                self.request_run(&view.name, view.version).await?;
                asked.push(view.name.to_string());
            }
        }
        asked.dedup();
        let ranges: Vec<String> = lost.iter().map(|range| format!("{stream}/{} {}..{}", range.partition, range.start, range.end)).collect();
        let runs = if asked.is_empty() { String::new() } else { format!("; runs requested: {}", asked.join(", ")) };
        Ok(format!("{what} of {} recorded as lost{runs}", ranges.join(", ")))
    }
}

/// Returns the gap of a range. If something in it was lost before, that reason is kept too.
fn gap(state: &CatalogState, stream: &Arc<str>, range: &OffsetRange, reason: &str) -> GapRecord {
    let partition = PartitionId::new(stream.clone(), range.partition);
    let before = state.gaps.iter().find(|gap| gap.partition == partition && gap.start == range.start && gap.end == range.end);
    let reason = before.map_or_else(|| reason.to_owned(), |before| format!("{}; {reason}", before.reason));
    GapRecord { partition, start: range.start, end: range.end, reason, accepted_at: now() }
}

fn file_of<'s>(state: &'s CatalogState, path: &str) -> Result<&'s FileRecord> {
    let file = check::named(state).find(|file| file.path == path);
    file.ok_or_else(|| Error::conflict("the file was replaced or collected meanwhile").with("file", path))
}
