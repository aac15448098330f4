//! Plans and applies definitions: `plan` shows what the files would change in the catalog, `apply` changes it.
//!
//! `plan_changes` is a pure function from a catalog state and definitions to a printable value. [`apply`] reads,
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

use access::local_user;
use catalog::{
    Add, Catalog, CatalogState, Commit, DefinitionKind, DefinitionRecord, DefinitionStatus, Expect, ParameterRecord, PauseRecord, Remove,
    serve_version,
};
use committed::registry::{BrokenOutput, LiveView, Registry};
use definitions::{AlertDefinition, Definitions, KEEP_OLD, SinkDefinition, parse};
use engine::functions::Functions;
use engine::parameters::names_in;
use event_log::Log;
use storage::ObjectStorage;
use types::tiles::Micros;
use types::{Error, Result};
use uuid::Uuid;

use crate::backfill::OnProgress;
use crate::check::loops::{Writer, loops};
use crate::check::retention::refuse_short_retentions;

mod changes;
mod compatible;
mod diff;
mod inline;
mod rebuilt;
mod switch;

pub(crate) use changes::plan_changes;
pub use changes::{Change, Changes, ValueChange, What};
pub use diff::DiffLine;
pub(crate) use diff::line_diff;
pub(crate) use inline::{names_as_staging, normalised};

use changes::{records_named, versions_with_status};
use switch::{Switch, prepared};

/// Returns the definition records that the changes result in: new versions, and the versions that they retire.
pub fn records_of(state: &CatalogState, changes: &Changes, prune: bool, now: Micros) -> Vec<DefinitionRecord> {
    let mut records = Vec::new();
    for change in &changes.changes {
        let live = || records_named(state, change.kind, &change.name).filter(|record| record.status.is_live());
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
                let kept = versions_with_status(state, &stale.view, DefinitionStatus::Kept).find(|record| is_it(record));
                records.extend(kept.map(|record| record.with_status(DefinitionStatus::Retired, now)));
            }
        }
    }
}

/// Returns the values of parameters that the changes set.
pub fn values_of(changes: &Changes, set_by: &str, now: Micros) -> Vec<ParameterRecord> {
    let value = |change: &Change| {
        let value = change.value.as_ref()?;
        let (version, value_type) = value.set.clone()?;
        Some(ParameterRecord {
            parameter: change.name.clone(),
            version,
            value_type,
            value: value.after.clone(),
            set_at: now,
            set_by: set_by.to_owned(),
        })
    };
    changes.changes.iter().filter_map(value).collect()
}

/// Returns the catalog state as it would be with these values.
pub fn with_values(state: &CatalogState, values: &[ParameterRecord]) -> CatalogState {
    let mut after = state.clone();
    after.parameters.retain(|old| values.iter().all(|new| new.parameter != old.parameter));
    after.parameters.extend(values.iter().cloned());
    after
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

/// Refuses a change that would leave a live sink or alert without a parameter that it uses.
fn refuse_used_parameters(after: &CatalogState, records: &[DefinitionRecord]) -> Result<()> {
    let dropped = records.iter().filter(|record| {
        record.kind == DefinitionKind::Parameter && after.served_or_building(DefinitionKind::Parameter, &record.name).is_none()
    });
    for parameter in dropped {
        for kind in [DefinitionKind::Sink, DefinitionKind::Alert] {
            let uses = |output: &&DefinitionRecord| {
                let select = match kind {
                    DefinitionKind::Sink => parse::parse_sink(&output.sql).map(|sink| sink.select),
                    _ => parse::parse_alert(&output.sql).map(|alert| alert.select),
                };
                select.is_ok_and(|select| names_in(&select).contains(&*parameter.name))
            };
            if let Some(output) = after.live(kind).find(uses) {
                let (name, kind) = (&parameter.name, kind.word());
                return Err(Error::input(format!("the parameter \"{name}\" cannot be dropped: the {kind} \"{}\" uses it", output.name))
                    .with("expected", format!("the {kind} dropped too, or changed so that it does not use the parameter")));
            }
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
pub(crate) async fn checked_records(
    state: &CatalogState,
    changes: &Changes,
    prune: bool,
    now: Micros,
    functions: &Functions,
) -> Result<Vec<DefinitionRecord>> {
    changes.refusals()?;
    let records = records_of(state, changes, prune, now);
    let after = with_values(&with_records(state, &records), &values_of(changes, local_user(), now));
    refuse_orphans(&after, &records)?;
    refuse_used_parameters(&after, &records)?;
    // Versions that stay in use (a served view whose successor is being built) must plan over the new streams too.
    let registry = Registry::load(&after, functions).await.map_err(|error| {
        Error::input(format!("the live definitions in the catalog could no longer be planned: {}", error.message()))
            .with("expected", "streams that keep the columns which live views read, until those views are replaced or dropped")
            .with("help", "`basestream view versions VIEW` lists a view's versions; one that is kept can be dropped")
    })?;
    refuse_short_retentions(&registry)?;
    let registry = with_places(registry, changes);
    refuse_broken_outputs(&registry, functions).await?;
    refuse_loops(&registry)?;
    Ok(records)
}

/// The registry with the sinks and alerts as the files have them, so that their mistakes name the files. One that has
/// another text there, or none, is of the catalog alone.
fn with_places(mut registry: Registry, changes: &Changes) -> Registry {
    for sink in &mut registry.sinks {
        let text = normalised(&sink.definition.sql);
        let is_it = |file: &&SinkDefinition| file.name == sink.name && normalised(&file.sql) == text;
        if let Some(in_file) = changes.sinks.iter().find(is_it) {
            sink.definition = Arc::new(in_file.clone());
        }
    }
    for alert in &mut registry.alerts {
        let text = normalised(&alert.definition.sql);
        let is_it = |file: &&AlertDefinition| file.name == alert.name && normalised(&file.sql) == text;
        if let Some(in_file) = changes.alerts.iter().find(is_it) {
            alert.definition = Arc::new(in_file.clone());
        }
    }
    registry
}

/// Checks the sinks and alerts of a catalog state as it would be.
pub(crate) async fn checked_outputs(after: &CatalogState, functions: &Functions) -> Result<()> {
    let registry = Registry::load(after, functions).await?;
    refuse_broken_outputs(&registry, functions).await?;
    refuse_loops(&registry)
}

/// Refuses sinks and alerts whose records would lead back to what they are made from, also through those that are in
/// the catalog alone.
fn refuse_loops(registry: &Registry) -> Result<()> {
    let sinks = registry.sinks.iter().filter_map(|sink| Some(Writer::of_sink(&sink.definition, sink.plan.as_ref().ok()?)));
    let alerts = registry.alerts.iter().filter_map(|alert| Some(Writer::of_alert(&alert.definition, alert.plan.as_ref().ok()?)));
    let writers: Vec<Writer> = sinks.chain(alerts).collect();
    match loops(&writers).next() {
        Some((_, message)) => Err(Error::input(message).with("expected", "another topic, or one of those between them dropped")),
        None => Ok(()),
    }
}

/// Refuses what a sink or an alert could not be planned over any more: now, or once a version that is being built is
/// served.
async fn refuse_broken_outputs(registry: &Registry, functions: &Functions) -> Result<()> {
    let now = registry.broken_output(functions).await;
    for view in registry.views.iter().filter(|view| view.status == DefinitionStatus::Building) {
        let later = registry.serving(&view.name, view.version).broken_output(functions).await;
        match (&now, later) {
            (Some(broken), None) => return Err(needs(broken, view)),
            (None, Some(broken)) => {
                return Err(refused(&broken, &format!(" over version {} of the view \"{}\"", view.version, view.name)));
            }
            _ => {}
        }
    }
    match now {
        Some(broken) => Err(refused(&broken, "")),
        None => Ok(()),
    }
}

fn refused(broken: &BrokenOutput, when: &str) -> Error {
    let (kind, name, found) = (broken.kind.word(), &broken.name, &broken.found);
    let expected = format!("views with the columns and keys that live {kind}s read, or the {kind} changed or dropped with them");
    Error::input(format!("the {kind} \"{name}\" could no longer be planned{when}: {found}")).with("expected", expected)
}

/// The error for one that fits a version of a view that is still to be built: it would take effect at once.
fn needs(broken: &BrokenOutput, view: &LiveView) -> Error {
    let (kind, name, found) = (broken.kind.word(), &broken.name, &broken.found);
    let LiveView { name: view, version, .. } = view;
    let help = format!(
        "apply a view with the columns of both versions first, and the {kind} once that is served (`basestream batch run {view}` \
         builds it); then remove the columns that are not read any more"
    );
    let message = format!("the {kind} \"{name}\" needs version {version} of the view \"{view}\", which is built first: {found}");
    Error::input(message).with("help", help)
}

/// Turns the changes into one commit.
fn commit_of(state: &CatalogState, changes: &Changes, records: Vec<DefinitionRecord>, now: Micros) -> Commit {
    let mut expect: Vec<Expect> = changes
        .changes
        .iter()
        .filter(|change| !matches!(change.what, What::Unchanged { .. } | What::RolledBack { .. }))
        .map(|change| Expect::NewestVersion { kind: change.kind, name: change.name.clone(), version: change.newest })
        .collect();
    let is_known = |record: &DefinitionRecord| records_named(state, record.kind, &record.name).any(|known| known.version == record.version);
    if records.iter().any(is_known) {
        // A version is retired or kept: no other transaction may have started to depend on it meanwhile. Or it is
        // adjusted: a run may have switched to it.
        expect.push(Expect::Revision(state.revision));
    } else if !records.is_empty() {
        // What is new was planned over these definitions: none may be changed or dropped meanwhile.
        expect.push(Expect::Live(state.live_versions()));
    }
    // What stays and what is new was planned with these values: none may be set or dropped meanwhile.
    let parameters = state.parameter_versions();
    expect.extend((!parameters.is_empty()).then_some(Expect::ParameterVersions(parameters)));
    let remove = ended_pauses(state, &records);
    let values = values_of(changes, local_user(), now).into_iter().map(Add::Parameter);
    let add = records.into_iter().map(Add::Definition).chain(values).collect();
    Commit { id: Uuid::now_v7(), expect, add, remove, ..Commit::default() }
}

/// A sink or an alert that is dropped is not paused when it is defined again.
fn ended_pauses(state: &CatalogState, records: &[DefinitionRecord]) -> Vec<Remove> {
    let is_of = |record: &&DefinitionRecord, pause: &PauseRecord| record.kind == pause.kind && record.name == pause.name;
    let is_dropped = |pause: &&PauseRecord| {
        let mut of_it = records.iter().filter(|record| is_of(record, pause)).peekable();
        of_it.peek().is_some() && !of_it.any(|record| record.status.is_live())
    };
    state.pauses.iter().filter(is_dropped).map(|pause| Remove::Pause { kind: pause.kind, name: pause.name.clone() }).collect()
}

#[cfg(test)]
mod tests;
