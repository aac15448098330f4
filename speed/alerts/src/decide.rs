//! Decides what an alert's outbox commits, and what is left to put out: pure functions.

use catalog::{Add, AlertTransition, AlertVersion, Commit, Expect};
use types::tiles::Micros;
use types::vector::{Offset, Vector};
use uuid::Uuid;

/// The names of all leases of alerts begin with this.
pub const ALERT_LEASE: &str = "alert/";

/// The lease under which an alert is run.
pub fn alert_lease(alert: &str) -> String {
    format!("{ALERT_LEASE}{alert}")
}

/// The first transition that may not be in the topic. Those before `published` are there, according to the catalog, and
/// those before `taken`, according to the log.
pub fn first_left(published: i64, taken: Option<Offset>) -> i64 {
    taken.map_or(published, |next| next.0.max(published))
}

/// Adds transitions, whose sequence numbers are consecutive, with the position of the view's streams and the time that
/// they were made from. The commit is refused if another runner has added some first.
pub fn transitions_commit(id: Uuid, lease: Expect, alert: AlertVersion, made: &[AlertTransition], position: Vector, at: Micros) -> Commit {
    let AlertVersion { name: alert, version } = alert;
    let next = made.first().map(|first| Expect::AlertSequence { alert: alert.clone(), version, next: first.seq });
    let transitions = made.iter().map(|transition| Add::AlertTransition(Box::new(transition.clone())));
    let add = transitions.chain([Add::AlertPosition { alert: alert.clone(), version, position, at }]).collect();
    Commit { id, expect: [lease].into_iter().chain(next).collect(), add, ..Commit::default() }
}

/// Notes that the transitions before this one are in the topic.
pub fn published_commit(id: Uuid, lease: Expect, alert: AlertVersion, before: i64) -> Commit {
    let AlertVersion { name: alert, version } = alert;
    Commit { id, expect: vec![lease], add: vec![Add::AlertPublished { alert, version, before }], ..Commit::default() }
}

/// In how many commits, each of at most `most` rows, old transitions are removed if `added` were added since the last
/// time: enough to remove at least as many.
pub(crate) fn parts_to_forget(added: i64, most: u32) -> i64 {
    1 + added.max(0) / i64::from(most)
}

#[cfg(test)]
mod tests;
