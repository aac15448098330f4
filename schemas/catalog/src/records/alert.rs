//! Alerts: what began, was repeated and was resolved, and what is open.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use types::tiles::Micros;
use types::vector::Vector;
use types::{Error, Result, TransitionKind};

use super::Revision;

/// An alert and its version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AlertVersion {
    pub name: Arc<str>,
    pub version: u32,
}

/// One transition of one key, with the record that says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertTransition {
    pub alert: Arc<str>,
    pub version: u32,
    /// Consecutive in a version of an alert, from 0 on.
    pub seq: i64,
    /// Names what began: the same in the records of one begin.
    pub id: String,
    pub kind: TransitionKind,
    /// The key: a JSON object of the view's keys, in their order.
    pub keys: String,
    /// When the row began to satisfy the condition.
    pub since: Micros,
    pub at: Micros,
    /// The record, as JSON; `None` for what is noted and not put out.
    pub record: Option<String>,
    /// The record's key in the topic.
    pub record_key: Option<String>,
}

/// A transition, and the commit that added it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedTransition {
    pub revision: Revision,
    pub transition: AlertTransition,
}

impl CommittedTransition {
    /// Its place among the transitions of all alerts.
    pub fn place(&self) -> TransitionPlace {
        TransitionPlace { revision: self.revision, seq: self.transition.seq }
    }
}

/// A place in the order of the transitions of all alerts. One commit adds transitions of one version of an alert, so
/// that a revision and a sequence number are enough.
///
/// As text `571.12`: after the transition 12 of the commit 571; or `571`: after all of that commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransitionPlace {
    pub revision: Revision,
    /// The last sequence number, or `i64::MAX` for all of the commit.
    pub seq: i64,
}

impl TransitionPlace {
    const ALL: i64 = i64::MAX;

    /// After everything that was committed up to this revision.
    pub fn after(revision: Revision) -> TransitionPlace {
        TransitionPlace { revision, seq: Self::ALL }
    }

    /// Whether all transitions after this place are kept, where some of this revision and of earlier ones are not.
    pub fn is_kept(self, forgotten: Revision) -> bool {
        self >= TransitionPlace::after(forgotten)
    }
}

impl fmt::Display for TransitionPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.seq {
            Self::ALL => write!(f, "{}", self.revision),
            seq => write!(f, "{}.{seq}", self.revision),
        }
    }
}

impl FromStr for TransitionPlace {
    type Err = Error;

    fn from_str(text: &str) -> Result<TransitionPlace> {
        // No signs, which numbers of Rust may have.
        let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<i64>().ok()).flatten();
        let place = match text.split_once('.') {
            None => number(text).map(TransitionPlace::after),
            Some((revision, seq)) => number(revision).zip(number(seq)).map(|(revision, seq)| TransitionPlace { revision, seq }),
        };
        place.ok_or_else(|| Error::input(format!("'{text}' is not the id of an alert event: expected one like 571.12 or 571")))
    }
}

/// What the catalog has of the transitions after a place, as of one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransitionsAfter {
    /// The catalog's revision.
    pub revision: Revision,
    /// Of this revision and earlier ones some are not kept any more.
    pub forgotten: Revision,
    pub transitions: Vec<CommittedTransition>,
}

/// A key whose row satisfies an alert's condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenAlert {
    pub alert: Arc<str>,
    pub version: u32,
    pub keys: String,
    pub since: Micros,
    /// The time of its last record.
    pub last_put_out: Micros,
    /// The sequence number of its last transition.
    pub seq: i64,
    /// Its last record, as JSON.
    pub record: String,
}

/// A key that satisfies the condition of a version of an alert: what is needed to go on from there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenKey {
    pub keys: String,
    pub since: Micros,
    /// The time of its last record.
    pub last_put_out: Micros,
}

/// Says which open alert is meant, whether it is still open or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenAlertName {
    pub alert: String,
    pub version: u32,
    pub keys: String,
}

impl OpenAlertName {
    /// Returns the name of an open alert.
    pub fn new(open: &OpenAlert) -> OpenAlertName {
        OpenAlertName { alert: open.alert.to_string(), version: open.version, keys: open.keys.clone() }
    }
}

/// How many keys of a version of an alert are open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenAlertCount {
    pub alert: Arc<str>,
    pub version: u32,
    pub keys: i64,
}

/// How far a version of an alert is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertProgress {
    pub alert: Arc<str>,
    pub version: u32,
    /// The sequence number of the next transition.
    pub next_seq: i64,
    /// The first sequence number that may not be in the topic yet.
    pub published: i64,
    /// The position of the view's streams from which its last transitions were made. Whoever goes on begins no earlier.
    pub position: Vector,
    /// The time for which they were made.
    pub at: Micros,
}

/// What the process that runs an alert reports, whenever it renews its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertRunner {
    pub alert: Arc<str>,
    pub version: u32,
    pub owner: String,
    /// When the alert was last evaluated; `None` before the first time.
    pub evaluated_at: Option<Micros>,
    /// The time for which it was.
    pub at: Option<Micros>,
    /// Why it is not evaluated.
    pub waits: Option<String>,
}
