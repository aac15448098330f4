//! What `apply` would change, as a value that can be printed.

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::DefinitionKind;
use definitions::{AlertDefinition, SinkDefinition};
use serde::Serialize;
use types::{Error, Result};

use super::diff::DiffLine;
use crate::backfill::{ReadingView, Survey};

/// What the files would change: streams, then views, each in the order of their names.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Changes {
    pub changes: Vec<Change>,
    /// The archives that are decoded again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backfills: Vec<Survey>,
    /// The streams that begin anew, at the beginning of their topics, with their new versions: nothing of them is
    /// committed, and what decides about their records changes.
    #[serde(rename = "begins_anew", skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) restarted: BTreeMap<Arc<str>, u32>,
    /// The live view versions that read columns which are decoded again, or a stream that begins anew: none of them is
    /// kept.
    #[serde(skip)]
    pub stale: Vec<ReadingView>,
    /// The sinks and alerts of the files, with their places in them.
    #[serde(skip)]
    pub(crate) sinks: Vec<SinkDefinition>,
    #[serde(skip)]
    pub(crate) alerts: Vec<AlertDefinition>,
    /// The catalog revision on which the plan is based.
    pub revision: i64,
}

/// What happens to one definition.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    pub kind: DefinitionKind,
    pub name: Arc<str>,
    #[serde(flatten)]
    pub change_kind: ChangeKind,
    /// For a parameter of the files: its value.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub value: Option<ValueChange>,
    /// The text to store.
    #[serde(skip)]
    pub sql: String,
    /// The newest version in the catalog, live or not.
    #[serde(skip)]
    pub(super) newest: Option<u32>,
}

/// What happens to the value of a parameter. It stays as it was set, unless the files have another initial value than
/// before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ValueChange {
    /// The initial value in the files.
    pub initial: String,
    #[serde(rename = "value_before")]
    pub before: Option<String>,
    #[serde(rename = "value")]
    pub after: String,
    /// The version of the value afterwards, by which records name it: `max_hourly@3`.
    #[serde(rename = "value_version")]
    pub version: u32,
    /// The type of the value that is set; `None` if it stays.
    #[serde(skip)]
    pub(super) set: Option<String>,
}

/// What happens to a definition.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "change", rename_all = "lowercase")]
pub enum ChangeKind {
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
    /// The files have the text of the version from which a view, a sink or an alert was rolled back: the rollback
    /// stands until they change.
    RolledBack {
        /// The version that is served, or puts out records.
        version: u32,
        from: u32,
        /// Whether that one is still kept.
        is_kept: bool,
    },
    /// A view's new version with the same text, because columns that it reads are decoded again, or a stream of it
    /// begins anew.
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
    pub(crate) fn new(kind: DefinitionKind, name: &str, change_kind: ChangeKind) -> Change {
        Change { kind, name: name.into(), change_kind, value: None, sql: String::new(), newest: None }
    }
}

impl Changes {
    /// Returns true if applying would change the catalog.
    pub fn is_empty(&self, prune: bool) -> bool {
        self.changes.iter().all(|change| match change.change_kind {
            ChangeKind::Unchanged { .. } | ChangeKind::RolledBack { .. } => true,
            ChangeKind::Missing { .. } => !prune,
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
            if let ChangeKind::Refused { reasons, help } = &change.change_kind {
                let reasons = reasons.join("; ");
                lines.push(format!(
                    "the {} \"{}\" cannot be changed like this: {reasons}\n  help: {help}",
                    change.kind.word(),
                    change.name
                ));
            }
        }
        if lines.is_empty() { Ok(()) } else { Err(Error::input(lines.join("\n"))) }
    }
}

#[cfg(test)]
mod tests;
