//! Alerts: a record when a key's row begins to satisfy a condition, while it still does, and when it ceases to.
//!
//! ```text
//! read view --keys that changed--+
//!                                +--> rows --WHERE--> transitions --commit--> catalog --once--> topic
//! clock ------keys that are due--+
//! ```
//!
//! What it promises:
//! - **One runner.** A version of an alert is run by one process, which holds a lease of the catalog. Another takes
//!   over when that process dies.
//! - **Once.** A transition is committed to the catalog with its record, under the lease and with the next sequence
//!   number; the log appends each number once ([`event_log::OutputAppender`]). So each record is in the topic once,
//!   whichever process dies, and no record contradicts an earlier one: a runner never continues from an earlier
//!   position.
//! - **Lag is not silence.** By the clock `wall`, an alert's time is the one before which every event of the log is
//!   counted. By the clock `event`, it is the newest event time of what was received before such a time.
//! - **No scan.** A round evaluates the keys that have new events, or whose links lead to them, and those that are due.
//!   All keys are evaluated once after a start, a takeover, or a new version of the view.
//!
//! The files:
//! - [`Alerts`] holds what a process needs; `live` starts a `runner` for each live alert.
//! - `evaluation` finds transitions, at the time of `event_clock`. Its timers are in [`engine::alerts::KeyWatch`].
//!   `log_ends` finds the partitions that this time waits for beside those that are committed.
//! - `record` writes records; `decide` decides what is committed and what is left to put out, and `outbox` does it.
//! - `lease` keeps the right to run alerts.
//! - `waiting` says why a runner does not evaluate its alert, `stalled` which alerts of the process are not evaluated.

mod decide;
mod evaluation;
mod event_clock;
mod lease;
mod live;
mod log_ends;
mod outbox;
mod record;
mod runner;
mod stalled;
mod waiting;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use event_log::Log;
use serving::Node;
use types::tiles::Clock;

pub use decide::{ALERT_LEASE, alert_lease, first_left, published_commit, transitions_commit};
pub use record::{ALERT_HEADER, alert_of};
pub use runner::NO_ROOM_FOR_INDEX;
pub use stalled::{ALERT_STALLED, StalledAlerts};

/// The value of [`Alerts::lease`] outside of tests.
pub const LEASE: Duration = Duration::from_secs(6);

/// What a process needs to run alerts. Cheap to clone.
#[derive(Clone)]
pub struct Alerts {
    /// It reads the fresh layers of the workers.
    pub node: Node,
    pub log: Arc<dyn Log>,
    /// The workers' consumer group.
    pub group: String,
    /// The partitions of a topic that is created because it does not exist.
    pub partitions: u32,
    /// Identifies this process in leases.
    pub owner: String,
    /// After this time another process may take over from one that died. One that sees that it is dead need not wait.
    pub lease: Duration,
    pub clock: Clock,
    /// Which alerts are not evaluated.
    pub stalled: StalledAlerts,
}

impl fmt::Debug for Alerts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alerts").field("group", &self.group).field("owner", &self.owner).finish_non_exhaustive()
    }
}
