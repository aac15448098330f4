//! What a worker is doing, for those who watch it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use types::Result;
use types::outage::{Attempts, Outage};

/// What a worker is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// It reads the catalog and joins its group, for the first time or again.
    Starting,
    /// There is no stream to read.
    Idle,
    /// It is a member of its group since then, and no partition was assigned to it yet.
    Joined { since: Instant },
    /// Partitions were assigned to it; it looks where each begins, and which ids were accepted.
    TakingOver { partitions: usize },
    /// It reads these partitions; there are none while others have all of them.
    Reading { partitions: usize },
}

/// What a worker is doing, and whether it can commit. Clones share it.
#[derive(Debug, Clone)]
pub struct Progress {
    activity: Arc<Mutex<Activity>>,
    commits: Attempts,
}

impl Default for Progress {
    fn default() -> Self {
        Self { activity: Arc::new(Mutex::new(Activity::Starting)), commits: Attempts::new("the speed layer cannot commit") }
    }
}

impl Progress {
    pub fn activity(&self) -> Activity {
        *self.lock()
    }

    /// Returns why the worker cannot commit, if it cannot.
    pub fn outage(&self) -> Option<Outage> {
        self.commits.outage()
    }

    pub(crate) fn begin(&self, activity: Activity) {
        *self.lock() = activity;
    }

    /// Takes note of whether its work could be committed.
    pub(crate) fn note<T>(&self, outcome: &Result<T>) {
        self.commits.note(outcome);
    }

    fn lock(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
