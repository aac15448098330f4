//! Derives problems from the observed facts, as a pure function. Each has a cause, an effect and the next step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use catalog::CatalogState;
use committed::registry::Registry;
use engine::fresh::ViewVersion;
use event_log::{OpenTransaction, PartitionBounds, ReaderGroup};
use serde::{Deserialize, Serialize};
use types::tiles::Micros;
use types::vector::PartitionId;

use super::AlertFacts;
use crate::dead_letters::RecentDeadLetters;

mod alerts;
mod duration;
mod files;
mod log;
mod progress;
mod records;
mod runs;
mod services;
mod views;

pub(super) use records::RECENT_US;
pub(super) use runs::difference_text;

/// The ends of each topic's partitions, by stream; or why the log did not answer.
pub type TopicEnds = BTreeMap<Arc<str>, Result<Vec<PartitionBounds>, String>>;

/// A problem that the user should know of or act on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The kind of fault.
    pub fault: Fault,
    pub severity: Severity,
    /// What was found, and where.
    pub what: String,
    pub cause: String,
    pub effect: String,
    pub next_step: String,
}

/// Problems are listed in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Processing has stopped, or data is missing: the user must act.
    Error,
    /// It will get worse, or answers are slower or older than they should be.
    Warning,
    /// Not a fault, but worth knowing.
    Notice,
}

/// The kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    CatalogUnreachable,
    StorageUnreachable,
    StorageForeign,
    LogUnreachable,
    NodeNotReady,
    NodeUnasked,
    ClockWrong,
    SinkStalled,
    AlertUnrun,
    AlertWaits,
    AlertBehind,
    WorkerNotFollowed,
    DefinitionsUnplanned,
    LogExpired,
    LogShortened,
    LogRecreated,
    OffsetsAbsent,
    FileDamaged,
    PartitionStuck,
    StreamUnread,
    PartitionBehind,
    TransactionOpen,
    RunAbandoned,
    RunFailing,
    StatesDiffer,
    RunOverdue,
    RunUnscheduled,
    RunSlow,
    VersionUnbuilt,
    ViewRefused,
    ViewErrors,
    RetentionShort,
    StatesOfAnotherFormat,
    DeadLetters,
    ReplayUnfinished,
    FilesUndeleted,
    PinOld,
    Gap,
    LogHeld,
}

/// What was observed. Facts that could not be observed are empty, with the reason in `unreachable`.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub now: Micros,
    pub state: CatalogState,
    /// The planned definitions, or why they cannot be planned.
    pub registry: Option<Result<Registry, String>>,
    pub ends: TopicEnds,
    /// The identity of each stream's topic, if the log answered.
    pub identities: BTreeMap<Arc<str>, String>,
    pub embedded_log: bool,
    /// The consumer groups without a worker that have read topics of this installation, except for its own.
    pub idle_groups: Vec<ReaderGroup>,
    pub checkpoint_interval: Duration,
    /// The log's timestamp of the first uncommitted record, if the log answered.
    pub waiting_since: BTreeMap<PartitionId, Micros>,
    /// The transactions that hold back what follows them, in partitions that stand still.
    pub open_transactions: BTreeMap<PartitionId, OpenTransaction>,
    /// The stamp of each published snapshot's states, or why its manifest cannot be read.
    pub stamps: BTreeMap<ViewVersion, Result<String, String>>,
    /// What became of the recent dead letters, by stream.
    pub dead_letters: BTreeMap<Arc<str>, RecentDeadLetters>,
    /// How many files are marked for deletion, and since when the oldest is.
    pub marked_for_deletion: Option<(i64, Micros)>,
    pub unreachable: Vec<Unreachable>,
    /// Why the storage is not the one of this catalog, if it belongs to another.
    pub foreign_storage: Option<String>,
    /// The node at `serving.http`, if it did not tell what was asked.
    pub unasked: Option<UnaskedNode>,
    /// Views that the node at `serving.http` could not load, if one answers.
    pub refused: Vec<RefusedView>,
    /// View versions that this node does not answer until a run has built them.
    pub building: BTreeSet<ViewVersion>,
    /// Views that leave events out, by their published snapshots and by the node, if one of this installation answers.
    pub left_out: BTreeMap<ViewVersion, LeftOutEvents>,
    /// What fails in the node at `serving.http`, if one of this installation answers.
    pub failing: Vec<Failing>,
    /// The processes of workers that this node follows, or tries to.
    pub workers: Vec<WorkerLink>,
    /// The live alerts.
    pub alerts: Vec<AlertFacts>,
    /// Whether the newest event's time is the present.
    pub event_clock: bool,
}

impl Facts {
    /// Why the node does not evaluate an alert, if it says so.
    pub(super) fn error_of_alert(&self, alert: &str) -> Option<&str> {
        self.error_of(event_alerts::ALERT_STALLED, alert).map(|(_, error)| error)
    }

    /// What the node says of a sink or alert in an outage that is called `what`, and how many seconds it has lasted.
    pub(super) fn error_of(&self, what: &str, name: &str) -> Option<(u64, &str)> {
        let mut outages = self.failing.iter().filter(|failing| failing.what == what);
        outages.find_map(|outage| Some((outage.seconds, outage.errors.get(name)?.as_str())))
    }
}

/// How a node stands to a process of workers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct WorkerLink {
    pub worker: String,
    pub address: String,
    pub followed: bool,
    /// Since when.
    pub seconds: u64,
    /// Why it is not followed.
    pub error: Option<String>,
}

/// Something that a node tries in vain.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Failing {
    /// `the log takes no records`
    pub what: String,
    /// For how long.
    pub seconds: u64,
    pub error: String,
    /// The error of each sink or alert, by its name, where it is of those.
    #[serde(default)]
    pub errors: BTreeMap<String, String>,
}

/// A node that did not tell what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnaskedNode {
    pub address: String,
    pub reason: String,
}

/// A view that a node does not serve.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RefusedView {
    pub view: Arc<str>,
    pub version: u32,
    pub error: String,
}

/// The events that a view leaves out because it fails on them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct LeftOutEvents {
    pub failed: u64,
    /// The first of them, and why.
    pub first: String,
}

/// A service that does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreachable {
    pub service: BackingService,
    pub error: String,
}

/// A service that the processes of an installation share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackingService {
    Catalog,
    Storage,
    Log,
}

/// Returns all problems, the worst first.
pub fn problems(facts: &Facts) -> Vec<Problem> {
    let mut found = services::problems(facts);
    found.extend(log::problems(facts));
    found.extend(records::problems(facts));
    found.extend(progress::problems(facts));
    found.extend(runs::problems(facts));
    found.extend(views::problems(facts));
    found.extend(alerts::problems(facts));
    found.extend(files::problems(facts));
    found.sort_by_key(|problem| (problem.severity, problem.fault));
    found
}

#[cfg(test)]
mod tests;
