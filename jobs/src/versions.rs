//! `view list`, `versions`, `switch`, `rollback` and `drop`: which views there are, what a view's versions are, and
//! which one is served.
//!
//! What is decided is a pure function of a catalog state (`decide`); it is committed in one transaction, on the state
//! that it was decided on, and decided again if anything else was committed in between.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use catalog::{CatalogState, DefinitionKind, DefinitionRecord, DefinitionStatus, serve_version, versions_commit};
use committed::building::BuildProgress;
use committed::names::{live_names, no_view};
use committed::registry::Registry;
use definitions::{KEEP_OLD, parse};
use engine::events::format_timestamp;
use serde::Serialize;
use types::tiles::Micros;
use types::{Error, Result};
use uuid::Uuid;

use crate::apply::{DiffLine, line_diff, normalised, refuse_breaking, with_records};
use crate::installation::{Installation, now};
use crate::status::BuildingReport;
use crate::storage_report::view_usages;

mod decide;
pub mod diff;
mod list;

pub use decide::{Dropped, Switched};
pub use list::ListedView;

use list::list_views;

/// How often a change of versions is decided while other commits get in between.
const ATTEMPTS: usize = 20;
/// How much of a changed line is shown.
const SHOWN: usize = 60;

/// A view, or one version of it: `device_velocity`, `device_velocity@2`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionName {
    pub view: String,
    pub version: Option<u32>,
}

impl FromStr for VersionName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (view, version) = match text.split_once('@') {
            None => (text, None),
            Some((view, version)) => {
                let number = version.parse().ok().filter(|number| *number > 0);
                (view, Some(number.ok_or_else(|| format!("found '{version}' after the @, expected the number of a version: {view}@2"))?))
            }
        };
        match view {
            "" => Err("found no view, expected VIEW or VIEW@VERSION".into()),
            _ => Ok(VersionName { view: view.to_owned(), version }),
        }
    }
}

impl fmt::Display for VersionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            Some(version) => write!(f, "{}@{version}", self.view),
            None => f.write_str(&self.view),
        }
    }
}

/// The versions of a view, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Versions {
    pub view: Arc<str>,
    /// The version that is served.
    pub served: Option<u32>,
    pub versions: Vec<VersionReport>,
}

/// A version of a view.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VersionReport {
    pub version: u32,
    pub status: DefinitionStatus,
    pub applied_at: String,
    /// Since when it has this status.
    pub since: String,
    pub kept_until: Option<String>,
    /// How far it is built, while it is.
    pub building: Option<BuildingReport>,
    /// The bytes of its snapshots in the object storage.
    pub snapshot_bytes: i64,
    /// What differs from the version before, in a line.
    pub differs: String,
}

impl VersionReport {
    /// `served`, `building, 43 %, about 2 min`, `kept until 2026-03-02T10:00:00Z`, `dropped`
    pub fn state(&self) -> String {
        match (self.status, &self.building, &self.kept_until) {
            (DefinitionStatus::Active, _, _) => "served".into(),
            (DefinitionStatus::Building, Some(building), _) => format!("building, {}", building.text()),
            (DefinitionStatus::Building, None, _) => "building".into(),
            (DefinitionStatus::Kept, _, Some(until)) => format!("kept until {until}"),
            (DefinitionStatus::Kept, _, None) => "kept".into(),
            (DefinitionStatus::Retired | DefinitionStatus::Redecoded, _, _) => "dropped".into(),
        }
    }
}

impl Installation {
    /// Returns the views that are served or being built.
    pub async fn views(&self) -> Result<Vec<ListedView>> {
        let state = self.catalog.state().await?;
        let registry = Registry::load(&state, &self.functions).await?;
        Ok(list_views(&state, &registry, now()))
    }

    /// Returns the versions of a view, with those that were dropped.
    ///
    /// Errors: `NotFound` for a view that was never defined.
    pub async fn view_versions(&self, view: &str) -> Result<Versions> {
        let state = self.catalog.state().await?;
        let registry = Registry::load(&state, &self.functions).await?;
        versions(&state, &registry, view, now())
    }

    /// Makes another live version of a view the served one: the version that is being built, or `version`.
    ///
    /// Errors: `NotFound` for a version that there is not (any more), `Unavailable` for one that cannot answer yet,
    /// `Input` for one that a sink or an alert could not read.
    pub async fn switch_view(&self, view: &str, version: Option<u32>) -> Result<Switched> {
        self.change_versions(|state, registry, now| decide::switch(state, registry, (view, version), now)).await
    }

    /// Returns to the version that was served before.
    ///
    /// Errors: `NotFound` if it is not kept (any more), `Input` if a sink or an alert could not read it.
    pub async fn roll_back_view(&self, view: &str) -> Result<Switched> {
        self.change_versions(|state, registry, now| decide::roll_back(state, registry, view, now)).await
    }

    /// Drops a version of a view, or the view. `is_sure`: what is served is dropped too.
    ///
    /// Errors: `NotFound` for a version that there is not (any more), `Input` for what is served and for a view that
    /// other views, a sink or an alert read.
    pub async fn drop_view(&self, view: &str, version: Option<u32>, is_sure: bool) -> Result<Dropped> {
        self.change_versions(|state, _, now| decide::drop_view(state, (view, version), is_sure, now)).await
    }

    /// Decides on the present state and commits, unless there is nothing to change.
    async fn change_versions<T>(
        &self,
        decide: impl Fn(&CatalogState, &Registry, Micros) -> Result<(T, Vec<DefinitionRecord>)>,
    ) -> Result<T> {
        let decide = &decide;
        let decide = |state: Arc<CatalogState>| async move {
            let registry = Registry::load(&state, &self.functions).await?;
            let (outcome, records) = decide(&state, &registry, now())?;
            if !records.is_empty() {
                refuse_breaking(&registry, &with_records(&state, &records), &self.functions).await?;
            }
            let commit = (!records.is_empty()).then(|| versions_commit(&state, Uuid::now_v7(), records));
            Ok((outcome, commit))
        };
        self.catalog.decide_and_commit(ATTEMPTS, decide).await
    }
}

/// Returns the versions of a view as a catalog state has them.
pub fn versions(state: &CatalogState, registry: &Registry, view: &str, now: Micros) -> Result<Versions> {
    let records = records_of_view(state, view)?;
    let usages = view_usages(state);
    let report = |(at, record): (usize, &&DefinitionRecord)| VersionReport {
        version: record.version,
        status: record.status,
        applied_at: format_timestamp(record.created_at),
        since: format_timestamp(record.since),
        kept_until: record.kept_until.map(format_timestamp),
        building: registry
            .view(view, record.version)
            .filter(|live| live.status == DefinitionStatus::Building)
            .map(|live| BuildingReport::new(&BuildProgress::from_state(state, live, now), now)),
        snapshot_bytes: usages
            .iter()
            .find(|usage| &*usage.view == view && usage.version == record.version)
            .map_or(0, |usage| usage.snapshots.bytes),
        differs: at.checked_sub(1).map_or_else(|| "the first version".to_owned(), |before| differs(records[before], record)),
    };
    let served = records.iter().find(|record| record.status == DefinitionStatus::Active).map(|record| record.version);
    Ok(Versions { view: view.into(), served, versions: records.iter().enumerate().map(report).collect() })
}

/// Returns all versions of a view that the catalog has, in the order of their numbers.
///
/// Errors: `NotFound` if it has none.
pub(crate) fn records_of_view<'s>(state: &'s CatalogState, view: &str) -> Result<Vec<&'s DefinitionRecord>> {
    let records: Vec<&DefinitionRecord> = state.definitions.versions(DefinitionKind::View, view).collect();
    match records.is_empty() {
        true => Err(no_view(view, live_names(state))),
        false => Ok(records),
    }
}

/// Returns one version of a view, or, if none is named, the served one (or, before there is one, the one being built).
///
/// Errors: `NotFound` if there is none. The error lists those that exist.
pub(crate) fn version_of<'s>(state: &'s CatalogState, name: &VersionName) -> Result<&'s DefinitionRecord> {
    let records = records_of_view(state, &name.view)?;
    match name.version {
        None => state.served_or_building(DefinitionKind::View, &name.view).ok_or_else(|| dropped_view(&name.view, &records)),
        Some(version) => records.iter().copied().find(|record| record.version == version).ok_or_else(|| {
            let known: Vec<String> = records.iter().map(|record| record.version.to_string()).collect();
            Error::not_found(format!("the view \"{}\" has no version {version}: expected one of {}", name.view, known.join(", ")))
        }),
    }
}

/// The error for a view of which no version is live.
fn dropped_view(view: &str, records: &[&DefinitionRecord]) -> Error {
    let last = records.iter().map(|record| record.since).max().map(format_timestamp).unwrap_or_default();
    Error::not_found(format!("the view \"{view}\" was dropped"))
        .with("dropped_at", last)
        .with("help", "`basestream apply` defines it again, from the archive")
}

fn differs(before: &DefinitionRecord, record: &DefinitionRecord) -> String {
    let lines = line_diff(&normalised(&before.sql), &normalised(&record.sql));
    let added: Vec<&str> =
        lines.iter().filter_map(|line| if let DiffLine::Added(line) = line { Some(line.trim()) } else { None }).collect();
    let removed: Vec<&str> =
        lines.iter().filter_map(|line| if let DiffLine::Removed(line) = line { Some(line.trim()) } else { None }).collect();
    let from = before.version;
    match (added.first(), removed.first()) {
        (None, None) => {
            format!("nothing from version {from}: it was defined again, or columns that it reads were decoded again")
        }
        (Some(line), _) => format!("+{} -{} from version {from}: {}", added.len(), removed.len(), shortened(line)),
        (None, Some(line)) => format!("+0 -{} from version {from}: without {}", removed.len(), shortened(line)),
    }
}

fn shortened(line: &str) -> String {
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{} ..", line[..end].trim_end()),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests;
