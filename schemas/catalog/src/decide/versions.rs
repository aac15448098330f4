//! Decides what becomes of a view's versions: which one is served, how long the one before is kept, what is dropped.
//!
//! Each decision is a set of definition records; [`versions_commit`] makes them one transaction, which is refused if
//! anything was committed since the state was read.

use std::time::Duration;

use uuid::Uuid;

use crate::{Add, CatalogState, Commit, DefinitionKind, DefinitionRecord, DefinitionStatus, Expect};
use types::tiles::Micros;
use types::{Error, Result};

/// Returns the records by which a live version of a view becomes the served one; none if it is already.
///
/// The version that was served is kept for `keep_old`, or retired if that is 0. Versions that are being built and are
/// older than the served one are retired: nothing waits for them any more.
///
/// Errors: `Conflict` if the version is not live (any more).
pub fn serve_version(state: &CatalogState, view: &str, version: u32, keep_old: Duration, now: Micros) -> Result<Vec<DefinitionRecord>> {
    let live: Vec<&DefinitionRecord> = live_versions(state, view).collect();
    let Some(chosen) = live.iter().find(|record| record.version == version) else {
        let message = "the view's version was dropped meanwhile";
        return Err(Error::conflict(message).with("view", view).with("version", version));
    };
    if chosen.status == DefinitionStatus::Active {
        return Ok(Vec::new());
    }
    // After every other one that is kept, whichever process's clock said when that was.
    let last_kept = live.iter().filter(|record| record.status == DefinitionStatus::Kept).map(|record| record.since).max();
    let since = last_kept.map_or(now, |last| now.max(last.saturating_add(1)));
    let replaced = live.iter().filter(|record| record.version != version).filter_map(|record| match record.status {
        DefinitionStatus::Active => Some(kept_for(record, keep_old, since, now)),
        DefinitionStatus::Building if record.version < version => Some(record.with_status(DefinitionStatus::Retired, now)),
        _ => None,
    });
    Ok(replaced.chain([chosen.with_status(DefinitionStatus::Active, now)]).collect())
}

fn kept_for(record: &DefinitionRecord, keep_old: Duration, since: Micros, now: Micros) -> DefinitionRecord {
    if keep_old.is_zero() {
        return record.with_status(DefinitionStatus::Retired, now);
    }
    let length = i64::try_from(keep_old.as_micros()).unwrap_or(i64::MAX);
    DefinitionRecord { kept_until: Some(now.saturating_add(length)), ..record.with_status(DefinitionStatus::Kept, since) }
}

/// Returns the version that was served before the present one, if it is kept: not one that was replaced earlier, where
/// the one before is gone.
pub fn version_before<'s>(state: &'s CatalogState, view: &str) -> Option<&'s DefinitionRecord> {
    let served = live_versions(state, view).find(|record| record.status == DefinitionStatus::Active);
    let is_before = |record: &&DefinitionRecord| served.is_none_or(|served| record.since >= served.since);
    let kept = live_versions(state, view).filter(|record| record.status == DefinitionStatus::Kept);
    kept.filter(is_before).max_by_key(|record| (record.since, record.version))
}

/// Returns the records that retire kept versions whose time is over.
pub fn expired_versions(state: &CatalogState, now: Micros) -> Vec<DefinitionRecord> {
    let kept = state.live(DefinitionKind::View).filter(|record| record.status == DefinitionStatus::Kept);
    let expired = kept.filter(|record| record.kept_until.is_none_or(|until| until <= now));
    expired.map(|record| record.with_status(DefinitionStatus::Retired, now)).collect()
}

/// Returns the records that retire one live version of a view, or all of them.
pub fn drop_versions(state: &CatalogState, view: &str, version: Option<u32>, now: Micros) -> Vec<DefinitionRecord> {
    let dropped = live_versions(state, view).filter(|record| version.is_none_or(|version| record.version == version));
    dropped.map(|record| record.with_status(DefinitionStatus::Retired, now)).collect()
}

/// Returns the commit that writes such records.
pub fn versions_commit(state: &CatalogState, id: Uuid, records: Vec<DefinitionRecord>) -> Commit {
    let expect = vec![Expect::Revision(state.revision)];
    Commit { id, expect, add: records.into_iter().map(Add::Definition).collect(), ..Commit::default() }
}

fn live_versions<'s>(state: &'s CatalogState, view: &str) -> impl Iterator<Item = &'s DefinitionRecord> {
    state.live(DefinitionKind::View).filter(move |record| &*record.name == view)
}

#[cfg(test)]
mod tests;
