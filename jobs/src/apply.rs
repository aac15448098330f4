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

use catalog::{Catalog, CatalogState};
use definitions::Definitions;
use engine::functions::Functions;
use event_log::Log;
use storage::ObjectStorage;
use types::Result;
use types::tiles::Micros;

use crate::backfill::OnProgress;

mod changes;
mod checked;
mod commit;
mod compatible;
mod diff;
mod inline;
mod planning;
mod rebuilt;
mod records;
mod switch;

pub use changes::{Change, ChangeKind, Changes, ValueChange};
pub(crate) use checked::{checked_outputs, checked_records, refuse_breaking};
pub use diff::DiffLine;
pub(crate) use diff::line_diff;
pub(crate) use inline::{names_as_staging, normalised, self_contained};
pub(crate) use planning::{means_the_same, plan_changes};
pub use records::{records_of, values_of, with_records, with_values};

use switch::{Switch, prepared};

/// The parts of an installation that an apply needs.
pub struct ApplyTarget<'a> {
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
pub async fn apply(target: &ApplyTarget<'_>, wanted: Wanted<'_>, options: ApplyOptions, now: Micros) -> Result<Changes> {
    let mut switch = Switch { target, wanted, options, now, staged: BTreeMap::new(), is_sent: false };
    let outcome = switch.run().await;
    switch.discard_unnamed(outcome.as_ref().ok()).await;
    outcome
}

/// Returns what an apply would change, with the cost of decoding archives again.
pub async fn plan(target: &ApplyTarget<'_>, wanted: Wanted<'_>, options: ApplyOptions, state: &CatalogState) -> Result<Changes> {
    let mut staged = BTreeMap::new();
    Ok(prepared(target, state, wanted, options, &mut staged).await?.changes)
}

#[cfg(test)]
mod tests;
