//! What is wrong: a pure function from what was observed to problems, each with its cause, its effect and the next step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use catalog::CatalogState;
use committed::registry::Registry;
use engine::fresh::ViewVersion;
use event_log::PartitionBounds;
use serde::{Deserialize, Serialize};
use types::tiles::Micros;
use types::vector::PartitionId;

use crate::dead_letters::Recent;

mod files;
mod log;
mod progress;
mod records;
mod runs;
mod services;
mod views;

pub(super) use records::RECENT_US;

/// Each topic's ends, by its stream; or why the log did not tell them.
pub type Ends = BTreeMap<Arc<str>, Result<Vec<PartitionBounds>, String>>;

/// Something that a person should know, or has to do something about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Names the kind of fault.
    pub fault: Fault,
    pub severity: Severity,
    /// What was found, with its place.
    pub what: String,
    pub cause: String,
    pub effect: String,
    pub next_step: String,
}

/// In the order in which problems are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something stands still, or data is missing: a person must act.
    Error,
    /// It will become worse, or answers are slower or older than they should be.
    Warning,
    /// It is as it should be, and worth knowing.
    Notice,
}

/// The kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    CatalogUnreachable,
    StorageUnreachable,
    LogUnreachable,
    DefinitionsUnplanned,
    LogExpired,
    LogShortened,
    LogRecreated,
    OffsetsAbsent,
    FileDamaged,
    PartitionStuck,
    PartitionBehind,
    RunAbandoned,
    RunFailing,
    RunOverdue,
    VersionUnbuilt,
    ViewRefused,
    StatesOfAnotherFormat,
    DeadLetters,
    ReplayUnfinished,
    FilesUndeleted,
    PinOld,
    Gap,
}

/// What was observed. What could not be is empty, and said in `unreachable`.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub now: Micros,
    pub state: CatalogState,
    /// What the definitions mean; or why they have no meaning.
    pub registry: Option<Result<Registry, String>>,
    pub ends: Ends,
    /// The identity of each stream's topic, where the log told it.
    pub identities: BTreeMap<Arc<str>, String>,
    pub embedded_log: bool,
    pub checkpoint_interval: Duration,
    /// The log's time of the first record that is not committed, where the log told it.
    pub waiting_since: BTreeMap<PartitionId, Micros>,
    /// The format that each published snapshot's states are of; or why its manifest cannot be read.
    pub stamps: BTreeMap<ViewVersion, Result<String, String>>,
    /// What became of the dead letters of late, by their stream.
    pub dead_letters: BTreeMap<Arc<str>, Recent>,
    /// How many files are marked for deletion, and since when the oldest.
    pub marked_for_deletion: Option<(i64, Micros)>,
    pub unreachable: Vec<Unreachable>,
    /// Views that the node at `serving.http` could not load, where one answers.
    pub refused: Vec<Refused>,
}

/// A view that a node does not answer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Refused {
    pub view: Arc<str>,
    pub version: u32,
    pub error: String,
}

/// A service that does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreachable {
    pub service: Service,
    pub error: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    Catalog,
    Storage,
    Log,
}

/// Everything that is wrong, the worst first.
pub fn problems(facts: &Facts) -> Vec<Problem> {
    let mut found = services::problems(facts);
    found.extend(log::problems(facts));
    found.extend(records::problems(facts));
    found.extend(progress::problems(facts));
    found.extend(runs::problems(facts));
    found.extend(views::problems(facts));
    found.extend(files::problems(facts));
    found.sort_by_key(|problem| (problem.severity, problem.fault));
    found
}

/// `4 min`, `3 h`: a length of time as a person says it.
fn for_time(us: Micros) -> String {
    let seconds = us.max(0) / 1_000_000;
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

fn micros(duration: Duration) -> Micros {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
