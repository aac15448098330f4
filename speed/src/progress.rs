//! Reports what a worker is doing.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use catalog::CatalogState;
use committed::registry::Registry;
use types::Result;
use types::outage::{Attempts, Outage};

use crate::damaged::DamagedStreams;
use crate::stalls::{Stall, Stalls};

/// What a worker is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// It reads the catalog and joins its group, for the first time or again.
    Starting,
    /// There is no stream to read.
    Idle,
    /// It has been a member of its group since then, and no partition was assigned to it yet.
    Joined { since: Instant },
    /// Partitions were assigned to it; it determines where each begins, and which ids were accepted.
    TakingOver { partitions: usize },
    /// It reads these partitions; there are none while others have all of them.
    Reading { partitions: usize },
}

/// What a worker is doing, and whether it can commit. Clones share it.
#[derive(Debug, Clone)]
pub struct WorkerProgress {
    activity: Arc<Mutex<Activity>>,
    commits: Attempts,
    stalls: Arc<Mutex<Stalls>>,
    damaged: Arc<Mutex<DamagedStreams>>,
}

impl Default for WorkerProgress {
    fn default() -> Self {
        let commits = Attempts::new("the speed layer cannot commit");
        Self { activity: Arc::new(Mutex::new(Activity::Starting)), commits, stalls: Arc::default(), damaged: Arc::default() }
    }
}

impl WorkerProgress {
    /// Returns what the worker is doing now.
    pub fn activity(&self) -> Activity {
        *self.lock()
    }

    /// Returns why the worker cannot commit, if it cannot.
    pub fn outage(&self) -> Option<Outage> {
        self.commits.outage()
    }

    /// Returns which streams the worker leaves out because a sink fails, and why, if it does.
    pub fn stalled(&self) -> Option<Outage> {
        self.lock_stalls().outage(Instant::now())
    }

    /// Returns which streams the worker leaves out because of a damaged archive file, and the file, if it does.
    pub fn damaged(&self) -> Option<Outage> {
        self.lock_damaged().outage(Instant::now())
    }

    /// Returns the sinks because of which it leaves a stream out, each with how long it has done so.
    pub fn stalls(&self) -> Vec<(Stall, Duration)> {
        let (stalls, now) = (self.lock_stalls(), Instant::now());
        stalls.current(now).into_iter().map(|(stall, since)| (stall.clone(), now.saturating_duration_since(since))).collect()
    }

    pub(crate) fn begin(&self, activity: Activity) {
        *self.lock() = activity;
    }

    /// Notes whether its work could be committed.
    pub(crate) fn note<T>(&self, outcome: &Result<T>) {
        self.commits.note(outcome);
    }

    /// Notes a sink that fails.
    pub(crate) fn stall(&self, stall: Stall) {
        self.lock_stalls().failed(stall, Instant::now());
    }

    /// Notes that events of a stream are committed.
    pub(crate) fn passed(&self, stream: &str) {
        self.lock_stalls().passed(stream);
    }

    /// Notes the sinks that cannot be planned.
    pub(crate) fn note_unplanned(&self, registry: &Registry) {
        self.lock_stalls().note_unplanned(registry, Instant::now());
    }

    /// Notes a damaged file that a stream needs.
    pub(crate) fn leave_out_damaged(&self, stream: Arc<str>, path: String, error: String) {
        self.lock_damaged().leave_out(stream, path, error, Instant::now());
    }

    /// Notes the files that are repaired.
    pub(crate) fn follow_repairs(&self, state: &CatalogState) {
        self.lock_damaged().follow_repairs(state);
    }

    /// Returns the streams that are not read at the moment.
    pub(crate) fn left_out(&self) -> BTreeSet<Arc<str>> {
        let mut left_out = self.lock_stalls().left_out(Instant::now());
        left_out.extend(self.lock_damaged().left_out().cloned());
        left_out
    }

    /// Whether a stream that failed is read again.
    pub(crate) fn is_trial(&self) -> bool {
        self.lock_stalls().is_trial(Instant::now())
    }

    fn lock_stalls(&self) -> MutexGuard<'_, Stalls> {
        self.stalls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_damaged(&self) -> MutexGuard<'_, DamagedStreams> {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
