//! `pause`, `resume` and `rollback` of sinks and alerts.
//!
//! What is decided is a pure function of a catalog state; it is committed on the state that it was decided on, and
//! decided again if anything else was committed in between. Workers follow within about a second: each records from
//! which event of its partitions on it does.

use std::sync::Arc;

use catalog::{Add, CatalogState, Commit, DefinitionKind, DefinitionRecord, DefinitionStatus, Expect, PauseRecord, Remove};
use committed::registry::Registry;
use engine::events::format_timestamp;
use serde::Serialize;
use types::suggest::expected;
use types::tiles::Micros;
use types::{Error, Result};
use uuid::Uuid;

use crate::apply::{checked_outputs, normalised, with_records};
use crate::installation::{Installation, now};

/// How often a change is decided while other commits get in between.
const ATTEMPTS: usize = 20;

/// A sink or an alert was paused or resumed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Paused {
    pub kind: DefinitionKind,
    pub name: Arc<str>,
    pub version: u32,
    /// Since when it is paused. Null if it is not, so also of a resumed one.
    pub paused_since: Option<String>,
    /// Since when it was paused until now. Null if no pause has ended.
    pub was_paused_since: Option<String>,
    /// False if it was paused, or not paused, already.
    pub changed: bool,
}

/// A sink or an alert has its earlier text again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RolledBack {
    pub kind: DefinitionKind,
    pub name: Arc<str>,
    /// The version before.
    pub from: u32,
    pub version: u32,
    /// The version whose text it has.
    pub text_of: u32,
}

impl Installation {
    /// Pauses a sink or an alert: nothing is put out for it until it is resumed.
    ///
    /// Errors: `NotFound` if there is none of this name.
    pub async fn pause(&self, name: &str) -> Result<Paused> {
        self.change_outputs(async |state: &CatalogState| pause(state, name, now())).await
    }

    /// Ends a pause. The events of a sink's pause get no record.
    ///
    /// Errors: `NotFound` if there is none of this name; `Input` if it cannot be planned: the events of its stream
    /// would wait for it.
    pub async fn resume(&self, name: &str) -> Result<Paused> {
        let decide = async |state: &CatalogState| {
            let (resumed, commit) = resume(state, name)?;
            if resumed.changed {
                let registry = Registry::load(state, &self.functions).await?;
                refuse_broken(&registry, &resumed)?;
            }
            Ok((resumed, commit))
        };
        self.change_outputs(decide).await
    }

    /// Makes a new version of a sink or an alert with the text that it had before.
    ///
    /// Errors: `NotFound` if there is none of this name, or no earlier text; `Input` if that cannot be planned any
    /// more.
    pub async fn roll_back(&self, name: &str) -> Result<RolledBack> {
        let decide = async |state: &CatalogState| {
            let (rolled_back, records) = roll_back(state, name, now())?;
            let after = with_records(state, &records);
            checked_outputs(&after, &self.functions).await.map_err(|error| {
                let help = "change its text and `basestream apply`, or the views that it reads";
                error.with("version", rolled_back.text_of).with("help", help)
            })?;
            Ok((rolled_back, Commit { add: records.into_iter().map(Add::Definition).collect(), ..Commit::default() }))
        };
        self.change_outputs(decide).await
    }

    /// Decides on the present state and commits, unless there is nothing to change.
    async fn change_outputs<T>(&self, decide: impl AsyncFn(&CatalogState) -> Result<(T, Commit)>) -> Result<T> {
        let decide = &decide;
        let decide = |state: Arc<CatalogState>| async move {
            let (outcome, commit) = decide(&state).await?;
            let changes = !commit.add.is_empty() || !commit.remove.is_empty();
            let commit = Commit { id: Uuid::now_v7(), expect: vec![Expect::Revision(state.revision)], ..commit };
            Ok((outcome, changes.then_some(commit)))
        };
        self.catalog.decide_and_commit(ATTEMPTS, decide).await
    }
}

fn pause(state: &CatalogState, name: &str, now: Micros) -> Result<(Paused, Commit)> {
    let live = live(state, name, views_are_not_paused)?;
    let known = state.paused_since(live.kind, name);
    let mut commit = Commit::default();
    if known.is_none() {
        commit.add.push(Add::Pause(PauseRecord { kind: live.kind, name: live.name.clone(), since: now }));
    }
    let since = Some(format_timestamp(known.unwrap_or(now)));
    Ok((Paused { paused_since: since, changed: known.is_none(), ..not_paused(live) }, commit))
}

fn resume(state: &CatalogState, name: &str) -> Result<(Paused, Commit)> {
    let live = live(state, name, views_are_not_paused)?;
    let known = state.paused_since(live.kind, name);
    let mut commit = Commit::default();
    if known.is_some() {
        commit.remove.push(Remove::Pause { kind: live.kind, name: live.name.clone() });
    }
    let was_since = known.map(format_timestamp);
    Ok((Paused { was_paused_since: was_since, changed: known.is_some(), ..not_paused(live) }, commit))
}

fn refuse_broken(registry: &Registry, resumed: &Paused) -> Result<()> {
    let (kind, name) = (resumed.kind, &resumed.name);
    match registry.broken_outputs().find(|broken| broken.kind == kind && broken.name == *name) {
        None => Ok(()),
        Some(broken) => {
            let kind = kind.word();
            let message = format!("the {kind} \"{name}\" is not resumed: it cannot be planned: {}", broken.found);
            let help = format!(
                "change it, or the views that it reads, and `basestream apply`; `basestream rollback {name}` returns to its text before"
            );
            Err(Error::input(message).with("help", help))
        }
    }
}

fn not_paused(live: &DefinitionRecord) -> Paused {
    let (kind, name, version) = (live.kind, live.name.clone(), live.version);
    Paused { kind, name, version, paused_since: None, was_paused_since: None, changed: false }
}

/// The version that was live last with another text is the one before. A new version gets its text: the numbers of a
/// sink's versions ascend in its topic, and an alert's records count for themselves in each version.
fn roll_back(state: &CatalogState, name: &str, now: Micros) -> Result<(RolledBack, Vec<DefinitionRecord>)> {
    let of_view = |_: &[&str]| format!("`basestream view rollback {name}` returns to a view's version before");
    let live = live(state, name, of_view)?;
    let known = || state.definitions.versions(live.kind, &live.name);
    let text = normalised(&live.sql);
    let others = known().filter(|record| record.version != live.version && normalised(&record.sql) != text);
    let Some(before) = others.max_by_key(|record| (record.since, record.version)) else {
        let kind = live.kind.word();
        return Err(Error::not_found(format!("the {kind} \"{name}\" has no earlier text: there is nothing to return to"))
            .with("version", live.version));
    };
    let version = known().map(|record| record.version).max().unwrap_or_default() + 1;
    // After every version that was left, whichever process's clock said when that was.
    let last = known().map(|record| record.since).max().unwrap_or_default();
    let left = DefinitionRecord { rolled_back: true, ..live.with_status(DefinitionStatus::Retired, now.max(last.saturating_add(1))) };
    let again = DefinitionRecord {
        version,
        sql: before.sql.clone(),
        status: DefinitionStatus::Active,
        created_at: now,
        since: now,
        kept_until: None,
        rolled_back: false,
        ..live.clone()
    };
    let rolled_back = RolledBack { kind: live.kind, name: live.name.clone(), from: live.version, version, text_of: before.version };
    Ok((rolled_back, vec![left, again]))
}

/// The help where a view is to be paused or resumed. `known`: the live sinks and alerts.
fn views_are_not_paused(known: &[&str]) -> String {
    let known = if known.is_empty() { "none is defined yet".to_owned() } else { known.join(", ") };
    format!("views are not paused; sinks and alerts are: {known}")
}

/// The live version of a sink or an alert: all definitions share one namespace. `of_view`: the help where a view has
/// this name, of the live sinks and alerts.
fn live<'s>(state: &'s CatalogState, name: &str, of_view: impl Fn(&[&str]) -> String) -> Result<&'s DefinitionRecord> {
    let kinds = [DefinitionKind::Sink, DefinitionKind::Alert];
    if let Some(record) = kinds.into_iter().find_map(|kind| state.served_or_building(kind, name)) {
        return Ok(record);
    }
    let known: Vec<&str> = kinds.into_iter().flat_map(|kind| state.live(kind)).map(|record| &*record.name).collect();
    let others = DefinitionKind::ALL.into_iter().filter(|kind| !kinds.contains(kind));
    if let Some(record) = others.filter_map(|kind| state.served_or_building(kind, name)).next() {
        let kind = record.kind.word();
        let message = format!("\"{name}\" is a {kind}: expected a sink or an alert");
        let error = Error::not_found(message);
        return Err(match record.kind {
            DefinitionKind::View => error.with("help", of_view(&known)),
            _ => error,
        });
    }
    let expected = expected(name, &known, "none is defined yet");
    Err(Error::not_found(format!("there is no sink or alert \"{name}\" in the catalog: {expected}")))
}

#[cfg(test)]
mod tests;
