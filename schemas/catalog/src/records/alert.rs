//! Alerts: what began, was repeated and was resolved, and what is open.

use std::sync::Arc;

use types::TransitionKind;
use types::tiles::Micros;
use types::vector::Vector;

use super::Revision;

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
