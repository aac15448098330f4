//! Plans and applies definitions: `plan` shows what the files would change in the catalog, `apply` changes it.
//!
//! [`plan_changes`] is a pure function from a catalog state and definitions to a printable value. [`apply`] reads,
//! plans, checks the resulting state with the planner, and commits in one transaction.
//!
//! A changed stream is a new version, which decodes the records from then on. If it reads columns otherwise than the
//! version before, the archive is decoded again first ([`crate::backfill`]), and the commit switches to all of it at
//! once: the definition, the files, and new versions of the views that read such a column. A changed view is a new
//! version that is built next to the old one; its first published batch run switches over. The old one is then kept for
//! a while (`keep_old`): files that are back at it return to it at once. Where only options of its runs change, which
//! leave states and answers as they are, the version stays and gets the new text.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use catalog::{Add, Catalog, CatalogState, Commit, DefinitionKind, DefinitionRecord, DefinitionStatus, Expect, serve_version};
use committed::registry::{LiveSink, Registry};
use definitions::{Definitions, KEEP_OLD, SinkDefinition, StreamDefinition, parse};
use engine::functions::Functions;
use event_log::Log;
use storage::ObjectStorage;
use types::tiles::Micros;
use types::{Error, Result};
use uuid::Uuid;

use crate::backfill::OnProgress;
use crate::check::loops;
use crate::check::retention::refuse_short_retentions;

mod changes;
mod compatible;
mod diff;
mod inline;
mod rebuilt;
mod switch;

pub use changes::{Change, Changes, What, kind_name, plan_changes};
pub use compatible::incompatibilities;
pub use diff::{DiffLine, line_diff};
pub(crate) use inline::names_as_staging;
pub use inline::{normalised, self_contained};

use changes::{of_name, of_status};
use switch::{Switch, prepared};

/// Returns the definition records that the changes result in: new versions, and the versions that they retire.
pub fn records_of(state: &CatalogState, changes: &Changes, prune: bool, now: Micros) -> Vec<DefinitionRecord> {
    let mut records = Vec::new();
    for change in &changes.changes {
        let live = || of_name(state, change.kind, &change.name).filter(|record| record.status.is_live());
        let building = || live().filter(|record| record.status == DefinitionStatus::Building);
        let retired = |record: &DefinitionRecord| record.with_status(DefinitionStatus::Retired, now);
        // Options of its runs may have changed.
        let adjusted = |record: &DefinitionRecord| DefinitionRecord { sql: change.sql.clone(), ..record.clone() };
        let new = |version, status| DefinitionRecord {
            kind: change.kind,
            name: change.name.clone(),
            version,
            sql: change.sql.clone(),
            status,
            created_at: now,
            since: now,
            kept_until: None,
            rolled_back: false,
        };
        match &change.what {
            What::Added { version } => records.push(new(*version, DefinitionStatus::Active)),
            What::Changed { version, built_beside: true, .. } | What::Rebuilt { version, built_beside: true, .. } => {
                records.extend(building().map(retired));
                records.push(new(*version, DefinitionStatus::Building));
            }
            What::Changed { version, built_beside: false, .. } | What::Rebuilt { version, built_beside: false, .. } => {
                records.extend(live().map(retired));
                records.push(new(*version, DefinitionStatus::Active));
            }
            What::Adjusted { version, .. } => records.extend(live().filter(|record| record.version == *version).map(adjusted)),
            What::Reverted { version, .. } => {
                records.extend(building().map(retired));
                let served = live().filter(|record| record.version == *version);
                records.extend(served.filter(|record| normalised(&record.sql) != change.sql).map(adjusted));
            }
            What::Returned { version, .. } => {
                let keep_old = parse::parse_view(&change.sql).map_or(KEEP_OLD, |view| view.keep_old);
                records.extend(building().map(retired));
                let switched = serve_version(state, &change.name, *version, keep_old, now).unwrap_or_default();
                records.extend(switched.iter().map(|record| if record.version == *version { adjusted(record) } else { record.clone() }));
            }
            What::Missing { .. } if prune => records.extend(live().map(retired)),
            What::Missing { .. } | What::Unchanged { .. } | What::RolledBack { .. } | What::Refused { .. } => {}
        }
    }
    keep_none_stale(state, changes, &mut records, now);
    records
}

/// States of two decodings are never merged: a version that reads a column which is decoded again is not kept.
fn keep_none_stale(state: &CatalogState, changes: &Changes, records: &mut Vec<DefinitionRecord>, now: Micros) {
    for stale in &changes.stale {
        let is_it = |record: &DefinitionRecord| record.name == stale.view && record.version == stale.version;
        let known = records.iter_mut().find(|record| record.kind == DefinitionKind::View && is_it(record));
        match known {
            Some(record) if record.status == DefinitionStatus::Kept => *record = record.with_status(DefinitionStatus::Retired, now),
            Some(_) => {}
            None => {
                let kept = of_status(state, &stale.view, DefinitionStatus::Kept).find(|record| is_it(record));
                records.extend(kept.map(|record| record.with_status(DefinitionStatus::Retired, now)));
            }
        }
    }
}

/// Returns the catalog state as it would be with these records.
pub fn with_records(state: &CatalogState, records: &[DefinitionRecord]) -> CatalogState {
    let replaced =
        |old: &DefinitionRecord| records.iter().any(|new| new.kind == old.kind && new.name == old.name && new.version == old.version);
    let mut after = state.clone();
    after.definitions.retain(|old| !replaced(old));
    after.definitions.extend(records.iter().cloned());
    after
}

/// Refuses a change that would leave a live view without a stream it reads.
fn refuse_orphans(after: &CatalogState, records: &[DefinitionRecord]) -> Result<()> {
    let dropped = records
        .iter()
        .filter(|record| record.kind == DefinitionKind::Stream && !after.live(DefinitionKind::Stream).any(|live| live.name == record.name));
    for stream in dropped {
        let reads = |view: &&DefinitionRecord| inline::relations(&view.sql).contains(&*stream.name);
        if let Some(view) = after.live(DefinitionKind::View).find(reads) {
            return Err(Error::input(format!("the stream \"{}\" cannot be dropped: the view \"{}\" reads it", stream.name, view.name))
                .with("version of the view", view.version)
                .with("expected", "the view dropped too, or its new version published first (`basestream batch run`)")
                .with("help", format!("`basestream view versions {}` lists its versions; one that is kept can be dropped", view.name)));
        }
    }
    Ok(())
}

/// The parts of an installation that an apply needs.
pub struct Target<'a> {
    pub catalog: &'a Catalog,
    pub storage: &'a ObjectStorage,
    pub log: &'a dyn Log,
    /// Partitions of a topic that is created.
    pub partitions: u32,
    pub functions: &'a Functions,
    /// Receives how much of the archives is decoded.
    pub progress: &'a OnProgress<'a>,
}

/// What is applied.
#[derive(Debug, Clone, Copy)]
pub enum Wanted<'a> {
    /// These definitions. `staging` names their staging views.
    Definitions { definitions: &'a Definitions, staging: &'a BTreeSet<Arc<str>> },
    /// The catalog's own definition of this stream, to the events that earlier versions archived.
    Archive { stream: &'a str },
}

/// How it is applied.
#[derive(Debug, Clone, Copy, Default)]
pub struct ApplyOptions {
    /// Retire what is in the catalog and not among the definitions.
    pub prune: bool,
    /// Leave columns that are added NULL in archived events.
    pub no_backfill: bool,
    /// Where a record does not fit a column that may be NULL, the column is NULL in it.
    pub null_misfits: bool,
    /// Decode the archives to list the records that do not fit, and change nothing.
    pub dry_run: bool,
}

/// Writes what is wanted to the catalog in one transaction, creates the topics, and returns what changed. Archives are
/// decoded again before that. Two applies at the same time do not conflict: the later one plans again on the state that
/// the earlier one left.
///
/// If records do not fit their new columns, nothing is changed, and they are in the result ([`Changes::misfits`]).
///
/// Errors: `Input` for a change that is refused (nothing is changed then), `Conflict` when the catalog kept changing.
pub async fn apply(target: &Target<'_>, wanted: Wanted<'_>, options: ApplyOptions, now: Micros) -> Result<Changes> {
    let mut switch = Switch { target, wanted, options, now, staged: BTreeMap::new(), is_sent: false };
    let outcome = switch.run().await;
    switch.discard_unnamed(outcome.as_ref().ok()).await;
    outcome
}

/// Returns what an apply would change, with the cost of decoding archives again.
pub async fn plan(target: &Target<'_>, wanted: Wanted<'_>, options: ApplyOptions, state: &CatalogState) -> Result<Changes> {
    let mut staged = BTreeMap::new();
    Ok(prepared(target, state, wanted, options, &mut staged).await?.changes)
}

/// Checks the changes as a whole. Returns the definition records that they result in.
///
/// Errors: `Input` for a change that is refused, alone or beside what stays in the catalog.
pub async fn checked_records(
    state: &CatalogState,
    changes: &Changes,
    prune: bool,
    now: Micros,
    functions: &Functions,
) -> Result<Vec<DefinitionRecord>> {
    changes.refusals()?;
    let records = records_of(state, changes, prune, now);
    let after = with_records(state, &records);
    refuse_orphans(&after, &records)?;
    // Versions that stay in use (a served view whose successor is being built) must plan over the new streams too.
    let registry = Registry::load(&after, functions).await.map_err(|error| {
        Error::input(format!("the live definitions in the catalog could no longer be planned: {}", error.message()))
            .with("expected", "streams that keep the columns which live views read, until those views are replaced or dropped")
            .with("help", "`basestream view versions VIEW` lists a view's versions; one that is kept can be dropped")
    })?;
    refuse_short_retentions(&registry)?;
    refuse_broken_outputs(&registry, functions).await?;
    refuse_loops(&registry)?;
    Ok(records)
}

/// Refuses sinks whose records would lead back to the streams that they read, also through sinks that are in the catalog alone.
fn refuse_loops(registry: &Registry) -> Result<()> {
    let streams: Vec<&StreamDefinition> = registry.streams.values().map(|stream| &*stream.definition).collect();
    let sinks: Vec<&SinkDefinition> = registry.sinks.iter().map(|sink| &*sink.definition).collect();
    let leads_back =
        |sink: &&LiveSink| sink.plan.as_ref().is_ok_and(|plan| loops::leads_back(&sink.definition, &plan.stream, (&streams, &sinks)));
    match registry.sinks.iter().find(leads_back) {
        Some(sink) => Err(Error::input(format!("the records of the sink \"{}\" would lead back to the stream that it reads", sink.name))
            .with("expected", "another topic, or one of the sinks between them dropped")),
        None => Ok(()),
    }
}

/// Refuses what a sink or an alert could not be planned over any more: now, or once a version that is being built is served.
async fn refuse_broken_outputs(registry: &Registry, functions: &Functions) -> Result<()> {
    let building = registry.views.iter().filter(|view| view.status == DefinitionStatus::Building);
    let later = building.map(|view| (registry.serving(&view.name, view.version), Some(view)));
    for (registry, view) in [(registry.clone(), None)].into_iter().chain(later) {
        let broken = match registry.broken_sink(functions).await {
            Some((sink, found)) => Some(("sink", sink, found)),
            None => registry.broken_alert(functions).await.map(|(alert, found)| ("alert", alert, found)),
        };
        let Some((kind, name, found)) = broken else { continue };
        let when = view.map_or_else(String::new, |view| format!(" over version {} of the view \"{}\"", view.version, view.name));
        return Err(Error::input(format!("the {kind} \"{name}\" could no longer be planned{when}: {found}")).with(
            "expected",
            format!("views with the columns and keys that live {kind}s read, or the {kind} changed or dropped with them"),
        ));
    }
    Ok(())
}

/// Turns the changes into one commit.
fn commit_of(state: &CatalogState, changes: &Changes, records: Vec<DefinitionRecord>) -> Commit {
    let mut expect: Vec<Expect> = changes
        .changes
        .iter()
        .filter(|change| !matches!(change.what, What::Unchanged { .. } | What::RolledBack { .. }))
        .map(|change| Expect::NewestVersion { kind: change.kind, name: change.name.clone(), version: change.newest })
        .collect();
    let is_known = |record: &DefinitionRecord| of_name(state, record.kind, &record.name).any(|known| known.version == record.version);
    if records.iter().any(is_known) {
        // A version is retired or kept: no other transaction may have started to depend on it meanwhile. Or it is
        // adjusted: a run may have switched to it.
        expect.push(Expect::Revision(state.revision));
    }
    Commit { id: Uuid::now_v7(), expect, add: records.into_iter().map(Add::Definition).collect(), ..Commit::default() }
}

#[cfg(test)]
mod tests;
