//! Implements `repair`: checks every file that the catalog names, and rebuilds damaged ones.
//!
//! ```text
//! files --check--> damage --plan--> steps --act--> outcomes
//! ```
//!
//! States are rebuilt from the archive, snapshots by requesting a run, archive and dead-letter files from the log, as
//! far back as it goes. What the log no longer has is lost: with `accept_gap` it is recorded as lost, otherwise it is
//! reported.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use catalog::{CatalogState, Commit, DamageRecord, DefinitionKind, Remove};
use committed::registry::Registry;
use definitions::parse;
use serde::Serialize;
use types::Result;
use uuid::Uuid;

use crate::installation::{Installation, now};
use crate::pin::pinned;

mod act;
mod check;
mod plan;
mod reread;

pub use check::{CheckProgress, CheckedFiles, Damaged};
pub use plan::{LogFacts, RepairAction, RepairStep, plan};

/// The options of a repair.
#[derive(Debug, Clone, Default)]
pub struct RepairOptions {
    /// Only files of this stream, and of the views that read it.
    pub stream: Option<Arc<str>>,
    /// Report what would be done, and do nothing.
    pub dry_run: bool,
    /// Record as lost what the log no longer has.
    pub accept_gap: bool,
}

/// What a repair found and did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RepairReport {
    pub files: usize,
    pub bytes: u64,
    pub dry_run: bool,
    pub steps: Vec<StepOutcome>,
    /// Offsets recorded as lost, by this repair and earlier ones.
    pub gaps: Vec<String>,
}

/// One step and its outcome.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepOutcome {
    #[serde(flatten)]
    pub step: RepairStep,
    /// Null if nothing was done (a dry run, or an action that does nothing).
    pub done: Option<String>,
    /// Why the step failed.
    pub failed: Option<String>,
}

impl RepairReport {
    /// True if no file is damaged any more.
    pub fn is_whole(&self) -> bool {
        self.steps.iter().all(|outcome| outcome.done.is_some() || outcome.step.action.is_harmless())
    }
}

/// Checks every file, plans the steps, and carries them out. `progress` is called with the bytes read.
///
/// Errors: `NotFound` for an unknown stream, `Unavailable` if a service does not answer. The failure of a single step
/// is in its outcome.
pub async fn repair(
    installation: &Installation,
    options: &RepairOptions,
    progress: &(dyn Fn(check::CheckProgress) + Send + Sync),
) -> Result<RepairReport> {
    if let Some(stream) = &options.stream {
        installation.stream(stream).await?;
    }
    pinned(&installation.catalog, "repair", repair_pinned(installation, options, progress)).await
}

async fn repair_pinned(
    installation: &Installation,
    options: &RepairOptions,
    progress: &(dyn Fn(check::CheckProgress) + Send + Sync),
) -> Result<RepairReport> {
    let before = installation.catalog.state().await?;
    let registry = Registry::load(&before, &installation.functions).await?;
    let files = check::chosen(&before, &registry, options.stream.as_ref());
    let checked = check::check(&installation.storage, &files, progress).await?;
    let state = installation.catalog.state().await?;
    if !options.dry_run {
        record(installation, &state, &checked).await?;
    }
    let logs = logs_of(installation, &state, &checked.damaged).await;
    let steps = plan(&state, &registry, &checked.damaged, &logs, options.accept_gap);
    let mut outcomes = Vec::with_capacity(steps.len());
    for step in steps {
        let outcome = match options.dry_run || step.action.is_harmless() {
            true => StepOutcome { step, done: None, failed: None },
            false => match act::act(installation, &registry, &step).await {
                Ok(done) => StepOutcome { step, done: Some(done), failed: None },
                Err(error) => StepOutcome { step, done: None, failed: Some(error.to_string()) },
            },
        };
        outcomes.push(outcome);
    }
    let gaps = installation.catalog.state().await?.gaps.clone();
    let gap = |gap: &catalog::GapRecord| format!("{} {}..{}: {}", gap.partition, gap.start, gap.end, gap.reason);
    Ok(RepairReport {
        files: files.len(),
        bytes: checked.bytes,
        dry_run: options.dry_run,
        steps: outcomes,
        gaps: gaps.iter().filter(|gap| options.stream.as_ref().is_none_or(|stream| *stream == gap.partition.stream)).map(gap).collect(),
    })
}

/// Records the damage in the catalog, and clears files that were marked damaged but are intact.
async fn record(installation: &Installation, state: &CatalogState, checked: &CheckedFiles) -> Result<()> {
    let found_at = now();
    let damage = |damaged: &Damaged| {
        catalog::Add::Damage(DamageRecord {
            path: damaged.file.path.clone(),
            error: damaged.error.clone(),
            found_by: "repair".into(),
            found_at,
        })
    };
    let known = |path: &String| state.damages.iter().any(|damage| damage.path == *path);
    let remove: Vec<Remove> = checked.whole.iter().filter(|path| known(path)).cloned().map(Remove::Damage).collect();
    let add: Vec<_> = checked.damaged.iter().map(damage).collect();
    if !add.is_empty() || !remove.is_empty() {
        installation.catalog.commit_with_retry(Commit { id: Uuid::new_v4(), add, remove, ..Commit::default() }).await?;
    }
    Ok(())
}

/// Returns what the log knows of the streams that have damaged files.
async fn logs_of(installation: &Installation, state: &CatalogState, damaged: &[Damaged]) -> BTreeMap<Arc<str>, LogFacts> {
    let mut logs = BTreeMap::new();
    for stream in damaged.iter().filter(|damaged| plan::is_from_log(&damaged.file)).filter_map(|damaged| damaged.file.subject.clone()) {
        if let Entry::Vacant(vacant) = logs.entry(stream) {
            let facts = log_of(installation, state, vacant.key()).await.unwrap_or_else(|error| LogFacts::Unknown(error.to_string()));
            vacant.insert(facts);
        }
    }
    logs
}

async fn log_of(installation: &Installation, state: &CatalogState, stream: &Arc<str>) -> Result<LogFacts> {
    let Some(record) = state.served_or_building(DefinitionKind::Stream, stream) else {
        return Ok(LogFacts::Unknown(format!("the stream {stream} is no longer defined")));
    };
    let topic = parse::parse_stream(&record.sql)?.topic;
    let (identity, bounds) = (installation.log.identity(&topic).await?, installation.log.bounds(&topic).await?);
    for bounds in &bounds {
        let source = event_log::TopicPartition { topic: topic.clone(), partition: bounds.partition };
        let id = types::vector::PartitionId::new(stream.clone(), bounds.partition);
        if let Some(mark) = state.marks.get(&id) {
            event_log::check_mark(&*installation.log, &source, mark, bounds).await?;
        }
    }
    Ok(LogFacts::Known { identity, bounds: bounds.into_iter().map(|bounds| (bounds.partition, (bounds.begin, bounds.end))).collect() })
}
