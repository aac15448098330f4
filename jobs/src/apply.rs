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
use serde::Serialize;
use storage::ObjectStorage;
use types::tiles::Micros;
use types::{Error, Result};
use uuid::Uuid;

use crate::backfill::{OnProgress, Reader, Survey};
use crate::check::loops;
use crate::check::retention::refuse_short_retentions;

mod compatible;
mod diff;
mod inline;
mod rebuilt;
mod switch;

pub use compatible::incompatibilities;
pub use diff::{DiffLine, line_diff};
pub(crate) use inline::names_as_staging;
pub use inline::{normalised, self_contained};

use switch::{Switch, prepared};

/// What the files would change: streams, then views, each in the order of their names.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Changes {
    pub changes: Vec<Change>,
    /// The archives that are decoded again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backfills: Vec<Survey>,
    /// The live view versions that read columns which are decoded again: none of them is kept.
    #[serde(skip)]
    pub stale: Vec<Reader>,
    /// The catalog revision on which the plan is based.
    pub revision: i64,
}

/// What happens to one definition.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    pub kind: DefinitionKind,
    pub name: Arc<str>,
    #[serde(flatten)]
    pub what: What,
    /// The text to store.
    #[serde(skip)]
    pub sql: String,
    /// The newest version in the catalog, live or not.
    #[serde(skip)]
    newest: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "change", rename_all = "lowercase")]
pub enum What {
    /// A first version, or one after all others were retired. It takes effect at once.
    Added {
        version: u32,
    },
    /// A new version. That of a view is built next to the old one; all others take effect at once.
    Changed {
        from: u32,
        version: u32,
        built_beside: bool,
        diff: Vec<DiffLine>,
    },
    /// A view's options of its runs (when, and with what) change. The version stays, and so does all that was computed.
    Adjusted {
        version: u32,
        diff: Vec<DiffLine>,
    },
    /// The files are back at the served version: the version that is being built is dropped.
    Reverted {
        version: u32,
        dropped: u32,
    },
    /// The files are back at a version that is kept: it is served again at once.
    Returned {
        from: u32,
        version: u32,
    },
    /// The files have the version from which the view was rolled back: the rollback stands until they change.
    RolledBack {
        /// The served version.
        version: u32,
        from: u32,
        /// Whether that one is still kept.
        is_kept: bool,
    },
    /// A view's new version with the same text, because columns that it reads are decoded again.
    Rebuilt {
        from: u32,
        version: u32,
        /// False: the version before is retired, and this one answers at once.
        built_beside: bool,
        columns: Vec<String>,
    },
    Unchanged {
        version: u32,
    },
    /// Live in the catalog, but not in the files.
    Missing {
        version: u32,
    },
    /// A change that cannot be applied.
    Refused {
        reasons: Vec<String>,
        help: String,
    },
}

#[cfg(test)]
impl Change {
    pub(crate) fn new(kind: DefinitionKind, name: &str, what: What) -> Change {
        Change { kind, name: name.into(), what, sql: String::new(), newest: None }
    }
}

impl Changes {
    /// Returns true if applying would change the catalog.
    pub fn is_empty(&self, prune: bool) -> bool {
        self.changes.iter().all(|change| match change.what {
            What::Unchanged { .. } | What::RolledBack { .. } => true,
            What::Missing { .. } => !prune,
            _ => false,
        })
    }

    /// Returns an input error that lists records which do not fit, if there are any: nothing was applied then.
    pub fn misfits(&self) -> Result<()> {
        let with_misfits = self.backfills.iter().filter_map(|survey| Some((survey, survey.misfits.as_ref()?)));
        let mut lines = Vec::new();
        for (survey, misfits) in with_misfits {
            let do_not_fit = match misfits.count {
                1 => format!("1 archived record of \"{}\" does", survey.stream),
                count => format!("{count} archived records of \"{}\" do", survey.stream),
            };
            lines.push(format!("{do_not_fit} not fit version {}:", survey.version));
            lines.extend(
                misfits.first.iter().map(|misfit| format!("  {}/{} {}: {}", misfit.stream, misfit.partition, misfit.offset, misfit.reason)),
            );
            let more = misfits.count.saturating_sub(misfits.first.len() as u64);
            lines.extend((more > 0).then(|| format!("  and {more} more")));
        }
        if lines.is_empty() {
            return Ok(());
        }
        let help = "nothing was changed; choose a type that they fit, or use `--null-misfits`: their values become \
            NULL, in a column that may be NULL";
        Err(Error::input(lines.join("\n")).with("help", help))
    }

    /// Returns an input error that names every refusal, if there is one.
    pub fn refusals(&self) -> Result<()> {
        let mut lines = Vec::new();
        for change in &self.changes {
            if let What::Refused { reasons, help } = &change.what {
                let reasons = reasons.join("; ");
                lines.push(format!(
                    "the {} \"{}\" cannot be changed like this: {reasons}\n  help: {help}",
                    kind_name(change.kind),
                    change.name
                ));
            }
        }
        if lines.is_empty() { Ok(()) } else { Err(Error::input(lines.join("\n"))) }
    }
}

/// Returns `stream`, `view` or `sink`.
pub fn kind_name(kind: DefinitionKind) -> &'static str {
    match kind {
        DefinitionKind::Stream => "stream",
        DefinitionKind::View => "view",
        DefinitionKind::Sink => "sink",
    }
}

/// Returns what `definitions` would change in a catalog state. `staging` names the staging views. They keep nothing, so
/// a new version of one takes effect at once. (The views that name them are stored [`self_contained`] and change with
/// them.)
pub fn plan_changes(state: &CatalogState, definitions: &Definitions, staging: &BTreeSet<Arc<str>>) -> Changes {
    let mut changes = Vec::new();
    for stream in &definitions.streams {
        changes.push(plan_stream(state, definitions, stream));
    }
    for view in &definitions.views {
        changes.push(plan_view(state, definitions, view, staging.contains(&view.name)));
    }
    for sink in &definitions.sinks {
        changes.push(plan_sink(state, sink));
    }
    let named: BTreeSet<(DefinitionKindOrder, Arc<str>)> = changes.iter().map(|change| (order(change.kind), change.name.clone())).collect();
    for kind in [DefinitionKind::Stream, DefinitionKind::View, DefinitionKind::Sink] {
        let missing: BTreeSet<&Arc<str>> =
            state.live(kind).map(|record| &record.name).filter(|name| !named.contains(&(order(kind), (*name).clone()))).collect();
        for name in missing {
            let newest = newest_version(state, kind, name);
            changes.push(Change {
                kind,
                name: name.clone(),
                what: What::Missing { version: newest.unwrap_or_default() },
                sql: String::new(),
                newest,
            });
        }
    }
    changes.sort_by(|a, b| (order(a.kind), &a.name).cmp(&(order(b.kind), &b.name)));
    Changes { changes, revision: state.revision, ..Changes::default() }
}

type DefinitionKindOrder = u8;

fn order(kind: DefinitionKind) -> DefinitionKindOrder {
    match kind {
        DefinitionKind::Stream => 0,
        DefinitionKind::View => 1,
        DefinitionKind::Sink => 2,
    }
}

fn plan_stream(state: &CatalogState, definitions: &Definitions, stream: &definitions::StreamDefinition) -> Change {
    let kind = DefinitionKind::Stream;
    let sql = normalised(&stream.sql);
    let newest = of_name(state, kind, &stream.name).max_by_key(|record| record.version);
    let change = |what| Change { kind, name: stream.name.clone(), what, sql: sql.clone(), newest: newest.map(|record| record.version) };
    if let Some(refused) = taken_name(state, kind, &stream.name).or_else(|| taken_topic(state, definitions, stream)) {
        return change(refused);
    }
    let Some(newest) = newest else { return change(What::Added { version: 1 }) };
    let live = newest.status.is_live();
    if live && normalised(&newest.sql) == sql {
        return change(What::Unchanged { version: newest.version });
    }
    // Events archived under an earlier version stay readable as this stream, so a retired version counts too.
    let reasons = match parse::parse_stream(&newest.sql) {
        Ok(before) => incompatibilities(&before, stream),
        Err(error) => vec![format!("version {} in the catalog does not parse: {error}", newest.version)],
    };
    if !reasons.is_empty() {
        return change(What::Refused {
            reasons,
            help: "define a stream with a new name and a new topic, and leave this one unchanged".into(),
        });
    }
    let version = newest.version + 1;
    match live {
        false => change(What::Added { version }),
        true => {
            change(What::Changed { from: newest.version, version, built_beside: false, diff: line_diff(&normalised(&newest.sql), &sql) })
        }
    }
}

fn plan_view(state: &CatalogState, definitions: &Definitions, view: &definitions::ViewDefinition, staging: bool) -> Change {
    let kind = DefinitionKind::View;
    let sql = normalised(&self_contained(view, definitions));
    let newest = newest_version(state, kind, &view.name);
    let change = |what| Change { kind, name: view.name.clone(), what, sql: sql.clone(), newest };
    if let Some(refused) = taken_name(state, kind, &view.name) {
        return change(refused);
    }
    let version = newest.unwrap_or_default() + 1;
    let Some(last) = last_version(state, &view.name) else { return change(What::Added { version }) };
    let is_unchanged = |record: &&DefinitionRecord| normalised(&record.sql) == sql;
    if is_unchanged(&last) {
        return change(What::Unchanged { version: last.version });
    }
    let diff = || line_diff(&normalised(&last.sql), &sql);
    let is_same = |record: &&DefinitionRecord| means_the_same(&record.sql, &sql);
    if is_same(&last) {
        return change(What::Adjusted { version: last.version, diff: diff() });
    }
    let served = of_status(state, &view.name, DefinitionStatus::Active).next();
    if let Some(served) = served.filter(is_same) {
        return change(What::Reverted { version: served.version, dropped: last.version });
    }
    let left = of_name(state, kind, &view.name).filter(|record| record.rolled_back && is_unchanged(record));
    // Since then the version that was returned to may have been rebuilt, with its text.
    let is_last = |left: &&DefinitionRecord, served: &DefinitionRecord| {
        of_name(state, kind, &view.name)
            .filter(|record| record.version > left.version)
            .all(|record| means_the_same(&record.sql, &served.sql))
    };
    if let Some(served) = served
        && let Some(from) = left.max_by_key(|record| record.version).filter(|left| is_last(left, served))
    {
        let is_kept = from.status == DefinitionStatus::Kept;
        return change(What::RolledBack { version: served.version, from: from.version, is_kept });
    }
    let kept = of_status(state, &view.name, DefinitionStatus::Kept).filter(is_same).max_by_key(|record| record.version);
    match kept.filter(|_| !staging) {
        Some(kept) => change(What::Returned { from: last.version, version: kept.version }),
        None => {
            let built_beside = served.is_some() && !staging;
            change(What::Changed { from: last.version, version, built_beside, diff: diff() })
        }
    }
}

/// A changed sink takes effect at once: it keeps nothing.
fn plan_sink(state: &CatalogState, sink: &definitions::SinkDefinition) -> Change {
    let kind = DefinitionKind::Sink;
    let sql = normalised(&sink.sql);
    let newest = of_name(state, kind, &sink.name).max_by_key(|record| record.version);
    let change = |what| Change { kind, name: sink.name.clone(), what, sql: sql.clone(), newest: newest.map(|record| record.version) };
    if let Some(refused) = taken_name(state, kind, &sink.name) {
        return change(refused);
    }
    let Some(newest) = newest else { return change(What::Added { version: 1 }) };
    match newest.status.is_live() {
        true if normalised(&newest.sql) == sql => change(What::Unchanged { version: newest.version }),
        true => {
            let diff = line_diff(&normalised(&newest.sql), &sql);
            change(What::Changed { from: newest.version, version: newest.version + 1, built_beside: false, diff })
        }
        false => change(What::Added { version: newest.version + 1 }),
    }
}

/// Whether two stored views have the same states and answers. A text that does not parse means something else.
fn means_the_same(before: &str, after: &str) -> bool {
    let parsed = parse::parse_view(before).ok().zip(parse::parse_view(after).ok());
    parsed.is_some_and(|(before, after)| before.means_the_same(&after))
}

/// All definitions share one namespace.
fn taken_name(state: &CatalogState, kind: DefinitionKind, name: &str) -> Option<What> {
    let others = [DefinitionKind::Stream, DefinitionKind::View, DefinitionKind::Sink].into_iter().filter(|other| *other != kind);
    let mut taken = others.flat_map(|other| state.live(other)).filter(|record| &*record.name == name);
    taken.next().map(|record| What::Refused {
        reasons: vec![format!("the catalog has a {} of that name", kind_name(record.kind))],
        help: "choose another name, or drop the other one with `apply --prune` first".into(),
    })
}

/// A topic belongs to at most one live stream.
fn taken_topic(state: &CatalogState, definitions: &Definitions, stream: &definitions::StreamDefinition) -> Option<What> {
    let of_topic = |record: &&DefinitionRecord| {
        let in_files = definitions.streams.iter().any(|known| known.name == record.name);
        record.name != stream.name && !in_files && parse::parse_stream(&record.sql).is_ok_and(|other| other.topic == stream.topic)
    };
    state.live(DefinitionKind::Stream).find(of_topic).map(|record| What::Refused {
        reasons: vec![format!("the topic \"{}\" belongs to the stream \"{}\", which is live in the catalog", stream.topic, record.name)],
        help: format!("choose another topic, or remove \"{}\" from the files and drop it with `apply --prune` first", record.name),
    })
}

fn of_name<'a>(state: &'a CatalogState, kind: DefinitionKind, name: &'a str) -> impl Iterator<Item = &'a DefinitionRecord> {
    state.definitions.iter().filter(move |record| record.kind == kind && &*record.name == name)
}

fn of_status<'a>(state: &'a CatalogState, view: &'a str, status: DefinitionStatus) -> impl Iterator<Item = &'a DefinitionRecord> {
    of_name(state, DefinitionKind::View, view).filter(move |record| record.status == status)
}

/// Returns the version of a view that was applied last and is live: the one being built, or else the served one.
fn last_version<'a>(state: &'a CatalogState, view: &'a str) -> Option<&'a DefinitionRecord> {
    let building = of_status(state, view, DefinitionStatus::Building).max_by_key(|record| record.version);
    building.or_else(|| of_status(state, view, DefinitionStatus::Active).next())
}

fn newest_version(state: &CatalogState, kind: DefinitionKind, name: &str) -> Option<u32> {
    of_name(state, kind, name).map(|record| record.version).max()
}

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
    refuse_broken_sinks(&registry, functions).await?;
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

/// Refuses what a sink could not be planned over any more: now, or once a version that is being built is served.
async fn refuse_broken_sinks(registry: &Registry, functions: &Functions) -> Result<()> {
    let building = registry.views.iter().filter(|view| view.status == DefinitionStatus::Building);
    let later = building.map(|view| (registry.serving(&view.name, view.version), Some(view)));
    for (registry, view) in [(registry.clone(), None)].into_iter().chain(later) {
        let Some((sink, found)) = registry.broken_sink(functions).await else { continue };
        let when = view.map_or_else(String::new, |view| format!(" over version {} of the view \"{}\"", view.version, view.name));
        return Err(Error::input(format!("the sink \"{sink}\" could no longer be planned{when}: {found}"))
            .with("expected", "views with the columns and keys that live sinks read, or the sink changed or dropped with them"));
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
