//! Decides what `view switch`, `rollback` and `drop` do to a view's versions: pure functions of a catalog state and the
//! user's request.

use catalog::{drop_versions, version_before};
use committed::lacking::waits_for_run;
use definitions::Schedule;

use super::*;
use crate::apply::names_as_staging;
use crate::output::noun_of;

/// What a decision changes: what is reported, and the records to commit.
type Decided<T> = Result<(T, Vec<DefinitionRecord>)>;

/// Another version is served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Switched {
    pub view: Arc<str>,
    /// The version that was served before; null if none was.
    pub from: Option<u32>,
    pub version: u32,
    /// Until when the version before is kept; null if it is not.
    pub kept_until: Option<String>,
    /// False if the version was served already.
    pub changed: bool,
}

/// Versions of a view were dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Dropped {
    pub view: Arc<str>,
    pub versions: Vec<u32>,
    /// Whether no version is left.
    pub is_whole: bool,
}

pub(super) fn switch(state: &CatalogState, registry: &Registry, (view, version): (&str, Option<u32>), now: Micros) -> Decided<Switched> {
    let records = live_of_view(state, view)?;
    let chosen = match version {
        Some(_) => live_version(state, view, version)?,
        None => {
            let building = records.iter().copied().filter(|record| record.status == DefinitionStatus::Building);
            building.max_by_key(|record| record.version).ok_or_else(|| nothing_to_switch_to(view, &records))?
        }
    };
    let keep_old = keep_old(chosen);
    serve(state, registry, (chosen, keep_old), now)
}

/// The version that is left is kept, whatever the text of the one before says: that was written for a change forwards.
pub(super) fn roll_back(state: &CatalogState, registry: &Registry, view: &str, now: Micros) -> Decided<Switched> {
    let records = live_of_view(state, view)?;
    match version_before(state, view) {
        Some(before) => serve(state, registry, (before, keep_old(before).max(KEEP_OLD)), now),
        None => {
            let served = records.iter().find(|record| record.status == DefinitionStatus::Active);
            let served = served.map_or("none".to_owned(), |served| served.version.to_string());
            let kept: Vec<&DefinitionRecord> = records.iter().copied().filter(|record| record.status == DefinitionStatus::Kept).collect();
            if !kept.is_empty() {
                let message =
                    format!("the version before the served one of the view \"{view}\" is not kept: there is nothing to return to");
                return Err(Error::not_found(message)
                    .with("served version", served)
                    .with("kept versions", numbers(&kept))
                    .with("help", format!("`basestream view switch {view}@N` serves one of these")));
            }
            Err(Error::not_found(format!("no version of the view \"{view}\" is kept: there is nothing to return to"))
                .with("served version", served)
                .with(
                    "help",
                    "a replaced version is kept for `keep_old` of the new one; its text is in `basestream view diff`: \
                     apply it to build it again",
                ))
        }
    }
}

pub(super) fn drop_view(state: &CatalogState, (view, version): (&str, Option<u32>), is_sure: bool, now: Micros) -> Decided<Dropped> {
    let live = live_of_view(state, view)?;
    if version.is_some() {
        let record = live_version(state, view, version)?;
        if record.status != DefinitionStatus::Active {
            return Ok(dropped(view, drop_versions(state, view, version, now), false));
        }
        if live.len() > 1 {
            let message = format!(
                "version {} of the view \"{view}\" is the served one, and others are live: it is not dropped alone",
                record.version
            );
            let help = format!(
                "`basestream view rollback {view}` returns to the version before; `basestream view drop {view} --yes` drops all of them"
            );
            return Err(Error::input(message).with("live versions", numbers(&live)).with("help", help));
        }
    }
    refuse_if_read(state, view)?;
    refuse_if_followed(state, view)?;
    if !is_sure {
        let versions = format!("{} {}", noun_of(live.len(), "version"), numbers(&live));
        let message = format!("the view \"{view}\" is served: dropping it ends its answers, and drops its {versions}");
        return Err(Error::input(message).with("help", format!("say `basestream view drop {view} --yes` if that is meant")));
    }
    Ok(dropped(view, drop_versions(state, view, None, now), true))
}

fn dropped(view: &str, records: Vec<DefinitionRecord>, is_whole: bool) -> (Dropped, Vec<DefinitionRecord>) {
    let versions = records.iter().map(|record| record.version).collect();
    (Dropped { view: view.into(), versions, is_whole }, records)
}

/// How long the text of a version wants the one before it to be kept.
fn keep_old(record: &DefinitionRecord) -> Duration {
    parse::parse_view(&record.sql).map_or(KEEP_OLD, |definition| definition.keep_old)
}

fn serve(state: &CatalogState, registry: &Registry, (chosen, keep_old): (&DefinitionRecord, Duration), now: Micros) -> Decided<Switched> {
    let (view, version) = (&chosen.name, chosen.version);
    if let Some(live) = registry.view(view, version)
        && waits_for_run(state, live)?
    {
        let progress = BuildProgress::from_state(state, live, now);
        let message = format!("version {version} of the view \"{view}\" cannot answer yet: it is being built, {}", progress.text(now));
        return Err(Error::unavailable(message).with(
            "help",
            format!("the switch happens by itself after its first run; `basestream view versions {view}` shows how far it is"),
        ));
    }
    let mut records = serve_version(state, view, version, keep_old, now)?;
    let is_left = |record: &&mut DefinitionRecord| record.version > version && record.status != DefinitionStatus::Building;
    records.iter_mut().filter(is_left).for_each(|record| record.rolled_back = true);
    let from = state.definitions.live_versions(DefinitionKind::View, view).find(|record| record.status == DefinitionStatus::Active);
    let kept_until =
        records.iter().find(|record| Some(record.version) == from.map(|from| from.version)).and_then(|record| record.kept_until);
    let switched = Switched {
        view: view.clone(),
        from: from.map(|record| record.version),
        version,
        kept_until: kept_until.map(format_timestamp),
        changed: !records.is_empty(),
    };
    Ok((switched, records))
}

fn nothing_to_switch_to(view: &str, live: &[&DefinitionRecord]) -> Error {
    let kept: Vec<&DefinitionRecord> = live.iter().copied().filter(|record| record.status == DefinitionStatus::Kept).collect();
    let help = match kept.last() {
        Some(last) => format!("name one that is kept: `basestream view switch {view}@{}`", last.version),
        None => "change the view's file and `basestream apply`: that builds a new version".to_owned(),
    };
    Error::not_found(format!("no version of the view \"{view}\" is being built: there is nothing to switch to"))
        .with("kept versions", if kept.is_empty() { "none".to_owned() } else { numbers(&kept) })
        .with("help", help)
}

/// Errors: `NotFound` if the view is unknown, or no version of it is live.
fn live_of_view<'s>(state: &'s CatalogState, view: &str) -> Result<Vec<&'s DefinitionRecord>> {
    let records = records_of_view(state, view)?;
    let live: Vec<&DefinitionRecord> = records.iter().copied().filter(|record| record.status.is_live()).collect();
    if live.is_empty() { Err(dropped_view(view, &records)) } else { Ok(live) }
}

/// Errors: `NotFound` if the version is unknown, or was dropped.
fn live_version<'s>(state: &'s CatalogState, view: &str, version: Option<u32>) -> Result<&'s DefinitionRecord> {
    let record = version_of(state, &VersionName { view: view.to_owned(), version })?;
    if record.status.is_live() {
        return Ok(record);
    }
    let (version, since) = (record.version, format_timestamp(record.since));
    Err(Error::not_found(format!("version {version} of the view \"{view}\" is gone: it was dropped at {since}"))
        .with("live versions", numbers(&live_of_view(state, view)?))
        .with("help", "apply its text to build it again: `basestream view diff` shows it"))
}

/// A staging view is part of the text of the views that read it: they would go on, and the files would no longer agree.
fn refuse_if_read(state: &CatalogState, view: &str) -> Result<()> {
    let reader = state.live(DefinitionKind::View).find(|other| &*other.name != view && names_as_staging(&other.sql, view));
    match reader {
        None => Ok(()),
        Some(reader) => Err(Error::input(format!("the view \"{view}\" is not dropped: the view \"{}\" reads it", reader.name))
            .with("help", "change or drop that view first")),
    }
}

/// The runs of a view with `after = 'view'` would never be due again.
fn refuse_if_followed(state: &CatalogState, view: &str) -> Result<()> {
    let follows = |record: &&DefinitionRecord| {
        let schedule = parse::parse_view(&record.sql).ok().and_then(|definition| definition.schedule);
        matches!(schedule, Some(Schedule::After(other)) if *other == *view)
    };
    match state.live(DefinitionKind::View).filter(|other| &*other.name != view).find(follows) {
        None => Ok(()),
        Some(follower) => Err(Error::input(format!("the view \"{view}\" is not dropped: the view \"{}\" runs after it", follower.name))
            .with("help", format!("give \"{}\" another schedule than after = '{view}' first, or drop it", follower.name))),
    }
}

fn numbers(records: &[&DefinitionRecord]) -> String {
    records.iter().map(|record| record.version.to_string()).collect::<Vec<_>>().join(", ")
}
