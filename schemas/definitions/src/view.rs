//! `CREATE VIEW`: one SELECT, how its states are kept, and when its batch runs begin.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use types::Strategy;
use types::tiles::Level;

use crate::origin::Origin;
use crate::schedule::{Schedule, jitter};

/// `CREATE VIEW`: one plain SELECT, and how its states are kept.
#[derive(Debug, Clone, PartialEq)]
pub struct ViewDefinition {
    pub name: Arc<str>,
    /// The SELECT's text, and where it begins in the file (line and column, counted from 1).
    pub select: String,
    pub select_line: usize,
    pub select_column: usize,
    /// In the order written; empty means all time.
    pub windows: Vec<NamedWindow>,
    pub schedule: Option<Schedule>,
    /// A run begins at most this much later than it is due, so that many views do not begin at once.
    pub jitter: Option<Duration>,
    /// The most memory of one run (bytes), at most `batch.memory_limit`.
    pub memory_limit: Option<u64>,
    /// A run that takes longer fails.
    pub timeout: Option<Duration>,
    /// Overrides the hop of every window.
    pub precision: Option<Level>,
    /// How its batch runs make snapshots, if the definition says so.
    pub strategy: Option<Strategy>,
    /// An incremental view is recomputed from the archive this often.
    pub full_every: Option<Duration>,
    /// For a view over a JOIN: a walk samples the neighbours of a node that has more than this many.
    pub max_degree: Option<u32>,
    /// The most that a state of one key and column may hold, if it collects values. Absent: [`MAX_STATE_BYTES`].
    pub max_state_bytes: Option<u64>,
    pub on_error: OnError,
    /// How long the version that this one replaces is kept; zero: not at all.
    pub keep_old: Duration,
    /// The statement's text.
    pub sql: String,
    pub origin: Origin,
}

impl ViewDefinition {
    /// Whether this definition and another one mean the same: the same states, and the same answers from them. They may
    /// differ in when and how runs make snapshots, which changes neither.
    pub fn means_the_same(&self, other: &ViewDefinition) -> bool {
        // Every field is named, so that a new one has to be thought of here.
        let ViewDefinition {
            name,
            select,
            windows,
            precision,
            max_degree,
            max_state_bytes,
            on_error,
            schedule: _,
            jitter: _,
            memory_limit: _,
            timeout: _,
            strategy: _,
            full_every: _,
            keep_old: _,
            select_line: _,
            select_column: _,
            sql: _,
            origin: _,
        } = self;
        *name == other.name
            && *select == other.select
            && *windows == other.windows
            && *precision == other.precision
            && *max_degree == other.max_degree
            && *max_state_bytes == other.max_state_bytes
            && *on_error == other.on_error
    }

    /// Returns the newest due time in `(since, now]` whose run may begin at `now`: one run makes up for all missed
    /// ones. `None` without a schedule of due times.
    pub fn latest_due(&self, since: DateTime<Utc>, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let schedule = self.schedule.as_ref()?;
        let mut due = schedule.latest_due(since, now)?;
        while self.begins_at(due) > now {
            due = schedule.latest_due(since, due - TimeDelta::microseconds(1))?;
        }
        Some(due)
    }

    /// Returns when the run of a due time begins: `jitter` later at most, by a fixed function of the view's name and
    /// the due time.
    pub fn begins_at(&self, due: DateTime<Utc>) -> DateTime<Utc> {
        let later = self.jitter.map_or(Duration::ZERO, |longest| jitter(&self.name, due, longest));
        TimeDelta::from_std(later).ok().and_then(|later| due.checked_add_signed(later)).unwrap_or(due)
    }

    /// Returns when the next `count` runs after `after` begin, for display.
    pub fn upcoming(&self, after: DateTime<Utc>, count: usize) -> Vec<DateTime<Utc>> {
        let Some(schedule) = &self.schedule else { return Vec::new() };
        let jitter = self.jitter.and_then(|jitter| TimeDelta::from_std(jitter).ok()).unwrap_or_default();
        let since = after.checked_sub_signed(jitter).unwrap_or(after);
        schedule.due_after(since).map(|due| self.begins_at(due)).filter(|begins| *begins > after).take(count).collect()
    }
}

/// The default of `keep_old`: a day.
pub const KEEP_OLD: Duration = Duration::from_secs(24 * 60 * 60);

/// The default of `max_state_bytes`: 1 MiB.
pub const MAX_STATE_BYTES: u64 = 1 << 20;

/// What a view does with an event on which one of its expressions fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// The event is left out of the view, recorded and counted.
    #[default]
    Skip,
    /// The view is not answered until its definition is changed.
    Refuse,
}

/// A window with the text its user wrote, which names the columns: `7d` gives `txns_7d`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedWindow {
    pub text: String,
    pub length: Duration,
}
